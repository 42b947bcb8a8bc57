"""Put GLTConv where GCNConv stands: two-layer node classification, and what one layer lets you look at.

    python examples/pyg_layer.py

A synthetic citation network: three groups, noisy features, edges mostly within a group.
"""

import torch
from torch import nn
from torch_geometric.nn import GCNConv
from torch_geometric.utils import stochastic_blockmodel_graph

import walksum as ws

torch.manual_seed(0)
n, classes = 300, 3
y = torch.arange(classes).repeat_interleave(n)
chances = 0.002 + 0.013 * torch.eye(classes)
edge_index = stochastic_blockmodel_graph([n] * classes, chances)
x = torch.randn(len(y), 16) + 0.7 * nn.functional.one_hot(y, 16)
train = torch.cat([torch.arange(k * n, k * n + 20) for k in range(classes)])
test = torch.ones(len(y), dtype=torch.bool).index_fill(0, train, False)


class Net(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.first, self.norm, self.last = layer(-1, 32), nn.BatchNorm1d(32), layer(-1, classes)

    def forward(self, x, edge_index):
        return self.last(self.norm(self.first(x, edge_index)).relu(), edge_index)


layers = {
    "GCNConv": GCNConv,
    "GLTConv, fixed": lambda a, b: ws.GLTConv(a, b, learned=False, scale=0.8),
    "GLTConv, learned": ws.GLTConv,
}
for name, layer in layers.items():
    torch.manual_seed(1)
    net = Net(layer)
    net(x, edge_index)  # the first input tells the widths
    optimiser = torch.optim.Adam(net.parameters(), 0.01, weight_decay=5e-3)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x, edge_index)[train], y[train]).backward()
        optimiser.step()
    correct = (net(x, edge_index).argmax(1) == y)[test].float().mean()
    print(f"{name}: {correct:.1%} of the other nodes")

_, (_, alpha) = net.first(x, edge_index, return_attention_weights=True)
within = y[edge_index[0]] == y[edge_index[1]]
print(f"mean coupling within groups {alpha[within].mean():.3f}, between groups {alpha[~within].mean():.3f}")
print(net.first.last_solve)
