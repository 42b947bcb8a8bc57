"""Classify whole graphs in mini-batches: are the two marked nodes in the same part of the graph?

    python examples/graph_classification.py

Each graph is two rings of 12 nodes with two more edges, between the rings or within them. One node of each is marked,
with 1 and with -1: what nodes hear of both cancels where the rings are joined, which one must hear far to know.
"""

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

import walksum as ws

SIZE = 12


def make_graph(joined: bool) -> Data:
    ring = torch.stack([torch.arange(SIZE), torch.arange(SIZE).roll(-1)])
    a, b, c, d = torch.randperm(SIZE)[:4] + torch.tensor([0, 0, SIZE, SIZE])
    more = [[a, b], [c, d]] if joined else [[a, c], [b, d]]  # rows of an edge_index
    edges = torch.cat([ring, ring + SIZE, torch.tensor(more)], 1)
    x = torch.tensor([0.0, 1.0]).repeat(2 * SIZE, 1)
    x[torch.randint(SIZE, ()), 0], x[torch.randint(SIZE, ()) + SIZE, 0] = 1, -1
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1), y=torch.tensor([int(joined)]))


class Net(nn.Module):
    def __init__(self, layer, depth):
        super().__init__()
        self.layers = nn.ModuleList(layer(16 if k else 2, 16) for k in range(depth))
        self.norms = nn.ModuleList(nn.BatchNorm1d(16) for _ in range(depth))
        self.read = nn.Sequential(nn.BatchNorm1d(32), nn.Linear(32, 2))

    def forward(self, batch):
        z = batch.x
        for layer, norm in zip(self.layers, self.norms, strict=True):
            z = norm(layer(z.tanh(), batch.edge_index))
        return self.read(torch.cat([global_mean_pool(z, batch.batch), global_mean_pool(z.square(), batch.batch)], 1))


torch.manual_seed(0)
train, test = ([make_graph(bool(k % 2)) for k in range(count)] for count in (400, 200))
nets = {
    **{f"GCN, {depth} layers": lambda depth=depth: Net(GCNConv, depth) for depth in (2, 12)},
    "GLT, 2 layers": lambda: Net(lambda a, b: ws.GLTConv(a, b, learned=False, reach=SIZE, act=None), 2),
}
for name, make in nets.items():
    torch.manual_seed(1)
    net = make()
    optimiser = torch.optim.Adam(net.parameters(), 0.01)
    for _ in range(10):
        for batch in DataLoader(train, batch_size=50, shuffle=True):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(batch), batch.y).backward()
            optimiser.step()
    (batch,) = DataLoader(test, batch_size=len(test))
    print(f"{name}: {(net.eval()(batch).argmax(1) == batch.y).float().mean():.1%} of 200 new graphs")
