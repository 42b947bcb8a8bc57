"""Blending: weights of members from their scores on validation rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from walksum.training import scoring

Metric = Callable[[np.ndarray, np.ndarray], float]  # outputs [n, C], truth [n] -> larger is better


LEAST = 1e-3  # weights below are none: members that hardly count need not be kept
RESAMPLES = 500
ERROR = 0.05**0.5  # of a score, over the root of the number of its rows: 0.01 of 500; see docs/winning.md
SOFTER = 2  # temperatures, for the half of the weights of classes that goes by scores
UNSEEN = 2  # rows that even weights of families count as, for classes; more than some fifty outweigh them
DRAWS = 25  # members, for the half that is chosen greedily
PRIOR_ROWS = 100  # of numbers; chosen out of fold on tables of places and of counties


def accuracy(outputs: np.ndarray, y: np.ndarray) -> float:
    return float((outputs.argmax(1) == y).mean())


def log_loss(outputs: np.ndarray, y: np.ndarray) -> float:
    share = softmax(outputs)[np.arange(len(y)), y.astype(np.int64)]
    return float(np.log(share + 1e-12).mean())


def class_score(metric: Metric, outputs: np.ndarray, y: np.ndarray) -> float:
    """The metric, or the log-likelihood where it is not defined, as the ROC AUC of one class alone."""
    found = metric(outputs, y)
    return log_loss(outputs, y) if np.isnan(found) else found


def r_squared(outputs: np.ndarray, y: np.ndarray) -> float:
    return scoring.r2(outputs[:, 0], y)


def _by_name(metric: scoring.Metric) -> Metric:
    """A metric of probabilities or numbers as one of members' outputs; larger is better."""
    if metric.task == scoring.NUMBERS:
        return lambda outputs, y: metric.gain(outputs[:, 0], y)
    return lambda outputs, y: metric.gain(softmax(outputs), y.astype(np.int64))


METRICS: dict[str, Metric] = {name: _by_name(metric) for name, metric in scoring.METRICS.items()}
METRICS |= {"accuracy": accuracy, "log_loss": log_loss, "r2": r_squared}


def is_default(metric: Metric) -> bool:
    """Whether it is accuracy or a squared error, by which networks choose their epoch without being told."""
    return bool(getattr(metric, "is_default", metric in (accuracy, r_squared)))


def softmax(outputs: np.ndarray) -> np.ndarray:
    e = np.exp(outputs - outputs.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sharpness(shares: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``[M]``: the power of each member's probabilities that makes its validation rows most likely.

    Networks trained with strong dropout are too cautious, trees too sure; an average of both wants one scale.
    """
    powers = np.array([0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.5])
    likely = [[log_loss(power * _log(each), y) for power in powers] for each in shares]
    return powers[np.argmax(likely, 1)]


def sharpened(shares: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """Each member's probabilities to its power, summing to one; ``shares [M, ..., C]``."""
    return softmax(_log(shares) * powers.reshape(-1, *[1] * (shares.ndim - 1)))


def _log(shares: np.ndarray) -> np.ndarray:
    return np.log(shares + 1e-5)


def blend_score(shares: np.ndarray, y: np.ndarray, metric: Metric) -> float:
    """What a sharpened member is weighted by: its probabilities on validation rows, ``shares [n, C]``.

    The score alone is coarse where rows are few, and networks have seen it when they chose their epoch; the mean
    log-likelihood tells members of equal score apart.
    """
    return class_score(metric, _log(shares), y) + log_loss(_log(shares), y)


def temperature(rows: int) -> float:
    """Of the weights: as scores of few rows say little, their differences count less."""
    return ERROR / max(1, rows) ** 0.5


def score_weights(scores: np.ndarray, temperature: float) -> np.ndarray:
    """softmax(score / temperature)."""
    w = np.exp((scores - scores.max()) / temperature)
    return w / w.sum()


def greedy_weights(shares: np.ndarray, y: np.ndarray) -> np.ndarray:
    """How often each member is drawn where every draw makes the mean so far most likely (Caruana et al. 2004).

    Weights by score look at members one by one; this finds those that make up for the errors of others.
    """
    likely = shares[:, np.arange(len(y)), y.astype(np.int64)]  # [M, n]
    drawn, total = np.zeros(len(shares)), np.zeros(len(y))
    for _ in range(DRAWS):
        best = np.log(total + likely + 1e-5).mean(1).argmax()
        drawn[best] += 1
        total = total + likely[best]
    return drawn / DRAWS


def least_squares_weights(outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Non-negative weights that sum to one, of the smallest squared error; ``outputs [M, n]``.

    A table of a hundred rows cannot tell ten members apart: weights by score count as much as ``PRIOR_ROWS`` rows. What
    is worse than the mean of y gets none: two such members can cancel on these rows, and nowhere else.
    """
    from scipy.optimize import nnls

    spread = max(float(np.std(y)), 1e-100)  # its square is not zero
    scores = 1 - ((outputs - y) ** 2).mean(1) / spread**2
    keep = scores >= min(0.0, scores.max())
    if not keep.all():
        weights = np.zeros(len(outputs))
        weights[keep] = least_squares_weights(outputs[keep], y)
        return weights
    M, prior = len(outputs), score_weights(scores, len(y) ** -0.5)  # about the standard error of an R^2
    heavy = 1e3 * np.sqrt(len(y))  # the row that makes the weights sum to one
    ridge = np.sqrt(PRIOR_ROWS) * spread
    A = np.concatenate([outputs.T, heavy * np.ones((1, M)), ridge * np.eye(M)])
    b = np.concatenate([y, [heavy], ridge * prior])
    w, _ = nnls(A, b)
    return w / w.sum()


def least_absolute_weights(outputs: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The same of a small absolute error, by least squares whose rows are weighted anew by their errors."""
    w = least_squares_weights(outputs, y)
    for _ in range(5):
        off = np.abs(y - w @ outputs)
        root = 1 / np.sqrt(np.maximum(off, 0.05 * off.mean() + 1e-12))
        w = least_squares_weights(outputs * root, y * root)
    return w


@dataclass(frozen=True)
class Blend:
    """Weights of members, and of classes the powers of their probabilities; ``who`` are the members it may use."""

    who: np.ndarray  # [M] of bool
    weights: np.ndarray  # [M], zero for others
    powers: np.ndarray  # [M], one for numbers

    def __call__(self, outputs: np.ndarray, classes: int) -> np.ndarray:
        """Probabilities or numbers ``[..., C]`` of members' outputs ``[M, ..., C]``; NaN of unused ones is ignored."""
        used = self.weights > 0
        outputs = outputs[used]
        values = sharpened(softmax(outputs), self.powers[used]) if classes else outputs
        return np.tensordot(self.weights[used], values, 1)

    def disagreement(self, outputs: np.ndarray) -> np.ndarray:
        """Mean square ``[N]`` of the distance of members' numbers ``[M, folds, N, 1]`` from the blended ones."""
        used = self.weights > 0
        off = outputs[used] - self(outputs, 0).mean(0)
        return np.tensordot(self.weights[used], (off**2).mean(1), 1)[:, 0]


def fit_blends(
    outputs: np.ndarray, y: np.ndarray, classes: int, metric: Metric, sets: list[np.ndarray],
    even: np.ndarray | None = None, count: int | None = None,
) -> list[Blend]:  # fmt: skip
    """The blend of each set of members, ``[M]`` of bool, by their outputs ``[M, n, C]`` on judged rows.

    Powers and scores of classes are a member's own, so that they are found once for all sets.

    ``even``: weights of members before any row has judged, by :func:`even_weights`; a few rows choose any of fifty.
    ``count``: how many different rows these are, where rows with weights are drawn several times.
    """
    unseen = UNSEEN / (UNSEEN + (count or len(y))) if even is not None else 0.0
    powers, found = np.ones(len(outputs)), []
    if classes:
        shares = softmax(outputs)
        powers = sharpness(shares, y) ** (1 - unseen)
        sharp = sharpened(shares, powers)
        scores = np.array([blend_score(each, y, metric) for each in sharp])
    for who in sets:
        weights = np.zeros(len(outputs))
        if classes:
            by_score = score_weights(scores[who], SOFTER * temperature(count or len(y)))
            weights[who] = (by_score + greedy_weights(sharp[who], y)) / 2
            if even is not None:
                weights[who] = (1 - unseen) * weights[who] + unseen * even[who] / even[who].sum()
        else:
            tried = [least_squares_weights(outputs[who, :, 0], y), least_absolute_weights(outputs[who, :, 0], y)]
            weights[who] = max(tried, key=lambda w: metric((w @ outputs[who, :, 0])[:, None], y))
        weights[weights < LEAST] = 0
        found.append(Blend(who, weights / weights.sum(), np.where(who, powers, 1.0)))
    return found


def even_weights(families: list[str]) -> np.ndarray:
    """``[M]``: weights with which families of members count the same."""
    found = np.array([1 / families.count(family) for family in families])
    return found / found.sum()


def even_blends(even: np.ndarray, sets: list[np.ndarray]) -> list[Blend]:
    """The blend of each set of members where no row judges."""
    found = [np.where(who, even, 0.0) for who in sets]
    return [Blend(who, each / each.sum(), np.ones(len(who))) for who, each in zip(sets, found, strict=True)]


def held_out(
    outputs: np.ndarray, y: np.ndarray, classes: int, metric: Metric, sets: list[np.ndarray], even: np.ndarray
) -> list[np.ndarray]:
    """Blended ``[n, C]`` by set of members: each half of the rows by weights from the other half, no row by its own."""
    half = np.random.default_rng(0).permutation(len(y)) < len(y) // 2
    out = [np.zeros(outputs.shape[1:]) for _ in sets]
    for learn in (half, ~half):
        for each, blend in zip(out, fit_blends(outputs[:, learn], y[learn], classes, metric, sets, even), strict=True):
            each[~learn] = blend(outputs[:, ~learn], classes)
    return out


def paired_gain(gain: Callable[[np.ndarray], float], count: int) -> tuple[float, float, float]:
    """A gain over all rows with its paired bootstrap interval; draws that hold one class alone are left out."""
    random = np.random.default_rng(0)
    drawn = np.array([gain(random.integers(0, count, count)) for _ in range(RESAMPLES)])
    return gain(np.arange(count)), *scoring.interval(drawn[np.isfinite(drawn)])
