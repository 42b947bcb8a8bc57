"""Metrics by name, for probabilities or numbers against the truth, with bootstrap and paired intervals.

They are written in numpy because a bootstrap computes each of them hundreds of times: on 500 nodes scikit-learn's,
which check their inputs each time, take more than ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor


@dataclass(frozen=True)
class Score:
    """A test score (accuracy or R^2) with its 95 % interval; ``error``: mean absolute error, of a regression."""

    value: float
    low: float
    high: float
    error: float | None = None


def score_classes(prediction: Tensor, y: Tensor) -> Score:
    """Accuracy with Wilson's interval."""
    count, hits = len(y), int((prediction == y).sum())
    return Score(hits / count, *wilson(hits, count))


def wilson(hits: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share that was ``hits`` of ``count``; stays in [0, 1] and is right for few nodes."""
    from scipy.stats import binomtest

    low, high = binomtest(hits, count).proportion_ci(method="wilson")
    return float(low), float(high)


def over_seeds(values: list[float]) -> tuple[float, float]:
    """Mean and standard deviation over seeds."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


BINS = 15  # of probability, for the calibration error
Measure = Callable[[np.ndarray, np.ndarray], float]
SAME = 1e-30  # of the mean square: a spread below is what rounding leaves of equal numbers
RESAMPLES, WORK = 500, 2e6  # draws of a bootstrap, fewer where all of them together hold more numbers than this
RANKS, FEWEST_RANKED = ("roc_auc", "average_precision"), 5  # nodes of a class that their intervals need


@dataclass(frozen=True)
class Metric:
    """One way to score predictions.

    Args:
        name, title: for options and for people.
        task: "classification" or "regression".
        of: probabilities ``[n, C]`` and classes ``[n]``, or numbers ``[n]`` and numbers ``[n]`` -> its value.
        sign: 1 where a larger value is better, -1 where a smaller one is.
        decides: whether it reads the predicted classes alone, so that class weights change it.
    """

    name: str
    title: str
    task: str
    of: Measure
    sign: int = 1
    decides: bool = False

    def gain(self, output: np.ndarray, y: np.ndarray) -> float:
        """Its value, turned so that larger is better."""
        return self.sign * self.of(output, y)


def accuracy(shares: np.ndarray, y: np.ndarray) -> float:
    return float((shares.argmax(1) == y).mean())


def balanced_accuracy(shares: np.ndarray, y: np.ndarray) -> float:
    """The mean recall of the classes that y holds."""
    hits = shares.argmax(1) == y
    count = np.bincount(y)
    recall = np.bincount(y, hits)[count > 0] / count[count > 0]
    return float(recall.mean())


def macro_f1(shares: np.ndarray, y: np.ndarray) -> float:
    """The mean F1 of the classes that y or the predictions hold."""
    guess, C = shares.argmax(1), shares.shape[1]
    hits = np.bincount(y[guess == y], minlength=C)
    both = np.bincount(y, minlength=C) + np.bincount(guess, minlength=C)
    return float((2 * hits[both > 0] / both[both > 0]).mean())


def roc_auc(shares: np.ndarray, y: np.ndarray) -> float:
    """The probability that a node of a class is ranked above one of no such class; the mean over more than two."""
    return _one_against_rest(_auc, shares, y, (1,) if shares.shape[1] == 2 else range(shares.shape[1]))


def average_precision(shares: np.ndarray, y: np.ndarray) -> float:
    """The area under precision over recall: of two classes the rarer one's, of more their mean."""
    C = shares.shape[1]
    rare = (0,) if C == 2 and 2 * int((y == 0).sum()) < len(y) else (1,)
    return _one_against_rest(_precision_area, shares, y, rare if C == 2 else range(C))


def _one_against_rest(of: Measure, shares: np.ndarray, y: np.ndarray, classes: tuple[int, ...] | range) -> float:
    found = [of(shares[:, c], y == c) for c in classes if 0 < (y == c).sum() < len(y)]
    return float(np.mean(found)) if found else float("nan")


def _auc(score: np.ndarray, positive: np.ndarray) -> float:
    from scipy.stats import rankdata

    n = positive.sum()
    return float((rankdata(score)[positive].sum() - n * (n + 1) / 2) / (n * (len(score) - n)))


def _precision_area(score: np.ndarray, positive: np.ndarray) -> float:
    order = np.argsort(-score, kind="stable")
    hits, last = np.cumsum(positive[order]), np.r_[np.diff(score[order]) != 0, True]  # ties count as one threshold
    hits, place = hits[last], np.nonzero(last)[0] + 1
    return float((np.diff(np.r_[0, hits]) * hits / place).sum() / hits[-1])


def log_loss(shares: np.ndarray, y: np.ndarray) -> float:
    return float(-np.log(np.maximum(shares[np.arange(len(y)), y], 1e-12)).mean())


def r2(guess: np.ndarray, y: np.ndarray) -> float:
    """1 is perfect, 0 as good as the mean; where all of y are the same 0 unless perfect, as scikit-learn has it."""
    y = y.astype(np.float64)
    error, spread = _mean_square(guess, y), float(((y - y.mean()) ** 2).mean())
    if spread <= SAME * float((y**2).mean()):
        return float(error <= spread)
    return 1 - error / spread


def rmse(guess: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(_mean_square(guess, y)))


def _mean_square(guess: np.ndarray, y: np.ndarray) -> float:
    """In float64: float32 ends where a number of 2e19 is squared."""
    return float((np.subtract(guess, y, dtype=np.float64) ** 2).mean())


def mae(guess: np.ndarray, y: np.ndarray) -> float:
    return float(np.abs(guess - y).mean())


CLASSES, NUMBERS = "classification", "regression"
METRICS = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "accuracy", CLASSES, accuracy, decides=True),
        Metric("balanced_accuracy", "balanced accuracy", CLASSES, balanced_accuracy, decides=True),
        Metric("macro_f1", "macro F1", CLASSES, macro_f1, decides=True),
        Metric("roc_auc", "ROC AUC", CLASSES, roc_auc),
        Metric("average_precision", "average precision", CLASSES, average_precision),
        Metric("log_loss", "log-loss", CLASSES, log_loss, -1),
        Metric("r2", "R^2", NUMBERS, r2),
        Metric("rmse", "RMSE", NUMBERS, rmse, -1),
        Metric("mae", "mean absolute error", NUMBERS, mae, -1),
    )
}


def names_for(task: str) -> list[str]:
    return [metric.name for metric in METRICS.values() if metric.task == task]


def metric_for(name: str | None, task: str) -> Metric:
    """The metric of that name; None: accuracy or R^2. Refuses one that does not fit the task."""
    known = names_for(task)
    name = known[0] if name is None else name
    if name not in known:
        raise ValueError(f"metric={name!r} does not fit a {task}; known for it: {', '.join(known)}")
    return METRICS[name]


def expected_calibration_error(shares: np.ndarray, y: np.ndarray) -> float:
    """Mean distance between the probability of the predicted class and how often it is right, over equal bins of it."""
    return sum(share * abs(sure - right) for share, sure, right in reliability(shares, y))


def reliability(shares: np.ndarray, y: np.ndarray) -> list[tuple[float, float, float]]:
    """By bin of the predicted class's probability: share of the nodes, mean probability, share that is right."""
    top, right = shares.max(1), shares.argmax(1) == y
    place = np.minimum((top * BINS).astype(int), BINS - 1)
    return [
        (float((place == b).mean()), float(top[place == b].mean()), float(right[place == b].mean()))
        for b in np.unique(place)
    ]


def bootstrap(statistic: Callable[[np.ndarray], float], count: int, most: int = RESAMPLES) -> np.ndarray:
    """The statistic of rows drawn with replacement; draws where it does not exist, as of one class, are left out."""
    random = np.random.default_rng(0)
    draws = min(most, int(np.clip(WORK / max(1, count), 100, RESAMPLES)))
    found = np.array([statistic(random.integers(0, count, count)) for _ in range(draws)])
    return found[np.isfinite(found)]


def interval(samples: np.ndarray) -> tuple[float, float]:
    if not len(samples):
        return float("nan"), float("nan")
    low, high = np.quantile(samples, (0.025, 0.975))
    return float(low), float(high)


def scored(metric: Metric, output: np.ndarray, y: np.ndarray) -> Score:
    """The value of a metric with a bootstrap interval over these nodes."""
    samples = bootstrap(lambda rows: metric.of(output[rows], y[rows]), len(y))
    return Score(metric.of(output, y), *interval(samples))


def paired_difference(metric: Metric, mine: np.ndarray, theirs: np.ndarray, y: np.ndarray) -> Score:
    """By how much ``mine`` is better than ``theirs`` on the same nodes; both are drawn together.

    Without an interval where a rank metric has hardly any node of a class: drawing the same few again varies nothing.
    """

    def difference(rows: np.ndarray) -> float:
        return metric.gain(mine[rows], y[rows]) - metric.gain(theirs[rows], y[rows])

    whole = difference(np.arange(len(y)))
    if metric.name in RANKS and np.unique(y, return_counts=True)[1].min() < FEWEST_RANKED:
        return Score(whole, *interval(np.zeros(0)))
    return Score(whole, *interval(bootstrap(difference, len(y))))
