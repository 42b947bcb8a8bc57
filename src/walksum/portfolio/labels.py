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

    def outputs(self, problem: Problem) -> np.ndarray:
        """``[scales, 1, N, C]`` for another table."""
        return np.stack([_spread(problem, problem.known, scale)[None] for scale in self.scales])

    def keep(self, which: list[int]) -> LabelPropagation:
        return LabelPropagation([self.scales[k] for k in which])

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {"scales": self.scales}, {}

    @classmethod
    def of_state(cls, config: dict[str, Any], arrays: Arrays) -> LabelPropagation:
        return cls(list(config["scales"]))


def label_tasks(problem: Problem) -> Iterator[Task]:
    if not problem.graph.num_edges or not can_leave_one_out(problem):
        return
    scales = [0.9, 0.99]

    def run(deadline: float) -> Trained:
        found = [[_spread(problem, train, s) for train, _ in problem.folds] for s in scales]

        def refit(which: list[int]) -> np.ndarray:
            return np.stack([_spread(problem, problem.labelled, scales[k]) for k in which])

        names = [f"label propagation {s:g}" for s in scales]
        return Trained(names, np.array(found), LabelPropagation(scales), refit=refit)

    yield Task("label propagation", 0.5, True, run, True)


def _spread(problem: Problem, train: np.ndarray, scale: float) -> np.ndarray:
    y = problem.y[train]
    if not problem.classes:
        return other_targets(problem.graph, train, y[:, None], (scale,), ratio=True)
    Y = np.eye(problem.classes)[y.astype(np.int64)]
    mass = np.maximum(other_targets(problem.graph, train, Y, (scale,)), 0)
    prior = Y.mean(0) * 1e-3
    return np.log((mass + prior + 1e-6) / (mass + prior + 1e-6).sum(1, keepdims=True))
