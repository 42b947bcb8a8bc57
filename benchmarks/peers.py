"""Other libraries on the same problems, where they are installed. One head only.

Peers that know nothing of autograd are timed on factorisation and two solves alone: the gradients with respect
to J, which ours computes, are a gift to them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

import walksum as ws
from benchmarks.contestants import Make, Outcome, Run, leaves
from benchmarks.problems import Problem
from benchmarks.truth import is_large, sparse_lu


def _raw(solve_both: Callable[[np.ndarray], np.ndarray], p: Problem) -> Outcome:
    both = np.concatenate([p.h[0].numpy(), p.grad[0].numpy()], 1).astype(np.float64)
    x = torch.from_numpy(np.ascontiguousarray(solve_both(both))).float().unsqueeze(0)
    return Outcome(x[..., : p.columns], x[..., p.columns :])


def scipy_splu(p: Problem) -> Run:
    A = ws.Precision(p.graph, p.diag.double(), p.off.double()).to_scipy(0).tocsc()
    return lambda: _raw(sparse_lu(A).solve, p)


def cholmod(p: Problem) -> Run:
    """CHOLMOD's supernodal/simplicial Cholesky, as shipped with cvxopt; the symbolic step is done here, once."""
    from cvxopt import cholmod as chol
    from cvxopt import matrix, spmatrix

    A = ws.Precision(p.graph, p.diag.double(), p.off.double()).to_scipy(0).tocoo()
    lower = A.row >= A.col
    J = spmatrix(A.data[lower], A.row[lower].astype(int), A.col[lower].astype(int), A.shape)
    factor = chol.symbolic(J)

    def solve(both: np.ndarray) -> np.ndarray:
        chol.numeric(J, factor)
        x = matrix(both)
        chol.solve(factor, x)
        return np.array(x)

    return lambda: _raw(solve, p)


def pyamg(p: Problem) -> Run:
    from pyamg import smoothed_aggregation_solver

    A = ws.Precision(p.graph, p.diag.double(), p.off.double()).to_scipy(0).tocsr()

    def solve(both: np.ndarray) -> np.ndarray:
        levels = smoothed_aggregation_solver(A, symmetry="symmetric")
        return np.stack([levels.solve(b, tol=1e-7, accel="cg") for b in both.T], 1)

    return lambda: _raw(solve, p)


def dense_inverse(p: Problem) -> Run:
    def run() -> Outcome:
        diag, off, h = leaves(p)
        mu = torch.linalg.inv(ws.Precision(p.graph, diag, off).to_dense()) @ h
        mu.backward(p.grad)
        return Outcome(mu.detach(), h.grad)

    return run


def _entries(p: Problem) -> tuple[Tensor, Tensor]:
    (i, j), nodes = p.graph.edges, torch.arange(p.graph.num_nodes, device=p.graph.device)
    return torch.cat([nodes, i, j]), torch.cat([nodes, j, i])


def torch_sla(p: Problem) -> Run:
    import torch_sla as sla

    row, col = _entries(p)

    def run() -> Outcome:
        sla.SOLVER_CACHE.clear()  # or it would recognise the matrix of the run before
        diag, off, h = leaves(p)
        values = torch.cat([diag[0], off[0], off[0]])
        mu = sla.spsolve(values, row, col, (p.graph.num_nodes,) * 2, h[0], is_symmetric=True, is_spd=True)
        mu.backward(p.grad[0])
        return Outcome(mu.detach().unsqueeze(0), h.grad)

    return run


def torchsparsegradutils(p: Problem) -> Run:
    from torchsparsegradutils import sparse_generic_solve
    from torchsparsegradutils.utils.linear_cg import LinearCGSettings, linear_cg

    index, shape = torch.stack(_entries(p)), (p.graph.num_nodes,) * 2
    settings = LinearCGSettings(cg_tolerance=1e-6, max_cg_iterations=1000)

    def run() -> Outcome:
        diag, off, h = leaves(p)
        A = torch.sparse_coo_tensor(index, torch.cat([diag[0], off[0], off[0]]), shape)
        mu = sparse_generic_solve(A, h[0], linear_cg, linear_cg, settings=settings)
        mu.backward(p.grad[0])
        return Outcome(mu.detach().unsqueeze(0), h.grad)

    return run


# name: (how, the module it needs, whether it fits the graph)
PEERS: dict[str, tuple[Make, str, Callable[[ws.Graph], bool]]] = {
    "scipy-splu": (scipy_splu, "scipy", lambda g: not is_large(g)),
    "cholmod": (cholmod, "cvxopt", lambda g: not is_large(g)),
    "pyamg": (pyamg, "pyamg", lambda g: not is_large(g)),
    "torch-sla": (torch_sla, "torch_sla", lambda g: not is_large(g)),
    "torchsparsegradutils": (torchsparsegradutils, "torchsparsegradutils", lambda g: not is_large(g)),
    "dense-inverse": (dense_inverse, "torch", lambda g: g.num_nodes <= 5_000),
}


def fitting(graph: ws.Graph) -> dict[str, Make]:
    """Those that are installed and can take the graph."""
    return {name: make for name, (make, module, fits) in PEERS.items() if find_spec(module) and fits(graph)}
