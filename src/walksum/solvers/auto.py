"""solver="auto": the quickest by a small cost model (:mod:`walksum.solvers.cost`), and the words to explain it.

A GPU multiplies matrices faster than it does anything else: a J that has proven to stay (see :func:`kept_solver`) is
inverted there once, and its solves are dense products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from walksum import backends
from walksum._torch import free_memory, transforms_active
from walksum.backends.cpu.ldl import symbolic
from walksum.graph import Graph
from walksum.precision import Precision
from walksum.solvers import cost
from walksum.solvers.base import Solver, Status
from walksum.solvers.cg.solver import CG
from walksum.solvers.dense import Dense
from walksum.solvers.direct import Direct
from walksum.solvers.hybrid import Hybrid
from walksum.solvers.inverse import Inverse

FAST = (torch.float32, torch.float64)
DENSE_ON_GPU = 512  # nodes up to which batched Cholesky beats iterations on a GPU that has no kernels of ours

OFTEN = 6  # solves with one J on a GPU after which it is inverted: a learned J sees two, forward and backward
INVERT = 4096  # nodes up to which that pays for any width
INVERT_WIDE = (24_000, 512)  # nodes and columns: further up, in half precision, if the product is wide enough
ROOM = 6 * 8  # bytes per entry that inverting takes at its peak


@dataclass(frozen=True)
class Choice:
    """What "auto" chose and why; ``str()`` is the explanation."""

    solver: Solver
    reason: str
    seconds: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        predicted = ", ".join(f"{name} {1e3 * value:.2g} ms" for name, value in self.seconds)
        return f"{self.solver!r}: {self.reason}" + (f" (predicted: {predicted})" if predicted else "")


def choose(J: Precision, columns: int) -> Choice:
    """The solver for this J and so many columns per head."""
    diag = J.diag
    if not diag.is_cpu:
        return J.graph.derived(_on_gpu, backends.uses_triton(diag))
    if not backends.has_numba():
        # LAPACK's bits change with the number of threads, and on small graphs it is no quicker
        return Choice(CG(), "without numba there is no elimination")
    if diag.dtype not in FAST:
        return Choice(CG(), f"the fast CPU kernels take float32 and float64, not {J.dtype}")
    what = diag.size(0), max(1, columns), diag.requires_grad or J.off.requires_grad
    usual, depends = J.graph.derived(_on_cpu, *what)
    large = J.graph.num_edges > cost.TRY_DIRECT
    if not (depends or large) or transforms_active():
        return usual
    steps = cost.estimated_steps(J)
    stiff = large and steps >= cost.MOST
    return _quickest(J.graph, J.graph.derived(cost.of_graph, *what, stiff), steps) if stiff or depends else usual


def _on_gpu(graph: Graph, triton: bool) -> Choice:
    if triton and in_one_launch(graph):
        return Choice(CG(), f"{graph} is small: each column fits into one block of threads, from start to verdict")
    if not triton and graph.num_nodes <= DENSE_ON_GPU:
        return Choice(
            Dense(), f"{graph.num_nodes} nodes: one batched Cholesky is quicker than iterations in plain torch"
        )
    return Choice(CG(), "triangular sweeps are serial, so a GPU iterates")


def kept_solver(graph: Graph, heads: int, columns: int, dtype: torch.dtype) -> Solver | None:
    """For a J on a GPU that is solved again and again: its inverse, or None where iterating stays cheaper."""
    nodes, (most, wide) = graph.num_nodes, INVERT_WIDE
    if graph.device.type == "cpu" or heads > 1 or dtype != torch.float32:
        return None
    if in_one_launch(graph):
        return None  # which is over before the products and looks of an inverse are launched
    if nodes > INVERT and (nodes > most or columns < wide):
        return None
    if graph.device.type == "cuda" and free_memory(graph.device) < ROOM * nodes**2:
        return None
    return Inverse("full" if nodes <= INVERT else "half")


def in_one_launch(graph: Graph) -> bool:
    """Whether conjugate gradients on this GPU take a single launch (float32 only)."""
    if graph.device.type != "cuda" or not backends.has_triton():
        return False
    from walksum.solvers.cg.cuda_columns import columns_fit

    return columns_fit(graph)


def _on_cpu(graph: Graph, heads: int, columns: int, learned: bool) -> tuple[Choice, bool]:
    """The choice for the usual number of steps, and whether it depends on that number."""
    costs = graph.derived(cost.of_graph, heads, columns, learned, False)
    return _quickest(graph, costs, cost.STEPS), cost.depends_on_steps(costs)


def fallback(graph: Graph, failed: Status) -> Solver | None:
    """What solves on a CPU where an iteration that "auto" chose ran out of steps: elimination, if it is affordable."""
    if failed not in (Status.max_steps_reached, Status.stalled) or not backends.has_numba():
        return None
    direct = Direct()
    return None if symbolic.symbolic(graph, direct.max_operations) is None else direct


def _quickest(graph: Graph, costs: dict[str, cost.Cost], steps: float) -> Choice:
    seconds = sorted(((name, costs[name].seconds(steps)) for name in costs), key=lambda pair: pair[1])
    best = seconds[0][0]
    return Choice(costs[best].solver, _reason(best, graph), tuple(seconds))


def _reason(best: str, graph: Graph) -> str:
    if best == "direct":
        whole = symbolic.symbolic(graph, math.inf)
        assert whole is not None
        return f"complete elimination fills in little: {whole.fill} entries for {graph.num_edges} edges"
    if best == "hybrid":
        part = symbolic.partial_symbolic(graph, Hybrid().max_degree)
        return (
            f"eliminating {part.eliminated} of {graph.num_nodes} nodes of low degree leaves a core of "
            f"{part.core_nodes} nodes and {part.core_edges} edges to iterate on"
        )
    return "elimination would fill in or leaves too large a core"
