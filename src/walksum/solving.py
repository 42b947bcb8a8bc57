"""solve: the one differentiable entry, the one backward rule."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from walksum import backends
from walksum.graph import Graph
from walksum.ops import Function, edge_dot, fold_heads, spmm, transforms_active, unfold_heads, zeros_if_none
from walksum.precision import Precision
from walksum.solvers import Choice, Prepared, Solution, Solver, SolveWarning, Status, Unrolled, choose, resolve
from walksum.solvers.auto import OFTEN, in_one_launch, kept_solver
from walksum.solvers.base import Outcome, check_choice, check_h
from walksum.solvers.deferred import DeferredOutcome, DeferredSolution, capturing, open_logs
from walksum.untraced import untraced

ON_NONCONVERGED = ("ignore", "warn", "raise")
HALF = (torch.float16, torch.bfloat16)


@untraced  # a graph break: solvers choose their steps by looking at numbers
def solve(
    J: Precision,
    h: Tensor,
    solver: Solver | str = "auto",
    observe: Callable[[Solution], None] | None = None,
    on_nonconverged: str = "warn",
) -> Tensor:
    r"""The graph linear transformation :math:`\mu = J^{-1} h`, differentiable in J and h to any order.

    Args:
        J: the precision matrix, H heads.
        h: ``[H, N, F]``; ``[N, F]`` for one head. A J of one head serves every head of h.
        solver: a solver object or a name; "auto" chooses by size and device.
        observe: called with the :class:`Solution` of the forward pass, and later with that of each backward
            pass (``solution.direction`` tells). Backward may run on another thread.
        on_nonconverged: "ignore", "warn" (:class:`SolveWarning`) or "raise" (:class:`SolveError`).

    Returns:
        mu, of the shape of h.
    """
    if on_nonconverged not in ON_NONCONVERGED:
        check_choice("on_nonconverged", on_nonconverged, ON_NONCONVERGED)
    _check_kinds(J, h)
    if not _plain(J.diag, h):
        J, h = _working_precision(J, h)
    shape, one_J_for_all = h.shape, False
    if shape[:-1] != J.diag.shape:
        if J.heads == 1 and len(shape) == 3 and shape[1] == J.num_nodes:
            # heads that share J are only more columns of it
            one_J_for_all, h = True, h.transpose(0, 1).reshape(1, shape[1], -1)
        elif J.heads == 1 and len(shape) == 2:
            h = h.unsqueeze(0)
        check_h(J, h)
    elif not h.is_cpu or not J.diag.is_cpu or h.dtype is not J.diag.dtype:
        check_h(J, h)
    free = solver == "auto" and not h.is_cpu and not in_one_launch(J.graph)
    call = _Call(J.graph, J.prepared, resolve(solver, J, h.size(-1)), observe, on_nonconverged, free)
    if type(call.solver) is Unrolled:
        solution = call.solver.prepare(J)(h)
        call.report(replace(solution, value=solution.value.detach()))
        mu = solution.value
    else:
        mu = _Solve.apply(J.diag, J.off, h, call)
    if one_J_for_all:
        return mu.view(shape[1], shape[0], shape[2]).transpose(0, 1)
    return mu if mu.shape == shape else mu.view(shape)


def explain_solver(J: Precision, h: Tensor) -> Choice:
    """What ``solve(J, h)`` would choose, and why: ``print(ws.explain_solver(J, h))``."""
    _check_kinds(J, h)
    J, h = _working_precision(J, h)
    columns = h.size(-1) * (h.size(0) if h.dim() == 3 and J.heads == 1 else 1)
    return choose(J, columns)


def _check_kinds(J: Precision, h: Tensor) -> None:
    if not isinstance(J, Precision):
        raise ValueError(f"J is a {type(J).__name__}; expected a walksum.Precision, made by a design or of its values")
    if not isinstance(h, Tensor):
        raise ValueError(f"h is a {type(h).__name__}; expected a tensor, use torch.as_tensor(h, dtype=J.dtype)")


def _plain(diag: Tensor, h: Tensor) -> bool:
    """Nothing to be cast."""
    dtype = h.dtype
    return h.is_cpu and dtype is diag.dtype and dtype not in HALF and not torch.is_autocast_enabled("cpu")


def _working_precision(J: Precision, h: Tensor) -> tuple[Precision, Tensor]:
    """Half precision, or a mix of precisions made by autocast, is solved in float32."""
    if h.device != J.device:
        return J, h  # check_h says so
    if J.dtype in HALF or h.dtype in HALF or torch.is_autocast_enabled(h.device.type):
        working = torch.promote_types(torch.promote_types(J.dtype, h.dtype), torch.float32)
        return (J if J.dtype == working else J.to(working)), h.to(working)
    return J, h


class _Call:
    """What one call of solve carries into its forward and backward passes.

    On a graph of a few hundred nodes the kernels are soon done, so little may surround them: shapes are checked
    once, by :func:`solve`, and a :class:`Solution` is only made where someone reads it.
    """

    __slots__ = ("direction", "free", "graph", "latest", "memo", "observe", "on_nonconverged", "solver")

    def __init__(self, graph: Graph, memo: dict, solver: Solver, observe: Any, on_nonconverged: str, free: bool):
        self.graph, self.memo, self.solver = graph, memo, solver
        self.free = free  # to take another solver for a J that stays
        self.observe, self.on_nonconverged, self.direction = observe, on_nonconverged, "forward"
        self.latest: tuple | None = None  # diag, off and what was prepared for them

    def turned(self) -> _Call:
        """The same for the solve of the gradient."""
        other = _Call(self.graph, self.memo, self.solver, self.observe, self.on_nonconverged, self.free)
        other.direction, other.latest = "backward", self.latest
        return other

    def run(self, diag: Tensor, off: Tensor, h: Tensor) -> Tensor:
        prepared, h = self.prepared(diag, off, h.size(-1)), h.detach()
        launched = prepared.run_deferred(h)
        if launched is not None:
            self.report_deferred(prepared, launched)
            return launched.value
        if h.is_cuda:
            self._refuse_capture(prepared, h)
        return self._told(prepared.name, prepared.outcome(h), self.direction)

    def run_backward(self, diag: Tensor, off: Tensor, grad: Tensor, mu: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """g, and the gradients of diag and off: the backward pass of this call."""
        prepared = self.prepared(diag, off, grad.size(-1))
        launched = prepared.run_deferred(grad)
        if launched is not None:  # the gradients too, before the host waits for the status
            gradients = backends.backend(launched.value).value_gradients(self.graph, launched.value, mu)
            self.turned().report_deferred(prepared, launched)
            return launched.value, *gradients
        if grad.is_cuda:
            self._refuse_capture(prepared, grad)
        both = prepared.run_backward(grad, mu)
        if both is None or both[0].status is Status.nonfinite:  # whose cause outcome() finds
            g = self._told(prepared.name, prepared.outcome(grad), "backward")
            return g, *backends.backend(g).value_gradients(self.graph, g, mu)
        return self._told(prepared.name, both[0], "backward"), both[1], both[2]

    def _told(self, name: str, outcome: Outcome, direction: str) -> Tensor:
        mu, status, steps, residual = outcome
        if self.observe is not None or status is not Status.converged:
            # detached: whoever keeps the report must not keep the autograd graph
            self.report(Solution(mu.detach(), status, steps, residual, name, direction))
        return mu

    def report_deferred(self, prepared: Prepared, outcome: DeferredOutcome) -> None:
        """Wait for the status only where someone must be warned of it: not in a capture, not if it is ignored."""
        mu = outcome.value
        captured = capturing(mu)
        if self.on_nonconverged == "ignore" or captured:
            deferred = DeferredSolution(outcome, prepared.name, self.direction, captured)
            if self.observe is not None:
                self.observe(deferred)
            for log in open_logs(mu.device):
                log.entries.append((deferred, self.report))
            return
        if self.on_nonconverged == "raise":  # in time, before anything is made of a wrong mu: no replay can do that
            self._refuse(mu.device, "on_nonconverged='raise'")
        status, steps, residual = outcome.read()
        if self.observe is not None or status is not Status.converged:
            self.report(Solution(mu.detach(), status, steps, residual, prepared.name, self.direction))

    def _refuse_capture(self, prepared: Prepared, h: Tensor) -> None:
        if capturing(h):
            raise RuntimeError(
                f"{prepared.name} looks at numbers on its way, which a CUDA graph cannot record; on graphs that are "
                "small enough solver='auto' or 'cg' does not"
            )
        self._refuse(h.device, prepared.name)

    @staticmethod
    def _refuse(device: torch.device, reason: str) -> None:
        for log in open_logs(device):
            log.obstacles.append(reason)

    def prepared(self, diag: Tensor, off: Tensor, columns: int) -> Prepared:
        latest = self.latest
        # autograd refuses a backward pass through values changed since, but sees no change through numpy or .data
        if latest is not None and latest[0] is diag and latest[1] is off and latest[2].is_current():
            return latest[2]
        made = self._prepare(diag, off, columns)
        if not self.free:
            self.latest = (diag, off, made)
        return made

    def _prepare(self, diag: Tensor, off: Tensor, columns: int) -> Prepared:
        if diag.is_inference() or off.is_inference():  # no version tells whether these are what they were
            return self.solver.prepare(Precision.trusted(self.graph, diag, off))
        solver = self._for_a_J_that_stays(diag, off, columns) if self.free else self.solver
        known = self.memo.get(solver) if self.memo else None
        if known is not None and _same(known[0], known[1], diag) and _same(known[2], known[3], off):
            made = known[4]
            if made.is_current():
                return made
        if torch.is_grad_enabled():  # as it never is inside forward and backward
            diag, off = diag.detach(), off.detach()
        J = Precision.trusted(self.graph, diag, off)
        made = solver.prepare(J)
        self.memo[solver] = (J.diag, diag._version, J.off, off._version, made)
        return made

    def _for_a_J_that_stays(self, diag: Tensor, off: Tensor, columns: int) -> Solver:
        stamp = (*_identity(diag), *_identity(off))
        before, solves = self.memo.get("solves", (None, 0))
        solves = solves + 1 if before == stamp else 1
        self.memo["solves"] = (stamp, solves)
        if solves <= OFTEN:
            return self.solver
        return self.graph.derived(kept_solver, diag.size(0), columns, diag.dtype) or self.solver

    def report(self, solution: Solution) -> None:
        if self.observe is not None:
            self.observe(solution)
        if self.on_nonconverged == "raise":
            solution.check()
        if self.on_nonconverged == "warn" and not solution.converged:
            warnings.warn(solution.describe(), SolveWarning, stacklevel=2)


def _same(kept: Tensor, version: int, t: Tensor) -> bool:
    """Whether t holds what another tensor, still kept and so at its address, held when it had this version."""
    alike = kept.data_ptr() == t.data_ptr() and kept.shape == t.shape and kept.stride() == t.stride()
    return alike and version == t._version and kept.dtype is t.dtype


def _identity(t: Tensor) -> tuple:
    return t.data_ptr(), t._version, t.shape, t.stride(), t.dtype


class _Solve(Function):
    # J mu = h. Perturb: J dmu + dJ mu = dh, so with g = J^-1 (dL/dmu) (J is symmetric)
    #     dL = <dL/dmu, dmu> = <g, dh> - <g, dJ mu>:
    #     dL/dh = g,  dL/dJ_ii = - sum_f g_if mu_if,  dL/dJ_ij = - sum_f (g_if mu_jf + g_jf mu_if),
    # the last for an edge whose value stands at ij and at ji. g is itself a solve, so this rule
    # differentiates again; nothing of the iteration is stored.
    @staticmethod
    def forward(diag: Tensor, off: Tensor, h: Tensor, call: _Call) -> Tensor:
        return call.run(diag, off, h)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        diag, off, _, ctx.call = inputs
        ctx.save_for_backward(diag, off, output)
        ctx.save_for_forward(diag, off, output)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        diag, off, mu = ctx.saved_tensors
        d_diag, d_off, d_h = (zeros_if_none(t, like) for t, like in zip(tangents, (diag, off, mu), strict=False))
        return _Solve.apply(diag, off, d_h - spmm(ctx.call.graph, d_diag, d_off, mu), ctx.call)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        diag, off, mu = ctx.saved_tensors
        needs_diag, needs_off, needs_h, _ = ctx.needs_input_grad
        call, grad = ctx.call, grads[0].contiguous()
        d_diag = d_off = None
        if torch.is_grad_enabled() or transforms_active():  # someone will differentiate this again
            call = call.turned()
            g = _Solve.apply(diag, off, grad, call)
            d_diag = -torch.linalg.vecdot(g, mu) if needs_diag else None
            d_off = -edge_dot(call.graph, g, mu) if needs_off else None
        elif needs_diag or needs_off:
            g, d_diag, d_off = call.run_backward(diag, off, grad, mu)
        else:
            g = call.turned().run(diag, off, grad)
        return d_diag, d_off, g if needs_h else None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple, diag: Tensor, off: Tensor, h: Tensor, call: _Call) -> tuple:
        if in_dims[0] is None and in_dims[1] is None:  # one J for the whole batch: more columns
            columns = h.movedim(in_dims[2], -2)
            mu = _Solve.apply(diag, off, columns.flatten(-2), call)
            return mu.view(columns.shape), mu.dim() - 1
        folded = [fold_heads(info, t, d) for t, d in zip((diag, off, h), in_dims, strict=False)]
        return unfold_heads(info, _Solve.apply(*folded, call)), 0
