"""What a solve costs on one CPU thread: predicted seconds of a preparation and two solves, forward and backward.

The rates were measured once on a server CPU with AVX-512; only their ratios matter. A J that learns nothing is prepared
once for a whole training, so its preparation counts little.

Elimination costs the same for every J; iterations take more steps the closer J is to singular. How many is only asked
where the answer decides: steps grow like the root of the condition number (1 + r) / (1 - r), and the mean row sum of
``|I - D^-1/2 J D^-1/2|`` is at most r, and close to it on the graphs in question: those that fill in little but not
too little are much alike everywhere.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from walksum.backends.cpu.ldl import symbolic
from walksum.graph import Graph
from walksum.precision import Precision
from walksum.solvers.base import Solver
from walksum.solvers.cg.solver import CG
from walksum.solvers.direct import Direct
from walksum.solvers.hybrid import Hybrid

FACTORISING = 1.5e9  # multiply-adds per second of sparse elimination, for each head,
FULL = 14e9  # and of the dense block at its end
TRYING = 3e9  # of both together, before the pattern is known
SWEEPING = 6e9  # of triangular sweeps, over all columns,
HALFWAY = 2.5e9  # and of those that stop at the core and go through memory
EDGE, NODE = 0.07e-9, 0.5e-9  # seconds per step of conjugate gradients takes for a column of an edge's end, of a node
CACHE, BEYOND = 32e6, 2.0  # bytes of six vectors of 32 columns that a cache still holds; how much slower it is beyond
CALL = 1e-4  # seconds around each block of 32 columns of a conjugate-gradient solve
NARROW = 16  # columns of one head below which lanes stay empty
KEPT = 0.02  # share of its preparation that a fixed J pays in each step

STEPS, LEAST, MOST = 12, 5, 100  # of preconditioned conjugate gradients: typical of the six designs, and how they range
START = 4  # steps' worth of time before the first and after the last
STEPS_PER_ROOT = 3.4  # steps for each unit of the root of the condition number, to an error of float32's rounding
CORE = 0.75  # steps that the core takes for each of the whole graph's

TRY_DIRECT = 300_000  # edges up to which a complete elimination is tried at all
TRY_LONGER = 2  # times the cost of iterating up to which it is considered, for a J that takes many steps
TRY_HYBRID = 0.3  # share of nodes of low degree from which a partial elimination is tried


class Cost(NamedTuple):
    solver: Solver
    once: float  # seconds whatever the number of steps
    step: float  # seconds per step, forward and backward

    def seconds(self, steps: float) -> float:
        return self.once + self.step * steps


def of_graph(graph: Graph, heads: int, columns: int, learned: bool) -> dict[str, Cost]:
    """The costs of every solver worth considering, by name."""
    share, blocks = 1.0 if learned else KEPT, heads * -(-columns // 32)
    width, filled = heads * columns, heads * max(columns, NARROW)
    costs = {"cg": _iterating(CG(), graph.num_nodes, graph.num_edges, filled, blocks, 0.0, 1.0)}
    if float((graph.degree <= Hybrid().max_degree).float().mean()) >= TRY_HYBRID:
        part = symbolic.partial_symbolic(graph, Hybrid().max_degree)
        once = share * _factorising(part, heads) + _sweeping(part, graph, width) / HALFWAY
        costs["hybrid"] = _iterating(Hybrid(), part.core_nodes, part.core_edges, filled, blocks, once, CORE)
    if graph.num_edges <= TRY_DIRECT:
        budget = TRY_LONGER * min(cost.seconds(STEPS) for cost in costs.values()) * TRYING / share / heads
        whole = symbolic.symbolic(graph, budget)
        if whole is not None:
            once = share * _factorising(whole, heads) + _sweeping(whole, graph, width) / SWEEPING
            costs["direct"] = Cost(Direct(), once, 0.0)
    return costs


def depends_on_steps(costs: dict[str, Cost]) -> bool:
    """Whether eliminating everything is the quickest for many steps and not for few."""
    few, many = (min(costs, key=lambda name: costs[name].seconds(steps)) for steps in (LEAST, MOST))
    return many == "direct" != few


def _iterating(solver: Solver, nodes: int, edges: int, width: int, blocks: int, once: float, share: float) -> Cost:
    beyond = BEYOND if 6 * 32 * 4 * nodes > CACHE else 1.0
    step = 2 * width * beyond * (2 * EDGE * edges + NODE * nodes)
    return Cost(solver, once + 2 * CALL * blocks + START * step, share * step)


def _factorising(plan: symbolic.Symbolic | symbolic.PartialSymbolic, heads: int) -> float:
    size = plan.num_nodes - plan.tail
    full = size * (size * size - 1.0) / 6
    return heads * ((plan.operations - full + plan.fill) / FACTORISING + full / FULL)


def _sweeping(plan: symbolic.Symbolic | symbolic.PartialSymbolic, graph: Graph, width: int) -> float:
    """Multiply-adds of both sweeps and of the residual, forward and backward."""
    return 2.0 * (2 * plan.fill + 2 * graph.num_edges + graph.num_nodes) * width


def estimated_steps(J: Precision) -> float:
    """Of conjugate gradients, by an estimate of the condition number."""
    (i, j), root = J.graph.edges, J.diag.detach().rsqrt()
    coupling = J.off.detach().abs() * root[:, i] * root[:, j]
    radius = 2 * float(coupling.sum(1).max()) / J.num_nodes
    if not radius < 1:  # not walk-summable
        return MOST
    return min(MOST, max(LEAST, STEPS_PER_ROOT * math.sqrt((1 + radius) / (1 - radius))))
