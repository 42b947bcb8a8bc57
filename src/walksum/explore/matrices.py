"""The precision matrix of a view, and what is prepared for it: made once, kept while it is looked at."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import torch

from walksum.analysis.influence import Walks
from walksum.backends.cpu.ldl import symbolic
from walksum.designs import DESIGNS
from walksum.explore.view import AS_TRAINED, USUAL, View
from walksum.graph import Graph
from walksum.precision import Precision
from walksum.solvers import SOLVERS, Direct, GaBP, Prepared, Solver, choose
from walksum.workflow.trained_run import TrainedRun

T = TypeVar("T")

ELIMINATE_EDGES, ELIMINATE_OPERATIONS = 20_000, 1e9  # up to here one factorisation beats iterating for every click
TOL, MOST_STEPS = 1e-11, 10_000
HALF = 0.5  # scale at which a design is built: doubling and halving round nothing


class Matrix:
    """One J of one head, in float64, with its prepared solvers."""

    def __init__(self, J: Precision):
        self.J = J
        self._prepared: dict[str, Prepared] = {}
        self._lock = threading.Lock()

    def prepared(self, solver: str) -> Prepared:
        with self._lock:
            if solver not in self._prepared:
                self._prepared[solver] = make_solver(solver, self.J).prepare(self.J)
            return self._prepared[solver]

    @cached_property
    def walks(self) -> Walks:
        return Walks(self.J)

    @cached_property
    def walk_summability(self) -> tuple[float, float]:
        return self.J.walk_summability()


def make_solver(name: str, J: Precision) -> Solver:
    """ "auto" is for many single columns of one J: it factorises where the library's choice might iterate."""
    if name == "gabp":
        return GaBP(tol=TOL, max_steps=MOST_STEPS)  # its own tolerance is the paper's, which shows in the fourth digit
    if name != "auto":
        return SOLVERS[name]()
    if J.graph.num_edges <= ELIMINATE_EDGES and symbolic.symbolic(J.graph, ELIMINATE_OPERATIONS) is not None:
        return Direct()
    return choose(J, 1).solver


def precision_of(trained: TrainedRun, view: View) -> Precision:
    """J of one head, in float64."""
    if view.design == AS_TRAINED:
        J = trained.precisions[view.layer - 1]
        return Precision(J.graph, J.diag[view.head - 1].contiguous(), J.off[view.head - 1].contiguous())
    x = trained.x if DESIGNS[view.design].variant(learned=False).reads_input else None
    full = trained.graph.derived(_full, x, view.design, view.coupling)
    return Precision(full.graph, full.diag, view.scale * full.off)


def _full(graph: Graph, x: torch.Tensor | None, design: str, coupling: str) -> Precision:
    """The design with its couplings at their limit; any scale of it is a multiple of them."""
    arguments: Any = {} if coupling == USUAL else {"coupling": coupling}
    scale = DESIGNS[design].scale_setting  # without one, the couplings are full
    if scale is not None:
        arguments[scale] = HALF
    features = None if x is None else x.double()
    J = DESIGNS[design].variant(learned=False)(**arguments)(graph, features, torch.empty(0, dtype=torch.float64))
    return Precision(graph, J.diag, J.off if scale is None else J.off / HALF)


class LRUCache:
    """The most recent values of a function, each made once even when two requests ask together."""

    def __init__(self, most: int):
        self._lock, self._slot = threading.Lock(), lru_cache(most)(lambda key: _Slot())

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        with self._lock:
            slot = self._slot(key)
        with slot.lock:
            if not slot.made:
                slot.made.append(make())
            return slot.made[0]


class _Slot:
    def __init__(self) -> None:
        self.lock, self.made = threading.Lock(), list[Any]()
