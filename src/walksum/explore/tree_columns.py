"""What the trees of a portfolio read at one node, and what each column of it is worth there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from walksum.portfolio.blend import Blend, sharpened, softmax
from walksum.portfolio.columns import COLUMNS, LABEL_SCALES, exact_diagonal, own_columns
from walksum.portfolio.features import SCALES
from walksum.portfolio.fit import Portfolio
from walksum.portfolio.problem import Problem
from walksum.portfolio.tabular import Tabular, log_shares
from walksum.workflow.trained_run import TrainedRun


@dataclass(frozen=True)
class ColumnEffect:
    """One column as trees read it.

    Attributes:
        name: what it holds.
        value: at the node.
        effect: by how much the blend falls if the column has its mean there instead; in standardised units of a
            number, or in probability of ``own``.
    """

    name: str
    value: float
    effect: float


def column_effects(
    trained: TrainedRun, portfolio: Portfolio, problem: Problem, blend: Blend, node: int, own: int
) -> list[ColumnEffect]:
    """Of all members of trees together, the largest first; every column is changed by itself, all others as they are.

    Args:
        problem: the run as the members read it.
        own: the class whose probability is looked at; 0 of a number.
    """
    effects: dict[str, float] = {}
    values: dict[str, float] = {}
    for k in np.flatnonzero(blend.weights):
        member = portfolio.members[k]
        if not isinstance(member.model, Tabular) or all(each.trees is None for each in member.model.models):
            continue
        X = COLUMNS[member.model.columns](problem, problem.known)
        rows = np.tile(X[node], (X.shape[1] + 1, 1))  # the last one is as it is
        rows[np.arange(X.shape[1]), np.arange(X.shape[1])] = X.mean(0)
        found = np.stack([log_shares(each(rows), each.codes, problem.classes) for each in member.model.models])
        if problem.classes:
            found = sharpened(softmax(found)[None], blend.powers[[k]])[0]
        out = blend.weights[k] * found.mean(0)[:, own]
        for name, value, effect in zip(
            column_names(trained, problem, member.model.columns), X[node], out[-1] - out[:-1], strict=True
        ):
            effects[name] = effects.get(name, 0.0) + float(effect)
            values[name] = float(value)
    order = sorted(effects, key=lambda name: -abs(effects[name]))
    return [ColumnEffect(name, values[name], effects[name]) for name in order]


def column_names(trained: TrainedRun, problem: Problem, columns: str) -> list[str]:
    """In words, in the order of ``COLUMNS[columns]``."""
    own = feature_names(trained, own_columns(problem).shape[1])
    if columns == "x":
        return own
    if columns == "neighbours":
        return [*own, *(f"{name}: mean of its neighbours" for name in own), "log of the degree"]
    names = [*own, "log of the degree"]
    for words in ("mean of its neighbours", "mean two hops away", *(f"spread, scale {s:g}" for s in SCALES)):
        names += [f"{name}: {words}" for name in own]
    if exact_diagonal(problem):
        names += [f"return of a walk, scale {s:g}" for s in (0.5, 0.9)]
    if problem.arcs is not None:
        for words in ("where its edges lead", "where its edges come from"):
            names += [*(f"{name}: mean {words}" for name in own), f"log of the number {words}"]
    if columns == "surroundings":
        return names
    targets = trained.problem.classes if problem.classes else [f"known {trained.problem.target}"]
    names += [f"{name} of others, scale {s:g}" for s in LABEL_SCALES for name in targets]
    return [*names, *(f"{name} of its neighbours" for name in targets), "share of neighbours with a known target"]


def feature_names(trained: TrainedRun, width: int) -> list[str]:
    encoding = trained.encoding
    names = []
    for column in encoding.columns:
        kinds = encoding.categories.get(column)
        names += [column] if kinds is None else [f"{column} is {kind}" for kind in kinds]
    return names if len(names) == width else [f"direction {k + 1} of the features" for k in range(width)]
