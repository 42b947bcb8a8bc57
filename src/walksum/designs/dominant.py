"""Diagonally dominant: every node is surer of itself than of all its neighbours together."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import softplus

from walksum._checks import check_count
from walksum._torch import needs_grad, unwrapped
from walksum.designs import fused
from walksum.designs.base import CONFIDENCE, Design, check_width, clipped, degree_sum, linear, need
from walksum.designs.edge_formulas import symmetric_scaling
from walksum.designs.similarity import SIMILARITIES, Function, Similarity, make_similarity
from walksum.graph import Graph
from walksum.precision import Precision


class FixedDiagonallyDominant(Design):
    r"""Unit couplings, confidence one plus the degree.

    .. math:: J_{ij} = \pm w_{ij}, \qquad J_{ii} = 1 + \sum_j |w_{ij}|

    Args:
        coupling: "attractive" (:math:`J_{ij} = -1`, which reproduces the paper's numbers) or "repulsive".

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> ws.FixedDiagonallyDominant()(path, torch.empty(3, 0)).to_dense()
        tensor([[[ 2., -1.,  0.],
                 [-1.,  3., -1.],
                 [ 0., -1.,  2.]]])
    """

    def __init__(self, coupling: str = "attractive"):
        super().__init__(coupling)

    def forward(self, graph: Graph, x: Tensor | None = None, h: Tensor | None = None) -> Precision:
        dtype = next((t.dtype for t in (h, x) if t is not None), torch.get_default_dtype())
        if needs_grad(graph.edge_weight):
            return _build_dominant(graph, self.sign, dtype)
        return graph.derived(_build_dominant, self.sign, dtype)


def _build_dominant(graph: Graph, sign: float, dtype: torch.dtype) -> Precision:
    off = graph.weights().unsqueeze(0)
    degree = degree_sum(graph, off.abs())
    # where 1 is lost in rounding beside a huge degree, keep the row dominant all the same
    diag = torch.maximum(1 + degree, degree * (1 + 8 * torch.finfo(dtype).eps)).to(dtype)
    _refuse_overflow(graph, diag)
    return Precision(graph, diag, (sign * off).to(dtype))


def _refuse_overflow(graph: Graph, diag: Tensor) -> None:
    values = None if graph.edge_weight is None else unwrapped(diag)
    if values is not None and not bool(torch.isfinite(values).all()):
        raise ValueError(
            f"edge_weight sums to more than {torch.finfo(diag.dtype).max:.1e} around a node, the largest number of "
            f"{diag.dtype}; scale the weights down or use float64"
        )


class LearnedDiagonallyDominant(Design):
    r"""Couplings by similarity of the observation vectors, confidence learned from the node embeddings.

    .. math::
        J_{ij} = \pm w_{ij}\, \mathrm{sim}(h_i, h_j), \qquad
        J_{ii} = (1 + \delta) \sum_j |J_{ij}| + \mathrm{softplus}(x_i W) + 10^{-8},

    then symmetrically normalised. The sum makes the matrix dominant, which softplus alone does not; the margin
    :math:`\delta = 10^{-3}` keeps it so where softplus vanishes beside it in rounding.

    Args:
        in_channels: number of features of ``x [N, F]``; -1 for that of the first x.
        heads: number of heads H.
        coupling: "repulsive" (the paper: :math:`J_{ij} = +\cos`) or "attractive".
        similarity: "cosine", "gaussian", "dot" or a function of the two ends.
        margin: :math:`\delta`.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.LearnedDiagonallyDominant(8, heads=2)(path, torch.randn(3, 8), torch.randn(2, 3, 4))
        >>> J.diag.shape, J.off.shape
        (torch.Size([2, 3]), torch.Size([2, 2]))
    """

    def __init__(
        self,
        in_channels: int,
        heads: int = 1,
        coupling: str = "repulsive",
        similarity: str | Function | Similarity = "cosine",
        margin: float = 1e-3,
    ):
        super().__init__(coupling)
        if not margin > 0:
            raise ValueError(f"margin={margin!r}; expected a positive number, or J is not strictly dominant")
        self.similarity = make_similarity(similarity)
        self.margin = margin
        self.in_channels, self.heads = check_width("in_channels", in_channels), check_count("heads", heads)
        self.confidence = linear(self.in_channels, self.heads)

    def forward(
        self, graph: Graph, x: Tensor | None = None, h: Tensor | None = None, edge: Tensor | None = None
    ) -> Precision:
        x, h = need(self, "x", x, graph), need(self, "h", h, graph)
        logit = self.confidence(clipped(x))
        kernel = edge is None and self.similarity == SIMILARITIES["cosine"] and h.size(0) == self.heads
        if kernel and fused.serves(graph, h.size(-1), h, logit):
            composed = partial(self._couplings, graph)
            off = fused.dominant_couplings(graph, composed, h, logit, self.sign, self.margin)
        else:
            off = self._couplings(graph, h, logit, edge)
        return Precision(graph, off.new_ones(off.size(0), graph.num_nodes), off)

    def _couplings(self, graph: Graph, h: Tensor, logit: Tensor, edge: Tensor | None = None) -> Tensor:
        off = self.sign * self.similarity.finite(graph, h)
        off = off if edge is None else off * edge
        confidence = (softplus(logit).t() + CONFIDENCE[0]).clamp(max=CONFIDENCE[1])
        if graph.edge_weight is not None and graph.num_edges:
            # both over the largest weight, which normalising cancels: sums of huge weights would overflow
            unit = graph.largest_weight().clamp_min(1)
            off, confidence = off * (graph.edge_weight / unit).to(off.dtype), confidence / unit.to(off.dtype)
        around = degree_sum(graph, off.abs())
        return symmetric_scaling(graph, (1 + self.margin) * around + confidence, off)
