"""A precision design of one's own: couplings that fade with the distance between places.

    python examples/new_design.py

A design turns a graph and node features into J. Everything else (solvers, gradients, layers, fields) then works.
"""

import torch
from torch import nn

import walksum as ws


class Distance(ws.Design):
    """J_ij = -exp(-d_ij / r), J_ii = 1 + sum_j |J_ij|, with the length r learned; x holds the coordinates."""

    reads_input = True  # x is the model's input, not an embedding

    def __init__(self):
        super().__init__("attractive")
        self.log_length = nn.Parameter(torch.zeros(()))

    def forward(self, graph, x=None, h=None):
        i, j = graph.edges
        distance = (x[i, :2] - x[j, :2]).norm(dim=1)
        off = self.sign * torch.exp(-distance / self.log_length.exp())
        diag = torch.ones(graph.num_nodes).index_add(0, i, off.abs()).index_add(0, j, off.abs())
        return ws.Precision(graph, diag, off)


torch.manual_seed(0)
places = torch.rand(200, 2)
edges = (torch.cdist(places, places) < 0.15).triu(1).nonzero().t()
graph = ws.Graph.from_edge_index(edges, 200)
target = torch.sin(6 * places[:, :1])
noisy = torch.cat([places, target + 0.5 * torch.randn(200, 1)], 1)

design = Distance()
print("walk-summable:", design(graph, places).is_walk_summable)
conv = ws.GLTConv(3, 1, design=design, act=None)
optimiser = torch.optim.Adam(conv.parameters(), 0.05)
for _ in range(200):
    optimiser.zero_grad()
    loss = (conv(noisy, graph)[:100] - target[:100]).square().mean()
    loss.backward()
    optimiser.step()
error = (conv(noisy, graph) - target)[100:].square().mean().sqrt()
raw = (noisy[:, 2:] - target)[100:].square().mean().sqrt()
print(f"error {error:.2f} on places never trained on (raw {raw:.2f}); length {design.log_length.exp():.3f}")
