"""Precision: the matrix J, symmetric by construction, H sets of values on one graph."""

from __future__ import annotations

import warnings
from inspect import signature
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
import torch
from torch import Tensor

from walksum._checks import check_real_matrix
from walksum.graph import Graph
from walksum.ops import spmm

DENSE_LIMIT = 200  # nodes below which a dense eigensolver is both faster and free of convergence questions


class Precision:
    r"""The precision matrix J of H heads on one graph.

    .. math:: J_{ii} = \text{diag}_i, \qquad J_{ij} = J_{ji} = \text{off}_e \text{ for edge } e = (i, j)

    Args:
        graph: the sparsity pattern.
        diag: ``[H, N]``, or ``[N]`` for one head.
        off: ``[H, E]``, or ``[E]`` for one head, in the order of ``graph.edges``.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0))
        >>> J
        Precision(heads=1, num_nodes=3, num_edges=2)
        >>> J.to_dense()
        tensor([[[ 2., -1.,  0.],
                 [-1.,  2., -1.],
                 [ 0., -1.,  2.]]])
        >>> J @ torch.ones(1, 3, 1)
        tensor([[[1.],
                 [0.],
                 [1.]]])
    """

    def __init__(self, graph: Graph, diag: Tensor, off: Tensor):
        if not (isinstance(graph, Graph) and isinstance(diag, Tensor) and isinstance(off, Tensor)):
            given = ", ".join(type(each).__name__ for each in (graph, diag, off))
            raise ValueError(f"graph, diag, off are {given}; expected a Graph (Graph.from_edge_index) and two tensors")
        self.graph = graph.structure  # weights enter by the values; what solvers derive is the same for all weights
        self.diag = diag.unsqueeze(0) if diag.dim() == 1 else diag
        self.off = off.unsqueeze(0) if off.dim() == 1 else off
        _check(graph, self.diag, self.off)
        # What solvers prepared for these values, so that forward and backward (and, for a fixed J, every
        # epoch) share one factorisation. Written by solving.py only.
        self.prepared: dict[Any, Any] = {}

    @classmethod
    def trusted(cls, graph: Graph, diag: Tensor, off: Tensor) -> Precision:
        """Of values ``[H, N]`` and ``[H, E]`` that were checked before."""
        J = object.__new__(cls)
        J.graph, J.diag, J.off, J.prepared = graph, diag, off, {}
        return J

    @classmethod
    def from_scipy(cls, matrix: Any) -> Precision:
        """J of one head from a symmetric scipy sparse matrix of any format, or a dense array; zeros are no edges.

        Whole numbers become float64, float32 stays. The inverse of :meth:`to_scipy`.

        Example:
            >>> import scipy.sparse as sp, walksum as ws
            >>> ws.Precision.from_scipy(sp.diags([[-1, -1], [2, 2, 2], [-1, -1]], [-1, 0, 1], dtype=float))
            Precision(heads=1, num_nodes=3, num_edges=2)
        """
        matrix = _read_matrix(matrix)
        half = sp.triu(0.5 * (matrix + matrix.T), 1, format="csr").sorted_indices().tocoo()
        graph = Graph(torch.from_numpy(np.stack([half.row, half.col]).astype(np.int64)), matrix.shape[0])
        return cls(graph, *(torch.from_numpy(v.astype(matrix.dtype)) for v in (matrix.diagonal(), half.data)))

    def __getstate__(self) -> dict[str, Any]:
        """Without what was prepared, which holds addresses of this process: copies and other processes prepare anew."""
        return {**vars(self), "prepared": {}}

    @property
    def heads(self) -> int:
        return self.diag.size(0)

    @property
    def num_nodes(self) -> int:
        return self.graph.num_nodes

    @property
    def dtype(self) -> torch.dtype:
        return self.diag.dtype

    @property
    def device(self) -> torch.device:
        return self.diag.device

    def __matmul__(self, x: Tensor) -> Tensor:
        """``J x`` for ``x`` of shape ``[H, N, F]``; one head also takes ``[N, F]`` and ``[N]``."""
        if x.dim() == 3 and x.shape[:2] == self.diag.shape:
            return spmm(self.graph, self.diag, self.off, x)
        if self.heads == 1 and x.dim() in (1, 2) and x.size(0) == self.num_nodes:
            return spmm(self.graph, self.diag, self.off, x.reshape(1, self.num_nodes, -1)).view(x.shape)
        raise ValueError(
            f"x has shape {tuple(x.shape)}; J with {self.heads} head(s) and {self.num_nodes} nodes takes "
            f"[{self.heads}, {self.num_nodes}, F]" + (f" or [{self.num_nodes}, F]" if self.heads == 1 else "")
        )

    def normalised(self) -> Precision:
        """``D^-1/2 J D^-1/2``: unit diagonal, the same correlations."""
        i, j = self.graph.edges
        root = self.diag.sqrt()
        return Precision(self.graph, torch.ones_like(self.diag), self.off / (root[:, i] * root[:, j]))

    def detach(self) -> Precision:
        return Precision(self.graph, self.diag.detach(), self.off.detach())

    def to(self, *args: Any, **kwargs: Any) -> Precision:
        """Move or cast like ``Tensor.to``."""
        diag = self.diag.to(*args, **kwargs)
        return Precision(self.graph.to(diag.device), diag, self.off.to(*args, **kwargs))

    def to_dense(self) -> Tensor:
        """``[H, N, N]``."""
        i, j = self.graph.edges
        dense = torch.diag_embed(self.diag)
        heads = torch.arange(self.heads, device=self.device).unsqueeze(1)
        return dense.index_put((heads, i, j), self.off).index_put((heads, j, i), self.off)

    def to_scipy(self, head: int | None = None) -> sp.csr_matrix:
        """One head as a scipy CSR matrix; without ``head``, all heads as one block-diagonal matrix."""
        if head is None:
            return sp.block_diag([self.to_scipy(k) for k in range(self.heads)], format="csr")
        i, j = self.graph.edges.cpu().numpy()
        working = torch.promote_types(self.dtype, torch.float32)  # scipy knows no half precision
        diag, off = (t[head].detach().to("cpu", working).numpy() for t in (self.diag, self.off))
        upper = sp.coo_matrix((off, (i, j)), shape=(self.num_nodes, self.num_nodes))
        return (sp.diags(diag, dtype=diag.dtype) + upper + upper.T).tocsr()

    def walk_summability(self, rtol: float = 1e-3) -> tuple[float, float]:
        """A certified interval ``(lower, upper)`` for ``rho(|I - D^-1/2 J D^-1/2|)``, over all heads.

        J is walk-summable if and only if this radius is below one. The interval is about ``rtol`` wide and
        narrow enough to decide on which side of one it lies, except for matrices within rounding of one.
        """
        return _radius_interval(self.to_scipy(), rtol)

    @property
    def is_walk_summable(self) -> bool:
        """True if walk-summability is proven; False if it is refuted or lies within rounding of the border."""
        return self.walk_summability()[1] < 1

    def __repr__(self) -> str:
        return f"Precision(heads={self.heads}, num_nodes={self.num_nodes}, num_edges={self.graph.num_edges})"


def _read_matrix(matrix: Any) -> sp.csr_matrix:
    """A symmetric real matrix in float32 or float64, which a Precision can hold."""
    if not (sp.issparse(matrix) or isinstance(matrix, np.ndarray)):
        raise ValueError(f"matrix is a {type(matrix).__name__}; expected a scipy sparse matrix or a numpy array")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"matrix has shape {matrix.shape}, dtype {matrix.dtype}; expected real numbers [N, N]")
    check_real_matrix("matrix", matrix)
    # first, since the sum of two entries of one place may not fit into a small whole number
    matrix = sp.csr_matrix(matrix.astype(np.float32 if matrix.dtype.type is np.float32 else np.float64))
    if not np.isfinite(matrix.data).all():
        raise ValueError("matrix contains NaN or infinity")
    scale = np.sqrt(np.abs(matrix.diagonal()).astype(np.float64))
    skew = sp.triu(matrix - matrix.T, 1).tocoo()
    far = np.abs(skew.data) > np.sqrt(np.finfo(matrix.dtype).eps) * scale[skew.row] * scale[skew.col]
    if far.any():
        i, j = int(skew.row[far][0]), int(skew.col[far][0])
        raise ValueError(
            f"matrix is not symmetric: [{i}, {j}] is {matrix[i, j]:g} and [{j}, {i}] is {matrix[j, i]:g}; of one "
            "triangle T make T + T.T - diags(T.diagonal())"
        )
    return matrix


def _check(graph: Graph, diag: Tensor, off: Tensor) -> None:
    edges, of_nodes, of_edges = graph.edges, diag.shape, off.shape
    fits = len(of_nodes) == len(of_edges) == 2 and of_nodes[0] == of_edges[0]
    fits = fits and of_nodes[1] == graph.num_nodes and of_edges[1] == edges.size(1)
    alike = diag.dtype is off.dtype and diag.is_floating_point()
    together = (diag.is_cpu and off.is_cpu and edges.is_cpu) or diag.device == off.device == edges.device
    if not (fits and alike and together):
        _explain(graph, diag, off)


def _explain(graph: Graph, diag: Tensor, off: Tensor) -> None:
    """Say what :func:`_check` found wrong."""
    for name, values, count in (("diag", diag, graph.num_nodes), ("off", off, graph.num_edges)):
        if values.dim() != 2 or values.size(1) != count:
            raise ValueError(f"{name} has shape {tuple(values.shape)}; expected [H, {count}] for {graph}")
        if not values.is_floating_point():
            raise ValueError(f"{name} has dtype {values.dtype}; expected a floating-point tensor")
        if values.device != graph.device:
            raise ValueError(f"{name} is on {values.device} but the graph on {graph.device}; use graph.to(...)")
    if diag.size(0) != off.size(0) or diag.dtype != off.dtype:
        raise ValueError(
            f"diag is {diag.dtype} with {diag.size(0)} head(s), off {off.dtype} with {off.size(0)}; they must agree"
        )


def _radius_interval(J: sp.csr_matrix, rtol: float) -> tuple[float, float]:
    r"""Bounds for the spectral radius of the non-negative symmetric matrix :math:`|R|`.

    Below: the Rayleigh quotient of any vector. Above: for *any* positive v,
    :math:`\rho \le \max_i (|R| v)_i / v_i` (Collatz-Wielandt). A tight v is one step of inverse iteration,
    :math:`(s I - |R|) v = 1` with s just above the lower bound: positive whenever :math:`s > \rho`.
    The bounds hold whatever the accuracy of the vectors; only their tightness depends on it.
    """
    diag = J.diagonal().astype(np.float64)
    if diag.size == 0:
        return 0.0, 0.0
    if not (np.isfinite(diag).all() and np.isfinite(J.data).all() and (diag > 0).all()):
        return np.inf, np.inf  # D^-1/2 does not exist: not walk-summable in any sense
    R = _absolute_coupling(J, diag)
    if R.nnz == 0:
        return 0.0, 0.0
    rounding = 1 + 4 * np.finfo(np.float64).eps * (np.diff(R.indptr).max() + 4)
    lower = _rayleigh(R, _leading_vector(R)) / rounding
    best = np.inf
    for width in (rtol, 10 * rtol, 0.1, 0.5):
        # decide on the side of one first: never step past it when the lower bound lies below
        shift = lower + width * (min(lower, 1 - lower) if lower < 1 else lower)
        best = min(best, _collatz_wielandt(R, shift) * rounding)
        if best <= shift * rounding:
            break
    return float(lower), float(max(best, lower))


def _absolute_coupling(J: sp.csr_matrix, diag: np.ndarray) -> sp.csr_matrix:
    scale = sp.diags(1 / np.sqrt(diag))
    R = abs(scale @ J.astype(np.float64) @ scale).tocsr()
    R.setdiag(0)
    R.eliminate_zeros()
    return R


def largest_eigenvectors(A: sp.csr_matrix, count: int, start: np.ndarray, **options: Any) -> np.ndarray:
    """Eigenvectors of the ``count`` largest eigenvalues of a symmetric matrix, ascending, the same in every call.

    ARPACK starts again from random numbers where it finds an invariant subspace, as in graphs of several pieces; scipy
    takes new ones in each call from 1.17 on, unless it is given a seed.
    """
    seed = {"rng": 0} if "rng" in signature(spla.eigsh).parameters else {}
    return spla.eigsh(A, count, which="LA", v0=start, **options, **seed)[1]


def _leading_vector(R: sp.csr_matrix) -> np.ndarray:
    if R.shape[0] <= DENSE_LIMIT:
        return np.abs(np.linalg.eigh(R.toarray())[1][:, -1])
    start = np.sqrt(np.asarray(R.sum(1)).ravel() + 1e-300)
    try:
        return np.abs(largest_eigenvectors(R, 1, start, tol=1e-8, ncv=min(40, R.shape[0] - 1))[:, 0])
    except spla.ArpackNoConvergence:
        return start


def _rayleigh(R: sp.csr_matrix, v: np.ndarray) -> float:
    return float(v @ (R @ v) / (v @ v))


def _collatz_wielandt(R: sp.csr_matrix, shift: float) -> float:
    M = (sp.identity(R.shape[0], format="csr") * shift - R).tocsc()
    ones = np.ones(R.shape[0])
    if R.shape[0] <= DENSE_LIMIT:
        v = np.linalg.lstsq(M.toarray(), ones, rcond=None)[0]
    else:
        with warnings.catch_warnings(action="ignore"):  # an indefinite M only costs tightness
            v, _ = spla.cg(M, ones, rtol=1e-8, maxiter=2000)
    if not (np.isfinite(v).all() and (v > 0).all()):
        return np.inf
    return float(((R @ v) / v).max())
