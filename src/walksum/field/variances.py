"""marginals and selected_inverse: entries of J^-1 without the rest of it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from walksum._checks import check_choice
from walksum.field.estimate import DEFAULT, Estimate, estimate_marginals
from walksum.field.factors import METHODS, choose_method, in_range, working_copy
from walksum.field.log_determinant import warn_of_estimate
from walksum.field.report import Observer, Reporter
from walksum.field.selected import pattern_inverse
from walksum.precision import Precision
from walksum.solvers.base import SolveError, Status
from walksum.solvers.gabp.solver import GaBP

GABP_NOTE = (
    "GaBP counts the walks from a node back to itself that trees have, not those around cycles: exact on trees; where "
    "all couplings attract (J_ij <= 0) the variances are too small, around cycles with an odd number of repulsive "
    "edges they may be too large"
)


class SelectedInverse(NamedTuple):
    """``J^-1`` where J has entries: ``diag [H, N]`` and ``off [H, E]`` in the order of ``graph.edges``."""

    diag: Tensor
    off: Tensor


def selected_inverse(J: Precision, method: str = "auto", observe: Observer | None = None) -> SelectedInverse:
    r"""The entries of :math:`J^{-1}` on the pattern of J, exactly, by Takahashi's recursion on the sparse factor.

    Differentiable: the derivative takes two solves per node and is offered up to 20,000 nodes.

    Args:
        J: positive definite.
        method: "elimination", "dense" or "auto".
        observe: called with the :class:`walksum.field.Report`.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0))
        >>> ws.selected_inverse(J).diag
        tensor([[0.7500, 1.0000, 0.7500]])
    """
    return _exactly(J, method, Reporter("selected_inverse", observe))


def _exactly(J: Precision, method: str, report: Reporter) -> SelectedInverse:
    way = choose_method(J, method)
    if way == "estimated":
        asked = "method='estimated' was asked for" if method == way else f"eliminating {J.graph} would fill in too much"
        raise ValueError(
            f"selected_inverse is exact, and {asked}; "
            "marginals(J, method='estimated') estimates the diagonal, method='elimination' tries all the same"
        )
    work = working_copy(J, way)
    S = pattern_inverse(work.diag, work.off, work.graph, work.prepared, way)
    report(way)
    return SelectedInverse(*(in_range(t, J.diag) for t in S))


def marginals(
    J: Precision, method: str = "auto", estimate: Estimate = DEFAULT, observe: Observer | None = None
) -> Tensor:
    r"""The marginal variances :math:`(J^{-1})_{ii}`, ``[H, N]``.

    Args:
        J: positive definite.
        method: "elimination" and "dense" are exact and differentiable; "estimated" uses samples or random probes and
            has a standard error and no gradient; "gabp" takes one over the precisions of Gaussian belief propagation,
            which are exact on trees and biased on other graphs (too small where all couplings attract), and refuses a
            J that is not walk-summable; "auto" is exact where that takes seconds, otherwise estimated with a warning.
        estimate: the settings of an estimate.
        observe: called with the :class:`walksum.field.Report`.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> ws.marginals(ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0)))
        tensor([[0.7500, 1.0000, 0.7500]])
    """
    check_choice("method", method, (*METHODS, "gabp"))
    report = Reporter("marginals", observe)
    if method == "gabp":
        return _by_gabp(J, report)
    if choose_method(J, method) != "estimated":
        return _exactly(J, method, report).diag
    value, error, steps, status = estimate_marginals(J, estimate)
    if J.diag.requires_grad or J.off.requires_grad:
        raise ValueError("estimated marginals have no gradient; use J.detach(), or method='elimination' or 'dense'")
    if method == "auto":
        warn_of_estimate(J)
    report("estimated", status, error, steps)
    return in_range(value, J.diag)


def _by_gabp(J: Precision, report: Reporter) -> Tensor:
    if J.graph.system_across is not None:
        raise ValueError("method='gabp' works in one process; across processes use method='estimated'")
    lower, upper = J.walk_summability()
    if not upper < 1:
        raise SolveError(
            f"GaBP {Status.diverged.value} (rho(|R|) lies in [{lower:.4g}, {upper:.4g}], so its precisions "
            "mean nothing; marginals(J) computes the variances exactly)"
        )
    prepared = GaBP(damping=1.0, max_steps=100_000).prepare(J.detach())
    precision: Tensor = prepared.marginal_precision  # type: ignore[attr-defined]
    report("gabp", note=GABP_NOTE)
    return torch.reciprocal(precision).to(J.diag)
