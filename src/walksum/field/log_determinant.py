"""logdet: the log-determinant of J, with the selected inverse as its gradient."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from walksum.field.estimate import DEFAULT, Estimate, estimate_logdet
from walksum.field.factors import choose_method, factorise, working_copy
from walksum.field.report import EstimateWarning, Observer, Reporter
from walksum.field.selected import OfFactor, pattern_inverse
from walksum.graph import Graph
from walksum.ops import zeros_if_none
from walksum.precision import Precision
from walksum.solvers.base import Status


def logdet(J: Precision, method: str = "auto", estimate: Estimate = DEFAULT, observe: Observer | None = None) -> Tensor:
    r"""The log-determinant of every head of J.

    .. math:: \log\det J, \qquad \frac{\partial \log\det J}{\partial J_{ij}} = (J^{-1})_{ij}

    The gradient of the exact methods is the selected inverse, and differentiates again; that of an estimate is an
    unbiased estimate by the same probes.

    Args:
        J: positive definite, walk-summable or not.
        method: "elimination" (exact, sparse, on the CPU), "dense" (exact, on the device of J), "estimated" (stochastic
            Lanczos quadrature), or "auto": exact where that takes seconds, otherwise estimated with a warning.
        estimate: the settings of an estimate, among them its seed.
        observe: called with the :class:`walksum.field.Report`.

    Returns:
        ``[H]``.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0))
        >>> ws.logdet(J).exp().round()  # 4 = determinant of the matrix 2, -1
        tensor([4.])
    """
    report, way = Reporter("logdet", observe), choose_method(J, method)
    work = working_copy(J, way)
    if way == "estimated":
        value, error, steps, status = estimate_logdet(work, estimate)
        if method == "auto":
            warn_of_estimate(J)
    else:
        value = _LogDet.apply(work.diag, work.off, work.graph, work.prepared, way)
        error, steps, status = None, 0, Status.converged
    report(way, status, error, steps)
    return value.to(device=J.device, dtype=J.dtype)


def warn_of_estimate(J: Precision) -> None:
    across = J.graph.system_across is not None
    why = "nodes lie in several processes" if across else f"eliminating {J.graph} would fill in too much"
    insist = "" if across else ", method='elimination' insists on the exact value"
    warnings.warn(
        f"{why}, so this is an estimate; logdet and marginals tell its standard error to their observe=... . "
        "method='estimated' accepts it"
        f"{insist}",
        EstimateWarning,
        stacklevel=3,
    )


class _LogDet(OfFactor):
    # d log det J = tr(J^-1 dJ): the diagonal of J^-1, and twice its entry for an edge that stands at ij and at ji
    @staticmethod
    def forward(diag: Tensor, off: Tensor, graph: Graph, memo: dict, way: str) -> Tensor:
        if graph.num_nodes == 0:
            return diag.new_zeros(diag.size(0))
        found = factorise(graph, diag, off, memo, way).logdet()
        return found.clone(memory_format=torch.contiguous_format)  # the strides that forward mode wants

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        diag, off = ctx.saved_tensors
        d_diag, d_off = (zeros_if_none(t, like) for t, like in zip(tangents, (diag, off), strict=False))
        S_diag, S_off = pattern_inverse(diag, off, ctx.graph, ctx.memo, ctx.way)
        return torch.linalg.vecdot(S_diag, d_diag) + 2 * torch.linalg.vecdot(S_off, d_off)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        diag, off = ctx.saved_tensors
        S_diag, S_off = pattern_inverse(diag, off, ctx.graph, ctx.memo, ctx.way)
        grad = grads[0].unsqueeze(1)
        return grad * S_diag, 2 * grad * S_off, None, None, None
