"""Laplacian: J = I - s D^-1/2 A D^-1/2 with s < 1, smoothing along the graph."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from walksum._checks import check_count
from walksum._torch import needs_grad, watched
from walksum.designs import fused
from walksum.designs.base import (
    Design,
    check_fraction,
    check_width,
    clipped,
    degree_sum,
    linear,
    need,
    normalise,
    refuse_negative_weights,
    relative_weight,
)
from walksum.designs.edge_formulas import symmetric_scaling
from walksum.designs.similarity import SIMILARITIES, Function, Similarity, make_similarity
from walksum.graph import Graph
from walksum.precision import Precision


class FixedLaplacian(Design):
    r"""The scaled normalised Laplacian of the graph.

    .. math:: J = I - s\, D^{-1/2} A D^{-1/2}

    With :math:`h = (1 - s) Y` the solution is label spreading's fixed point; with predictions in place of Y, exact
    personalised PageRank propagation (PPNP) with teleport probability 1 - s, without self-loops.

    Args:
        scale: s, in (0, 1); :func:`walksum.designs.scale_for_reach` gives it for a distance in edges.
        coupling: "attractive" (the paper) or "repulsive" (the plus sign).

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> ws.FixedLaplacian(scale=0.9)(path, torch.empty(3, 0)).to_dense()
        tensor([[[ 1.0000, -0.6364,  0.0000],
                 [-0.6364,  1.0000, -0.6364],
                 [ 0.0000, -0.6364,  1.0000]]])
    """

    def __init__(self, scale: float = 0.99, coupling: str = "attractive"):
        super().__init__(coupling)
        self.scale = check_fraction("scale", scale)

    def forward(self, graph: Graph, x: Tensor | None = None, h: Tensor | None = None) -> Precision:
        dtype = next((t.dtype for t in (h, x) if t is not None), torch.get_default_dtype())
        if needs_grad(graph.edge_weight):
            return self._build(graph, dtype)
        return graph.derived(_shared_laplacian, self.scale, self.coupling, dtype, few=True)

    def _build(self, graph: Graph, dtype: torch.dtype) -> Precision:
        refuse_negative_weights(type(self).__name__, graph)
        weight = relative_weight(graph, torch.float64)
        weight = torch.ones(graph.num_edges, dtype=torch.float64, device=graph.device) if weight is None else weight
        strength = weight.unsqueeze(0)
        J = normalise(graph, degree_sum(graph, strength), self.sign * self.scale * strength)
        return Precision(graph, J.diag.to(dtype), J.off.to(dtype))


def _shared_laplacian(graph: Graph, scale: float, coupling: str, dtype: torch.dtype) -> Precision:
    return FixedLaplacian(scale, coupling)._build(graph, dtype)


class LearnedLaplacian(Design):
    r"""A Laplacian of learned edge strengths, with a small learned confidence.

    .. math::
        s = \mathrm{LeakyReLU}(X W_{\mathrm{sim}}), \quad
        A_{ij} = w_{ij}\, e^{-|s_i - s_j|^2 / 2}, \quad
        J_{ij} = \mp c\, \sigma(g)\, \frac{A_{ij}}{\sqrt{d_i d_j}}, \quad
        J_{ii} = 1 + b\, \sigma(x_i W),

    then symmetrically normalised; :math:`\sigma(g)` is one learned factor per head.

    Args:
        in_channels: number of features of ``x [N, F]``; -1 for that of the first x.
        heads: number of heads H.
        similarity_channels: width of s.
        scale: c, in (0, 1), the bound of what :math:`\sigma(g)` can reach.
        confidence: b, the bound of the learned part of the diagonal.
        coupling: "attractive" (the paper) or "repulsive".
        similarity: "gaussian", "cosine", "dot" or a function of the two ends; made non-negative by softplus.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.LearnedLaplacian(8, heads=2)(path, torch.randn(3, 8))
        >>> J.diag.shape, J.off.shape
        (torch.Size([2, 3]), torch.Size([2, 2]))
    """

    def __init__(
        self,
        in_channels: int,
        heads: int = 1,
        similarity_channels: int = 8,
        scale: float = 0.99,
        confidence: float = 0.1,
        coupling: str = "attractive",
        similarity: str | Function | Similarity = "gaussian",
    ):
        super().__init__(coupling)
        self.scale = check_fraction("scale", scale)
        if not confidence >= 0:
            raise ValueError(f"confidence={confidence!r}; expected a non-negative bound")
        self.bound = confidence
        self.in_channels, self.heads = check_width("in_channels", in_channels), check_count("heads", heads)
        self.similarity_channels = check_count("similarity_channels", similarity_channels)
        self.similarity = make_similarity(similarity)
        self.project = linear(self.in_channels, self.heads * self.similarity_channels, bias=False)
        self.confidence = linear(self.in_channels, self.heads)
        self.gate = nn.Parameter(torch.empty(self.heads, 1))
        self.reset_parameters()

    def arguments(self) -> dict[str, Any]:
        return {**super().arguments(), "confidence": self.bound}  # self.confidence is the learned part

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.constant_(self.gate, 2.0)  # sigmoid(2) = 0.88: start close to the graph's own Laplacian

    def forward(
        self, graph: Graph, x: Tensor | None = None, h: Tensor | None = None, edge: Tensor | None = None
    ) -> Precision:
        x = clipped(need(self, "x", x, graph))
        y, bias = self._maps(x)
        kernel = edge is None and self.similarity == SIMILARITIES["gaussian"]
        if kernel and fused.serves(graph, self.similarity_channels, y, self.gate):
            scale, composed = self.sign * self.scale, partial(self._couplings, graph)
            off = fused.laplacian_couplings(graph, composed, y, bias, self.gate, self.bound, scale)
        else:
            off = self._couplings(graph, y, bias, self.gate, edge)
        return Precision(graph, off.new_ones(off.size(0), graph.num_nodes), off)

    def _maps(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Projections and logits, ``[N, H K + H]``, and the bias that the logits still lack."""
        parts = self.project, self.confidence
        for part in parts:
            if isinstance(part, nn.LazyLinear):
                part(x)  # which makes its weights
        if not all(type(part) is nn.Linear and not watched(part) for part in parts):
            y = torch.cat([part(x) for part in parts], -1)  # called, for hooks and what somebody has put in their place
            return y, y.new_zeros(self.heads)
        maps = self.project.weight, self.confidence.weight
        if x.is_cpu:  # where the bits of one product for both would depend on the number of threads
            y = torch.cat([nn.functional.linear(x, weight) for weight in maps], -1)
        else:
            y = nn.functional.linear(x, torch.cat(maps))
        return y, self.confidence.bias

    def _couplings(self, graph: Graph, y: Tensor, bias: Tensor, gate: Tensor, edge: Tensor | None = None) -> Tensor:
        refuse_negative_weights(type(self).__name__, graph)
        projected, logit = y.split((self.heads * self.similarity_channels, self.heads), -1)
        s = leaky_relu(projected).unflatten(-1, (self.heads, self.similarity_channels)).transpose(0, 1)
        strength = self.similarity.strength(graph, s)
        weight = relative_weight(graph, y.dtype, edge)
        if weight is not None:
            strength = strength * weight
        # dividing by the roots of degrees and then by those of the diagonal is one division by the roots of products
        diag = degree_sum(graph, strength) * (1 + self.bound * torch.sigmoid(logit + bias).t())
        return symmetric_scaling(graph, diag, self.sign * self.scale * torch.sigmoid(gate) * strength)
