"""Permutation importance: how much worse the fitted model predicts when a column's values change places.

A column is permuted over all nodes, so neighbours lose it too; the model is asked again, not trained again; what counts
is how much the metric falls on nodes it did not learn from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from walksum.portfolio import clock
from walksum.portfolio.blend import Blend
from walksum.portfolio.deep import DeepBanks
from walksum.portfolio.fit import ELSEWHERE, HERE, Portfolio
from walksum.portfolio.labels import LabelPropagation
from walksum.portfolio.schedule import Model
from walksum.portfolio.stacked import StackedNetworks
from walksum.portfolio.tabular import Tabular
from walksum.training.scoring import bootstrap
from walksum.workflow.job import Job
from walksum.workflow.prepare import PreparedData, as_table, relevance

REPEATS = 5  # permutations of each column at most
SHARE = 0.1  # of the budget
MOST_WEIGHT = 0.5  # of the blend; where those that can be asked have less, they are weighted anew
MOST_COLUMNS = 200  # of a table; words have no importance one by one

Ask = Callable[[Tensor], np.ndarray]  # features of all nodes -> probabilities [n, C] or numbers [n] of the judged nodes


def importance_of_network(job: Job, prepared: PreparedData, model: nn.Module) -> dict[str, Any] | None:
    """Measure the permutation importance of a network, on the validation nodes."""
    from walksum.workflow.fit import predict

    val = prepared.split.val

    def ask(x: Tensor) -> np.ndarray:
        return predict(model, x, prepared.problem, prepared.encoding)[val].double().numpy()

    return _importance(job, prepared, ask, val, "validation nodes")


def importance_of_portfolio(job: Job, prepared: PreparedData, portfolio: Portfolio) -> dict[str, Any] | None:
    """Measure the permutation importance of a portfolio, by the members that can predict again, on its first fold."""
    problem, encoding = portfolio.problem, prepared.encoding
    askable = [member.local or member.model for member in portfolio.members]
    blend, carried = _of_those(portfolio, np.array([model is not None for model in askable]))
    if blend is None:
        return None
    train, judged = problem.folds[0]
    known = np.full(problem.num_nodes, np.nan)
    known[train] = problem.y[train]
    used = np.nonzero(blend.weights)[0]
    models = {id(model): _first_fold(model) for k in used if (model := askable[k]) is not None}
    if all(isinstance(model, LabelPropagation) for model in models.values()):
        return None  # no member that can be asked reads a column
    same: dict[Any, Any] = {}  # what no column changes: the known targets near a node

    def ask(x: Tensor) -> np.ndarray:
        asked = problem.other(
            as_table(x), problem.graph, known, problem.arcs, problem.device, problem.position, problem.arc_weight
        )
        asked.kept |= same | {key: value for key, value in problem.kept.items() if key == "coordinates"}
        found = {}
        for key, model in models.items():
            if isinstance(model, LabelPropagation):
                if ("targets", key) not in same:
                    same["targets", key] = model.outputs(asked)
                found[key] = same["targets", key]
            else:
                found[key] = model.outputs(asked)
        outputs = np.zeros((len(portfolio.members), problem.num_nodes, problem.outputs))
        for k in used:
            outputs[k] = found[id(askable[k])][portfolio.members[k].index][0]
        same.update({key: value for key, value in asked.kept.items() if isinstance(key, tuple) and key[0] == "targets"})
        value = blend(outputs, problem.classes)[judged]
        return value if problem.classes else encoding.in_units(value[:, 0])

    by = "validation nodes" if len(problem.folds) == 1 else f"one of {len(problem.folds)} folds, which did not learn it"
    if carried < 1 - 1e-9:
        by += f", by the members that can be asked again; they carry {100 * carried:.0f} % of the weight"
    return _importance(job, prepared, ask, torch.from_numpy(judged), by)


def _of_those(portfolio: Portfolio, who: np.ndarray) -> tuple[Blend | None, float]:
    """The blend restricted to these members, and their share of the weight."""
    blend = portfolio.blends[HERE]
    weights = np.where(who, blend.weights, 0.0)
    carried = float(weights.sum())
    if carried >= MOST_WEIGHT:
        return replace(blend, weights=weights / carried), carried
    return portfolio.blends.get(ELSEWHERE), carried


def _first_fold(model: Model) -> Model:
    """The model as trained on its first fold."""
    if isinstance(model, Tabular):
        return replace(model, models=model.models[:1])
    if isinstance(model, DeepBanks):
        return model.fold(0)
    if isinstance(model, StackedNetworks):
        turn = model.turns[0]
        turn = turn.take(torch.arange(0, turn.uses.size(0), model.folds))
        return replace(model, standards=model.standards[:1], turns=[turn], folds=1)
    return model


def _importance(job: Job, prepared: PreparedData, ask: Ask, nodes: Tensor, by: str) -> dict[str, Any] | None:
    """One row per column, the most important first; None of a tensor, whose columns have no names, and of words."""
    names = prepared.encoding.columns
    if isinstance(prepared.problem.features, Tensor) or not 0 < len(names) <= MOST_COLUMNS or len(nodes) < 2:
        return None
    start, random = clock.now(), np.random.default_rng(job.seed)
    until = start + SHARE * job.budget
    scorer, y = prepared.scorer, prepared.problem.y[nodes].numpy()
    base = ask(prepared.x)
    permuted: dict[str, list[np.ndarray]] = {}
    related = relevance(prepared.problem, prepared.split, prepared.x, prepared.y)
    # where time is short, the columns most correlated with the target are measured
    first = sorted(names, key=lambda name: -float(related[prepared.encoding.span(name)].max()))
    for _ in range(REPEATS):
        for name in first:
            if permuted and clock.now() > until:
                break
            permuted.setdefault(name, []).append(ask(_permuted(prepared, name, random)))

    def fall(found: list[np.ndarray], rows: np.ndarray) -> float:
        old = scorer.metric.gain(scorer.read(base[rows]), y[rows])
        return old - float(np.mean([scorer.metric.gain(scorer.read(each[rows]), y[rows]) for each in found]))

    table: list[dict[str, Any]] = []
    for name, found in permuted.items():
        value, drawn = fall(found, np.arange(len(y))), bootstrap(partial(fall, found), len(y), most=50)
        if not np.isfinite(value) or not len(drawn):  # the metric is not defined on so few nodes
            return None
        error = float(drawn.std())
        table.append({"column": name, "importance": value, "standard_error": error, "permutations": len(found)})
    table.sort(key=lambda row: -row["importance"])
    left = [name for name in names if name not in permuted]
    how = {"on": by, "nodes": len(y), "not_measured": left, "seconds": clock.now() - start}
    return {"columns": table, "how": how}


def _permuted(prepared: PreparedData, name: str, random: np.random.Generator) -> Tensor:
    x, span = prepared.x.clone(), prepared.encoding.span(name)
    x[:, span] = x[torch.from_numpy(random.permutation(len(x)))][:, span]
    return x
