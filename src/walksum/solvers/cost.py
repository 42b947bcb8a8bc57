"""What a solve costs on one CPU thread: predicted seconds of a preparation and two solves, forward and backward.

The rates were measured on a server CPU with AVX-512; only their ratios matter. A J that learns nothing is prepared once
for a whole training, so its preparation counts little.

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

ENTRY, MULTIPLY = 13e-9, 0.09e-9  # seconds of elimination by supernodes, per entry of L and per multiply-add, each head
ONE, EIGHT = 0.9e-9, 1.9e-9  # seconds per multiply-add of elimination by columns, of one head and of eight at once
TRYING = 6e9  # multiply-adds per second of elimination before the pattern is known
SWEEP, RESIDUAL = 0.033e-9, 0.25e-9  # seconds per column of a solve for each entry of L, forth and back; of a row of J
HALFWAY = 2.5e9  # multiply-adds per second of sweeps that stop at the core and go through memory
EDGE, NODE = 0.07e-9, 0.5e-9  # seconds per step of conjugate gradients takes for a column of an edge's end, of a node
CACHE, BEYOND = 32e6, 2.0  # bytes of six vectors of 32 columns that a cache still holds; how much slower it is beyond
CALL = 5e-5  # seconds around each block of 32 columns of a conjugate-gradient solve, and around a complete elimination
NARROW = 12  # columns of one head below which lanes stay empty, of conjugate gradients,
NARROW_GROUPS, NARROW_SWEEPS = 8, 24  # of sweeps through eight heads at once, and through one head after the other
KEPT = 0.02  # share of its preparation that a fixed J pays in each step

STEPS, LEAST, MOST = 12, 5, 100  # of preconditioned conjugate gradients: typical of the six designs, and how they range
START = 4  # steps' worth of time before the first and after the last
STEPS_PER_ROOT = 3.4  # steps for each unit of the root of the condition number, to an error of float32's rounding
CORE = 0.75  # steps that the core takes for each of the whole graph's

TRY_DIRECT = 300_000  # edges up to which a complete elimination is tried for a J that takes few steps
TRY_LONGER = 2  # times the cost of iterating up to which it is considered, for a J that takes many steps
EASY = 200  # multiply-adds per node and edge that are tried before anything is compared
TRY_HYBRID = 0.3  # share of nodes of low degree from which a partial elimination is tried


class Cost(NamedTuple):
    solver: Solver
    once: float  # seconds whatever the number of steps
    step: float  # seconds per step, forward and backward

    def seconds(self, steps: float) -> float:
        return self.once + self.step * steps


def of_graph(graph: Graph, heads: int, columns: int, learned: bool, stiff: bool = False) -> dict[str, Cost]:
    """The costs of every solver worth considering, by name; ``stiff``: for a J that takes MOST steps or more."""
    share, blocks, filled = 1.0 if learned else KEPT, heads * -(-columns // 32), heads * max(columns, NARROW)
    nodes, edges = graph.num_nodes, graph.num_edges
    costs = {"cg": of_iterating(graph, heads, columns)}
    # Most graphs of a mini-batch fill in so little that nothing else needs a look. An edge is in the factor of a
    # partial elimination or in its core, where it costs more; so that takes at least:
    at_least = 2 * CALL * blocks + 2.0 * (4 * edges + nodes) * filled / HALFWAY
    easy = symbolic.symbolic(graph, EASY * (nodes + edges)) if edges <= TRY_DIRECT else None
    if easy is not None:
        costs["direct"] = Cost(Direct(), _eliminating(easy, graph, heads, columns, share), 0.0)
        if costs["direct"].once <= at_least:
            return costs
    if float((graph.degree <= Hybrid().max_degree).float().mean()) >= TRY_HYBRID:
        part = symbolic.partial_symbolic(graph, Hybrid().max_degree)
        multiply_adds = 2.0 * (2 * part.fill + 2 * edges + nodes) * filled
        once = share * _by_columns(part.operations + part.fill, heads) + multiply_adds / HALFWAY
        costs["hybrid"] = _iterating(Hybrid(), part.core_nodes, part.core_edges, filled, blocks, once, CORE)
    if easy is None and (stiff or edges <= TRY_DIRECT):
        iterating = min(cost.seconds(MOST if stiff else STEPS) for cost in costs.values())
        budget = TRY_LONGER * iterating * TRYING / share / heads
        whole = symbolic.symbolic(graph, min(budget, Direct().max_operations))
        if whole is not None:
            costs["direct"] = Cost(Direct(), _eliminating(whole, graph, heads, columns, share), 0.0)
    return costs


def of_iterating(graph: Graph, heads: int, columns: int) -> Cost:
    """The cost of conjugate gradients, for which no elimination is tried."""
    width, blocks = heads * max(columns, NARROW), heads * -(-columns // 32)
    return _iterating(CG(), graph.num_nodes, graph.num_edges, width, blocks, 0.0, 1.0)


def depends_on_steps(costs: dict[str, Cost]) -> bool:
    """Whether eliminating everything is the quickest for many steps and not for few."""
    few, many = (min(costs, key=lambda name: costs[name].seconds(steps)) for steps in (LEAST, MOST))
    return many == "direct" != few


def _iterating(solver: Solver, nodes: int, edges: int, width: int, blocks: int, once: float, share: float) -> Cost:
    step = 2 * width * _beyond(nodes) * (2 * EDGE * edges + NODE * nodes)
    return Cost(solver, once + 2 * CALL * blocks + START * step, share * step)


def _beyond(nodes: int) -> float:
    return BEYOND if 6 * 32 * 4 * nodes > CACHE else 1.0


def _eliminating(plan: symbolic.Symbolic, graph: Graph, heads: int, columns: int, share: float) -> float:
    """A complete elimination and two solves."""
    narrow = NARROW_GROUPS if plan.by_columns and heads % 8 == 0 else NARROW_SWEEPS
    rows = RESIDUAL * _beyond(graph.num_nodes) * (2 * graph.num_edges + graph.num_nodes)
    sweeps = 2 * heads * max(columns, narrow) * (2 * SWEEP * plan.fill + rows)
    if plan.by_columns:
        return CALL + share * _by_columns(plan.operations + plan.fill, heads) + sweeps
    return CALL + share * heads * (ENTRY * plan.fill + MULTIPLY * plan.operations) + sweeps


def _by_columns(multiply_adds: float, heads: int) -> float:
    return multiply_adds * (ONE if heads == 1 else EIGHT * -(-heads // 8))


def estimated_steps(J: Precision) -> float:
    """Of conjugate gradients, by an estimate of the condition number."""
    diag, coupling = J.diag.detach(), J.off.detach().abs()
    if not bool((diag == 1).all()):  # as it is of every design that normalises
        (i, j), root = J.graph.edges, diag.rsqrt()
        coupling = coupling * root.index_select(1, i) * root.index_select(1, j)
    radius = 2 * float(coupling.sum(1).max()) / J.num_nodes
    if not radius < 1:  # not walk-summable
        return MOST
    return min(MOST, max(LEAST, STEPS_PER_ROOT * math.sqrt((1 + radius) / (1 - radius))))
