"""Problem: what every member of the portfolio is given; the same rows, folds and targets for all."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from walksum.graph import Graph

Fold = tuple[np.ndarray, np.ndarray]  # row numbers: learned from, judged by
SPARSE = 0.25  # share of non-zero entries up to which the sparse way pays


@dataclass
class Problem:
    """A table of nodes with a graph, targets of some nodes, and the folds that choose.

    Attributes:
        X: features ``[N, F]``, a dense array or a CSR matrix.
        y: codes of classes, or standardised numbers; only rows of the folds are read.
        classes: number of classes; 0 for a regression.
        folds: one pair (train, validation) if validation rows were given, else the folds of a cross-validation.
        arcs: the directed edges as they came ``[2, M]``, or None where the graph came undirected.
    """

    X: Any
    graph: Graph
    y: np.ndarray
    classes: int
    folds: list[Fold]
    seed: int = 0
    device: str = "cpu"
    arcs: np.ndarray | None = None
    kept: dict[Any, Any] = field(default_factory=dict)  # what several members read: features, reduced tables

    @property
    def outputs(self) -> int:
        return max(1, self.classes)

    @property
    def num_nodes(self) -> int:
        return int(self.X.shape[0])

    @cached_property
    def judged(self) -> np.ndarray:
        """Rows that some fold judges."""
        return np.unique(np.concatenate([valid for _, valid in self.folds]))

    @cached_property
    def labelled(self) -> np.ndarray:
        return np.unique(np.concatenate([np.concatenate(fold) for fold in self.folds]))

    @cached_property
    def wide(self) -> bool:
        """Many, mostly zero columns: words rather than measurements."""
        return bool(sp.issparse(self.X)) or self.X.shape[1] > 200

    def target(self) -> Tensor:
        kind = np.int64 if self.classes else np.float32
        return torch.from_numpy(np.where(np.isnan(self.y), 0, self.y).astype(kind))

    def once(self, key: Any, make: Any) -> Any:
        """``make()``, kept for other members that ask for the same."""
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]

    def out_of_fold(self, outputs: np.ndarray) -> np.ndarray:
        """``[folds, N, C] -> [N, C]``: every judged row by the fold that did not learn from it; mean elsewhere."""
        out = outputs.mean(0)
        counts = np.zeros(self.num_nodes)
        total = np.zeros_like(out)
        for each, (_, valid) in zip(outputs, self.folds, strict=True):
            total[valid] += each[valid]
            counts[valid] += 1
        seen = counts > 0
        out[seen] = total[seen] / counts[seen, None]
        return out
