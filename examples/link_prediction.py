"""Predict missing citations of Cora, and see what an encoder for links wants.

    WALKSUM_DATA=... python examples/link_prediction.py [seeds] [out.jsonl]

A link is scored by the inner product of two embeddings. Mixing strengthens what all nodes share by 1 / (1 - s) and
leaves what tells them apart nearly as it was, so stacked layers with ReLU between them make embeddings alike, and their
inner products say little. One linear map and one propagation keep what tells nodes apart. Every encoder has the same
splits, width, epochs and learning rates; epoch and rate are chosen on validation links, test links are looked at once.
"""

import json
import sys
import time
from pathlib import Path

import torch
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch_geometric.nn import GCNConv
from torch_geometric.transforms import RandomLinkSplit
from torch_geometric.utils import negative_sampling

import walksum as ws
from walksum.data import load

EPOCHS, RATES = 50, (0.01, 0.003)
data = load("cora")


class TwoLayers(nn.Module):
    def __init__(self, layer, norm=False):
        super().__init__()
        self.layers = nn.ModuleList([layer(data.num_features, 64), layer(64, 64)])
        self.norms = nn.ModuleList(nn.BatchNorm1d(64, affine=False) if norm else nn.Identity() for _ in range(2))

    def forward(self, x, edge_index):
        z = self.norms[0](self.layers[0](x, edge_index)).relu()
        return self.norms[1](self.layers[1](z, edge_index))


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.map, self.mix = nn.Linear(data.num_features, 64), ws.Propagate(0.5, loops=True)

    def forward(self, x, edge_index):
        return self.mix(self.map(x), edge_index)


ENCODERS = {
    "two GCN layers": lambda: TwoLayers(GCNConv),
    "one GCN layer": lambda: GCNConv(data.num_features, 64),
    "two GLT layers with norm": lambda: TwoLayers(lambda a, b: ws.GLTConv(a, b, learned=False), norm=True),
    "linear, Propagate(0.5)": Linear,
}


def score(z, links):
    return (z[links[0]] * z[links[1]]).sum(1)


def auc(net, part):
    with torch.no_grad():
        return roc_auc_score(part.edge_label, score(net.eval()(part.x, part.edge_index), part.edge_label_index))


def train_one(net, rate, train, val, test):
    """The best validation AUC, and the test AUC of that epoch."""
    optimiser, found = torch.optim.Adam(net.parameters(), rate), []
    for epoch in range(EPOCHS):
        z, known = net.train()(train.x, train.edge_index), train.edge_label_index
        links = torch.cat([known, negative_sampling(train.edge_index, len(z), known.size(1))], 1)
        truth = (torch.arange(links.size(1)) < known.size(1)).float()
        optimiser.zero_grad()
        binary_cross_entropy_with_logits(score(z, links), truth).backward()
        optimiser.step()
        if epoch % 5 == 4:
            found.append((auc(net, val), auc(net, test), epoch + 1))
    return max(found)


def main(seeds=1, out=None):
    split = RandomLinkSplit(0.05, 0.1, is_undirected=True, add_negative_train_samples=False)
    records = []
    for seed in range(seeds):
        torch.manual_seed(seed)
        parts = split(data)
        for name, encoder in ENCODERS.items():
            start, tried = time.process_time(), []
            for rate in RATES:
                torch.manual_seed(seed)
                tried.append((*train_one(encoder(), rate, *parts), rate))
            val, test, epoch, rate = max(tried)
            record = {"encoder": name, "seed": seed, "validation": val, "test": test, "epoch": epoch, "lr": rate}
            records.append({**record, "cpu_seconds": round(time.process_time() - start, 1)})
            print(f"seed {seed}, {name}: validation AUC {val:.3f}, test AUC {test:.3f}", flush=True)
            if out is not None:
                out.parent.mkdir(parents=True, exist_ok=True)
                out.write_text("".join(json.dumps(each) + "\n" for each in records))
    for name in ENCODERS:
        found = torch.tensor([each["test"] for each in records if each["encoder"] == name])
        print(f"{name}: test AUC {found.mean():.3f} over {len(found)} splits")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1, Path(sys.argv[2]) if len(sys.argv) > 2 else None)
