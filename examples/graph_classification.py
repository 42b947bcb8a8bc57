"""Classify whole graphs in mini-batches: are the two marked nodes in the same part of the graph?

    python examples/graph_classification.py [seed [depths of GCN ...]]

Each graph is two rings of 32 nodes with two more edges, between the rings or within them. One node of each ring is
marked, with 1 and with -1, at least 13 hops from these edges: twelve layers of one hop each can only guess.
"""

import sys

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

import walksum as ws

SIZE, FAR = 32, 13


def make_graph(joined: bool) -> Data:
    ring = torch.stack([torch.arange(SIZE), torch.arange(SIZE).roll(-1)])
    near, other = 0, int(torch.randint(2, 5, ()))  # the ends of the two more edges, in both rings
    ends = [[near, other], [near + SIZE, other + SIZE]] if joined else [[near, near + SIZE], [other, other + SIZE]]
    edges = torch.cat([ring, ring + SIZE, torch.tensor(ends)], 1)
    x = torch.tensor([0.0, 1.0]).repeat(2 * SIZE, 1)
    for first, mark in ((0, 1.0), (SIZE, -1.0)):
        x[first + int(torch.randint(other + FAR, SIZE - FAR + 1, ())), 0] = mark
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1), y=torch.tensor([int(joined)]))


class Net(torch.nn.Module):
    def __init__(self, layer, depth):
        super().__init__()
        self.layers = torch.nn.ModuleList(layer(16 if k else 2, 16) for k in range(depth))
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm1d(16) for _ in range(depth))
        self.read = torch.nn.Sequential(torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 2))

    def forward(self, batch):
        z = batch.x
        for layer, norm in zip(self.layers, self.norms, strict=True):
            z = norm(layer(z.tanh(), batch.edge_index))
        return self.read(torch.cat([global_mean_pool(z, batch.batch), global_mean_pool(z.square(), batch.batch)], 1))


seed, *depths = map(int, sys.argv[1:] or ["0"])
torch.manual_seed(seed)
train, test = ([make_graph(bool(k % 2)) for k in range(count)] for count in (200, 200))
glt = lambda a, b: ws.GLTConv(a, b, learned=False, reach=SIZE, act=None)  # noqa: E731
for name, layer, depth in (*(("GCN", GCNConv, k) for k in depths or (2, 12)), ("GLT", glt, 2)):
    torch.manual_seed(seed)
    net = Net(layer, depth)
    optimiser = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(15):
        for batch in DataLoader(train, batch_size=25, shuffle=True):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(net(batch), batch.y).backward()
            optimiser.step()
    (batch,) = DataLoader(test, batch_size=len(test))
    print(f"{name}, {depth} layers: {(net.eval()(batch).argmax(1) == batch.y).float().mean():.1%} of 200 new graphs")
