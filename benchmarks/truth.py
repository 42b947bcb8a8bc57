"""The right answer, in float64: a direct solve (dense on a GPU), or CG to 1e-13 where a factor would fill up."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import splu
from torch import Tensor

import walksum as ws
from benchmarks.problems import Problem

DENSE = 25_000  # nodes up to which a GPU factorises a head as a dense matrix, in less than a second
FEW_COLUMNS = 4  # on large graphs: columns are independent, so their error is a sample of the error


def sparse_lu(A: Any, order: str = "MMD_AT_PLUS_A") -> Any:
    return splu(A.tocsc(), permc_spec=order, diag_pivot_thresh=0.0, options={"SymmetricMode": True})


def is_large(graph: ws.Graph) -> bool:
    return graph.num_edges > 200_000


class Truth:
    """mu and g of a problem for its first columns."""

    def __init__(self, problem: Problem):
        if problem.graph.device.type == "cuda" and problem.graph.num_nodes <= DENSE:
            self.mu, self.g = _densely(problem)
            return
        J = ws.Precision(problem.graph, problem.diag.double(), problem.off.double()).to("cpu")
        large = is_large(problem.graph)
        columns = min(problem.columns, FEW_COLUMNS) if large else problem.columns
        mu, g = [], []
        for head in range(J.heads):
            A = J.to_scipy(head)
            h, grad = (t[head, :, :columns].double().cpu().numpy() for t in (problem.h, problem.grad))
            both = np.concatenate([h, grad], 1)
            x = conjugate_gradients(A, both) if large else sparse_lu(A).solve(both)
            mu.append(x[:, :columns])
            g.append(x[:, columns:])
        self.mu, self.g = (torch.from_numpy(np.stack(part)) for part in (mu, g))

    def errors(self, mu: Tensor, g: Tensor | None) -> tuple[float | None, float | None]:
        """Largest deviation relative to the largest entry; NaN stays NaN."""
        return _error(mu, self.mu), None if g is None else _error(g, self.g)


def _densely(problem: Problem) -> tuple[Tensor, Tensor]:
    both = torch.cat([problem.h, problem.grad], 2).double()
    x = torch.empty_like(both)
    for head in range(problem.heads):
        J = ws.Precision(problem.graph, problem.diag[head].double(), problem.off[head].double())
        x[head] = torch.cholesky_solve(both[head], torch.linalg.cholesky(J.to_dense()[0]))
    mu, g = x.cpu().split(problem.columns, 2)
    return mu, g


def _error(value: Tensor, true: Tensor) -> float:
    columns = min(value.size(2), true.size(2))
    value, true = value[..., :columns].detach().double().cpu(), true[..., :columns]
    return float((value - true).abs().max() / true.abs().max())


def conjugate_gradients(A: Any, b: np.ndarray, tol: float = 1e-13, max_steps: int = 5000) -> np.ndarray:
    """Jacobi-preconditioned, all columns at once, until the true residual is below tol of ``|b|`` in every column."""
    inverse, bound = 1 / A.diagonal()[:, None], tol * np.linalg.norm(b, axis=0)
    x, r = np.zeros_like(b), b.copy()
    p = z = inverse * r
    rho = (r * z).sum(0)
    for step in range(1, max_steps + 1):
        q = A @ p
        alpha = rho / np.maximum((p * q).sum(0), 1e-300)
        x += alpha * p
        r = b - A @ x if step % 20 == 0 else r - alpha * q
        if (np.linalg.norm(r, axis=0) <= bound).all() and (np.linalg.norm(b - A @ x, axis=0) <= 2 * bound).all():
            return x
        z = inverse * r
        rho, old = (r * z).sum(0), rho
        p = z + rho / np.maximum(old, 1e-300) * p
    warnings.warn(f"the float64 reference did not reach {tol} in {max_steps} steps", stacklevel=2)
    return x
