"""Similarity of the two ends of every edge, without an E x F temporary where the formula allows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from walksum._checks import check_choice
from walksum.designs.base import LARGEST, clipped
from walksum.designs.edge_formulas import cosine_of_ends, gaussian_of_ends
from walksum.graph import Graph
from walksum.ops import edge_dot

Function = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Similarity:
    """A symmetric function of the ends of an edge: ``(graph, s [H, N, F]) -> [H, E]``.

    ``bounded``: values lie in [-1, 1]. ``positive``: values are never negative.
    """

    compute: Callable[[Graph, Tensor], Tensor]
    bounded: bool = False
    positive: bool = False

    def unit(self, graph: Graph, s: Tensor) -> Tensor:
        """Values in [-1, 1], squashed by tanh where the function itself is not bounded."""
        value = self.compute(graph, s)
        return value if self.bounded else torch.tanh(value)

    def strength(self, graph: Graph, s: Tensor) -> Tensor:
        """Non-negative values, by softplus where the function itself can be negative."""
        value = self.compute(graph, s)
        return value if self.positive else torch.nn.functional.softplus(value)

    def finite(self, graph: Graph, s: Tensor) -> Tensor:
        value = self.compute(graph, s)
        return value if self.bounded else value.clamp(-LARGEST, LARGEST)


def cosine(graph: Graph, s: Tensor) -> Tensor:
    """Cosine of the angle between the ends; 0 for a zero vector."""
    return cosine_of_ends(graph, s)


def gaussian(graph: Graph, s: Tensor) -> Tensor:
    """``exp(-|s_i - s_j|^2 / 2)``."""
    return gaussian_of_ends(graph, clipped(s))


def dot(graph: Graph, s: Tensor) -> Tensor:
    """Inner product of the ends over the square root of their length, as in attention."""
    s = clipped(s)
    return edge_dot(graph, s, s) / (2 * s.size(-1) ** 0.5)


def pairwise(function: Function) -> Callable[[Graph, Tensor], Tensor]:
    """Any ``f(s_i [H, E, F], s_j [H, E, F]) -> [H, E]``, symmetrised as (f(i, j) + f(j, i)) / 2."""

    def compute(graph: Graph, s: Tensor) -> Tensor:
        i, j = graph.edges
        value = (function(s[:, i], s[:, j]) + function(s[:, j], s[:, i])) / 2
        if value.shape != (s.size(0), graph.num_edges):
            raise ValueError(
                f"similarity returned shape {tuple(value.shape)}; for ends of shape {tuple(s[:, i].shape)} it must "
                f"return one value per edge, [{s.size(0)}, {graph.num_edges}]"
            )
        return value.clamp(-LARGEST, LARGEST)

    return compute


SIMILARITIES = {
    "cosine": Similarity(cosine, bounded=True),
    "gaussian": Similarity(gaussian, bounded=True, positive=True),
    "dot": Similarity(dot),
}


def make_similarity(similarity: str | Function | Similarity) -> Similarity:
    if isinstance(similarity, Similarity):
        return similarity
    if callable(similarity):
        return Similarity(pairwise(similarity))
    check_choice("similarity", similarity, SIMILARITIES, "or a function of the two ends of an edge")
    return SIMILARITIES[similarity]
