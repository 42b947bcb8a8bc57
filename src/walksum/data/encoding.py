"""Encoding: table columns -> features, fitted on the training nodes alone and kept as JSON.

Numbers are standardised, and clipped at ten standard deviations. Two kinds of columns keep their zeros instead: one of
zeros and ones, which already says yes and no, stays as it is; one that is mostly zero (counts, tf-idf) is divided by
the size of its other values, for the mean and deviation of so few say nothing. A missing number becomes the training
median, and where many are missing one more column says so, since that may tell something by itself. A skewed column of
numbers also gets its logarithm. Text becomes one column per category; a category not seen in training becomes zeros.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from walksum.data.frames import name_list, short

NONE, LOG, QUANTILE = "none", "log", "quantile"
TRANSFORMS = (NONE, LOG, QUANTILE)
KNOTS = 200
UNIT = 0.05  # quantile of sizes in which logarithms count
LARGEST_FACTOR = 10.0  # times the largest known value: no prediction through a logarithm goes beyond
AT_AN_END, FEWEST_THERE = 0.02, 3  # share and number of training targets that make the smallest or largest an end


def fit_knots(kind: str, y: np.ndarray) -> list[float]:
    """Fit a transform to the training targets: unit and maximum of a logarithm, or quantiles."""
    if kind == NONE:
        return []
    if kind == QUANTILE:
        return np.quantile(y, (np.arange(KNOTS) + 0.5) / KNOTS).tolist()
    if y.min() < 0:
        raise ValueError(
            f"transform='log' needs targets of at least 0; the smallest training one is {y.min():g}; "
            "take transform='quantile' or 'auto'"
        )
    positive = y[y > 0]
    unit = float(np.quantile(positive, UNIT)) if len(positive) else 1.0
    return [unit, float(y.max())]


def transformed(kind: str, knots: list[float], y: Any) -> np.ndarray:
    """``y``, ``log(1 + y / unit)``, or the normal score of y among the training targets; NaN stays NaN."""
    y = np.asarray(y, dtype=np.float64)
    if kind == LOG:
        return np.log1p(np.maximum(y, 0) / knots[0])
    return np.interp(y, *_scores(knots)) if kind == QUANTILE else y


def in_target_units(kind: str, knots: list[float], value: Any) -> np.ndarray:
    """The inverse of :func:`transformed`, limited to ten times the largest training target or to the range of all."""
    value = np.asarray(value, dtype=np.float64)
    if kind == LOG:
        unit, largest = knots
        return unit * np.expm1(np.clip(value, 0, np.log1p(LARGEST_FACTOR * largest / unit)))
    return np.interp(value, *reversed(_scores(knots))) if kind == QUANTILE else value


def _scores(knots: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Different quantiles and the normal scores of each; of equal ones the mean score."""
    from scipy.special import ndtri

    value, place, count = np.unique(knots, return_inverse=True, return_counts=True)
    return value, np.bincount(place, ndtri((np.arange(len(knots)) + 0.5) / len(knots))) / count


def find_ends(y: np.ndarray) -> list[float | None]:
    """The smallest and the largest training target, each where many are equal to it, as shares are to 0 and 100."""
    many = max(FEWEST_THERE, AT_AN_END * len(y))
    return [float(end) if (y == end).sum() >= many else None for end in (y.min(), y.max())]


def within(ends: list[float | None], value: np.ndarray) -> np.ndarray:
    """Numbers cut at the ends that there are."""
    low, high = ends
    return np.clip(value, -np.inf if low is None else low, np.inf if high is None else high)


FARTHEST = 10.0  # standard deviations
MOST_CATEGORIES = 256  # per column; rarer ones become zeros
SKEWED = 2.0  # skewness from which a column's logarithm is learned from too
GAPS, FEWEST_GAPS = 0.05, 5  # share and number of empty cells, and of others, from which a column says where they are
MOST_FEATURES = 200  # to which these are added; more would count as words
NAMELIKE = 20  # distinct values from which a column where most differ is a name, not a category


@dataclass(frozen=True)
class Encoding:
    """What was learned from the training nodes about the columns. ``width``: features as given, none encoded.

    ``logs`` holds unit, mean and scale of each column whose logarithm is learned from too, ``gaps`` the columns of
    which another feature says where they are empty.

    Of the target: a number's transform, then its mean and scale, and the ends no prediction goes beyond; of classes the
    scale of a propagation of a network's probabilities (0: none), the temperature that calibrates them and the weights
    with which they are compared; empty: all alike.
    """

    numeric: list[str] = field(default_factory=list)
    fill: list[float] = field(default_factory=list)
    mean: list[float] = field(default_factory=list)
    scale: list[float] = field(default_factory=list)
    categories: dict[str, list[str]] = field(default_factory=dict)
    logs: dict[str, list[float]] = field(default_factory=dict)
    gaps: list[str] = field(default_factory=list)
    width: int | None = None
    target_mean: float = 0.0
    target_scale: float = 1.0
    target_transform: str = NONE
    target_knots: list[float] = field(default_factory=list)
    target_ends: list[float | None] = field(default_factory=lambda: [None, None])
    smoothing: float = 0.0
    temperature: float = 1.0
    class_weight: list[float] = field(default_factory=list)

    @property
    def columns(self) -> list[str]:
        """The table columns this needs."""
        if self.width is not None:
            return [f"x{k}" for k in range(self.width)]
        return [*self.numeric, *self.categories]

    @property
    def num_features(self) -> int:
        return len(self._sources)

    @property
    def _sources(self) -> list[str]:
        """The column that each feature comes from."""
        own = [name for name in self.columns for _ in self.categories.get(name, [name])]
        return [*own, *self.logs, *self.gaps]

    def span(self, column: str) -> list[int]:
        """The features that a column of the table is encoded as."""
        return [k for k, name in enumerate(self._sources) if name == column]

    @property
    def feature_names(self) -> list[str]:
        """What each feature holds."""
        kinds = [f"{name} is {kind}" for name, known in self.categories.items() for kind in known]
        own = self.columns if self.width is not None else [*self.numeric, *kinds]
        return [*own, *(f"log of {name}" for name in self.logs), *(f"{name} is empty" for name in self.gaps)]

    def encode(self, features: Any) -> Tensor:
        """Encode a frame with these columns as features ``[N, F]``; a tensor stays as it is."""
        if isinstance(features, Tensor):
            return features
        if self.width is not None:
            return _tensor(features[self.columns].to_numpy())
        values = features[self.numeric].to_numpy(np.float64)
        values = np.where(np.isnan(values), np.asarray(self.fill), values)
        blocks = [np.clip((values - np.asarray(self.mean)) / np.asarray(self.scale), -FARTHEST, FARTHEST)]
        blocks += [_one_hot(features[name], known) for name, known in self.categories.items()]
        for name, (unit, mean, scale) in self.logs.items():
            size = signed_log(values[:, [self.numeric.index(name)]], unit)
            blocks.append(np.clip((size - mean) / scale, -FARTHEST, FARTHEST))
        blocks.append(features[self.gaps].isna().to_numpy(np.float64))
        return _tensor(np.concatenate(blocks, 1))

    def standardise(self, y: Any) -> np.ndarray:
        """Transform and standardise numbers of the target."""
        return (transformed(self.target_transform, self.target_knots, y) - self.target_mean) / self.target_scale

    def in_units(self, value: Any) -> np.ndarray:
        """Convert a model's numbers back to the target's units, cut at its ends; the inverse of :meth:`standardise`."""
        value = np.asarray(value, dtype=np.float64) * self.target_scale + self.target_mean
        return within(self.target_ends, in_target_units(self.target_transform, self.target_knots, value))

    def weighed(self, shares: Any) -> Any:
        """Probabilities ``[N, C]`` times the weights of the classes: the largest is predicted."""
        if not self.class_weight:
            return shares
        return shares * (torch.tensor(self.class_weight) if isinstance(shares, Tensor) else np.array(self.class_weight))

    def notes(self, features: Any) -> list[str]:
        """Notes on encoding these rows: missing values and unknown categories."""
        if isinstance(features, Tensor) or self.width is not None:
            return []
        found = []
        missing = features[self.numeric].isna().sum()
        if missing.sum():
            names = [name for name in self.numeric if missing[name]]
            found.append(f"{int(missing.sum())} missing numbers in {name_list(names)}: training medians were put in")
        for name, known in self.categories.items():
            values = features[name].dropna()
            strange = values[~values.isin(known)]
            if len(strange):
                found.append(
                    f"{len(strange)} rows of {name!r} hold categories not kept from the training nodes "
                    f"({name_list(strange.unique().tolist())}): zeros were put in"
                )
        empty = features[list(self.categories)].isna().sum()
        if empty.sum():
            names = [name for name in self.categories if empty[name]]
            found.append(f"{int(empty.sum())} empty cells in {name_list(names)}: zeros were put in")
        return found

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def fit(features: Any, train: Tensor) -> tuple[Encoding, list[str]]:
    """Fit the encoding of these columns on the training nodes; also notes on what was left out."""
    if isinstance(features, Tensor):
        return Encoding(width=features.size(1)), []
    rows = features.iloc[train.numpy()]
    numbers = [name for name in features.columns if features[name].dtype == np.float64]
    categories, notes = _fit_text(rows.drop(columns=numbers))
    flat = [name for name in numbers if rows[name].nunique() == 1 and rows[name].max() not in (0, 1)]
    flat += [name for name in numbers if rows[name].isna().all()]
    if flat:
        notes.append(f"left out: {name_list(flat)} say the same of every training node")
    used = [name for name in numbers if name not in set(flat)]
    encoding = Encoding(**_fit_numbers(rows[used]), categories=categories)
    if encoding.num_features + 2 * len(used) > MOST_FEATURES:
        return encoding, notes
    encoding = replace(encoding, logs=_fit_logs(rows, encoding), gaps=_find_gaps(rows[used]))
    if encoding.logs:
        notes.append(f"skewed columns, whose logarithms are learned from too: {name_list(list(encoding.logs))}")
    return encoding, notes


def signed_log(values: np.ndarray, unit: float) -> np.ndarray:
    """``log(1 + |x| / unit)`` with the sign of x."""
    return np.sign(values) * np.log1p(np.abs(values) / unit)


def _fit_logs(rows: pd.DataFrame, encoding: Encoding) -> dict[str, list[float]]:
    """Unit, mean and scale of the logarithm of each skewed column; not of yes and no, nor of what is mostly zero."""
    from scipy.stats import skew

    found = {}
    for name, fill in zip(encoding.numeric, encoding.fill, strict=True):
        known = rows[name].dropna().to_numpy()
        size = np.abs(known[known != 0])
        if len(size) <= len(known) / 2 or len(np.unique(known)) < 3 or not abs(skew(known / size.max())) > SKEWED:
            continue
        unit = float(np.quantile(size, UNIT))
        learned = signed_log(rows[name].fillna(fill).to_numpy(), unit)
        if np.isfinite(learned).all() and (scale := float(learned.std())) > 0:
            found[name] = [unit, float(learned.mean()), scale]
    return found


def _find_gaps(rows: pd.DataFrame) -> list[str]:
    """Columns of which many cells are empty; of several that are empty in the same rows the first."""
    found = {rows[name].isna().to_numpy().tobytes(): name for name in reversed(rows.columns)}
    count, fewest = rows.isna().sum(), max(FEWEST_GAPS, GAPS * len(rows))
    return [name for name in rows.columns if name in found.values() and fewest <= count[name] <= len(rows) - fewest]


def _fit_numbers(rows: pd.DataFrame) -> dict[str, Any]:
    values = rows.to_numpy(np.float64)
    seen = ~np.isnan(values)
    count = np.maximum(seen.sum(0), 1)
    fill = medians(values)
    yes_no = np.isin(np.where(seen, values, fill), (0.0, 1.0)).all(0)
    others = np.maximum((seen & (values != 0)).sum(0), 1)
    sparse = ~yes_no & (others < count / 2)
    unit = _unit(np.where(seen, values, 0.0))
    values = values / unit
    mean = np.where(sparse, 0.0, np.where(seen, values, 0.0).sum(0) / count)
    scale = np.sqrt((np.where(seen, values - mean, 0.0) ** 2).sum(0) / np.where(sparse, others, count))
    return {
        "numeric": list(rows.columns),
        "fill": fill.tolist(),
        "mean": np.where(yes_no, 0.0, mean * unit).tolist(),
        "scale": np.where(yes_no | (scale == 0), 1.0, scale * unit).tolist(),
    }


def medians(values: np.ndarray) -> np.ndarray:
    """The median of each column, which fills its empty cells; zero for an empty column."""
    return np.nan_to_num(pd.DataFrame(values).median().to_numpy(np.float64))


def _unit(values: np.ndarray) -> np.ndarray:
    """The power of two near each column's largest value: squares in it neither overflow nor vanish, no bit is lost."""
    _, exponent = np.frexp(np.abs(values).max(0, initial=0.0))
    return np.ldexp(1.0, np.clip(exponent, -1000, 1000))


def _fit_text(rows: pd.DataFrame) -> tuple[dict[str, list[str]], list[str]]:
    categories, notes = {}, []
    for name in rows.columns:
        counts = rows[name].value_counts()
        if len(counts) == 1 and counts.iloc[0] == len(rows):
            notes.append(f"left out: {name!r} says {short(counts.index[0])} of every training node")
            continue
        if len(counts) > NAMELIKE and len(counts) > len(rows) / 2:
            notes.append(
                f"column {name!r} is left out: nearly every row has its own value ({short(counts.index[0])}, ...)"
            )
            continue
        if len(counts) > MOST_CATEGORIES:
            notes.append(f"column {name!r} has {len(counts)} categories; the {MOST_CATEGORIES} most frequent are kept")
        categories[name] = sorted(counts.index[:MOST_CATEGORIES])
    return categories, notes


def _tensor(values: np.ndarray) -> Tensor:
    # row by row in memory: the order of the columns decides how products are summed, so the last bits of a training
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _one_hot(values: pd.Series, known: list[str]) -> np.ndarray:
    code = pd.Index(known, dtype=object).get_indexer(values.astype(object))
    hot = np.zeros((len(values), len(known)))
    rows = np.nonzero(code >= 0)[0]
    hot[rows, code[rows]] = 1
    return hot
