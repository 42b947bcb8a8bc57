"""Label propagation: the known targets of other nodes alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from walksum.portfolio.arrays import Arrays
from walksum.portfolio.blend import softmax
from walksum.portfolio.columns import can_leave_one_out
from walksum.portfolio.features import class_gains, other_targets
from walksum.portfolio.problem import Problem
from walksum.portfolio.schedule import Task, Trained

POWERS = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
ENOUGH = 20  # known nodes per class from which on they may say that neighbours are unlike: by chance fewer often do
UNSURE = 0.01  # of a probability: what no power takes away, since a single far outlier would choose it


@dataclass
class LabelPropagation:
    """The known targets alone, spread."""

    scales: list[float]
    prior: list[float] | None = None  # shares of the classes among the rows learned from, a mean over folds
    powers: list[float] | None = None  # of each scale, a median over folds; None: chosen by the known targets

    def outputs(self, problem: Problem) -> np.ndarray:
        """``[scales, 1, N, C]`` for another table."""
        powers: list[Any] = self.powers or [None] * len(self.scales)
        found = [
            _spread(problem, problem.known, scale, self.prior, power)[0]
            for scale, power in zip(self.scales, powers, strict=True)
        ]
        return np.stack(found)[:, None]

    def keep(self, which: list[int]) -> LabelPropagation:
        powers = self.powers and [self.powers[k] for k in which]
        return LabelPropagation([self.scales[k] for k in which], self.prior, powers)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {"scales": self.scales, "prior": self.prior, "powers": self.powers}, {}

    @classmethod
    def of_state(cls, config: dict[str, Any], arrays: Arrays) -> LabelPropagation:
        return cls(list(config["scales"]), config.get("prior"), config.get("powers"))  # older runs have neither


def label_tasks(problem: Problem) -> Iterator[Task]:
    if not problem.graph.num_edges or not can_leave_one_out(problem):
        return
    scales = [0.9, 0.99]

    def run(deadline: float) -> Trained:
        found = [[_spread(problem, train, s) for train, _ in problem.folds] for s in scales]
        outputs = np.array([[out for out, _ in each] for each in found])
        powers = [float(np.median([power for _, power in each])) for each in found] if problem.classes else None

        def refit(which: list[int]) -> np.ndarray:
            return np.stack([_spread(problem, problem.labelled, scales[k])[0] for k in which])

        names = [f"label propagation {s:g}" for s in scales]
        return Trained(names, outputs, LabelPropagation(scales, _shares(problem), powers), refit=refit)

    yield Task("label propagation", 0.5, True, run, uses_targets=True)


def _shares(problem: Problem) -> list[float] | None:
    if not problem.classes:
        return None
    each = [np.bincount(problem.y[t].astype(np.int64), minlength=problem.classes) / len(t) for t, _ in problem.folds]
    return np.mean(each, 0).tolist()


def _spread(
    problem: Problem, train: np.ndarray, scale: float, shares: list[float] | None = None, power: float | None = None
) -> tuple[np.ndarray, float]:
    """Numbers, or log-probabilities and the power: shares of the classes times what a node gets of them to a power.

    Each known node is judged by the others; the power is the one that makes these most likely.
    """
    y = problem.y[train]
    if not problem.classes:
        return other_targets(problem.graph, train, y[:, None], (scale,), ratio=True), 1.0
    Y = np.zeros((problem.num_nodes, problem.classes))
    Y[train, y.astype(np.int64)] = 1
    prior = Y.sum(0) - Y + 0.5  # without a node's own
    if shares is not None and not (seen := Y.any(0)).all():  # what training says of classes that are known nowhere
        prior[:, ~seen] = len(train) * np.asarray(shares)[~seen] + 1e-3
    log_prior = np.log(prior / prior.sum(1, keepdims=True))
    log_gains = np.log(class_gains(problem.graph, train, Y[train], scale))
    if power is None:
        power = _likeliest(log_gains[train], log_prior[train], y.astype(np.int64))
    return np.log(_sure(softmax(power * log_gains + log_prior))), power


def _likeliest(log_gains: np.ndarray, log_prior: np.ndarray, y: np.ndarray) -> float:
    rows, classes = log_gains.shape
    powers = np.concatenate([-POWERS, [0.0], POWERS]) if rows >= ENOUGH * classes else POWERS
    shares = [_sure(softmax(power * log_gains + log_prior)) for power in powers]
    return float(powers[np.argmax([np.log(each[np.arange(rows), y]).sum() for each in shares])])


def _sure(shares: np.ndarray) -> np.ndarray:
    return (1 - UNSURE) * shares + UNSURE / shares.shape[1]
