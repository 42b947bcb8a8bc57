"""Other libraries on the same problems, where they are installed. One head only.

Peers that know nothing of autograd are timed on factorisation and two solves alone: the gradients with respect
to J, which ours computes, are a gift to them. Each works in float32, as ours does, if it can: CHOLMOD and PyAMG cannot.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

import walksum as ws
from benchmarks.contestants import CUBIC, LARGEST, Contestant, Outcome, Run, captured, implicit, leaves
from benchmarks.problems import Problem
from benchmarks.truth import is_large, sparse_lu

CG_TOL, CG_STEPS, LOOK = 1e-6, 1000, 10  # plain CG looks at its residual once in ten steps


def _raw(solve_both: Callable[[np.ndarray], np.ndarray], p: Problem, dtype: Any = np.float64) -> Outcome:
    both = np.concatenate([p.h[0].numpy(), p.grad[0].numpy()], 1).astype(dtype)
    x = torch.from_numpy(np.ascontiguousarray(solve_both(both))).float().unsqueeze(0)
    return Outcome(x[..., : p.columns], x[..., p.columns :])


def _entries(graph: ws.Graph) -> tuple[Tensor, Tensor]:
    """Row and column of every entry of J: the diagonal, then the edges both ways."""
    (i, j), nodes = graph.edges, torch.arange(graph.num_nodes, device=graph.device)
    return torch.cat([nodes, i, j]), torch.cat([nodes, j, i])


def _values(diag: Tensor, off: Tensor) -> Tensor:
    return torch.cat([diag[0], off[0], off[0]])


def _matrix(p: Problem, dtype: Any) -> sp.csc_matrix:
    row, col = (each.numpy() for each in _entries(p.graph))
    return sp.csc_matrix((_values(p.diag, p.off).numpy().astype(dtype), (row, col)), (p.graph.num_nodes,) * 2)


def scipy_splu(dtype: Any) -> Contestant:
    """SuperLU with minimum degree. On a known graph the order is found beforehand and the values are put in place."""

    def known(p: Problem) -> Run:
        order = np.argsort(sparse_lu(_matrix(p, dtype)).perm_c)
        row, col = (each.numpy() for each in _entries(p.graph))
        place = np.argsort(order)
        numbered = sp.csc_matrix((np.arange(1.0, row.size + 1), (place[row], place[col])))
        slot = numbered.data.astype(np.int64) - 1

        def solve(both: np.ndarray) -> np.ndarray:
            data = _values(p.diag, p.off).numpy().astype(dtype)[slot]
            A = sp.csc_matrix((data, numbered.indices, numbered.indptr), numbered.shape)
            return sparse_lu(A, "NATURAL").solve(both[order])[place]

        return lambda: _raw(solve, p, dtype)

    return Contestant(known, lambda p: lambda: _raw(sparse_lu(_matrix(p, dtype)).solve, p, dtype))


def cholmod() -> Contestant:
    """CHOLMOD's supernodal and simplicial Cholesky, as shipped with cvxopt, in float64."""

    def known(p: Problem) -> Run:
        from cvxopt import cholmod as chol
        from cvxopt import matrix, spmatrix

        A = _matrix(p, np.float64).tocoo()
        lower = A.row >= A.col
        J = spmatrix(A.data[lower], A.row[lower].astype(int), A.col[lower].astype(int), A.shape)
        factor = chol.symbolic(J)

        def solve(both: np.ndarray) -> np.ndarray:
            chol.numeric(J, factor)
            x = matrix(both)
            chol.solve(factor, x)
            return np.array(x)

        return lambda: _raw(solve, p)

    return Contestant(known, lambda p: lambda: known(p)())


def pyamg() -> Contestant:
    """Smoothed aggregation: its hierarchy depends on the values, so that a known graph saves it nothing."""

    def make(p: Problem) -> Run:
        from pyamg import smoothed_aggregation_solver

        A = _matrix(p, np.float64).tocsr()

        def solve(both: np.ndarray) -> np.ndarray:
            levels = smoothed_aggregation_solver(A, symmetry="symmetric")
            return np.stack([levels.solve(b, tol=1e-7, accel="cg") for b in both.T], 1)

        return lambda: _raw(solve, p)

    return Contestant(make)


def torch_sla() -> Contestant:
    """It keeps no symbolic factor by itself, only whole solvers by value, which would recognise the run before."""

    def make(p: Problem) -> Run:
        import torch_sla as sla

        (row, col), size = _entries(p.graph), (p.graph.num_nodes,) * 2

        def solve(values: Tensor, h: Tensor) -> Tensor:
            sla.SOLVER_CACHE.clear()
            return sla.spsolve(values, row, col, size, h, is_symmetric=True, is_spd=True)

        return lambda: _differentiated(p, solve)

    return Contestant(make)


def _differentiated(p: Problem, solve: Callable[[Tensor, Tensor], Tensor]) -> Outcome:
    """Forward and backward of ``solve(values, h [N, F])``, which has derivatives of its own."""
    diag, off, h = leaves(p)
    mu = solve(_values(diag, off), h[0])
    mu.backward(p.grad[0])
    return Outcome(mu.detach().unsqueeze(0), h.grad)


def torchsparsegradutils() -> Contestant:
    def make(p: Problem) -> Run:
        from torchsparsegradutils import sparse_generic_solve
        from torchsparsegradutils.utils.linear_cg import LinearCGSettings, linear_cg

        index, shape = torch.stack(_entries(p.graph)), (p.graph.num_nodes,) * 2
        settings = LinearCGSettings(cg_tolerance=CG_TOL, max_cg_iterations=CG_STEPS)

        def solve(values: Tensor, h: Tensor) -> Tensor:
            A = torch.sparse_coo_tensor(index, values, shape)
            return sparse_generic_solve(A, h, linear_cg, linear_cg, settings=settings)

        return lambda: _differentiated(p, solve)

    return Contestant(make)


class TorchCSR:
    """J as torch's own CSR matrix (MKL, cuSPARSE); where its values go depends on the graph alone."""

    def __init__(self, graph: ws.Graph):
        row, col = _entries(graph)
        self.size = graph.num_nodes
        self.order = torch.argsort(row * self.size + col)
        counts = torch.bincount(row, minlength=self.size)
        self.start = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()
        self.column = col[self.order].int()
        with warnings.catch_warnings():  # torch says this once per process: here, not inside of what is timed
            warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
            self.matrix(row.new_ones(1, self.size).float(), row.new_ones(1, graph.num_edges).float())

    def matrix(self, diag: Tensor, off: Tensor) -> Tensor:
        value = _values(diag, off).index_select(0, self.order)
        return torch.sparse_csr_tensor(self.start, self.column, value, (self.size,) * 2, check_invariants=False)

    def solve(
        self, diag: Tensor, off: Tensor, h: Tensor, steps: int | None = None, tol: float = CG_TOL, most: int = CG_STEPS
    ) -> tuple[Tensor, int]:
        """Conjugate gradients, Jacobi, all columns at once; ``steps``: so many, without looking at the residual."""
        A, inverse, b = self.matrix(diag, off), 1 / diag[0].unsqueeze(1), h[0]
        x, r = torch.zeros_like(b), b.clone()
        p = z = inverse * r
        rho, bound = (r * z).sum(0), tol * b.norm(dim=0)
        for step in range(1, (steps or most) + 1):
            q = A @ p
            alpha = rho / (p * q).sum(0).clamp_min(1e-30)
            x.addcmul_(alpha, p)
            r.addcmul_(alpha, q, value=-1)
            if steps is None and step % LOOK == 0 and bool((r.norm(dim=0) <= bound).all()):
                break
            z = inverse * r
            rho, old = (r * z).sum(0), rho
            p = torch.addcmul(z, rho / old.clamp_min(1e-30), p)
        return x.unsqueeze(0), step


def torch_cg() -> Contestant:
    """Conjugate gradients that a user of torch writes in fifteen lines, on torch's CSR product."""

    def known(p: Problem) -> Run:
        csr = TorchCSR(p.graph)
        return lambda: implicit(p, csr.solve)

    return Contestant(known, lambda p: lambda: known(p)())


def torch_cg_captured() -> Contestant:
    """The same as a CUDA graph, with as many steps as it needed when it looked."""

    def make_pass(p: Problem) -> Callable[[], tuple[Tensor, Tensor]]:
        csr = TorchCSR(p.graph)
        count = max(implicit(p, csr.solve).steps)
        return lambda: _detached(implicit(p, lambda diag, off, h: csr.solve(diag, off, h, count)))

    return captured(make_pass)


def _detached(outcome: Outcome) -> tuple[Tensor, Tensor]:
    assert outcome.g is not None
    return outcome.mu, outcome.g


def _cholesky(p: Problem) -> Run:
    """torch's dense Cholesky, factorised once for forward and backward."""
    i, j = p.graph.edges

    def run() -> Outcome:
        factor: list[Tensor] = []

        def solve(diag: Tensor, off: Tensor, h: Tensor) -> tuple[Tensor, int]:
            if not factor:
                A = torch.diag(diag[0])
                A[i, j] = A[j, i] = off[0]
                factor.append(torch.linalg.cholesky_ex(A)[0])
            return torch.cholesky_solve(h[0], factor[0]).unsqueeze(0), 0

        return implicit(p, solve)

    return run


def torch_cholesky() -> Contestant:
    return Contestant(_cholesky)


def torch_cholesky_captured() -> Contestant:
    def make_pass(p: Problem) -> Callable[[], tuple[Tensor, Tensor]]:
        run = _cholesky(p)
        return lambda: _detached(run())

    return captured(make_pass)


Fits = Callable[[ws.Graph], str | None]  # the reason for which a graph is not tried


def _unless_large(reason: str) -> Fits:
    return lambda graph: reason if is_large(graph) else None


def _up_to(nodes: int, reason: str) -> Fits:
    return lambda graph: reason if graph.num_nodes > nodes else None


def _by_steps(graph: ws.Graph) -> str | None:
    return "minutes per run; measured on the graph a tenth of the size" if graph.num_edges > LARGEST else None


# name: (contestant, the module it needs, why a graph is left out)
PEERS: dict[str, tuple[Contestant, str, Fits]] = {
    "scipy-splu": (scipy_splu(np.float32), "scipy", _unless_large("fill")),
    "scipy-splu-float64": (scipy_splu(np.float64), "scipy", _unless_large("fill")),
    "cholmod": (cholmod(), "cvxopt", _unless_large("fill")),
    "pyamg": (pyamg(), "pyamg", _up_to(5_000, "one column at a time: minutes per run")),
    "torch-sla": (torch_sla(), "torch_sla", _unless_large("fill")),
    "torchsparsegradutils": (torchsparsegradutils(), "torchsparsegradutils", _by_steps),
    "torch-cg": (torch_cg(), "torch", _by_steps),
    "torch-cholesky": (torch_cholesky(), "torch", _up_to(CUBIC, "N^3: minutes per run")),
}
# On a GPU torch alone is there; dense matrices go further. Its sparse direct solver needs a build with cuDSS.
GPU_PEERS = {"torch-cg": torch_cg(), "torch-cholesky": torch_cholesky()}
GPU_CAPTURED = {"torch-cg-captured": torch_cg_captured(), "torch-cholesky-captured": torch_cholesky_captured()}


def installed() -> dict[str, Contestant]:
    return {name: contestant for name, (contestant, module, _) in PEERS.items() if find_spec(module)}


def why_not(name: str, graph: ws.Graph) -> str | None:
    """The reason for which a peer is not tried on a graph; None if it is."""
    return PEERS[name][2](graph)
