"""The inverse on the pattern of J: Takahashi's recursion forward, solves backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from walksum.field.factors import SOLVERS, factorise
from walksum.graph import Graph
from walksum.ops import OverHeads, spmm, zeros_if_none
from walksum.precision import Precision
from walksum.solving import solve

DIFFERENTIATED = 20_000  # nodes up to which the selected inverse is differentiated: it takes 2 N solves
BLOCK = 256  # columns of J^-1 that are held at once


def pattern_inverse(diag: Tensor, off: Tensor, graph: Graph, memo: dict, way: str) -> tuple[Tensor, Tensor]:
    """``J^-1`` on the diagonal ``[H, N]`` and on the edges ``[H, E]``."""
    return _PatternInverse.apply(diag, off, graph, memo, way)


class OfFactor(OverHeads):
    """A function of the factor of J: ``(diag, off, graph, memo, way)``."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        diag, off, ctx.graph, ctx.memo, ctx.way = inputs
        ctx.save_for_backward(diag, off)
        ctx.save_for_forward(diag, off)


class _PatternInverse(OfFactor):
    # S = J^-1 on the pattern. dS = -S dJ S, so with G the symmetric matrix of the incoming gradients (half of an
    # edge's at ij, half at ji) dL = -tr(G S dJ S) = -tr(M dJ), M = S G S: dL/dJ_ii = -M_ii, dL/dJ_ij = -2 M_ij.
    # M needs all columns of S, a block at a time. They are ordinary solves, so this differentiates again.
    @staticmethod
    def forward(diag: Tensor, off: Tensor, graph: Graph, memo: dict, way: str) -> tuple[Tensor, Tensor]:
        if graph.num_nodes == 0:
            return torch.empty_like(diag), torch.empty_like(off)
        return factorise(graph, diag, off, memo, way).selected_inverse()

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Tensor, Tensor]:
        diag, off = ctx.saved_tensors
        d_diag, d_off = (zeros_if_none(t, like) for t, like in zip(tangents, (diag, off), strict=False))
        S_diag, S_off = _minus_SGS(diag, off, d_diag, 2 * d_off, ctx.graph, ctx.memo, ctx.way)
        return S_diag, S_off / 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        diag, off = ctx.saved_tensors
        if ctx.graph.num_nodes > DIFFERENTIATED:
            raise ValueError(
                f"the derivative of the selected inverse or the marginal variances takes two solves for each of the "
                f"{ctx.graph.num_nodes} nodes; it is offered up to {DIFFERENTIATED}. First derivatives of logdet and "
                "log_evidence need no such thing: detach() the variances, or avoid create_graph=True"
            )
        d_diag, d_off = _minus_SGS(diag, off, grads[0], grads[1], ctx.graph, ctx.memo, ctx.way)
        return d_diag, d_off, None, None, None


def _minus_SGS(diag: Tensor, off: Tensor, g_diag: Tensor, g_off: Tensor, graph: Graph, memo: dict, way: str) -> Any:
    J = Precision.trusted(graph, diag, off)
    J.prepared = memo
    heads, N = diag.shape
    d_diag, d_off = torch.zeros_like(diag), torch.zeros_like(off)
    for start in range(0, N, BLOCK):
        units = diag.new_zeros(N, min(BLOCK, N - start))
        units[start:].fill_diagonal_(1)
        S = solve(J, units.expand(heads, -1, -1).contiguous(), SOLVERS[way], on_nonconverged="raise")
        GS = spmm(graph, g_diag, g_off / 2, S)
        M = solve(J, GS, SOLVERS[way], on_nonconverged="raise")
        d_diag, d_off = _pick(graph, M, start, d_diag, d_off)
    return d_diag, d_off


def _pick(graph: Graph, M: Tensor, start: int, d_diag: Tensor, d_off: Tensor) -> tuple[Tensor, Tensor]:
    """Subtract the columns ``start, ...`` of the symmetric M where the pattern has entries."""
    width = M.size(2)
    i, j = graph.edges
    place = torch.arange(start, start + width, device=M.device)
    d_diag = d_diag.index_add(1, place, -M[:, place, place - start])
    inside = ((j >= start) & (j < start + width)).nonzero().squeeze(1)
    return d_diag, d_off.index_add(1, inside, -2 * M[:, i[inside], j[inside] - start])
