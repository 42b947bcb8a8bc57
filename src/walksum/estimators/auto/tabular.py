"""Tabular members: scikit-learn's models on a node's own columns, and on what its surroundings add to them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from walksum.estimators.auto.problem import Problem
from walksum.estimators.features import (
    SCALES,
    neighbour_targets,
    node_features,
    operator_diagonal,
    other_targets,
    propagated,
    reduce_columns,
)

COMPONENTS = 64
COORDINATES = 32
LABEL_SCALES = (0.5, 0.9, 0.99)


def own_columns(problem: Problem) -> np.ndarray:
    """x, reduced if it is wide."""
    return problem.once("own", lambda: reduce_columns(problem.X, COMPONENTS if problem.wide else None, problem.seed))


def surroundings(problem: Problem) -> np.ndarray:
    """x, degrees, neighbour means, ``P_k x``; with the directions of the edges where they came directed."""
    return problem.once("surroundings", lambda: _surroundings(problem))


def _surroundings(problem: Problem) -> np.ndarray:
    own = own_columns(problem)
    found, _ = node_features(own, problem.graph, SCALES, hops=2)
    centrality = np.stack([operator_diagonal(problem.graph, s) for s in (0.5, 0.9)], 1) if _exact(problem) else None
    parts = [found, graph_coordinates(problem)] + ([centrality] if centrality is not None else [])
    return np.concatenate(parts + directed_means(problem, own), 1)


def graph_coordinates(problem: Problem) -> np.ndarray:
    """Where a node lies: the smoothest eigenvectors of the normalised Laplacian; trees cut the graph along them."""
    import scipy.sparse as sp
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    i, j = problem.graph.edges.cpu().numpy()
    n, count = problem.num_nodes, min(COORDINATES, problem.num_nodes // 10)
    if count < 1:
        return np.zeros((n, 0))
    A = sp.coo_matrix((np.ones(2 * len(i)), (np.r_[i, j], np.r_[j, i])), (n, n)).tocsr()
    root = np.sqrt(np.maximum(np.asarray(A.sum(1)).ravel(), 1))
    S = sp.diags(1 / root) @ A @ sp.diags(1 / root)
    start = np.random.default_rng(0).normal(size=n)
    try:
        vectors = eigsh(S, count, which="LA", v0=start, tol=1e-4, maxiter=500)[1]
    except ArpackNoConvergence as some:
        vectors = some.eigenvectors
    return vectors * np.sqrt(n) / root[:, None]


def directed_means(problem: Problem, own: np.ndarray) -> list[np.ndarray]:
    """Means over the targets and over the sources of a node's arcs, and how many there are."""
    import scipy.sparse as sp

    if problem.arcs is None:
        return []
    source, target = problem.arcs
    A = sp.coo_matrix((np.ones(len(source)), (source, target)), (problem.num_nodes,) * 2).tocsr()
    parts = []
    for matrix in (A, A.T.tocsr()):
        count = np.asarray(matrix.sum(1)).ravel()
        parts += [sp.diags(1 / np.maximum(count, 1)) @ matrix @ own, np.log1p(count)[:, None]]
    return parts


def with_targets(problem: Problem, train: np.ndarray) -> np.ndarray:
    """Targets of other nodes among ``train``, exactly without the node's own."""

    def make() -> np.ndarray:
        y = problem.y[train]
        Y = np.eye(problem.classes)[y.astype(np.int64)] if problem.classes else y[:, None]
        far = other_targets(problem.graph, train, Y, LABEL_SCALES, ratio=not problem.classes)
        return np.concatenate([far, neighbour_targets(problem.graph, train, Y)], 1)

    return problem.once(("targets", train.tobytes()), make)


def _exact(problem: Problem) -> bool:
    """Whether the diagonal of the inverse is affordable."""

    def probe() -> bool:
        try:
            operator_diagonal(problem.graph, 0.5)
        except ValueError:  # elimination fills in too much
            return False
        return True

    return problem.once("exact", probe)


Columns = Callable[[Problem, np.ndarray], np.ndarray]

COLUMNS: dict[str, Columns] = {
    "x": lambda problem, train: own_columns(problem),
    "surroundings": lambda problem, train: surroundings(problem),
    "surroundings + labels": lambda problem, train: np.concatenate(
        [surroundings(problem), with_targets(problem, train)], 1
    ),
    "propagated": lambda problem, train: problem.once("propagated", lambda: _propagated(problem)),
}


def _propagated(problem: Problem) -> np.ndarray:
    own = own_columns(problem)
    return np.concatenate([own] + [propagated(problem.graph, own, s) for s in SCALES], 1)


def fit_tabular(problem: Problem, columns: str, make: Callable[[int, int], Any], deadline: float) -> np.ndarray | None:
    """Outputs ``[folds, N, C]`` (log-probabilities or numbers); None where a fold had no time left."""
    out = np.zeros((len(problem.folds), problem.num_nodes, problem.outputs))
    for k, (train, _) in enumerate(problem.folds):
        if time.monotonic() > deadline:
            return None
        X = COLUMNS[columns](problem, train)
        model = make(problem.classes, problem.seed + k).fit(X[train], problem.y[train])
        out[k] = _outputs(model, X, problem.classes)
    return out


def _outputs(model: Any, X: np.ndarray, classes: int) -> np.ndarray:
    if not classes:
        return model.predict(X)[:, None]
    share = np.full((len(X), classes), 1e-4)
    share[:, model.classes_.astype(np.int64)] += model.predict_proba(X)
    return np.log(share / share.sum(1, keepdims=True))


def boosting(classes: int, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    rounds, rate = (150, 0.06) if classes else (250, 0.05)
    return kind(
        max_iter=rounds, learning_rate=rate, max_leaf_nodes=15, min_samples_leaf=10, l2_regularization=1.0,
        max_features=0.3, early_stopping=False, random_state=seed,
    )  # fmt: skip


def extra_trees(classes: int, seed: int) -> Any:
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

    kind = ExtraTreesClassifier if classes else ExtraTreesRegressor
    features = "sqrt" if classes else 0.4
    return kind(
        n_estimators=300 if classes else 100, min_samples_leaf=2, max_features=features, random_state=seed, n_jobs=1
    )


def linear(classes: int, seed: int) -> Any:
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if classes:
        return make_pipeline(StandardScaler(), LogisticRegression(C=0.02, max_iter=300))
    return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-2, 4, 13)))


MODELS = {"boosting": boosting, "extra trees": extra_trees, "linear": linear}
