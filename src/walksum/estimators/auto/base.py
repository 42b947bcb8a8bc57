"""What the portfolio estimators share: rows, graph, folds, running the members, and looking rows up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from walksum._torch import cpu_by_default
from walksum.data.encoding import medians
from walksum.estimators.glt import row_weights
from walksum.estimators.inputs import as_graph_of, entries, knn_graph
from walksum.estimators.labels import check_squares, columns_of_words_named, mean_of_same, same_rows
from walksum.graph import Graph
from walksum.portfolio.blend import Metric
from walksum.portfolio.fit import Portfolio, fit_portfolio, uninterrupted
from walksum.portfolio.folds import MOST_TURNS, cross_validation, given_validation
from walksum.portfolio.members import IGNORE_WEIGHTS
from walksum.portfolio.problem import SPARSE, WIDE, Problem, directed, mean_weight
from walksum.training.devices import usable_device


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
        tags.input_tags.allow_nan = True
        return tags

    def _table(self, X: Any, reset: bool) -> Any:
        """X as numbers; NaN marks a cell without one, in a table that is not sparse."""
        if reset:
            usable_device(self.device)  # before minutes are spent on members that need none
        finite: Any = True if sp.issparse(X) else "allow-nan"
        with columns_of_words_named(X):
            X = validate_data(self, X, reset=reset, dtype=np.float64, accept_sparse="csr", ensure_all_finite=finite)
        check_squares("X", X.data if sp.issparse(X) else X)
        return X

    def _filled(self, X: Any, known: np.ndarray | None = None) -> Any:
        """X with the medians of the ``known`` rows of fit in its empty cells."""
        if known is not None:
            self.fill_ = None if sp.issparse(X) else medians(X[known])
        if sp.issparse(X):
            return X
        X = X if self.fill_ is None else np.where(np.isnan(X), self.fill_, X)
        words = X.shape[1] > WIDE and np.count_nonzero(X) <= SPARSE * X.size
        return sp.csr_matrix(X) if words else X  # a table of zeros takes many times the memory, and longer

    @cpu_by_default
    def _problem(
        self, X: Any, y: np.ndarray, known: np.ndarray, classes: int, graph: Any, validation: Any,
        weight: np.ndarray | None,
    ) -> Problem:  # fmt: skip
        self._own_graph = graph is not None
        self.graph_ = (
            knn_graph(X.toarray() if sp.issparse(X) else X, self.n_neighbors)
            if graph is None
            else as_graph_of(graph, X.shape[0])
        )
        random = check_random_state(self.random_state)
        seed = int(random.randint(2**31 - 1)) % 100_003
        rows = np.nonzero(known)[0]
        folds = (
            cross_validation(y, rows, classes, self.cv, seed)
            if validation is None
            else given_validation(rows, validation)
        )
        if classes and len(rows) > MOST_TURNS:  # numbers need errors out of fold at every known row
            folds = folds[:1]
        device = str(usable_device(self.device))
        arcs, arc_weight = _arcs(graph)
        unit = mean_weight(self.graph_)
        return Problem(
            X, self.graph_, y, classes, folds, seed, device, arcs, weight=weight, arc_weight=arc_weight, unit=unit
        )

    @cpu_by_default
    def _fit(self, problem: Problem, metric: Metric) -> Portfolio:
        found = fit_portfolio(problem, metric, self.budget, self.members, self.callback)
        self.complete_ = found.complete
        weighted = problem.weight is not None
        self.ignoring_weights_ = [m.name for m in found.members if weighted and m.name.startswith(IGNORE_WEIGHTS)]
        with uninterrupted():
            self.members_ = found.table(metric)
            self.graph_gain_ = found.graph_gain(metric)
        self.portfolio_ = found
        return found

    def _weighted_rows(self, sample_weight: Any, known: np.ndarray) -> tuple[np.ndarray | None, np.ndarray]:
        """One weight per row, or None; and the known rows without those of weight zero, which teach nothing."""
        weight = row_weights(sample_weight, len(known))
        return weight, known if weight is None else known & (weight > 0)

    def _rows(self, X: Any, values: np.ndarray) -> np.ndarray:
        """Values of rows of fit; a new row gets the mean of its nearest rows of fit."""
        X = self._filled(self._table(X, reset=False))
        mine = self.X_
        if sp.issparse(X) != sp.issparse(mine):
            X, mine = (t.toarray() if sp.issparse(t) else t for t in (X, mine))
        same = same_rows(mine, X)
        out = mean_of_same(same, values, self._own_graph)
        new = np.diff(same.indptr) == 0
        if new.any():
            near = NearestNeighbors(n_neighbors=min(self.n_neighbors, mine.shape[0])).fit(mine)
            out[new] = values[near.kneighbors(X[new], return_distance=False)].mean(1)
        return out


def _arcs(graph: Any) -> tuple[np.ndarray | None, np.ndarray | None]:
    """The directed edges, where they came as such, and their weights, where they have some."""
    if graph is None or isinstance(graph, Graph):
        return None, None
    weight = None
    if hasattr(graph, "is_directed") and hasattr(graph, "nodes"):  # networkx: rows are its nodes in their order
        number = {node: k for k, node in enumerate(graph.nodes)}
        found = list(graph.edges(data="weight", default=1.0)) if graph.is_directed() else []
        pairs = np.array([(number[a], number[b]) for a, b, _ in found], dtype=np.int64).reshape(-1, 2).T
        weight = np.array([each for *_, each in found], dtype=np.float64)
    elif isinstance(graph, torch.Tensor) and graph.layout == torch.strided:
        pairs = graph.cpu().numpy()
    elif isinstance(graph, torch.Tensor):
        matrix = graph.to_sparse_coo().coalesce()
        pairs, weight = matrix.indices().cpu().numpy(), matrix.values().double().cpu().numpy()
    elif sp.issparse(graph) or _is_adjacency(graph):
        matrix = entries(graph)
        pairs, weight = np.stack(matrix.coords), matrix.data.astype(np.float64)
    else:
        pairs = np.asarray(graph)
        pairs = pairs.T if pairs.ndim == 2 and pairs.shape[0] != 2 else pairs
    if pairs.ndim != 2 or pairs.shape[0] != 2:
        return None, None
    return directed(pairs.astype(np.int64)), weight


def _is_adjacency(graph: Any) -> bool:
    shape = np.shape(graph)
    return len(shape) == 2 and shape[0] == shape[1] != 2
