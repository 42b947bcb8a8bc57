"""Products of sparse symmetric matrices, M S M, whose pattern reaches two hops."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from walksum.designs.base import degree_sum
from walksum.graph import Graph
from walksum.precision import Precision

MOST_PATHS = 200_000_000  # pairs of neighbours of one node, over all nodes; a hub of degree d has d^2 / 2


class TwoHop:
    """The graph whose edges join nodes at one or two hops, and the paths of two edges that lead to each of them.

    Attributes:
        graph: that graph.
        direct: ``[E]``, for every edge of the given graph its number there.
        first, second, middle: ``[P]``, the two edges of a path and the node between them.
        target: ``[P]``, the edge that the path's ends have in ``graph``.
    """

    def __init__(self, graph: Graph):
        degree = graph.degree
        paths = int((degree * (degree - 1) // 2).sum())
        if paths > MOST_PATHS:
            raise ValueError(
                f"{graph} has {paths} pairs of neighbours of one node (largest degree {int(degree.max())}), too many "
                "for a matrix that reaches two hops; use a one-hop design such as CAR or Leroux"
            )
        n, csr = graph.num_nodes, graph.to("cpu").csr
        first_slot, second_slot = _pairs(csr.indptr.numpy())
        device = graph.device

        def at(values: Tensor, slots: np.ndarray) -> Tensor:
            return values[torch.from_numpy(slots)].long().to(device)

        self.first, self.second = at(csr.edge, first_slot), at(csr.edge, second_slot)
        self.middle = at(csr.row, first_slot)
        i, j = at(csr.indices, first_slot), at(csr.indices, second_slot)  # ascending within a row: i < j
        own = graph.edges[0] * n + graph.edges[1]
        key = i * n + j
        union = torch.unique(torch.cat([own, key]))
        self.graph = Graph(torch.stack([union // max(n, 1), union % max(n, 1)]), n)
        self.direct, self.target = torch.searchsorted(union, own), torch.searchsorted(union, key)


def _pairs(indptr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of slots p < q of one row."""
    end = np.repeat(indptr[1:], np.diff(indptr))
    slot = np.arange(len(end))
    after = end - slot - 1  # partners that follow in the same row
    first = np.repeat(slot, after)
    start = np.repeat(np.cumsum(after) - after, after)
    return first, first + 1 + np.arange(len(first)) - start


def two_hop(graph: Graph) -> TwoHop:
    """Made once per graph."""
    return graph.derived(TwoHop)


def sandwich(graph: Graph, diag: Tensor, off: Tensor, middle: Tensor) -> Precision:
    r"""``M S M`` for symmetric M (``diag [H, N]``, ``off [H, E]``) and diagonal S (``middle [H, N]``, non-negative).

    .. math:: (M S M)_{ij} = \sum_k M_{ik} S_{kk} M_{kj}

    on the two-hop graph. Positive semi-definite by construction, differentiable in all three.
    """
    reach, (i, j) = two_hop(graph), graph.edges
    heads = torch.broadcast_shapes(diag.shape[:1], off.shape[:1], middle.shape[:1])[0]
    diag, off, middle = (t.expand(heads, -1) for t in (diag, off, middle))
    own = middle * diag
    square = off.square()
    around = torch.zeros_like(diag).index_add(1, i, square * middle[:, j]).index_add(1, j, square * middle[:, i])
    through = off[:, reach.first] * middle[:, reach.middle] * off[:, reach.second]
    product = off.new_zeros(heads, reach.graph.num_edges).index_add(1, reach.target, through)
    product = product.index_add(1, reach.direct, off * (own[:, i] + own[:, j]))
    return Precision(reach.graph, own * diag + around, product)


def laplacian(graph: Graph, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Degrees ``[1, N]`` and couplings ``[1, E]`` of D - A."""
    strength = weight.unsqueeze(0)
    return degree_sum(graph, strength), -strength
