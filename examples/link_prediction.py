"""Predict missing citations of Cora (WALKSUM_DATA=... python examples/link_prediction.py).

Stacked mixing layers make embeddings alike; one linear map and one propagation keep what tells nodes apart."""

from functools import partial

import torch
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as loss
from torch_geometric.nn import GCNConv, Linear, Sequential
from torch_geometric.transforms import RandomLinkSplit
from torch_geometric.utils import negative_sampling

import walksum as ws
from walksum.data import load

data, split = load("cora"), RandomLinkSplit(0.05, 0.1, is_undirected=True, add_negative_train_samples=False)
F, takes, edges = data.num_features, "x, edge_index", "x, edge_index -> x"
mix, plain = ws.Propagate(0.8, loops=True), partial(Linear, bias=False, weight_initializer="glorot")


def two_layers(layer, norm, **options):
    first, last = layer(F, 64, **options), layer(64, 64, **options)
    return Sequential(takes, [(first, edges), norm(64), nn.ReLU(), (last, edges), norm(64)])


ENCODERS = {
    "two GCN layers": lambda: two_layers(GCNConv, nn.Identity),
    "one GCN layer": lambda: GCNConv(F, 64),
    "two GLT layers with norm": lambda: two_layers(ws.GLTConv, partial(nn.BatchNorm1d, affine=False), learned=False),
    "linear, Propagate(0.8)": lambda: Sequential(takes, [(plain(F, 64), "x -> x"), (mix, edges)]),
}


def auc(net, part):
    with torch.no_grad():
        z, (i, j) = net.eval()(part.x, part.edge_index), part.edge_label_index
        return roc_auc_score(part.edge_label, (z[i] * z[j]).sum(1))


def train_one(net, train, val, test, rate=0.01, epochs=50):
    """The best epoch by validation links: AUC on them, AUC on test links, number."""
    optimiser, known, found = torch.optim.Adam(net.parameters(), rate), train.edge_label_index, []
    for epoch in range(1, epochs + 1):
        z = net.train()(train.x, train.edge_index)
        i, j = torch.cat([known, negative_sampling(train.edge_index, len(z), known.size(1))], 1)
        optimiser.zero_grad()
        loss((z[i] * z[j]).sum(1), (torch.arange(len(i)) < known.size(1)).float()).backward()
        optimiser.step()
        if epoch % 5 == 0:
            found.append((auc(net, val), auc(net, test), epoch))
    return max(found)


if __name__ == "__main__":
    torch.manual_seed(0)
    parts = split(data)
    for name, encoder in ENCODERS.items():
        print(f"{name}: test AUC {train_one(encoder(), *parts)[1]:.3f}")
