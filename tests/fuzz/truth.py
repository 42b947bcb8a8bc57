"""Twins in extended precision (numpy's longdouble): matrix, Cholesky factor, inverse and true backward error."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

import walksum as ws

SMALL = 48  # nodes up to which the matrix is factorised in extended precision
WIDE = np.longdouble


def wide(t: Tensor) -> np.ndarray:
    return t.detach().cpu().to(torch.float64).numpy().astype(WIDE)


class Twin:
    """One head of J."""

    def __init__(self, J: ws.Precision, head: int):
        n, (i, j) = J.num_nodes, J.graph.edges.numpy()
        diag, off = wide(J.diag[head]), wide(J.off[head])
        self.n, self.diag, self.finite = n, diag, bool(np.isfinite(diag).all() and np.isfinite(off).all())
        self.small = n <= SMALL
        # what measuring itself may miss, in machine epsilons and in units of the smallest number: sums of so many terms
        self.terms = 2 + int(np.bincount(np.concatenate([i, j]), minlength=1).max(initial=0))
        if self.small:
            self.A = np.zeros((n, n), WIDE)
            self.A[i, j] = off
            self.A[j, i] = off
            self.A[np.arange(n), np.arange(n)] = diag
            self.norm = np.abs(self.A).sum(1).max(initial=0)
        else:
            rows, cols = np.concatenate([i, j, np.arange(n)]), np.concatenate([j, i, np.arange(n)])
            self.A = sp.csr_matrix((np.concatenate([off, off, diag]), (rows, cols)), shape=(n, n))
            self.norm = np.bincount(rows, np.abs(np.concatenate([off, off, diag])).astype(float), n).max(initial=0)

    def backward_error(self, mu: np.ndarray, h: np.ndarray, quantum: float) -> float:
        """The largest over columns of |h - J mu| / (|J| |mu| + |h|), in norms of the largest entry.

        ``quantum`` is the smallest number of the dtype: half of it is lost in every operation near underflow, in which
        no better mu may exist.
        """
        with np.errstate(all="ignore"):
            r = np.abs(h - self.A @ mu).max(0)
            r = np.maximum(r - (self.terms + 0.5 * self.norm) * quantum, 0)
            scale = self.norm * np.abs(mu).max(0) + np.abs(h).max(0)
            return float(np.where(r == 0, 0, r / scale).max(initial=0))

    @cached_property
    def factor(self) -> np.ndarray | None:
        """L of the scaled matrix D^-1/2 J D^-1/2; None where it is not positive definite, or within rounding of it."""
        if not self.finite or not (self.diag > 0).all():
            return None
        root = np.sqrt(self.diag)
        S = self.A / root[:, None] / root[None, :]
        L = np.zeros_like(S)
        for k in range(self.n):
            pivot = S[k, k] - L[k, :k] @ L[k, :k]
            if not pivot > 0:
                return None
            L[k, k] = np.sqrt(pivot)
            L[k + 1 :, k] = (S[k + 1 :, k] - L[k + 1 :, :k] @ L[k, :k]) / L[k, k]
        return L

    @cached_property
    def scaled_inverse(self) -> np.ndarray:
        L, n = self.factor, self.n
        assert L is not None
        X = np.zeros_like(L)
        for k in range(n):
            X[k] = (np.eye(n, dtype=WIDE)[k] - L[k, :k] @ X[:k]) / L[k, k]
        return X.T @ X

    @cached_property
    def inverse(self) -> np.ndarray:
        root = np.sqrt(self.diag)
        return self.scaled_inverse / root[:, None] / root[None, :]

    @cached_property
    def scaled_condition(self) -> float:
        """Of D^-1/2 J D^-1/2 in the norm of row sums: what Cholesky's rounding errors grow with."""
        root = np.sqrt(self.diag)
        S = self.A / root[:, None] / root[None, :]
        return float(np.abs(S).sum(1).max(initial=1) * np.abs(self.scaled_inverse).sum(1).max(initial=1))

    @cached_property
    def condition(self) -> float:
        """Of J itself in the norm of row sums: what the backward error of a solve may grow by."""
        return float(self.norm * np.abs(self.inverse).sum(1).max(initial=0))

    @cached_property
    def logdet(self) -> float:
        assert self.factor is not None
        return float(2 * np.log(np.diag(self.factor)).sum() + np.log(self.diag).sum())
