"""solver="auto": a small cost model, and the words to explain its choice.

Costs are predicted seconds of one preparation and two solves (forward and backward) on one CPU thread. The rates
below were measured once on a server CPU with AVX-512; only their ratios matter. A J that learns nothing is prepared
once for a whole training, so its preparation counts little.

A GPU multiplies matrices faster than it does anything else: a J that has proven to stay (see :func:`kept_solver`) is
inverted there once, and its solves are dense products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from walksum import kernels
from walksum.graph import Graph
from walksum.kernels import elimination
from walksum.precision import Precision
from walksum.solvers.base import Solver
from walksum.solvers.cg import CG
from walksum.solvers.dense import Dense
from walksum.solvers.direct import Direct
from walksum.solvers.hybrid import Hybrid
from walksum.solvers.inverse import Inverse

# multiply-adds a second
FACTORISING = 1.5e9  # sparse elimination of one head
SWEEPING = 6e9  # triangular sweeps of an elimination, over all columns
ITERATING = 4e9  # one step of conjugate gradients over the edges, over all columns

STEPS = 25  # of preconditioned conjugate gradients, typical of the six designs
CALL = 1e-4  # seconds of Python around a conjugate-gradient solve
KEPT = 0.02  # share of its preparation that a fixed J pays in each step

TRY_DIRECT = 300_000  # edges up to which a complete elimination is tried at all
TRY_HYBRID = 0.3  # share of nodes of low degree from which a partial elimination is tried
DENSE_ON_GPU = 512  # nodes up to which batched Cholesky beats iterations on a GPU that has no kernels of ours

OFTEN = 6  # solves with one J on a GPU after which it is inverted: a learned J sees two, forward and backward
INVERT = 4096  # nodes up to which that pays for any width
INVERT_WIDE = (24_000, 512)  # nodes and columns: further up, in half precision, if the product is wide enough
ROOM = 6 * 8  # bytes an entry that inverting takes at its peak


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
    """The solver for this J and so many columns a head."""
    if J.device.type != "cpu":
        return J.graph.derived(_on_gpu, J.heads, columns, kernels.uses_triton(J.diag))
    if J.dtype not in (torch.float32, torch.float64):
        return Choice(CG(), f"the fast CPU kernels take float32 and float64, not {J.dtype}")
    learned = J.diag.requires_grad or J.off.requires_grad
    return J.graph.derived(_on_cpu, J.heads, max(1, columns), learned)


def _on_gpu(graph: Graph, heads: int, columns: int, triton: bool) -> Choice:
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
    if graph.device.type == "cuda" and _free_memory(graph.device) < ROOM * nodes**2:
        return None
    return Inverse("full" if nodes <= INVERT else "half")


def in_one_launch(graph: Graph) -> bool:
    """Whether conjugate gradients on this GPU take a single launch (float32 only)."""
    if graph.device.type != "cuda" or not kernels.has_triton():
        return False
    from walksum.solvers.cuda_columns import columns_fit

    return columns_fit(graph)


def _free_memory(device: torch.device) -> int:
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + held


def _on_cpu(graph: Graph, heads: int, columns: int, learned: bool) -> Choice:
    share = 1.0 if learned else KEPT
    width = heads * columns
    seconds = {"cg": CALL + 2 * STEPS * (2 * graph.num_edges + graph.num_nodes) * width / ITERATING}
    solvers: dict[str, Solver] = {"cg": CG()}
    if float((graph.degree <= Hybrid().max_degree).float().mean()) >= TRY_HYBRID:
        part = elimination.partial_symbolic(graph, Hybrid().max_degree)
        prepare = heads * (part.operations + part.fill) / FACTORISING
        core = STEPS * (2 * part.core_edges + part.core_nodes) * width / ITERATING
        seconds["hybrid"] = CALL + share * prepare + 2 * (2 * part.fill * width / SWEEPING + core)
        solvers["hybrid"] = Hybrid()
    if graph.num_edges <= TRY_DIRECT:
        budget = min(seconds.values()) * FACTORISING / share / heads
        whole = elimination.symbolic(graph, budget)
        if whole is not None:
            solve = (2 * whole.fill + 2 * graph.num_edges) * width / SWEEPING
            seconds["direct"] = share * heads * (whole.operations + whole.fill) / FACTORISING + 2 * solve
            solvers["direct"] = Direct()
    best = min(seconds, key=lambda name: seconds[name])
    return Choice(solvers[best], _reason(best, graph), tuple(sorted(seconds.items(), key=lambda s: s[1])))


def _reason(best: str, graph: Graph) -> str:
    if best == "direct":
        whole = elimination.symbolic(graph, math.inf)
        assert whole is not None
        return f"complete elimination fills in little: {whole.fill} entries for {graph.num_edges} edges"
    if best == "hybrid":
        part = elimination.partial_symbolic(graph, Hybrid().max_degree)
        return (
            f"eliminating {part.eliminated} of {graph.num_nodes} nodes of low degree leaves a core of "
            f"{part.core_nodes} nodes and {part.core_edges} edges to iterate on"
        )
    return "elimination would fill in or leaves too large a core"
