"""Two precision matrices on the union of their patterns."""

from __future__ import annotations

import torch
from torch import Tensor

from walksum.graph import Graph
from walksum.precision import Precision


def on_shared_pattern(J: Precision, K: Precision) -> tuple[Precision, Precision]:
    """The same matrices on one graph, which has the edges of both."""
    if torch.equal(J.graph.edges, K.graph.edges):
        return J, Precision(J.graph, K.diag, K.off)
    n = J.num_nodes
    keys = [J.graph.edges[0] * n + J.graph.edges[1], K.graph.edges[0] * n + K.graph.edges[1]]
    union = torch.unique(torch.cat(keys))
    graph = Graph(torch.stack([union // n, union % n]), n)
    return _onto(graph, J, torch.searchsorted(union, keys[0])), _onto(graph, K, torch.searchsorted(union, keys[1]))


def _onto(graph: Graph, J: Precision, place: Tensor) -> Precision:
    off = J.off.new_zeros(J.heads, graph.num_edges).index_copy(1, place, J.off)
    return Precision(graph, J.diag, off)
