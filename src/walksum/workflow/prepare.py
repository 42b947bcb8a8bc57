"""Prepare a problem for training: choose edges, split nodes, encode columns and transform the target."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from walksum._checks import check_choice
from walksum.data.encoding import (
    LOG,
    NONE,
    TRANSFORMS,
    Encoding,
    find_ends,
    fit_knots,
    in_target_units,
    transformed,
    within,
)
from walksum.data.encoding import fit as fit_columns
from walksum.data.frames import name_list
from walksum.data.places import DELAUNAY, NEIGHBOURS
from walksum.data.problem import Problem
from walksum.data.problem_split import SPATIAL, graph_parts, split_notes, split_problem
from walksum.data.splits import Split
from walksum.portfolio.features import neighbour_mean, reduce_columns
from walksum.portfolio.problem import SPARSE, WIDE
from walksum.portfolio.residual import affordable, residual_field
from walksum.portfolio.threads import few_threads
from walksum.training.scoring import Metric, metric_for
from walksum.workflow.job import AUTO, MODELS, Job
from walksum.workflow.scorer import Scorer

SAME, FEWEST = 0.999, 20  # correlation with the target, and training nodes, from which a column says the same
SKEWED = 1.0  # skewness from which transforms are tried
COMPONENTS = 64  # of wide tables, for trees
CHOICES = (4, 8, 16)  # of near nodes to join each one to
MOST = 20_000  # nodes up to which that is chosen; beyond, 8


@dataclass(frozen=True)
class PreparedData:
    """What a job learns from: one split of a problem, encoded by its training nodes."""

    problem: Problem
    split: Split
    encoding: Encoding
    x: Tensor
    y: Tensor
    notes: list[str]
    scorer: Scorer

    def with_shares(self, smoothing: float, temperature: float = 1.0) -> PreparedData:
        """A copy whose probabilities are propagated by this scale and calibrated by this temperature."""
        encoding = replace(self.encoding, smoothing=smoothing, temperature=temperature)
        return replace(self, encoding=encoding, scorer=replace(self.scorer, encoding=encoding))


def prepare_data(job: Job, problem: Problem) -> PreparedData:
    """Split and encode a problem as the job says."""
    check_choice("model", job.model, MODELS)
    metric = metric_for(job.metric, problem.task)
    split = split_problem(problem, job.split, job.seed)
    encoding, notes = fit_encoding(problem, split)
    notes += encoding.notes(problem.features) + split_notes(problem, job.split, split)
    x = encoding.encode(problem.features)
    if problem.regression:
        if job.class_weight != NONE:
            raise ValueError(f"class_weight={job.class_weight!r} is for classes; {problem.target!r} holds numbers")
        encoding, more = _fit_target(job.transform, problem, split, encoding, x, metric)
        notes += more
        y = torch.from_numpy(encoding.standardise(problem.y.double().numpy())).float()
    else:
        if job.transform not in (AUTO, NONE):
            raise ValueError(f"transform={job.transform!r} is for numbers; {problem.target!r} holds classes")
        if job.class_weight != NONE:
            encoding = replace(encoding, class_weight=balanced_weights(problem, split.train))
        y = problem.y
    notes += _on_leaks(problem, split, encoding, relevance(problem, split, x, y))
    return PreparedData(problem, split, encoding, x, y, notes, Scorer.of(job.metric, problem, encoding))


def relevance(problem: Problem, split: Split, x: Tensor, y: Tensor) -> Tensor:
    """The correlation of each feature with the target, or with the class it tells best; of training nodes ``[F]``."""
    known = y[split.train]
    Y = known.double().unsqueeze(1) if problem.regression else nn.functional.one_hot(known).double()
    X = x[split.train].double()
    X, Y = (each - each.mean(0) for each in (X, Y))
    return ((X.T @ Y).abs() / (X.norm(dim=0).unsqueeze(1) * Y.norm(dim=0)).clamp_min(1e-12)).amax(1)


def _on_leaks(problem: Problem, split: Split, encoding: Encoding, related: Tensor) -> list[str]:
    """A note on columns that say the target again."""
    if isinstance(problem.features, Tensor) or split.train.numel() < FEWEST:
        return []
    same = [name for name in encoding.columns if float(related[encoding.span(name)].max()) > SAME]
    if not same:
        return []
    return [
        f"the target follows from {name_list(same)} almost exactly: leave out, by features=, what is "
        "known only together with it"
    ]


def as_table(x: Tensor) -> Any:
    """Features as members of a portfolio read them: many, mostly zero columns as a sparse matrix."""
    X = x.double().numpy()
    return sp.csr_matrix(X) if X.shape[1] > WIDE and (X != 0).mean() < SPARSE else X


def for_trees(x: Tensor) -> np.ndarray:
    """Features as trees read them: the leading directions of a wide table."""
    X = x.double().numpy()
    return reduce_columns(X, COMPONENTS) if X.shape[1] > WIDE else X


def fit_encoding(problem: Problem, split: Split) -> tuple[Encoding, list[str]]:
    """Fit the encoding of the columns on the training nodes; also notes on what was left out."""
    encoding, notes = fit_columns(problem.features, split.train)
    if encoding.num_features == 0:
        why = "".join(f"; {note}" for note in [*problem.notes, *notes])
        raise ValueError(f"no column is left to learn from; give usable ones by features={why}")
    return encoding, notes


def balanced_weights(problem: Problem, nodes: Tensor) -> list[float]:
    """Class weights: one over the share of each class among these nodes, scaled to mean one over the nodes."""
    counts = torch.bincount(problem.y[nodes], minlength=len(problem.classes)).double()
    present = int((counts > 0).sum())
    return (counts.sum() / (present * counts.clamp_min(1))).tolist()


def _fit_target(
    asked: str, problem: Problem, split: Split, encoding: Encoding, x: Tensor, metric: Metric
) -> tuple[Encoding, list[str]]:
    """Fit the target's transform (as asked, or chosen on validation nodes), then its mean, scale and ends."""
    known, notes = problem.y[split.train].double().numpy(), []
    kind = asked
    if asked == AUTO:
        encoding = replace(encoding, target_ends=find_ends(known))
        kind, note = choose_transform(problem, split, x, metric)
        notes += [*([note] if note else []), *_on_ends(problem.target, known, encoding.target_ends)]
    knots = fit_knots(kind, known)
    learned = transformed(kind, knots, known)
    mean, scale = float(learned.mean()), float(learned.std()) or 1.0
    fitted = replace(encoding, target_mean=mean, target_scale=scale, target_transform=kind, target_knots=knots)
    return fitted, notes


def _on_ends(target: str, known: np.ndarray, ends: list[float | None]) -> list[str]:
    found = [f"{end:g} for {(known == end).mean():.0%}" for end in ends if end is not None]
    if not found:
        return []
    return [
        f"{target!r} ends at {' and at '.join(found)} of the training nodes: no prediction or interval goes beyond; "
        "transform='none' lets them"
    ]


def choose_transform(problem: Problem, split: Split, x: Tensor, metric: Metric) -> tuple[str, str | None]:
    """Choose a skewed target's transform by validation, the better score of boosting and of a line; also a note.

    Trees alone hardly see a transform: a target that is a sum of its columns, as sales of sales, is no line in its log.
    """
    from scipy.stats import skew
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import RidgeCV

    y, train, val = problem.y.double().numpy(), split.train.numpy(), split.val.numpy()
    skewness = float(skew(y[train]))
    if not abs(skewness) > SKEWED or not len(val):
        return NONE, None
    X = for_trees(x)
    X = np.concatenate([X, neighbour_mean(problem.graph) @ X], 1)
    found, ends = {}, find_ends(y[train])
    for kind in TRANSFORMS:
        if kind == LOG and y[train].min() < 0:
            continue
        knots = fit_knots(kind, y[train])
        learned = transformed(kind, knots, y[train])
        models = (HistGradientBoostingRegressor(random_state=0), RidgeCV(np.logspace(-2, 4, 13)))
        with few_threads(len(X)):
            guesses = [model.fit(X[train], learned).predict(X[val]) for model in models]
        scores = [metric.of(within(ends, in_target_units(kind, knots, guess)), y[val]) for guess in guesses]
        found[kind] = metric.sign * max(metric.sign * score for score in scores)
    best = max(found, key=lambda kind: metric.sign * found[kind])
    text = ", ".join(f"{kind} {value:.4g}" for kind, value in found.items())
    how = "learned as it is" if best == NONE else f"learned by its {best}"
    return best, f"the target is skewed ({skewness:.1f}); {how}, by {metric.title} on validation nodes: {text}"


def with_neighbours(problem: Problem, job: Job) -> Problem:
    """Choose the number of neighbours to join by validation error; problems with given edges stay as they are."""
    if problem.places is None or not problem.places.joins:
        return problem
    if problem.places.neighbours is not None:
        return _joined(problem, problem.places.neighbours, "")
    if job.split == SPATIAL and problem.groups is None:  # the parts must not change with what is chosen
        problem = replace(problem, groups=graph_parts(problem.graph))
    if problem.num_nodes > MOST:
        return _joined(problem, NEIGHBOURS, "")
    split = split_problem(problem, job.split, job.seed)
    assert problem.places is not None
    tried: dict[int | str, Problem] = {each: _joined(problem, each, "") for each in CHOICES}
    if problem.places.flat:
        with suppress(ValueError):  # places on one line have no triangles
            tried[DELAUNAY] = _joined(problem, DELAUNAY, "")
    left, truth = _ridge_residuals(problem, split)
    errors = {choice: _error(each, split, left, truth) for choice, each in tried.items()}
    if not np.isfinite(list(errors.values())).any():
        return _joined(problem, NEIGHBOURS, "")
    best = min(errors, key=lambda choice: errors[choice])
    among = ", ".join(map(str, tried))
    return _joined(problem, best, f" (chosen on the validation nodes among {among})")


def _joined(problem: Problem, neighbours: int | str | None, how: str) -> Problem:
    assert problem.places is not None
    assert problem.position is not None
    index, weight, places = replace(problem.places, neighbours=neighbours).edges(problem.position)
    columns = problem.columns | {"places": asdict(places)}
    note = places.described() + how
    said = any(each.startswith(note) for each in problem.notes)  # also with how it was chosen
    notes = problem.notes if said else [*problem.notes, note]
    return replace(problem, edge_index=index, edge_weight=weight, places=places, columns=columns, notes=notes)


def _ridge_residuals(problem: Problem, split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Residuals ``[n, C]`` of a ridge regression on the columns, of training and of validation nodes."""
    from sklearn.linear_model import RidgeCV

    train, val = split.train.numpy(), split.val.numpy()
    X = fit_columns(problem.features, split.train)[0].encode(problem.features).double().numpy()
    y = problem.y.double().numpy()
    known = np.concatenate([train, val])
    if problem.regression:
        Y = ((y - y[train].mean()) / (y[train].std() or 1.0))[:, None]
    else:
        Y = np.eye(len(problem.classes))[np.where(y < 0, 0, y).astype(np.int64)]
    if not X.shape[1]:
        return Y[train] - Y[train].mean(0), Y[val] - Y[train].mean(0)
    model = RidgeCV(np.logspace(-2, 4, 13)).fit(X[train], Y[train])
    left = Y[known] - model.predict(X[known]).reshape(len(known), -1)
    return left[: len(train)], left[len(train) :]


def _error(problem: Problem, split: Split, left: np.ndarray, truth: np.ndarray) -> float:
    """The squared validation error of a field fitted to the residuals of the training nodes."""
    train, val = split.train.numpy(), split.val.numpy()
    if not affordable(problem.graph):
        return float("inf")
    try:
        mean, _ = residual_field(problem.graph, train, left).condition(problem.graph, train, left)
    except ValueError:  # fewer nodes than a field has parameters
        return float("inf")
    return float(((mean[val] - truth) ** 2).mean())
