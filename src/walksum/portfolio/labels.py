"""Label propagation: the known targets of other nodes alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from walksum.portfolio.arrays import Arrays
from walksum.portfolio.columns import can_leave_one_out
from walksum.portfolio.features import other_targets
from walksum.portfolio.problem import Problem
from walksum.portfolio.schedule import Task, Trained


@dataclass
class LabelPropagation:
    """The known targets alone, spread."""

    scales: list[float]
    prior: list[float] | None = None  # shares of the classes among the rows learned from, a mean over folds

    def outputs(self, problem: Problem) -> np.ndarray:
        """``[scales, 1, N, C]`` for another table."""
        return np.stack([_spread(problem, problem.known, scale, self.prior)[None] for scale in self.scales])

    def keep(self, which: list[int]) -> LabelPropagation:
        return LabelPropagation([self.scales[k] for k in which], self.prior)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {"scales": self.scales, "prior": self.prior}, {}

    @classmethod
    def of_state(cls, config: dict[str, Any], arrays: Arrays) -> LabelPropagation:
        return cls(list(config["scales"]), config.get("prior"))  # older runs have none


def label_tasks(problem: Problem) -> Iterator[Task]:
    if not problem.graph.num_edges or not can_leave_one_out(problem):
        return
    scales = [0.9, 0.99]

    def run(deadline: float) -> Trained:
        found = [[_spread(problem, train, s) for train, _ in problem.folds] for s in scales]

        def refit(which: list[int]) -> np.ndarray:
            return np.stack([_spread(problem, problem.labelled, scales[k]) for k in which])

        names = [f"label propagation {s:g}" for s in scales]
        return Trained(names, np.array(found), LabelPropagation(scales, _shares(problem)), refit=refit)

    yield Task("label propagation", 0.5, True, run, True)


def _shares(problem: Problem) -> list[float] | None:
    if not problem.classes:
        return None
    each = [np.bincount(problem.y[t].astype(np.int64), minlength=problem.classes) / len(t) for t, _ in problem.folds]
    return np.mean(each, 0).tolist()


def _spread(problem: Problem, train: np.ndarray, scale: float, shares: list[float] | None = None) -> np.ndarray:
    """Where a class is known nowhere, ``shares`` of training count as one more known target, spread over all nodes."""
    y = problem.y[train]
    if not problem.classes:
        return other_targets(problem.graph, train, y[:, None], (scale,), ratio=True)
    Y = np.eye(problem.classes)[y.astype(np.int64)]
    mass = np.maximum(other_targets(problem.graph, train, Y, (scale,)), 0)
    missing = shares is not None and not Y.any(0).all()
    prior = np.asarray(Y.mean(0) if shares is None else shares) * (
        max(1e-3, 1 / problem.num_nodes) if missing else 1e-3
    )
    return np.log((mass + prior + 1e-6) / (mass + prior + 1e-6).sum(1, keepdims=True))
