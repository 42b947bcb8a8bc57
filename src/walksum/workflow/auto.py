"""One training of a portfolio: members within a budget, blended by validation, beside simpler methods."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from walksum.data.problem import Problem
from walksum.graph import Graph
from walksum.portfolio.blend import accuracy, paired_gain, r_squared
from walksum.portfolio.fit import WITHOUT_EDGES, Answer, Portfolio, fit_portfolio
from walksum.portfolio.folds import cross_validation, given_validation
from walksum.portfolio.problem import SPARSE, WIDE, directed
from walksum.portfolio.problem import Problem as PortfolioProblem
from walksum.portfolio.residual import LEVEL_95
from walksum.training import Epoch, Outcome
from walksum.training.devices import available_device
from walksum.workflow.comparisons import compare
from walksum.workflow.fit import Job, OnEpoch, OnMember, PreparedData, Result, prepare_data, score

FOLDS = 5
MOST_TURNS = 4000  # labelled nodes up to which they take turns in learning and judging, which costs five trainings
SHOWN = 12  # members in metrics.json


def fit_auto(job: Job, problem: Problem, on_epoch: OnEpoch | None, on_member: OnMember | None) -> Result:
    """Fit a portfolio, look at the test nodes once, and compare."""
    start = time.monotonic()
    prepared = prepare_data(job, problem)
    asked, learn, notes = portfolio_problem(job, prepared)
    metric = r_squared if problem.regression else accuracy
    portfolio = fit_portfolio(asked, metric, job.budget, callback=on_member)
    answer = portfolio.here()
    output = in_units(answer.value, prepared.encoding, problem.regression)
    margin = None
    if answer.std is not None:
        margin = torch.from_numpy(LEVEL_95 * answer.std * prepared.encoding.target_scale)
    table, alone = portfolio.table(metric), _without_edges(portfolio)
    seconds = {job.title: time.monotonic() - start}
    scores, interrupted = {job.title: score(output, problem, prepared.split)}, portfolio.interrupted
    if not portfolio.complete and not interrupted:
        notes.append(f"the budget of {job.budget:g} s ended before all members were trained; --budget gives more")
    record = {"members": table[:SHOWN], "count": len(table), "learned_from": len(learn)}
    record["graph"] = None if alone is None else graph_gain(answer, alone, prepared, metric)
    if not interrupted:
        try:
            others, took, more = compare(job, prepared, on_epoch, learn)
            scores, seconds, notes = scores | others, seconds | took, notes + more
        except KeyboardInterrupt:
            interrupted = True
    # in place of epochs: the best member's validation score, by which the best of several seeds is chosen
    best = Epoch(0, float("nan"), float("nan"), max(row["validation"] for row in table), float("nan"))
    device = available_device(job.device)
    outcome = Outcome(best, [], seconds[job.title], portfolio.interrupted, seed=job.seed, device=device)
    by = "a Gaussian field, calibrated by leave-one-out" if portfolio.fields else "out-of-fold errors"
    return Result(
        job, prepared, portfolio, outcome, output, scores, None, None, None, prepared.notes + notes, interrupted,
        seconds, margin, by if margin is not None else "", record,
    )  # fmt: skip


def portfolio_problem(job: Job, prepared: PreparedData) -> tuple[PortfolioProblem, Tensor, list[str]]:
    """What the members are given, the nodes they learn from, and what a reader should know about these."""
    problem, split, notes = prepared.problem, prepared.split, []
    train, val = split.train.numpy(), split.val.numpy()
    both, classes = np.sort(np.concatenate([train, val])), 0 if problem.regression else len(problem.classes)
    y = prepared.y.double().numpy().copy()
    y[np.setdiff1d(np.arange(len(y)), both)] = np.nan  # test targets are not even there
    # published splits say how many labels may be learned from; one's own table wants the best use of all
    # and nodes that follow each other in time cannot take turns
    turns = problem.data is None and not split.ordered and len(both) <= MOST_TURNS and prepared.x.size(1) <= WIDE
    if turns:
        folds = cross_validation(y, both, classes, FOLDS, job.seed, split.groups)
        notes.append("training and validation nodes took turns in learning and judging, for all rows but the MLP")
    else:
        folds = given_validation(both, val)
    X = as_table(prepared.x)
    arcs = directed(problem.edge_index.numpy())
    made = PortfolioProblem(
        X, problem.graph, y, classes, folds, job.seed, available_device(job.device), arcs, position=problem.position
    )
    return made, torch.from_numpy(both) if turns else split.train, notes


def as_table(x: Tensor) -> Any:
    """Features as members read them: many, mostly zero columns as a sparse matrix."""
    X = x.double().numpy()
    return sp.csr_matrix(X) if X.shape[1] > WIDE and (X != 0).mean() < SPARSE else X


def in_units(value: np.ndarray, encoding: Any, regression: bool) -> Tensor:
    """Probabilities as they are, numbers in the target's units."""
    value = value * encoding.target_scale + encoding.target_mean if regression else value
    return torch.from_numpy(value).float()


def _without_edges(portfolio: Portfolio) -> Answer | None:
    edges = np.array([member.uses_graph for member in portfolio.members])
    return portfolio.here(WITHOUT_EDGES) if edges.any() and WITHOUT_EDGES in portfolio.blends else None


def graph_gain(answer: Answer, alone: Answer, prepared: PreparedData, metric: Any) -> dict[str, Any]:
    """Test score of the blend minus that of the members without edges, with a paired bootstrap over the test nodes."""
    test = prepared.split.test.numpy()
    y = prepared.y.double().numpy()[test]
    mine, theirs = (each.value[test].reshape(len(test), -1) for each in (answer, alone))
    gain, low, high = paired_gain(lambda rows: metric(mine[rows], y[rows]) - metric(theirs[rows], y[rows]), len(y))
    verdict = "helped" if low > 0 else "hurt" if high < 0 else "made no clear difference"
    return {"verdict": verdict, "gain": gain, "low": low, "high": high, "without_edges": metric(theirs, y)}


def ask(portfolio: Portfolio, problem: Problem, x: Tensor, encoding: Any, residuals: np.ndarray | None) -> Answer:
    """What a portfolio says about the nodes of another problem, whose known targets it may read."""
    y = problem.y.double().numpy().copy()
    if problem.regression:
        y = (y - encoding.target_mean) / encoding.target_scale
    else:
        y[y < 0] = np.nan
    graph: Graph = problem.graph
    arcs = directed(problem.edge_index.numpy())
    return portfolio.ask(portfolio.problem.other(as_table(x), graph, y, arcs, position=problem.position), residuals)
