"""solve across processes: the backward rule of :mod:`walksum.solving`, each process for its own rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from walksum import backends
from walksum.distributed.iterations import prepare_across
from walksum.distributed.part import GraphPart
from walksum.ops import spmm
from walksum.precision import Precision
from walksum.solvers import Prepared, Solver
from walksum.solving import Observer, Reports


def product(J: Precision, x: Tensor) -> Tensor:
    """``J x`` of the owned nodes ``[H, n, F]``, differentiable; J is on a :class:`GraphPart`."""
    part = J.graph
    assert isinstance(part, GraphPart)
    return spmm(part, J.diag, J.off, part.fill(x))[:, : part.num_owned]


def solve_across(
    J: Precision, h: Tensor, solver: Solver | str, observe: Observer | None, on_nonconverged: str
) -> Tensor:
    """mu of the owned nodes, for h of the owned nodes: what :func:`walksum.solve` does on a :class:`GraphPart`."""
    part = J.graph
    assert isinstance(part, GraphPart)
    rows = h.reshape(-1, h.size(-2), h.size(-1)) if h.dim() in (2, 3) else h
    if rows.dim() != 3 or rows.size(1) != part.num_owned or (J.heads > 1 and rows.size(0) != J.heads):
        raise ValueError(
            f"h has shape {tuple(h.shape)}; J with {J.heads} head(s) on {part} takes [{J.heads}, {part.num_owned}, F]"
        )
    if h.dtype != J.dtype or h.device != J.device:
        raise ValueError(f"h is {h.dtype} on {h.device} but J {J.dtype} on {J.device}; use h.to(J.diag)")
    heads, shared = rows.size(0), J.heads == 1 and rows.size(0) > 1
    if shared:  # heads that share J are only more columns of it
        rows = rows.transpose(0, 1).reshape(1, part.num_owned, -1)
    reports = Reports(observe, on_nonconverged)
    mu = _Solve.apply(J.diag, J.off, rows, _Call(J, solver, reports))
    if shared:
        mu = mu.view(part.num_owned, heads, -1).transpose(0, 1)
    return mu.reshape(h.shape)


class _Call:
    """One solve, forward and backward."""

    def __init__(self, J: Precision, solver: Solver | str, reports: Reports):
        self.J, self.solver, self.reports = J, solver, reports

    def run(self, h: Tensor, reports: Reports) -> Tensor:
        prepared = self._prepared()
        return reports.finished(prepared, prepared.outcome(h))

    def _prepared(self) -> Prepared:
        """Kept with J, for values of these versions: the same decision in every process."""
        J = self.J
        stamp = (J.diag._version, J.off._version)
        known = J.prepared.get(self.solver)
        if known is None or known[0] != stamp:
            known = stamp, prepare_across(Precision.trusted(J.graph, J.diag.detach(), J.off.detach()), self.solver)
            J.prepared[self.solver] = known
        return known[1]


class _Solve(torch.autograd.Function):
    # An edge between two parts has a copy of its value in each, and each process reads its own copy for its own rows.
    # So the gradient of a copy is its own row's share: with g = 0 outside the part,
    #     dL/dJ_ij = - sum_f (g_if mu_jf + g_jf mu_if)
    # as in walksum.solving; for an edge that leaves, one of the two terms. The copies' shares add up to the whole.
    @staticmethod
    def forward(ctx: Any, diag: Tensor, off: Tensor, h: Tensor, call: _Call) -> Tensor:
        mu = call.run(h.detach(), call.reports)
        ctx.call = call
        ctx.save_for_backward(mu)
        return mu

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple:
        (mu,), call = ctx.saved_tensors, ctx.call
        needs_diag, needs_off, needs_h, _ = ctx.needs_input_grad
        g = call.run(grads[0].contiguous(), call.reports.for_backward())
        d_diag = d_off = None
        if needs_diag or needs_off:
            part = call.J.graph
            around = g.new_zeros(g.size(0), part.num_nodes - part.num_owned, g.size(2))
            padded = torch.cat([g, around], 1)
            d_diag, d_off = backends.backend(g).value_gradients(part, padded, part.fill(mu).contiguous())
        return d_diag, d_off, g if needs_h else None, None
