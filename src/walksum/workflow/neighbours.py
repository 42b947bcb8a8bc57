"""How many near nodes each is joined to, where places make the edges: chosen on the validation nodes."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np

from walksum.data.encoding import fit as fit_columns
from walksum.data.places import DELAUNAY, NEIGHBOURS
from walksum.data.problem import Problem
from walksum.data.problem_split import SPATIAL, graph_parts, split_problem
from walksum.data.splits import Split
from walksum.portfolio.residual import affordable, residual_field
from walksum.workflow.fit import Job

CHOICES = (4, 8, 16)
MOST = 20_000  # nodes up to which it is chosen; beyond, 8


def with_neighbours(problem: Problem, job: Job) -> Problem:
    """The problem with the edges that predict its validation nodes best; as it is where nothing is to be chosen."""
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
    choices: tuple[int | str, ...] = (*CHOICES, DELAUNAY) if problem.places.flat else CHOICES
    tried = [_joined(problem, each, "") for each in choices]
    left, truth = _left_over(problem, split)
    errors = [_error(each, split, left, truth) for each in tried]
    if not np.isfinite(errors).any():
        return _joined(problem, NEIGHBOURS, "")
    best = tried[int(np.argmin(errors))].places
    assert best is not None
    among = ", ".join(map(str, choices))
    return _joined(problem, best.neighbours, f" (chosen on the validation nodes among {among})")


def _joined(problem: Problem, neighbours: int | str | None, how: str) -> Problem:
    assert problem.places is not None
    assert problem.position is not None
    index, weight, places = replace(problem.places, neighbours=neighbours).edges(problem.position)
    columns = problem.columns | {"places": asdict(places)}
    note = places.described() + how
    said = any(each.startswith(note) for each in problem.notes)  # also with how it was chosen
    notes = problem.notes if said else [*problem.notes, note]
    return replace(problem, edge_index=index, edge_weight=weight, places=places, columns=columns, notes=notes)


def _left_over(problem: Problem, split: Split) -> tuple[np.ndarray, np.ndarray]:
    """What a ridge regression of the columns leaves of the targets ``[n, C]``, of training and of validation nodes."""
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
    """Squared error at the validation nodes of a field that is fitted to the training nodes."""
    train, val = split.train.numpy(), split.val.numpy()
    if not affordable(problem.graph):
        return float("inf")
    try:
        mean, _ = residual_field(problem.graph, train, left).condition(problem.graph, train, left)
    except ValueError:  # fewer nodes than a field has parameters
        return float("inf")
    return float(((mean[val] - truth) ** 2).mean())
