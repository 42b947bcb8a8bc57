"""scikit-learn's fitted trees and linear models as plain arrays: they can be kept in a file without pickle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
FARTHEST = 8.0  # standard deviations from the mean that a linear model reads, as networks do
LINKS = ("identity", "sigmoid", "softmax")


def below(prefix: str, arrays: Arrays) -> Arrays:
    """The arrays whose names begin so, without that beginning."""
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}


@dataclass
class Additive:
    """``link(start + X W + sum of the leaves that a row falls into)``.

    Attributes:
        link: "identity", "sigmoid" (one score, two classes) or "softmax".
        start: ``[C]``.
        weight: ``[F, C]`` of a linear model, or None.
        trees: None, or feature, threshold, left, right ``[nodes]``, value ``[nodes, C]`` or ``[nodes, 1]``, root and
            column ``[trees]``: which score a tree of one value adds to. Leaves point at themselves.
        codes: the classes that the model met.
        single: whether rows are compared in float32, as forests do.
        limits: ``[2, F]`` that a linear model's columns are cut at: a column that hardly varies among the rows it
            learned from would otherwise carry it anywhere at a row where it does.
    """

    link: str
    start: np.ndarray
    weight: np.ndarray | None
    trees: Arrays | None
    codes: np.ndarray
    single: bool = False
    limits: np.ndarray | None = None

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """Probabilities of ``codes`` ``[n, classes]``, or numbers ``[n, 1]``."""
        score = np.tile(self.start, (len(X), 1))
        if self.weight is not None:
            score += (X if self.limits is None else X.clip(*self.limits)) @ self.weight
        if self.trees is not None:
            self._add_leaves(score, X.astype(np.float32) if self.single else X)
        if self.link == "identity":
            return score
        score = np.concatenate([np.zeros_like(score), score], 1) if self.link == "sigmoid" else score
        e = np.exp(score - score.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    def _add_leaves(self, score: np.ndarray, X: np.ndarray) -> None:
        assert self.trees is not None
        feature, threshold, left, right, value, root, column = (self.trees[name] for name in TREE_PARTS)
        rows = np.arange(len(X))
        for first, place in zip(root, column, strict=True):
            node = np.full(len(X), first)
            while True:
                below = np.where(X[rows, feature[node]] <= threshold[node], left[node], right[node])
                if np.array_equal(below, node):
                    break
                node = below
            if value.shape[1] == 1:
                score[:, place] += value[node, 0]
            else:
                score += value[node]

    def state(self) -> tuple[dict[str, Any], Arrays]:
        arrays = {"start": self.start, "codes": self.codes}
        arrays |= {} if self.weight is None else {"weight": self.weight}
        arrays |= {} if self.limits is None else {"limits": self.limits}
        return {"link": self.link, "single": self.single}, arrays | (self.trees or {})

    @classmethod
    def of_state(cls, config: dict[str, Any], arrays: Arrays) -> Additive:
        if config["link"] not in LINKS:
            raise ValueError(f"link={config['link']!r}; known: {', '.join(LINKS)}")
        trees = {name: arrays[name] for name in TREE_PARTS} if "feature" in arrays else None
        single, limits = bool(config["single"]), arrays.get("limits")
        return cls(config["link"], arrays["start"], arrays.get("weight"), trees, arrays["codes"], single, limits)


TREE_PARTS = ("feature", "threshold", "left", "right", "value", "root", "column")


def additive(model: Any, classes: int) -> Additive:
    """The arrays of a fitted gradient boosting, forest of extra trees, or linear pipeline with a scaler."""
    codes = model.classes_.astype(np.int64) if classes else np.zeros(1, np.int64)
    if hasattr(model, "estimators_"):
        return _of_forest(model, codes, classes)
    if hasattr(model, "steps"):
        return _of_linear(model, codes, classes)
    return _of_boosting(model, codes, classes)


def _link(classes: int, scores: int) -> str:
    return "identity" if not classes else "sigmoid" if scores == 1 else "softmax"


def _of_linear(model: Any, codes: np.ndarray, classes: int) -> Additive:
    scaler, last = model.steps[0][1], model.steps[-1][1]
    if scaler.scale_ is None:  # columns as they are
        return Additive(_link(classes, len(last.intercept_)), last.intercept_, last.coef_.T, None, codes)
    coefficient = np.atleast_2d(last.coef_) / scaler.scale_
    start = np.atleast_1d(last.intercept_) - coefficient @ scaler.mean_
    limits = scaler.mean_ + np.array([[-FARTHEST], [FARTHEST]]) * scaler.scale_
    return Additive(_link(classes, len(start)), start, coefficient.T, None, codes, limits=limits)


def _of_boosting(model: Any, codes: np.ndarray, classes: int) -> Additive:
    parts, columns = [], []
    for round_ in model._predictors:
        for column, tree in enumerate(round_):
            nodes, leaf = tree.nodes, tree.nodes["is_leaf"].astype(bool)
            splits = [nodes[name] for name in ("feature_idx", "num_threshold", "left", "right")]
            parts.append(_with_leaves(leaf, splits, np.where(leaf, nodes["value"], 0.0)[:, None]))
            columns.append(column)
    start = np.asarray(model._baseline_prediction, dtype=np.float64).reshape(-1)
    return Additive(_link(classes, len(start)), start, None, _joined(parts, columns), codes)


def _of_forest(model: Any, codes: np.ndarray, classes: int) -> Additive:
    parts = []
    for each in model.estimators_:
        tree = each.tree_
        splits = [tree.feature, tree.threshold, tree.children_left, tree.children_right]
        value = tree.value[:, 0] / (tree.value[:, 0].sum(1, keepdims=True) if classes else 1) / len(model.estimators_)
        parts.append(_with_leaves(tree.children_left < 0, splits, value))
    width = parts[0][-1].shape[1]
    return Additive("identity", np.zeros(width), None, _joined(parts, [0] * len(parts)), codes, single=True)


def _with_leaves(leaf: np.ndarray, splits: list[np.ndarray], value: np.ndarray) -> tuple[np.ndarray, ...]:
    """The nodes of one tree: feature, threshold, left, right and value; a leaf points at itself."""
    feature, threshold, left, right = splits
    own = np.arange(len(leaf))
    ends = np.where(leaf, own, left), np.where(leaf, own, right)
    return np.where(leaf, 0, feature), np.where(leaf, 0.0, threshold), *ends, value


def _joined(parts: list[tuple], columns: list[int]) -> Arrays:
    root = np.cumsum([0] + [len(part[0]) for part in parts])[:-1]
    feature, threshold, left, right, value = (np.concatenate(each) for each in zip(*parts, strict=True))
    shift = np.repeat(root, [len(part[0]) for part in parts])
    return {
        "feature": feature.astype(np.int32), "threshold": threshold, "left": (left + shift).astype(np.int32),
        "right": (right + shift).astype(np.int32), "value": value, "root": root.astype(np.int64),
        "column": np.asarray(columns, dtype=np.int64),
    }  # fmt: skip
