"""The part of a precision matrix that belongs to some of its nodes, and two matrices on the union of their patterns."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor

from walksum._torch import outside_transforms, unwrapped
from walksum.graph import Graph
from walksum.precision import Precision

KEPT = 8  # parts a graph remembers, so that a fit eliminates each of them in one order


class Part:
    """The graph among ``nodes``, and which edges of the whole it has."""

    def __init__(self, graph: Graph, nodes: Tensor):
        self.nodes = nodes
        number = torch.full((graph.num_nodes,), -1, dtype=torch.int64, device=graph.device)
        number[nodes] = torch.arange(nodes.numel(), device=graph.device)
        ends = number[graph.edges]
        self.edges = (ends >= 0).all(0).nonzero().squeeze(1)
        # nodes ascend, so the edges stay in order
        self.graph = Graph(ends[:, self.edges], nodes.numel())

    def within(self, whole: Part) -> Part:
        """This part of another part, in numbers of the whole graph."""
        part = object.__new__(Part)
        part.nodes, part.graph, part.edges = whole.nodes[self.nodes], self.graph, whole.edges[self.edges]
        return part

    def of(self, J: Precision) -> Precision:
        return Precision(self.graph, J.diag.index_select(1, self.nodes), J.off.index_select(1, self.edges))


def part_of(graph: Graph, nodes: Tensor) -> Part:
    """The part of ascending ``nodes``; asked for again, the same object."""
    plain = unwrapped(nodes)
    return outside_transforms(_known_part, graph, nodes if plain is None else plain)


def _known_part(graph: Graph, nodes: Tensor) -> Part:
    known: OrderedDict[bytes, Part] = graph.derived(_parts)
    key = nodes.cpu().numpy().tobytes()
    if key not in known:
        known[key] = Part(graph, nodes)
        while len(known) > KEPT:
            known.popitem(last=False)
    return known[key]


def _parts(graph: Graph) -> OrderedDict[bytes, Part]:
    return OrderedDict()


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
