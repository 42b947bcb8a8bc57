"""Contestants: one forward and backward pass each, on a graph that is known and on a graph that is seen once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import walksum as ws
from benchmarks.problems import Problem
from benchmarks.truth import is_large
from benchmarks.yardstick import Algorithm, Implicit, directed, gabp, incidence, tuned_gabp
from walksum.solvers import SOLVERS


@dataclass(frozen=True)
class Outcome:
    mu: Tensor
    g: Tensor | None
    steps: tuple[int, ...] = ()
    status: str = ""


Run = Callable[[], Outcome]
Make = Callable[[Problem], Run]  # what the call of Make does is not timed, what the call of Run does is


@dataclass(frozen=True)
class Contestant:
    """The same work counted in two ways, for everybody alike.

    Attributes:
        known: what depends on the graph alone (orderings, symbolic factors, index lists) is done beforehand; a run
            starts from the values of J. This is training on one graph.
        new: a run starts from the list of edges. None where nothing depends on the graph alone.
        known_only: there is no pass on a new graph to speak of.
    """

    known: Make
    new: Make | None = None
    known_only: bool = False


# GaBP's default is the paper's damping and a loose tolerance; these are as accurate as the others and the yardstick.
# Both ask for more than float32 can hold and end at its floor ("stalled").
KNOBS = {
    "cpu": {"gabp": ws.GaBP(damping=1.0, schedule="sequential", tol=5e-9, max_steps=3000)},
    "cuda": {"gabp": ws.GaBP(damping=1.0, tol=3e-7, max_steps=1000)},
}


def leaves(p: Problem) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(t.detach().requires_grad_() for t in (p.diag, p.off, p.h))  # type: ignore[return-value]


def implicit(p: Problem, solve: Algorithm) -> Outcome:
    """One pass of ``solve(diag, off, h) -> mu, steps`` with the implicit gradient, as ours has it."""
    diag, off, h = leaves(p)
    steps: list[int] = []
    mu = Implicit.apply(diag, off, h, p.graph.edges, solve, steps)
    mu.backward(p.grad)
    return Outcome(mu.detach(), h.grad, tuple(steps))


def algorithm_1(step: Algorithm, structure: Callable[[Problem], Any]) -> Contestant:
    """The paper's algorithm; ``structure`` is what depends on the graph alone."""

    def known(p: Problem) -> Run:
        graph = structure(p)
        return lambda: implicit(p, lambda diag, off, h: step(graph, diag, off, h))

    return Contestant(known, lambda p: lambda: known(p)())


# name: one pass, one step, what depends on the graph alone
ALGORITHM_1: dict[str, tuple[Algorithm, Callable[[Problem], Any]]] = {
    "yardstick": (gabp, lambda p: directed(p.graph.edges)),
    "yardstick-tuned": (tuned_gabp, lambda p: incidence(p.graph.edges, p.graph.num_nodes)),
}


def ours(solver: Any, backward: bool = True) -> Contestant:
    """Through the public door; a Precision of its own in each run, so that nothing prepared from values is reused."""

    def once(p: Problem, graph: ws.Graph) -> Outcome:
        diag, off, h = leaves(p)
        seen: list[ws.Solution] = []
        J = ws.Precision(graph, diag, off)
        mu = ws.solve(J, h, solver=solver, observe=seen.append, on_nonconverged="ignore")
        if backward:
            mu.backward(p.grad)
        worst = min(seen, key=lambda s: s.converged)
        return Outcome(mu.detach(), h.grad, tuple([s.steps for s in seen]), f"{worst.solver}: {worst.status.name}")

    mode = (lambda run: run) if backward else torch.no_grad()
    return Contestant(
        lambda p: mode(lambda: once(p, p.graph)),
        lambda p: mode(lambda: once(p, ws.Graph(p.graph.edges, p.graph.num_nodes))),
    )


def solvers(device: str = "cuda") -> dict[str, Contestant]:
    """'auto', forward and backward and forward alone, and every registered solver that is meant for speed."""
    found = {"auto": ours("auto"), "auto-forward": ours("auto", backward=False)}
    found |= {name: ours(KNOBS[device].get(name, kind())) for name, kind in SOLVERS.items() if name != "unrolled"}
    return found


def captured(make_pass: Callable[[Problem], Callable[[], tuple[Tensor, Tensor]]]) -> Contestant:
    """A pass ``() -> mu, g`` recorded once as a CUDA graph and replayed with whatever values J then has.

    One number is read after each replay, as a training step reads its loss. What is recorded belongs to one graph.
    """

    def make(p: Problem) -> Run:
        both = make_pass(p)
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            both()  # kernels compile
        with torch.cuda.graph(graph, stream=stream):
            mu, g = both()

        def run(_inputs: Any = both) -> Outcome:  # a recording does not own what it reads: indices, values
            graph.replay()
            mu[0, 0, 0].item()
            return Outcome(mu, g, (), "captured")

        return run

    return Contestant(make, known_only=True)


def our_pass(p: Problem) -> Callable[[], tuple[Tensor, Tensor]]:
    """``solve``, forward and backward, for :func:`captured`."""
    diag, off, h = leaves(p)

    def both() -> tuple[Tensor, Tensor]:
        mu = ws.solve(ws.Precision(p.graph, diag, off), h, on_nonconverged="ignore")
        return mu.detach(), torch.autograd.grad(mu, (h, diag, off), p.grad)[0]

    return both


class _Nothing(torch.autograd.Function):
    """One small kernel each way, three gradients: what surrounds a solve that takes no time at all."""

    @staticmethod
    def forward(ctx: Any, diag: Tensor, off: Tensor, h: Tensor, seen: list[Tensor]) -> Tensor:
        ctx.save_for_backward(diag, off)
        ctx.seen = seen
        seen.append(diag[0, :1].clone())
        return torch.empty_like(h)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple:
        diag, off = ctx.saved_tensors
        ctx.seen.append(diag[0, :1].clone())
        return torch.empty_like(diag), torch.empty_like(off), grads[0], None


def nothing(p: Problem) -> Run:
    """A round through autograd with nothing in it, and a number read for each pass: what the host alone takes."""

    def run() -> Outcome:
        diag, off, h = leaves(p)
        seen: list[Tensor] = []
        mu = _Nothing.apply(diag, off, h, seen)
        mu.backward(p.grad)
        return Outcome(mu.detach(), h.grad, tuple(int(value.cpu()) for value in seen))

    return run


CUBIC = 3_000  # nodes up to which dense matrices are tried on a CPU
INVERTED = 1_000  # the same for the explicit inverse, which is made for GPUs
MESSAGES = 100_000  # edges up to which belief propagation takes seconds
LARGEST = 2_000_000  # edges from which a run takes so long that only what the targets ask is run


def why_not(name: str, graph: ws.Graph, columns: int, free: int) -> str | None:
    """The reason for which a solver of ours is not tried on a graph; None if it is."""
    if name == "auto-forward":
        return None if is_large(graph) else "forward alone is measured on large graphs"
    if (name == "dense" and graph.num_nodes > CUBIC) or (name == "inverse" and graph.num_nodes > INVERTED):
        return "N^3: minutes per run"
    if name == "direct" and is_large(graph):
        return "fill"
    if name == "gabp" and 6 * 8 * graph.num_edges * columns > free:
        return "memory for the messages"
    if name == "gabp" and graph.num_edges > MESSAGES:
        return "minutes per run; measured on smaller graphs"
    if name == "multigrid" and is_large(graph):
        return "coarse levels fill in"
    if name not in ("auto", "cg") and graph.num_edges > LARGEST:
        return "minutes per run; measured on the graph a tenth of the size"
    return None
