"""Certified bounds for the walk-summability radius rho(|R|), R = I - D^-1/2 J D^-1/2."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

DENSE_LIMIT = 200  # below this a dense eigensolver is both faster and free of convergence questions


def interval(J: Any, rtol: float) -> tuple[float, float]:
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


def _absolute_coupling(J: Any, diag: np.ndarray) -> sp.csr_matrix:
    scale = sp.diags(1 / np.sqrt(diag))
    R = abs(scale @ J.astype(np.float64) @ scale).tocsr()
    R.setdiag(0)
    R.eliminate_zeros()
    return R


def _leading_vector(R: sp.csr_matrix) -> np.ndarray:
    if R.shape[0] <= DENSE_LIMIT:
        return np.abs(np.linalg.eigh(R.toarray())[1][:, -1])
    start = np.sqrt(np.asarray(R.sum(1)).ravel() + 1e-300)
    try:
        _, vectors = spla.eigsh(R, k=1, which="LA", v0=start, tol=1e-8, ncv=min(40, R.shape[0] - 1))
        return np.abs(vectors[:, 0])
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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an indefinite M only costs tightness
            v, _ = spla.cg(M, ones, rtol=1e-8, maxiter=2000)
    if not (np.isfinite(v).all() and (v > 0).all()):
        return np.inf
    return float(((R @ v) / v).max())
