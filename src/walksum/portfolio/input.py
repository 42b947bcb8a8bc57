"""Input: features that stay the same over all epochs, dense or sparse, with dropout on what is not zero."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from walksum.graph import Graph
from walksum.nn.dropout import Dropout
from walksum.portfolio.problem import SPARSE
from walksum.portfolio.spread import Operator, spread


class _Product(torch.autograd.Function):
    """``X W`` for a constant sparse X, given with its transpose."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, Xt: Tensor, weight: Tensor) -> Tensor:
        ctx.Xt = Xt
        return X @ weight

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        return None, None, ctx.Xt @ grads[0].contiguous()


class Input:
    """A constant table ``X [N, F]`` whose products with weights are asked for again and again."""

    def __init__(self, X: Any, device: str):
        density = X.nnz / max(1, X.shape[0] * X.shape[1]) if sp.issparse(X) else float((X != 0).mean())
        self.table, self.device, self.shape = X, device, X.shape
        self.kept: tuple[Operator, Input] | None = None  # propagated
        self.sparse = density <= SPARSE
        if not self.sparse:
            dense = X.toarray() if sp.issparse(X) else np.asarray(X)
            self.dense = torch.from_numpy(np.require(dense, np.float32, ["C", "W"])).to(device)
            return
        rows = sp.csr_matrix(X, dtype=np.float32)
        numbered = sp.csr_matrix((np.arange(rows.nnz) + 1, rows.indices, rows.indptr), rows.shape)
        columns = numbered.T.tocsr()
        self.values = torch.from_numpy(rows.data.copy()).to(device)
        self.by_column = torch.from_numpy(columns.data.astype(np.int64) - 1).to(device)
        self.row_parts = _parts(rows, device)
        self.column_parts = _parts(columns, device)
        with warnings.catch_warnings():  # torch says once per process that its CSR matrices are new and unchecked
            warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
            self._product(torch.zeros(X.shape[1], 1, device=device), 0.0)

    def rows(self, which: np.ndarray) -> Input:
        """Some of the rows: all that members without edges need while they train."""
        return Input(self.table[which], self.device)

    def propagated(self, operator: Operator, graph: Graph) -> Input:
        """``P X``, the last one kept."""
        if self.kept is None or self.kept[0] != operator:
            self.kept = operator, Input(spread(operator, self.dense, graph).cpu().numpy(), self.device)
        return self.kept[1]

    def times(self, weight: Tensor, p: float) -> Tensor:
        """``dropout(X, p) W`` for weights ``[F, ...]``."""
        return self._product(weight.flatten(1), p).unflatten(1, weight.shape[1:])

    def _product(self, weight: Tensor, p: float) -> Tensor:
        if not self.sparse:
            return Dropout(p)(self.dense) @ weight if p else self.dense @ weight
        values = Dropout(p)(self.values) if p else self.values
        # scipy made the indices, so that they need no check at each step
        X = torch.sparse_csr_tensor(*self.row_parts, values, self.shape, check_invariants=False)
        if not weight.requires_grad:
            return X @ weight
        Xt = torch.sparse_csr_tensor(
            *self.column_parts, values[self.by_column], self.shape[::-1], check_invariants=False
        )
        return _Product.apply(X, Xt, weight)


class InputOfFolds:
    """One table per fold, for networks of all folds side by side: network m reads that of fold ``m % folds``."""

    def __init__(self, tables: list[Input]):
        self.tables, self.shape = tables, tables[0].shape

    def rows(self, which: np.ndarray) -> InputOfFolds:
        return InputOfFolds([each.rows(which) for each in self.tables])

    def times(self, weight: Tensor, p: float) -> Tensor:
        parts = [each.times(weight[:, k :: len(self.tables)], p) for k, each in enumerate(self.tables)]
        return torch.stack(parts, 2).flatten(1, 2)  # [N, configs, folds, H]


def _parts(matrix: sp.csr_matrix, device: str) -> tuple[Tensor, Tensor]:
    return tuple(torch.from_numpy(p.astype(np.int64)).to(device) for p in (matrix.indptr, matrix.indices))  # type: ignore[return-value]
