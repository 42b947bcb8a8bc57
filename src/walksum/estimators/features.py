"""GraphFeatures: columns that describe a node's neighbourhood, for any tabular estimator."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d

from walksum._checks import check_choice, check_count, check_unmasked
from walksum.data.user_files import MANY_VALUES
from walksum.estimators.inputs import GraphLike, TableLike, as_graph_of, warn_of_order
from walksum.estimators.labels import columns_of_words_named, known_labels
from walksum.portfolio.features import SCALES, node_features, other_targets, reduce_columns

KINDS = NUMBERS, CLASSES = "numbers", "classes"


class GraphFeatures(TransformerMixin, BaseEstimator):
    r"""Columns that describe a node's neighbourhood, near and far: of features and of known targets.

    Each node gets its own columns, its degree, the means of its neighbours' columns (one and two hops),
    :math:`P_s X = (1 - |s|)(I - s D^{-1/2} A D^{-1/2})^{-1} X`, and with ``labels=True`` the targets of *other* nodes:

    .. math:: (P_s Y)_i - (P_s)_{ii} Y_i

    for classes (Y one-hot, zero where unknown); for numbers, with s > 0, divided by the same sum of ones, and the same
    mean for all nodes that have no known target near. The diagonal of the inverse is exact, so no node ever sees its
    own target.

    Rows. A graph has one table of all nodes, while a pipeline is fitted on some rows. So give the graph and the table
    to the constructor, and let the rows of ``fit`` and ``transform`` be node numbers, ``[n]`` or ``[n, 1]``: then every
    pipeline, cross-validation and search of scikit-learn works as usual. Without ``table``, ``X`` is the table itself,
    one row per node, in ``fit`` and in ``transform``; unknown targets are NaN (or -1 among class codes).

    Args:
        graph: an adjacency matrix, an edge list or a :class:`walksum.Graph`; may also be given to ``fit``.
        table: features of all nodes ``[N, F]``, dense or sparse.
        scales: s of each operator; negative ones repel.
        hops: neighbour means up to so many hops.
        degrees: add the logarithm of the degree.
        columns: add the columns themselves.
        labels: add the targets of other nodes; ``fit`` then needs ``y``. "numbers" or "classes" says what they are;
            True: numbers if they have fractions.
        components: sparse tables and tables wider than this are first reduced to so many columns by SVD; None: never.
        random_state: seed of the SVD.

    Example:
        >>> import numpy as np, walksum as ws
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> ring = np.array([np.arange(6), (np.arange(6) + 1) % 6])
        >>> table = np.array([[0.0], [0.2], [0.1], [1.0], [0.9], [1.1]])
        >>> model = make_pipeline(ws.GraphFeatures(ring, table, hops=1), LogisticRegression())
        >>> model.fit([0, 1, 3, 4], ["a", "a", "b", "b"]).predict([2, 5]).tolist()
        ['a', 'b']
    """

    def __init__(
        self,
        graph: GraphLike | None = None,
        table: TableLike | None = None,
        scales: Sequence[float] = SCALES,
        hops: int = 2,
        degrees: bool = True,
        columns: bool = True,
        labels: bool | str = False,
        components: int | None = 64,
        random_state: int | None = 0,
    ):
        self.graph = graph
        self.table = table
        self.scales = scales
        self.hops = hops
        self.degrees = degrees
        self.columns = columns
        self.labels = labels
        self.components = components
        self.random_state = random_state

    def fit(self, X: TableLike, y: ArrayLike | None = None, graph: GraphLike | None = None) -> GraphFeatures:
        """Compute the columns of all nodes.

        Args:
            X: node numbers if the constructor got a ``table``, else the table.
            y: targets of these rows, for ``labels=True``.
            graph: instead of the constructor's.
        """
        self._check_arguments()
        table = _checked_table(X if self.table is None else self.table)
        graph = self.graph if graph is None else graph
        if graph is None:
            raise ValueError("graph is None; give an adjacency matrix, an edge list or a walksum.Graph")
        warn_of_order(graph, X if self.table is None else self.table)
        self.graph_ = as_graph_of(graph, table.shape[0])
        nodes = self._nodes(X, table.shape[0])
        self.table_ = table if self.table is None else None
        self.n_features_in_ = 1 if self.table is not None else table.shape[1]
        reduced = reduce_columns(table, self.components, self.random_state)
        self.features_, self.names_ = node_features(
            reduced, self.graph_, self.scales, self.hops, self.degrees, self.columns
        )
        if self.labels:
            found, names = self._label_columns(nodes, y)
            self.features_ = np.concatenate([self.features_, found], 1)
            self.names_ += names
        return self

    def transform(self, X: TableLike) -> np.ndarray:
        """The columns of these rows: node numbers, or the table of ``fit``."""
        check_is_fitted(self)
        if self.table is None:
            table = _checked_table(X)
            if table.shape[0] != len(self.features_):
                raise ValueError(
                    f"X has {table.shape[0]} rows but the graph has {len(self.features_)} nodes; give the table of all "
                    "nodes, or give it to the constructor (table=...) and node numbers here"
                )
            if not _alike(table, self.table_):
                raise ValueError("X is not the table of fit, whose columns these are; fit again for other values")
        return self.features_[self._nodes(X, len(self.features_))]

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> np.ndarray:
        """The names of the columns."""
        check_is_fitted(self)
        return np.asarray(self.names_, dtype=object)

    def _check_arguments(self) -> None:
        if not isinstance(self.labels, bool):
            check_choice("labels", self.labels, KINDS, "True, False")
        if isinstance(self.hops, bool) or not isinstance(self.hops, Integral) or self.hops < 0:
            raise ValueError(f"hops={self.hops!r}; expected a whole number from 0 on")
        if self.components is not None:
            check_count("components", self.components)
        if isinstance(self.scales, str) or not isinstance(self.scales, Iterable):
            raise ValueError(f"scales={self.scales!r}; expected a sequence of numbers, such as (0.5, 0.9)")
        if not all(isinstance(s, Real) and abs(s) < 1 for s in self.scales):
            raise ValueError(f"scales={self.scales!r}; expected numbers between -1 and 1, such as (0.5, 0.9)")
        if not (len(list(self.scales)) or self.hops or self.degrees or self.columns):
            raise ValueError("scales=, hops=0, degrees=False and columns=False leave no column; leave out one of them")

    def _nodes(self, X: TableLike, num_nodes: int) -> np.ndarray:
        if self.table is None:
            return np.arange(num_nodes)
        nodes = np.asarray(X)
        nodes = nodes[:, 0] if nodes.ndim == 2 and nodes.shape[1] == 1 else nodes
        if nodes.ndim != 1 or nodes.dtype.kind not in "iu":
            raise ValueError(f"X has shape {nodes.shape} and dtype {nodes.dtype}; beside table= it holds node numbers")
        if len(nodes) and not 0 <= nodes.min() <= nodes.max() < num_nodes:
            raise ValueError(
                f"X names node {nodes.max()} (least {nodes.min()}); the table has nodes 0 to {num_nodes - 1}"
            )
        return nodes

    def _label_columns(self, nodes: np.ndarray, y: ArrayLike | None) -> tuple[np.ndarray, list[str]]:
        if y is None:
            raise ValueError("y is None; labels=True needs the known targets")
        check_consistent_length(nodes, y)
        check_unmasked("y", y)
        y = column_or_1d(y, warn=True)
        given, labelled = known_labels(np.asarray(y, dtype=np.float64 if self.labels == NUMBERS else None))
        numbers = given.dtype.kind == "f" and type_of_target(given[~np.isnan(given)]).startswith("continuous")
        numbers = self.labels == NUMBERS or (numbers and self.labels != CLASSES)
        count = len(np.unique(given[labelled])) if self.labels is True and given.dtype.kind in "iuf" else 0
        if not numbers and count > MANY_VALUES:
            warnings.warn(
                f"y holds {count} different whole numbers, which are taken as classes; labels='numbers' takes them as "
                "numbers, labels='classes' says that they are none",
                stacklevel=3,
            )
        known = ~np.isnan(given) if numbers else labelled
        nodes, targets = nodes[known], given[known]
        if not len(nodes):
            raise ValueError("y has no known target; NaN (or -1 among class codes) marks the unknown")
        if numbers:
            positive = [s for s in self.scales if s > 0]  # sums of alternating signs make no weighted mean
            if not positive:
                raise ValueError(f"scales={self.scales!r} holds none above 0, which labels of numbers need; add one")
            found = other_targets(self.graph_, *_one_per_node(nodes, targets[:, None]), positive, ratio=True)
            return found, [f"target of others, s={s:g}" for s in positive]
        classes, codes = np.unique(targets, return_inverse=True)
        found = other_targets(self.graph_, *_one_per_node(nodes, np.eye(len(classes))[codes]), self.scales)
        return found, [f"target of others, s={s:g}, {label}" for s in self.scales for label in classes]


def _one_per_node(nodes: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes that have several rows, once each with the mean of their targets."""
    once, place = np.unique(nodes, return_inverse=True)
    mean = sp.coo_matrix((1 / np.bincount(place)[place], (place, np.arange(len(nodes)))), (len(once), len(nodes)))
    return once, mean @ targets.astype(np.float64)


def _checked_table(X: Any) -> Any:
    with columns_of_words_named(X):
        return check_array(X, accept_sparse="csr", dtype=np.float64, ensure_min_samples=2, input_name="table")


def _alike(X: Any, Y: Any) -> bool:
    """The same table up to the rounding of a step before."""
    if X.shape != Y.shape:
        return False
    size = float(abs(Y).max()) if min(Y.shape) else 0.0
    return float(abs(X - Y).max()) <= 1e-6 * size if size else float(abs(X).sum()) == 0
