"""Hybrid: exact elimination of the nodes of low degree, an iterative solver on the core that is left."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from walksum._checks import check_count, check_positive
from walksum.backends.cpu.ldl import symbolic as elimination
from walksum.graph import Graph
from walksum.precision import Precision
from walksum.solvers.base import Outcome, Prepared, Solver, Status, default_tol, status_of
from walksum.solvers.cg.solver import CG
from walksum.solvers.column_factor import ColumnFactor
from walksum.solvers.factor import measure, residual

ROUNDS = 2  # corrections, should the core's tolerance not have sufficed for the whole


class Plan(NamedTuple):
    """What elimination leaves, for a look before the choice."""

    eliminated: int
    core_nodes: int
    core_edges: int


@dataclass(frozen=True)
class Hybrid(Solver):
    r"""Eliminate nodes of degree at most ``max_degree``, least degree first; solve the core; substitute back.

    .. math:: J_{ab} \leftarrow J_{ab} - J_{av} J_{vb} / J_{vv}, \qquad h_a \leftarrow h_a - J_{av} h_v / J_{vv}

    The Schur complement of a walk-summable J is walk-summable, so every solver runs on the core. It pays where a third
    of the nodes go and edges hardly grow; :meth:`plan` tells. Runs on the CPU.

    Args:
        max_degree: eliminate as long as there is a node with at most so many neighbours.
        inner: the solver of the core; conjugate gradients by default.
        tol: the backward error to reach; by default that of ``inner``, or 16 machine epsilons.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0))
        >>> ws.solve(J, torch.tensor([[0.0], [1.0], [0.0]]), solver=ws.Hybrid(max_degree=1)).flatten()
        tensor([0.5000, 1.0000, 0.5000])
    """

    max_degree: int = 8
    inner: Solver | None = None
    tol: float | None = None

    def __post_init__(self) -> None:
        check_count("max_degree", self.max_degree)
        if self.tol is not None:
            check_positive(tol=self.tol)
        if self.inner is not None and not isinstance(self.inner, Solver):
            raise ValueError(f"inner={self.inner!r}; expected a solver object such as CG(), or None")

    def plan(self, graph: Graph) -> Plan:
        """How many nodes go, and the nodes and edges of the core."""
        symbolic = elimination.partial_symbolic(graph, self.max_degree)
        return Plan(symbolic.eliminated, symbolic.core_nodes, symbolic.core_edges)

    def prepare(self, J: Precision) -> PreparedHybrid:
        return PreparedHybrid(J, self)

    def core_solver(self) -> Solver:
        """The solver of the core, told the tolerance of the whole."""
        inner: Any = CG() if self.inner is None else self.inner
        return inner if self.tol is None or not hasattr(inner, "tol") else replace(inner, tol=self.tol)


class PreparedHybrid(Prepared):
    def __init__(self, J: Precision, solver: Hybrid):
        super().__init__(J, solver)
        inner = solver.core_solver()
        self.tol = default_tol(getattr(inner, "tol", solver.tol), J.dtype)
        self.factor = ColumnFactor(J, elimination.partial_symbolic(J.graph, solver.max_degree))
        self.core = None
        if self.factor.failure is None and self.factor.symbolic.core_nodes:
            self.core = inner.prepare(self._core_precision(J, solver.max_degree))

    @property
    def nodes(self) -> np.ndarray:
        """The nodes of the core, in its order."""
        return self.factor.plan[0][self.factor.symbolic.eliminated :]

    def _core_precision(self, J: Precision, max_degree: int) -> Precision:
        symbolic = self.factor.symbolic
        diag = self.factor.pivots[:, symbolic.eliminated :].to(J.dtype)
        off = self.factor.factor[:, symbolic.fill :]
        graph = J.graph.derived(elimination.core_graph, max_degree)
        return Precision(graph, diag.contiguous(), off.contiguous())

    def run(self, h: Tensor) -> Outcome:
        if self.factor.failure is not None:
            return Outcome.failed(h, self.factor.failure)
        mu, status, steps, error = self._solve(h)
        for _ in range(ROUNDS):
            if status is not Status.converged or not error > self.tol:
                break
            total = mu.double()
            correction, status, more, _ = self._solve(residual(self.J, h, total).to(mu.dtype))
            mu, steps = (total + correction).to(mu.dtype), steps + more
            error = measure(self.J, h, mu)
        if status is Status.converged or math.isfinite(error):  # else the core's solver knows why there is no mu
            status = status_of(error, self.tol, status)
        return Outcome(mu, status, steps, error)

    def _solve(self, h: Tensor) -> Outcome:
        if self.core is None:
            mu, error = self.factor.solve(h)
            return Outcome(mu.to(h.device), Status.converged, 0, error)
        eliminated = self.factor.eliminate(h)
        inner = self.core.outcome(eliminated[:, self.factor.symbolic.eliminated :])
        mu, error = self.factor.substitute(h, eliminated, inner.value)
        return Outcome(mu.to(h.device), inner.status, inner.steps, error)
