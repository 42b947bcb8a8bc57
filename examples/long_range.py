"""Tell the last node of a chain what the first one says, 1,000 edges away, with one layer.

    python examples/long_range.py [length]

Chains whose first node carries the class; the class must be read at the last node. The features of all other nodes are
zero. ``Propagate(reach=...)`` lets influence fall to 1/e after that many edges; ten layers of GCN hear ten edges far.
"""

import sys
import time

import torch
from torch import nn
from torch_geometric.nn import GCNConv

import walksum as ws

length = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
chains = 20
torch.manual_seed(0)
y = torch.arange(chains) % 2
first = torch.arange(chains) * length
last = first + length - 1
x = torch.zeros(chains * length, 2)
x[first, y] = 1
inner = torch.ones(chains * length, dtype=torch.bool).index_fill(0, last, False).nonzero().view(-1)
one_way = torch.stack([inner, inner + 1])
edge_index = torch.cat([one_way, one_way.flip(0)], 1)
test = torch.arange(chains) >= chains // 2  # half of the chains are never trained on


class GLT(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.norm, self.read = ws.Propagate(reach=length), nn.LayerNorm(2), nn.Linear(2, 2)

    def forward(self, x, edge_index):
        z = self.mix(x, edge_index)
        return self.read(self.norm(z / z.abs().amax(-1, keepdim=True).clamp_min(1e-30)))


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.read = nn.ModuleList(GCNConv(2 if k == 0 else 16, 16) for k in range(10)), nn.Linear(16, 2)

    def forward(self, x, edge_index):
        for layer in self.layers:
            x = layer(x, edge_index).relu()
        return self.read(x)


for net in (GLT(), GCN()):
    optimiser, start = torch.optim.Adam(net.parameters(), 0.05), time.perf_counter()
    for _ in range(20):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x, edge_index)[last][~test], y[~test]).backward()
        optimiser.step()
    correct = (net(x, edge_index)[last].argmax(1) == y)[test].float().mean()
    print(f"{type(net).__name__}: {correct:.0%} of new chains of {length} nodes, {time.perf_counter() - start:.1f} s")
