"""Multigrid: algebraic multigrid (PyAMG) as the preconditioner of CG, for grids and meshes."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from walksum._checks import check_choice, check_limits
from walksum.precision import Precision
from walksum.solvers.base import Prepared, Solver
from walksum.solvers.cg.solver import CG, PreparedCG


@dataclass(frozen=True)
class Multigrid(Solver):
    """Conjugate gradients preconditioned by one V-cycle of algebraic multigrid.

    Steps stay few however large a grid or mesh grows; on graphs with hubs other solvers are faster. Needs
    PyAMG (``pip install walksum[multigrid]``). The hierarchy of each head is built in ``prepare``.

    Args:
        tol: backward error to reach; by default 16 machine epsilons of the dtype.
        max_steps: give up after this many steps.
        coarsening: "smoothed" (smoothed aggregation) or "classical" (Ruge and Stueben).

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0))
        >>> ws.solve(J, torch.tensor([[0.0], [1.0], [0.0]]), solver=ws.Multigrid()).flatten()
        tensor([0.5000, 1.0000, 0.5000])
    """

    tol: float | None = None
    max_steps: int = 200
    coarsening: str = "smoothed"

    def __post_init__(self) -> None:
        check_limits(self.max_steps, self.tol)
        check_choice("coarsening", self.coarsening, ("smoothed", "classical"))

    def prepare(self, J: Precision) -> Prepared:
        return PreparedMultigrid(J, self)


class PreparedMultigrid(PreparedCG):
    def __init__(self, J: Precision, solver: Multigrid):
        pyamg = _pyamg()
        super().__init__(J, CG(solver.tol, solver.max_steps, "jacobi"))
        self.solver, self.name = solver, solver.name  # type: ignore[assignment]
        build = {"smoothed": _smoothed, "classical": _classical}[solver.coarsening]
        heads = range(J.heads) if self.positive else ()
        self.cycles: list[VCycle] = []
        with contextlib.suppress(ValueError, np.linalg.LinAlgError):  # J is far from definite: CG will say so
            self.cycles = [VCycle(build(pyamg, J.to_scipy(k).astype(np.float64))) for k in heads]

    def _precondition(self, r: Tensor) -> Tensor:
        if not self.cycles:
            return super()._precondition(r)
        residuals = r.detach().cpu().numpy()
        z = np.stack([cycle(b) for cycle, b in zip(self.cycles, residuals, strict=True)])
        return torch.from_numpy(z).to(r)


def _pyamg() -> Any:
    try:
        import pyamg
    except ImportError as error:
        raise ImportError("solver='multigrid' needs PyAMG: pip install walksum[multigrid]") from error
    return pyamg


def _smoothed(pyamg: Any, A: sp.csr_matrix) -> Any:
    # PyAMG estimates spectral radii from random vectors: draw the same ones every time, and leave no trace
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    try:
        return pyamg.smoothed_aggregation_solver(A, max_coarse=50)
    finally:
        np.random.set_state(state)  # noqa: NPY002


def _classical(pyamg: Any, A: sp.csr_matrix) -> Any:
    return pyamg.ruge_stuben_solver(A, max_coarse=50)


class VCycle:
    """One symmetric V-cycle for all columns at once; PyAMG's own takes one vector at a time."""

    def __init__(self, hierarchy: Any):
        self.levels = [(level.A.tocsr(), level.P.tocsr(), _smoother(level.A)) for level in hierarchy.levels[:-1]]
        coarsest = hierarchy.levels[-1].A.toarray()
        values = np.linalg.eigvalsh(coarsest)
        if len(values) and values[0] < -len(values) * np.finfo(np.float64).eps * abs(values).max():
            raise np.linalg.LinAlgError("the coarsest matrix is indefinite")  # its inverse would hide that from CG
        self.coarsest = np.linalg.pinv(coarsest)

    def __call__(self, b: np.ndarray) -> np.ndarray:
        return self._descend(0, b.astype(np.float64))

    def _descend(self, depth: int, b: np.ndarray) -> np.ndarray:
        if depth == len(self.levels):
            return self.coarsest @ b
        A, P, smoother = self.levels[depth]
        x = smoother * b
        x += P @ self._descend(depth + 1, P.T @ (b - A @ x))
        return x + smoother * (b - A @ x)


def _smoother(A: Any) -> np.ndarray:
    """Jacobi with the weight 4/3 over Gershgorin's bound of D^-1 A: below 2 over it, so the cycle stays definite."""
    diag = A.diagonal()
    bound = np.max(np.asarray(abs(A).sum(1)).ravel() / diag)
    return (4 / 3 / bound / diag)[:, None]
