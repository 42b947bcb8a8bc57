"""The contestants of the long-range bench; a layer of message passing is given to them for each hop, up to a cap."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv

from walksum._checks import check_choice
from walksum.nn import GLT, PredictThenPropagate, Propagate
from walksum.paper.longrange.ignn import IGNN
from walksum.paper.models.propagation import APPNP, GCNII
from walksum.paper.models.structure import PerGraph, gcn_edges, with_loops

WIDTH = 32
CAP = 32  # layers of message passing at most


class OneLayer(nn.Module):
    """One :class:`walksum.Propagate` without weights, each node's row divided by its largest entry, a linear read-out.

    What arrives is small, as one node's features are spread over many; only its direction says the class.
    """

    def __init__(self, in_channels: int, out_channels: int, reach: float):
        super().__init__()
        self.mix, self.read = Propagate(reach=reach), nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        z = self.mix(x, edge_index)
        return self.read(z / z.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(z.dtype).tiny))


class Stack(nn.Module):
    """GCN or GAT of any depth: layers with ReLU between them, a linear read-out."""

    def __init__(self, kind: str, in_channels: int, out_channels: int, num_layers: int):
        super().__init__()
        widths = [in_channels] + [WIDTH] * num_layers
        pairs = pairwise(widths)
        if kind == "gcn":
            self.layers = nn.ModuleList(GCNConv(a, b, normalize=False) for a, b in pairs)
            self.edges: PerGraph[tuple[Tensor, ...]] = PerGraph(gcn_edges)
        else:
            self.layers = nn.ModuleList(GATConv(a, b // 4, 4, add_self_loops=False) for a, b in pairs)
            self.edges = PerGraph(_looped)
        self.read = nn.Linear(WIDTH, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        edges = self.edges(edge_index, x)
        for layer in self.layers:
            x = layer(x, *edges).relu()
        return self.read(x)


def _looped(edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> tuple[Tensor]:
    return (with_loops(edge_index, num_nodes, dtype),)


Make = Callable[[int, int, int], nn.Module]  # in_channels, out_channels, hops or layers

OURS: dict[str, Make] = {
    "Propagate(reach)": OneLayer,
    "PredictThenPropagate": lambda a, b, hops: PredictThenPropagate(a, WIDTH, b, dropout=0.0),
    "GLT(reach)": lambda a, b, hops: GLT(a, WIDTH, 1, b, learned=False, reach=hops, dropout=0.0),
    "GLT": lambda a, b, hops: GLT(a, WIDTH, 2, b, dropout=0.0),
}
IMPLICIT: dict[str, Make] = {"IGNN": lambda a, b, hops: IGNN(a, b, WIDTH)}
MESSAGE_PASSING: dict[str, Make] = {
    "GCN": lambda a, b, layers: Stack("gcn", a, b, layers),
    "GAT": lambda a, b, layers: Stack("gat", a, b, layers),
    "APPNP": lambda a, b, layers: APPNP(a, b, hidden_channels=WIDTH, dropout=0.0, steps=layers),
    "GCNII": lambda a, b, layers: GCNII(a, b, hidden_channels=WIDTH, dropout=0.0, num_layers=layers),
}
MODELS = {**OURS, **IMPLICIT, **MESSAGE_PASSING}


def make_model(name: str, in_channels: int, out_channels: int, hops: int) -> nn.Module:
    """A contestant; message passing gets one layer for each hop up to ``CAP``, ``reach`` is the number of hops."""
    check_choice("model", name, tuple(MODELS))
    return MODELS[name](in_channels, out_channels, min(hops, CAP) if name in MESSAGE_PASSING else hops)
