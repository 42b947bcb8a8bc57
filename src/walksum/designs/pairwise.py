"""Pairwise normal: J is a sum of positive definite 2 x 2 blocks, one per edge."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.utils.weak import WeakIdKeyDictionary

from walksum._checks import check_count
from walksum._torch import needs_grad, outside_transforms, unwrapped
from walksum.designs import fused
from walksum.designs.base import (
    CONFIDENCE,
    Design,
    check_fraction,
    clipped,
    degree_sum,
    ends,
    need,
    normalise,
    relative_weight,
)
from walksum.designs.edge_formulas import symmetric_scaling
from walksum.designs.similarity import SIMILARITIES, Function, Similarity, make_similarity
from walksum.graph import Graph
from walksum.graph.cache import Snapshot
from walksum.precision import Precision


class FixedPairwiseNormal(Design):
    r"""Blocks with unit self-precision, coupled by the similarity of the input features.

    .. math::
        J_{ij} = \pm\epsilon\, w_{ij}\, \mathrm{sim}(x_i, x_j), \qquad J_{ii} = \sum_{j \in N(i)} |w_{ij}|,

    then symmetrically normalised. The block of an edge is scaled by its weight as a whole, so it stays positive
    definite.

    Args:
        epsilon: bound of a coupling relative to its self-precisions, in (0, 1).
        coupling: "repulsive" (the paper: :math:`J_{ij} = +\epsilon \cos`) or "attractive".
        similarity: "cosine", "gaussian", "dot" or a function of the two ends.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
        >>> ws.FixedPairwiseNormal()(path, x).to_dense()
        tensor([[[1.0000, 0.4950, 0.0000],
                 [0.4950, 1.0000, 0.4950],
                 [0.0000, 0.4950, 1.0000]]])
    """

    reads_input = True

    def __init__(
        self,
        epsilon: float = 0.99,
        coupling: str = "repulsive",
        similarity: str | Function | Similarity = "cosine",
    ):
        super().__init__(coupling)
        self.epsilon = check_fraction("epsilon", epsilon)
        self.similarity = make_similarity(similarity)

    def forward(self, graph: Graph, x: Tensor | None = None, h: Tensor | None = None) -> Precision:
        x = need(self, "x", x, graph)
        if needs_grad(x) or needs_grad(graph.edge_weight):
            return self._build(graph, x)
        # the features are the same tensor every epoch: J lives as long as they do
        known = graph.derived(_by_features, self.epsilon, self.coupling, self.similarity, few=True)
        if x not in known or not outside_transforms(known[x][0].fits, x):
            known[x] = outside_transforms(lambda: (Snapshot(x), self._build(graph, x)))
        return known[x][1]

    def _build(self, graph: Graph, x: Tensor) -> Precision:
        values = unwrapped(x)
        if values is not None and not bool(torch.isfinite(values).all()):
            raise ValueError("x contains NaN or infinity; clean the features first")
        s = self.similarity.unit(graph, x.unsqueeze(0))
        weight = relative_weight(graph, x.dtype)
        weight = torch.ones_like(s) if weight is None else weight.unsqueeze(0)
        return normalise(graph, degree_sum(graph, weight.abs()), self.sign * self.epsilon * s * weight)


def _by_features(graph: Graph, *key: object) -> WeakIdKeyDictionary:
    return WeakIdKeyDictionary()


class LearnedPairwiseNormal(Design):
    r"""Blocks whose self-precisions and coupling are learned from the observation vectors.

    .. math::
        a_{ij} = \mathrm{softplus}(w^\top [h_i \| h_j] + b) + 10^{-8}, \quad
        c_{ij} = \mathrm{softplus}(w^\top [h_j \| h_i] + b) + 10^{-8}, \quad
        J_{ij} = \pm\epsilon \sqrt{a_{ij} c_{ij}}\, \mathrm{sim}(h_i, h_j), \quad
        J_{ii} = \sum_{j \in N(i)} a_{ij},

    then symmetrically normalised.

    Args:
        channels: number of features F of ``h [H, N, F]``.
        heads: number of heads H, each with its own confidences.
        epsilon, coupling, similarity: as in :class:`FixedPairwiseNormal`.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.LearnedPairwiseNormal(4, heads=2)(path, torch.randn(3, 8), torch.randn(2, 3, 4))
        >>> J.diag.shape, J.off.shape, bool((torch.linalg.eigvalsh(J.to_dense()) > 0).all())
        (torch.Size([2, 3]), torch.Size([2, 2]), True)
    """

    def __init__(
        self,
        channels: int,
        heads: int = 1,
        epsilon: float = 0.99,
        coupling: str = "repulsive",
        similarity: str | Function | Similarity = "cosine",
    ):
        super().__init__(coupling)
        self.epsilon = check_fraction("epsilon", epsilon)
        self.similarity = make_similarity(similarity)
        self.channels, self.heads = channels, heads = check_count("channels", channels), check_count("heads", heads)
        self.own = nn.Parameter(torch.empty(heads, channels, 1))
        self.other = nn.Parameter(torch.empty(heads, channels, 1))
        self.bias = nn.Parameter(torch.empty(heads, 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(2 * self.own.size(1))  # nn.Linear's, on the concatenation
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(
        self, graph: Graph, x: Tensor | None = None, h: Tensor | None = None, edge: Tensor | None = None
    ) -> Precision:
        h = need(self, "h", h, graph)
        bounded = clipped(h)
        kernel = edge is None and bounded is h and self.similarity == SIMILARITIES["cosine"]
        if kernel and h.size(0) == self.heads and fused.serves(graph, self.channels, h, self.own):
            composed, epsilon = partial(self._couplings, graph), self.sign * self.epsilon
            off = fused.pairwise_couplings(graph, composed, h, self.own, self.other, self.bias, epsilon)
        else:
            off = self._couplings(graph, h, self.own, self.other, self.bias, bounded, edge)
        return Precision(graph, off.new_ones(off.size(0), graph.num_nodes), off)

    def _couplings(
        self,
        graph: Graph,
        h: Tensor,
        w_own: Tensor,
        w_other: Tensor,
        bias: Tensor,
        bounded: Tensor | None = None,
        edge: Tensor | None = None,
    ) -> Tensor:
        (i, j), bounded = graph.edges, h if bounded is None else bounded
        # a linear map of a concatenation is a sum of two maps: no E x 2F tensor
        own, other = (bounded @ w_own).squeeze(-1) + bias, (bounded @ w_other).squeeze(-1)
        (own_i, own_j), (other_i, other_j) = ends(graph, own), ends(graph, other)
        a, c = _confidence(own_i + other_j), _confidence(own_j + other_i)
        off = self.sign * self.epsilon * (a * c).sqrt() * self.similarity.unit(graph, h)
        weight = relative_weight(graph, h.dtype, edge)
        if weight is not None:
            a, c, off = a * weight.abs(), c * weight.abs(), off * weight
        diag = torch.zeros_like(own).index_add(1, i, a).index_add(1, j, c)
        return symmetric_scaling(graph, graph.fill(diag.unsqueeze(-1)).squeeze(-1), off)


def _confidence(logit: Tensor) -> Tensor:
    return (softplus(logit) + CONFIDENCE[0]).clamp(max=CONFIDENCE[1])
