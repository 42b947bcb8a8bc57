"""Predict missing citations of Cora, and see why a stack of mixing layers wants a norm between them.

    WALKSUM_DATA=... python examples/link_prediction.py

Mixing strengthens what all nodes share by 1 / (1 - s) and leaves what tells them apart nearly as it was. After two
layers all embeddings point the same way, and the inner product of two of them says little about a link. A batch norm
takes out what all share. The epoch is chosen on validation links; test links are looked at once.
"""

import torch
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, normalize
from torch_geometric.nn import GCNConv
from torch_geometric.transforms import RandomLinkSplit
from torch_geometric.utils import negative_sampling

import walksum as ws
from walksum.data import load

torch.manual_seed(0)
split = RandomLinkSplit(0.05, 0.1, is_undirected=True, add_negative_train_samples=False)
train, val, test = split(load("cora"))


class Net(nn.Module):
    def __init__(self, layer, norm):
        super().__init__()
        self.layers = nn.ModuleList([layer(train.num_features, 64), layer(64, 64)])
        self.norms = nn.ModuleList(nn.BatchNorm1d(64, affine=False) if norm else nn.Identity() for _ in range(2))

    def forward(self, data):
        z = self.norms[0](self.layers[0](data.x, data.edge_index)).relu()
        return self.norms[1](self.layers[1](z, data.edge_index))


def score(z, links):
    return (z[links[0]] * z[links[1]]).sum(1)


def auc(net, data):
    with torch.no_grad():
        return roc_auc_score(data.edge_label, score(net.eval()(data), data.edge_label_index))


for name, layer in {"GCNConv": GCNConv, "GLTConv": lambda a, b: ws.GLTConv(a, b, learned=False)}.items():
    for norm in (False, True):
        torch.manual_seed(1)
        net, found = Net(layer, norm), []
        optimiser = torch.optim.Adam(net.parameters(), 0.01)
        for _ in range(40):
            z, known = net.train()(train), train.edge_label_index
            links = torch.cat([known, negative_sampling(train.edge_index, len(z), known.size(1))], 1)
            truth = (torch.arange(links.size(1)) < known.size(1)).float()
            optimiser.zero_grad()
            binary_cross_entropy_with_logits(score(z, links), truth).backward()
            optimiser.step()
            found.append((auc(net, val), auc(net, test)))
        shared = normalize(z.detach()).mean(0).square().sum()  # the mean cosine of two nodes
        print(f"{name}, norm {norm}: test AUC {max(found)[1]:.3f}, mean cosine of two nodes {shared:.2f}")
