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
from benchmarks.contestants import CUBIC, LARGEST, Make, Outcome, Run, leaves
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


Fits = Callable[[ws.Graph], str | None]  # the reason for which a graph is not tried


def _unless_large(reason: str) -> Fits:
    return lambda graph: reason if is_large(graph) else None


def _up_to(nodes: int, reason: str) -> Fits:
    return lambda graph: reason if graph.num_nodes > nodes else None


def _by_steps(graph: ws.Graph) -> str | None:
    return "minutes a run; measured on the graph a tenth of the size" if graph.num_edges > LARGEST else None


# name: (how, the module it needs, why a graph is left out)
PEERS: dict[str, tuple[Make, str, Fits]] = {
    "scipy-splu": (scipy_splu, "scipy", _unless_large("fill")),
    "cholmod": (cholmod, "cvxopt", _unless_large("fill")),
    "pyamg": (pyamg, "pyamg", _up_to(5_000, "one column at a time: minutes a run")),
    "torch-sla": (torch_sla, "torch_sla", _unless_large("fill")),
    "torchsparsegradutils": (torchsparsegradutils, "torchsparsegradutils", _by_steps),
    "dense-inverse": (dense_inverse, "torch", _up_to(CUBIC, "N^3: minutes a run")),
}


def installed() -> dict[str, Make]:
    return {name: make for name, (make, module, _) in PEERS.items() if find_spec(module)}


def why_not(name: str, graph: ws.Graph) -> str | None:
    """The reason for which a peer is not tried on a graph; None if it is."""
    return PEERS[name][2](graph)
