"""What the portfolio estimators share: rows, graph, folds, running the members, and looking rows up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from walksum.data.knn import as_graph_of, knn_graph
from walksum.estimators.auto.portfolio import Member, run_tasks, tasks
from walksum.estimators.auto.problem import Fold, Problem
from walksum.graph import Graph

RESAMPLES = 200


class Auto(BaseEstimator):
    """What both estimators share: rows, graph, folds, the portfolio, and looking rows up."""

    def __init__(
        self,
        budget: float = 60.0,
        metric: str | None = None,
        members: tuple[str, ...] | None = None,
        cv: int = 5,
        n_neighbors: int = 8,
        device: str = "cpu",
        random_state: Any = None,
        callback: Callable[..., None] | None = None,
    ):
        self.budget = budget
        self.metric = metric
        self.members = members
        self.cv = cv
        self.n_neighbors = n_neighbors
        self.device = device
        self.random_state = random_state
        self.callback = callback

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _problem(self, X: Any, y: np.ndarray, known: np.ndarray, classes: int, graph: Any, validation: Any) -> Problem:
        self.graph_ = (
            knn_graph(X.toarray() if sp.issparse(X) else X, self.n_neighbors)
            if graph is None
            else as_graph_of(graph, X.shape[0])
        )
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1)) % 100_003
        folds = self._folds(y, np.nonzero(known)[0], classes, validation, seed)
        return Problem(X, self.graph_, y, classes, folds, seed, self.device, _arcs(graph))

    def _folds(self, y: np.ndarray, rows: np.ndarray, classes: int, validation: Any, seed: int) -> list[Fold]:
        if validation is not None:
            valid = np.asarray(validation)
            valid = np.nonzero(valid)[0] if valid.dtype == bool else valid.astype(np.int64)
            train = np.setdiff1d(rows, valid)
            if not len(valid) or not len(train) or not np.isin(valid, rows).all():
                raise ValueError(
                    f"validation names {len(valid)} rows and leaves {len(train)} for training; name some of the "
                    "labelled rows"
                )
            return [(train, valid)]
        if isinstance(self.cv, bool) or not isinstance(self.cv, int) or self.cv < 2:
            raise ValueError(f"cv={self.cv!r}; expected a number of folds, 2 or more")
        folds = min(self.cv, len(rows))
        if folds < 2:
            raise ValueError(f"n_samples={len(rows)} labelled rows; a portfolio needs 2 or more to choose by")
        smallest = np.unique(y[rows], return_counts=True)[1].min() if classes else 0
        kind: Any = StratifiedKFold if classes and smallest >= folds else KFold
        cut = kind(folds, shuffle=True, random_state=seed).split(rows, y[rows])
        return [(rows[a], rows[b]) for a, b in cut]

    def _run(self, problem: Problem, metric: Any) -> list[Member]:
        if isinstance(self.budget, bool) or not isinstance(self.budget, int | float) or not self.budget > 0:
            raise ValueError(f"budget={self.budget!r}; expected a positive number of seconds")
        todo = tasks(problem, metric, self.members)
        if not todo:
            raise ValueError(f"members={self.members!r} names no member; leave it None for all")
        found, self.complete_ = run_tasks(todo, self.budget, self.callback)
        if not found:
            raise ValueError(f"budget={self.budget!r} seconds ended before the first member; raise it")
        return found

    def _table(self, found: list[Member], weights: np.ndarray, scores: np.ndarray) -> list[dict[str, Any]]:
        order = np.argsort(-weights, kind="stable")
        return [
            {
                "member": found[k].name,
                "weight": float(weights[k]),
                "validation": float(scores[k]),
                "uses graph": found[k].uses_graph,
                "seconds": found[k].seconds,
            }
            for k in order
        ]

    def _rows(self, X: Any, values: np.ndarray) -> np.ndarray:
        """Values of rows of fit; a new row gets the mean of its nearest rows of fit."""
        X = validate_data(self, X, reset=False, dtype=np.float64, accept_sparse="csr")
        dense = X.toarray() if sp.issparse(X) else X
        mine = self.X_.toarray() if sp.issparse(self.X_) else self.X_
        if dense.shape == mine.shape and np.array_equal(dense, mine):
            return values
        near = NearestNeighbors(n_neighbors=min(self.n_neighbors, len(mine))).fit(mine)
        distance, index = near.kneighbors(dense)
        out = values[index].mean(1)
        same = distance[:, 0] <= 1e-12
        out[same] = values[index[same, 0]]
        return out


def _arcs(graph: Any) -> np.ndarray | None:
    """The directed edges, where they came as such."""
    if graph is None or isinstance(graph, Graph):
        return None
    if isinstance(graph, torch.Tensor) and graph.layout == torch.strided:
        pairs = graph.cpu().numpy()
    elif sp.issparse(graph):
        pairs = np.stack(sp.coo_matrix(graph).coords)
    else:
        pairs = np.asarray(graph)
        if pairs.ndim != 2:
            return None
        if pairs.shape[0] == pairs.shape[1] and pairs.shape[0] != 2:
            pairs = np.stack(np.nonzero(pairs))
        elif pairs.shape[0] != 2:
            pairs = pairs.T
    if pairs.ndim != 2 or pairs.shape[0] != 2 or not pairs.shape[1]:
        return None
    there = set(zip(*pairs.tolist(), strict=True))
    both = sum((j, i) in there for i, j in there)
    return pairs.astype(np.int64) if both < len(there) else None


def paired_gain(gain: Callable[[np.ndarray], float], count: int) -> tuple[float, float, float]:
    """The gain over all rows with its bootstrap interval; draws that hold one class alone are left out."""
    random, samples = np.random.default_rng(0), []
    for _ in range(RESAMPLES):
        try:
            samples.append(gain(random.integers(0, count, count)))
        except ValueError:
            continue
    low, high = np.quantile(samples, (0.025, 0.975)) if samples else (np.nan, np.nan)
    return gain(np.arange(count)), float(low), float(high)
