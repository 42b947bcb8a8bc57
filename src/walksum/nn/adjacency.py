"""J = I -+ s D^-1/2 (A + loops) D^-1/2, the matrix of :class:`walksum.Propagate`."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from walksum._torch import needs_grad
from walksum.designs import Design
from walksum.designs.base import degree_sum, ends, refuse_negative_weights
from walksum.graph import Graph
from walksum.precision import Precision

LARGEST_LEARNED = 1 - 1e-6  # scale that a learned one can reach: J is singular at 1


class Adjacency(Design):
    """The matrix as a design, for an operator that is told its design by a text.

    Args:
        scale: s, in (0, 1); of a learned one where it starts.
        coupling: "attractive" (the minus sign) or "repulsive".
        loops: add a loop to each node before normalising.
        learned: make s a parameter.
    """

    def __init__(self, scale: float, coupling: str, loops: bool, learned: bool = False):
        super().__init__(coupling)
        self.scale, self.loops, self.learned = scale, loops, learned
        self.logit = nn.Parameter(torch.tensor(logit_of(scale))) if learned else None

    def forward(self, graph: Graph, x: Tensor | None = None, h: Tensor | None = None) -> Precision:
        dtype = torch.get_default_dtype() if h is None else h.dtype
        return adjacency_precision(graph, scale_of(self.scale, self.logit), self.sign, self.loops, dtype)


def logit_of(scale: float) -> float:
    return math.log(scale / (1 - scale))


def scale_of(start: float, logit: Tensor | None) -> float | Tensor:
    """s: a number, or the learned tensor; it stays a little below 1, where J would be singular."""
    return start if logit is None else logit.sigmoid().clamp(1 - LARGEST_LEARNED, LARGEST_LEARNED)


def adjacency_precision(graph: Graph, scale: float | Tensor, sign: float, loops: bool, dtype: torch.dtype) -> Precision:
    """J on this graph; one object for each of the latest scales unless something is learned: its factor is kept."""
    if isinstance(scale, Tensor) or needs_grad(graph.edge_weight):
        return _build(graph, scale, sign, loops, dtype)
    return graph.derived(_build, scale, sign, loops, dtype, few=True)


def _build(graph: Graph, scale: float | Tensor, sign: float, loops: bool, dtype: torch.dtype) -> Precision:
    """Formed in float64, so that rows of it sum to what they should."""
    refuse_negative_weights("Propagate", graph)
    strength = graph.weights().unsqueeze(0)
    degree = degree_sum(graph, strength) + float(loops)
    root_i, root_j = ends(graph, torch.where(degree > 0, degree, 1.0).sqrt())
    s = sign * (scale.double() if isinstance(scale, Tensor) else scale)
    diag = torch.ones_like(degree) + (s / degree if loops else 0 * s)
    return Precision(graph, diag.to(dtype), (s * strength / root_i / root_j).to(dtype))
