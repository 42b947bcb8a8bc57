"""Contestants as ``make(problem) -> run``, ``run() -> Outcome``: one forward and backward pass.

``make`` may do what depends on the graph alone. ``run`` starts from the values of J, so numeric factorisation and
multigrid setup are part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import walksum as ws
from benchmarks.problems import Problem
from benchmarks.truth import is_large
from benchmarks.yardstick import Yardstick, directed
from walksum.solvers import SOLVERS


@dataclass(frozen=True)
class Outcome:
    mu: Tensor
    g: Tensor | None
    steps: tuple[int, ...] = ()
    status: str = ""


# GaBP's default is the paper's damping and a loose tolerance; these are as accurate as the others and the yardstick.
# The one for a CPU asks for more than float32 can hold and ends at its floor ("stalled").
KNOBS = {
    "cpu": {"gabp": ws.GaBP(damping=1.0, schedule="sequential", tol=5e-9, max_steps=3000)},
    "cuda": {"gabp": ws.GaBP(damping=1.0, tol=2e-8, max_steps=3000)},
}

Run = Callable[[], Outcome]
Make = Callable[[Problem], Run]


def leaves(p: Problem) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(t.detach().requires_grad_() for t in (p.diag, p.off, p.h))  # type: ignore[return-value]


def yardstick(p: Problem) -> Run:
    graph = directed(p.graph.edges)

    def run() -> Outcome:
        diag, off, h = leaves(p)
        steps: list[int] = []
        mu = Yardstick.apply(diag, off, h, p.graph.edges, graph, steps)
        mu.backward(p.grad)
        return Outcome(mu.detach(), h.grad, tuple(steps))

    return run


def ours(solver: Any, backward: bool = True) -> Make:
    """Through the public door; a Precision of its own each time, so that nothing prepared is reused."""

    def make(p: Problem) -> Run:
        def run() -> Outcome:
            diag, off, h = leaves(p)
            seen: list[ws.Solution] = []
            J = ws.Precision(p.graph, diag, off)
            mu = ws.solve(J, h, solver=solver, observe=seen.append, on_nonconverged="ignore")
            if backward:
                mu.backward(p.grad)
            worst = min(seen, key=lambda s: s.converged)
            return Outcome(mu.detach(), h.grad, tuple([s.steps for s in seen]), f"{worst.solver}: {worst.status.name}")

        return run if backward else torch.no_grad()(run)

    return make


def solvers(device: str = "cuda") -> dict[str, Make]:
    """'auto', forward and backward and forward alone, and every registered solver that is meant for speed."""
    found: dict[str, Make] = {"auto": ours("auto"), "auto-forward": ours("auto", backward=False)}
    found |= {name: ours(KNOBS[device].get(name, kind())) for name, kind in SOLVERS.items() if name != "unrolled"}
    return found


CUBIC = 3_000  # nodes up to which dense matrices are tried
INVERTED = 1_000  # the same for the explicit inverse, which is made for GPUs
MESSAGES = 100_000  # edges up to which belief propagation takes seconds
LARGEST = 2_000_000  # edges from which a run takes so long that only what the targets ask is run


def why_not(name: str, graph: ws.Graph, columns: int, free: int) -> str | None:
    """The reason for which a solver of ours is not tried on a graph; None if it is."""
    if name == "auto-forward":
        return None if is_large(graph) else "forward alone is measured on large graphs"
    if (name == "dense" and graph.num_nodes > CUBIC) or (name == "inverse" and graph.num_nodes > INVERTED):
        return "N^3: minutes a run"
    if name == "direct" and is_large(graph):
        return "fill"
    if name == "gabp" and 6 * 8 * graph.num_edges * columns > free:
        return "memory for the messages"
    if name == "gabp" and graph.num_edges > MESSAGES:
        return "minutes a run; measured on smaller graphs"
    if name == "multigrid" and is_large(graph):
        return "coarse levels fill in"
    if name not in ("auto", "cg") and graph.num_edges > LARGEST:
        return "minutes a run; measured on the graph a tenth of the size"
    return None
