"""solve: the one differentiable entry, the one backward rule."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor

from walksum import backends
from walksum._checks import check_choice
from walksum._torch import (
    in_forward_mode,
    is_functorch_wrapped,
    is_out_of_memory,
    no_compile,
    transforms_active,
)
from walksum.graph import Graph
from walksum.ops import OverHeads, edge_dot, spmm, zeros_if_none
from walksum.precision import Precision
from walksum.solvers import Choice, Prepared, Solution, Solver, SolveWarning, Status, Unrolled, choose, resolve
from walksum.solvers.auto import OFTEN, fallback, in_one_launch, kept_solver
from walksum.solvers.base import Outcome, check_h
from walksum.solvers.deferred import DeferredOutcome, DeferredSolution, capturing, open_logs, read_later, read_unread

ON_NONCONVERGED = ("ignore", "warn", "raise")
HALF = (torch.float16, torch.bfloat16)
VECTORS = 6  # of the size of h that conjugate gradients hold, h and mu among them
T = TypeVar("T")
Observer: TypeAlias = Callable[[Solution], None]


@no_compile  # a graph break: solvers choose their steps by looking at numbers
def solve(
    J: Precision,
    h: Tensor,
    solver: Solver | str = "auto",
    observe: Observer | None = None,
    on_nonconverged: str = "warn",
) -> Tensor:
    r"""The graph linear transformation :math:`\mu = J^{-1} h`, differentiable in J and h to any order.

    Args:
        J: the precision matrix, H heads.
        h: ``[H, N, F]``; ``[N, F]`` or ``[N]`` for one head. A J of one head serves every head of h.
        solver: a solver object or a name; "auto" chooses by size and device.
        observe: called with the :class:`Solution` of the forward pass, and later with that of each backward
            pass (``solution.direction`` tells). Backward may run on another thread.
        on_nonconverged: "ignore", "warn" (:class:`SolveWarning`) or "raise" (:class:`SolveError`). On a GPU, where
            waiting for a status leaves the device idle, a training pass is warned of when the next solve begins.

    Returns:
        mu, of the shape of h.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0))
        >>> h = torch.tensor([[0.0], [1.0], [0.0]], requires_grad=True)
        >>> mu = ws.solve(J, h)
        >>> mu.flatten().tolist()
        [0.5, 1.0, 0.5]
        >>> mu.sum().backward()  # one more solve with the same J
        >>> h.grad.flatten()
        tensor([1.5000, 2.0000, 1.5000])
    """
    if on_nonconverged not in ON_NONCONVERGED:
        check_choice("on_nonconverged", on_nonconverged, ON_NONCONVERGED)
    _check_kinds(J, h)
    if h.dim() == 1 and J.heads == 1 and h.size(0) == J.num_nodes:
        return solve(J, h.unsqueeze(1), solver, observe, on_nonconverged).squeeze(1)
    if not _plain(J.diag, h):
        J, h = _working_precision(J, h)
    if J.graph.solve_across is not None:
        return J.graph.solve_across(J, h, solver, observe, on_nonconverged)
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
    chosen, recorded = resolve(solver, J, h.size(-1)), differentiated(J, h)
    reports = Reports(observe, on_nonconverged, later=recorded and h.is_cuda)
    if type(chosen) is Unrolled:
        solution = chosen.prepare(J)(h)
        reports.send(replace(solution, value=solution.value.detach()))
        mu = solution.value
    else:
        # another solver has other bits: not where equal calls were asked to give equal bits
        may_replace = not h.is_cpu and solver == "auto" and not torch.are_deterministic_algorithms_enabled()
        may_replace = may_replace and not in_one_launch(J.graph)
        may_eliminate = h.is_cpu and solver == "auto"
        call = _Call(_Preparations(J.graph, J.prepared, chosen, may_replace, may_eliminate), reports)
        mu = _Solve.apply(J.diag, J.off, h, call) if recorded else call.run(J.diag, J.off, h)
    if one_J_for_all:
        return mu.view(shape[1], shape[0], shape[2]).transpose(0, 1)
    return mu if mu.shape == shape else mu.view(shape)


def solve_backward(
    J: Precision, grad: Tensor, mu: Tensor, solver: Solver | str = "auto", on_nonconverged: str = "warn"
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of h, diag and off for ``mu = solve(J, h)``, where autograd cannot keep them: in operators."""
    shape = mu.shape
    if J.heads == 1 and shape[0] > 1:  # heads that share J are only more columns of it
        grad, mu = (t.transpose(0, 1).reshape(1, shape[1], -1) for t in (grad, mu))
    chosen = resolve(solver, J, mu.size(-1))
    if type(chosen) is Unrolled:
        raise ValueError(f"solver={chosen} differentiates its own steps, which no compiler sees; use another solver")
    preparations = _Preparations(J.graph, J.prepared, chosen, False, grad.is_cpu and solver == "auto")
    call = _Call(preparations, Reports(None, on_nonconverged))
    g, d_diag, d_off = call.run_backward(J.diag, J.off, grad.contiguous(), mu.contiguous())
    if g.shape != shape:
        g = g.view(shape[1], shape[0], shape[2]).transpose(0, 1)
    return g, d_diag, d_off


def explain_solver(J: Precision, h: Tensor) -> Choice:
    """What ``solve(J, h)`` would choose, and why: ``print(ws.explain_solver(J, h))``.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0))
        >>> print(ws.explain_solver(J, torch.ones(3, 1)))
        Direct(...): complete elimination fills in little: 2 entries for 2 edges (predicted: ...)
    """
    _check_kinds(J, h)
    J, h = _working_precision(J, h)
    if J.heads == 1:  # as solve reads it: heads that share J are only more columns of it
        h = h.unsqueeze(1) if h.dim() == 1 else h
        h = h.unsqueeze(0) if h.dim() == 2 else h
    shared = J.heads == 1 and h.dim() == 3
    check_h(J, h[:1] if shared else h)
    return choose(J, h.size(-1) * (h.size(0) if shared else 1))


def differentiated(J: Precision, h: Tensor) -> bool:
    """Whether anyone may take derivatives of this solve, in any way."""
    if torch.is_grad_enabled() and (h.requires_grad or J.diag.requires_grad or J.off.requires_grad):
        return True
    return transforms_active() or in_forward_mode()


def _check_kinds(J: Precision, h: Tensor) -> None:
    if not isinstance(J, Precision):
        raise ValueError(
            f"J is a {type(J).__name__}; expected a walksum.Precision, made by a design, of its values, or of a matrix "
            "(Precision.from_scipy)"
        )
    if not isinstance(h, Tensor):
        raise ValueError(f"h is a {type(h).__name__}; expected a tensor, use torch.as_tensor(h, dtype=J.dtype)")
    if h.layout is not torch.strided:
        raise ValueError(f"h has layout {h.layout}; J^-1 h has no zeros to spare, use h.to_dense()")


def _plain(diag: Tensor, h: Tensor) -> bool:
    """Nothing to be cast."""
    dtype = h.dtype
    return h.is_cpu and dtype is diag.dtype and dtype not in HALF and not torch.is_autocast_enabled("cpu")


def _working_precision(J: Precision, h: Tensor) -> tuple[Precision, Tensor]:
    """Half precision, or a mix of precisions made by autocast, is solved in float32."""
    if h.device != J.device:
        return J, h  # check_h says so
    if h.is_meta:
        raise ValueError("J and h are on the meta device, which holds no numbers to solve with; give them a real one")
    if J.dtype in HALF or h.dtype in HALF or torch.is_autocast_enabled(h.device.type):
        working = torch.promote_types(torch.promote_types(J.dtype, h.dtype), torch.float32)
        return (J if J.dtype == working else J.to(working)), h.to(working)
    return J, h


def _advised(run: Callable[..., T]) -> Callable[..., T]:
    """Beside an error of memory, say what a solve holds and what needs less."""

    @wraps(run)
    def inner(call: _Call, diag: Tensor, off: Tensor, h: Tensor, *more: Tensor) -> T:
        try:
            return run(call, diag, off, h, *more)
        except Exception as error:
            if is_out_of_memory(error):
                error.add_note(_memory_advice(call.preparations.solver.name, h))
            raise

    return inner


def _memory_advice(solver: str, h: Tensor) -> str:
    heads, nodes, columns = h.shape
    numbers, what = VECTORS * h.numel(), f"about {VECTORS} vectors of {heads} x {nodes} x {columns} numbers"
    if solver in ("Dense", "Inverse"):
        numbers, what = heads * nodes**2, f"a matrix of {heads} x {nodes} x {nodes} numbers"
    return (
        f"walksum: {solver} holds {what}, {numbers * h.element_size() / 2**30:.2g} GiB, beside J, its graph and what "
        "the model keeps for its backward pass. To need less: solver='cg', fewer hidden units, heads or columns, "
        "GLT(..., recompute=True), or a graph shared out over processes (walksum.distributed, docs/scaling.md)"
    )


class _Call:
    """What one call of solve carries into its forward and backward passes.

    On a graph of a few hundred nodes the kernels take microseconds, so little may surround them: shapes are checked
    once, by :func:`solve`, and a :class:`Solution` is only made where someone reads it.
    """

    __slots__ = ("graph", "preparations", "reports")

    def __init__(self, preparations: _Preparations, reports: Reports):
        self.graph, self.preparations, self.reports = preparations.graph, preparations, reports

    def for_backward(self) -> _Call:
        """The call that solves for the gradient."""
        return _Call(self.preparations, self.reports.for_backward())

    @_advised
    def run(self, diag: Tensor, off: Tensor, h: Tensor) -> Tensor:
        prepared, h = self.preparations.get(diag, off, h.size(-1)), h.detach()
        h = h if prepared.reads(h) else h.contiguous()
        launched = prepared.run_deferred(h)
        if launched is not None:
            self.reports.deferred(prepared, launched)
            return launched.value
        if h.is_cuda:
            _refuse_capture(prepared, h)
        return self._finished(self.reports, prepared, diag, off, h)

    @_advised
    def run_backward(self, diag: Tensor, off: Tensor, grad: Tensor, mu: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """g, and the gradients of diag and off: the backward pass of this call."""
        prepared, reports = self.preparations.get(diag, off, grad.size(-1)), self.reports.for_backward()
        grad = grad if prepared.reads(grad) else torch.empty_like(mu).copy_(grad)  # in the order of mu
        launched = prepared.run_deferred(grad)
        if launched is not None:  # the gradients too, before the host waits for the status
            gradients = backends.backend(launched.value).value_gradients(self.graph, launched.value, mu)
            reports.deferred(prepared, launched)
            return launched.value, *gradients
        if grad.is_cuda:
            _refuse_capture(prepared, grad)
        both = prepared.run_backward(grad, mu)
        if both is not None:
            return reports.finished(prepared, both[0]), both[1], both[2]
        g = self._finished(reports, prepared, diag, off, grad)
        return g, *backends.backend(g).value_gradients(self.graph, g, mu)

    def _finished(self, reports: Reports, prepared: Prepared, diag: Tensor, off: Tensor, h: Tensor) -> Tensor:
        outcome, preparations = prepared.outcome(h), self.preparations
        if outcome.status is not Status.converged and preparations.may_eliminate:
            second = fallback(self.graph, outcome.status)
            if second is not None and second != preparations.solver:
                # of this call alone, so that what an equal call finds does not depend on the calls before it
                others = _Preparations(self.graph, preparations.kept, second, False)
                direct = others.get(diag, off, h.size(-1))
                found = direct.outcome(h)
                if found.status is Status.converged:
                    self.preparations = others
                    return reports.finished(direct, found)
        return reports.finished(prepared, outcome)


class _Preparations:
    """What solvers prepared for the values of one J: made once for equal values, kept with J.

    Args:
        graph: of J.
        kept: ``J.prepared``, from a solver to the values it saw and what it prepared for them.
        solver: the solver of this call.
        may_replace: another solver may be taken where the same J is solved often.
        may_eliminate: elimination may be taken where the solver runs out of steps.
    """

    __slots__ = ("graph", "kept", "latest", "may_eliminate", "may_replace", "solver")

    def __init__(self, graph: Graph, kept: dict, solver: Solver, may_replace: bool, may_eliminate: bool = False):
        self.graph, self.kept, self.solver = graph, kept, solver
        self.may_replace, self.may_eliminate = may_replace, may_eliminate
        self.latest: tuple[Tensor, Tensor, Prepared] | None = None

    def get(self, diag: Tensor, off: Tensor, columns: int) -> Prepared:
        latest = self.latest
        # autograd refuses a backward pass through values changed since, but sees no change through numpy or .data
        if latest is not None and latest[0] is diag and latest[1] is off and latest[2].is_current():
            return latest[2]
        made = self._prepare(diag, off, columns)
        if not self.may_replace:
            self.latest = (diag, off, made)
        return made

    def _prepare(self, diag: Tensor, off: Tensor, columns: int) -> Prepared:
        if diag.is_inference() or off.is_inference():  # no version tells whether these are what they were
            return self.solver.prepare(Precision.trusted(self.graph, diag, off))
        solver = self._after_many_solves(diag, off, columns) if self.may_replace else self.solver
        known = self.kept.get(solver) if self.kept else None
        if known is not None and _same(known[0], known[1], diag) and _same(known[2], known[3], off):
            made = known[4]
            if made.is_current():
                return made
        if torch.is_grad_enabled():  # as it never is inside forward and backward
            diag, off = diag.detach(), off.detach()
        J = Precision.trusted(self.graph, diag, off)
        made = solver.prepare(J)
        self.kept[solver] = (J.diag, diag._version, J.off, off._version, made)
        return made

    def _after_many_solves(self, diag: Tensor, off: Tensor, columns: int) -> Solver:
        """A solver that prepares longer and solves faster pays once the same J was solved OFTEN times."""
        stamp = (*_identity(diag), *_identity(off))
        before, solves = self.kept.get("solves", (None, 0))
        solves = solves + 1 if before == stamp else 1
        self.kept["solves"] = (stamp, solves)
        if solves <= OFTEN:
            return self.solver
        return self.graph.derived(kept_solver, diag.size(0), columns, diag.dtype) or self.solver


class Reports:
    """Tells the caller of solve how it ended, as they asked: an observer, a warning, an error."""

    __slots__ = ("direction", "later", "observe", "on_nonconverged")

    def __init__(self, observe: Observer | None, on_nonconverged: str, direction: str = "forward", later: bool = False):
        self.observe, self.on_nonconverged, self.direction = observe, on_nonconverged, direction
        self.later = later  # warnings of solves that were only launched may wait for the end of the pass

    def for_backward(self) -> Reports:
        return Reports(self.observe, self.on_nonconverged, "backward", self.later)

    def finished(self, prepared: Prepared, outcome: Outcome) -> Tensor:
        """mu of a solve whose end is known; a Solution is only made where someone reads it."""
        mu, status, steps, residual = outcome
        if self.observe is not None or status is not Status.converged:
            # detached: whoever keeps the report must not keep the autograd graph
            self.send(Solution(mu.detach(), status, steps, residual, prepared.name, self.direction))
        return mu

    def deferred(self, prepared: Prepared, outcome: DeferredOutcome) -> None:
        """A solve that was only launched: wait for its status only where someone must be warned of it."""
        mu = outcome.value
        captured, later = capturing(mu), self.later and self.on_nonconverged == "warn"
        if self.on_nonconverged == "ignore" or captured or later:
            solution = DeferredSolution(outcome, prepared.name, self.direction, captured)
            if self.observe is not None:
                self.observe(solution)
            for log in open_logs(mu.device):
                log.entries.append((solution, self.send))
            if later and not captured:
                read_later(solution, self.warn)
            return
        read_unread()  # since the host waits anyway
        if self.on_nonconverged == "raise":  # before anything is made of a wrong mu, which no replay can do
            _refuse(mu.device, "on_nonconverged='raise'")
        self.finished(prepared, Outcome(mu, *outcome.read()))

    def send(self, solution: Solution) -> None:
        if self.observe is not None:
            self.observe(solution)
        if self.on_nonconverged == "raise":
            solution.check()
        if self.on_nonconverged == "warn":
            self.warn(solution)

    @staticmethod
    def warn(solution: Solution) -> None:
        if not solution.converged:
            warnings.warn(solution.describe(), SolveWarning, stacklevel=2)


def _refuse_capture(prepared: Prepared, h: Tensor) -> None:
    """A solver that looks at numbers between its launches cannot be part of a CUDA graph."""
    if capturing(h):
        raise RuntimeError(
            f"{prepared.name} looks at numbers on its way, which a CUDA graph cannot record; on graphs that are "
            "small enough solver='auto' or 'cg' does not"
        )
    _refuse(h.device, prepared.name)


def _refuse(device: torch.device, reason: str) -> None:
    for log in open_logs(device):
        log.obstacles.append(reason)


def _same(kept: Tensor, version: int, t: Tensor) -> bool:
    """Whether t holds what another tensor, still kept and so at its address, held when it had this version."""
    if version != t._version:
        return False
    if kept is t:
        return True
    if is_functorch_wrapped(kept):  # by a transform of torch.func that has ended: nothing tells what it held
        return False
    alike = kept.data_ptr() == t.data_ptr() and kept.shape == t.shape and kept.stride() == t.stride()
    return alike and kept.dtype is t.dtype


def _identity(t: Tensor) -> tuple:
    return t.data_ptr(), t._version, t.shape, t.stride(), t.dtype


class _Solve(OverHeads):
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
        # the gradient of h alone needs no mu: a fixed J holds no output, which may then be changed in place
        ctx.save_for_backward(diag, off, output if any(ctx.needs_input_grad[:2]) else None)
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
        call, grad = ctx.call, grads[0]
        d_diag = d_off = None
        if torch.is_grad_enabled() or transforms_active():  # someone will differentiate this again
            call = call.for_backward()
            g = _Solve.apply(diag, off, grad, call)
            d_diag = -torch.linalg.vecdot(g, mu) if needs_diag else None
            d_off = -edge_dot(call.graph, g, mu) if needs_off else None
        elif needs_diag or needs_off:
            g, d_diag, d_off = call.run_backward(diag, off, grad, mu)
        else:
            g = call.for_backward().run(diag, off, grad)
        return d_diag, d_off, g if needs_h else None, None

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple, diag: Tensor, off: Tensor, h: Tensor, call: _Call) -> tuple:
        if in_dims[0] is None and in_dims[1] is None:  # one J for the whole batch: more columns
            columns = h.movedim(in_dims[2], -2)
            mu = _Solve.apply(diag, off, columns.flatten(-2), call)
            return mu.view(columns.shape), mu.dim() - 1
        return super().vmap(info, in_dims, diag, off, h, call)
