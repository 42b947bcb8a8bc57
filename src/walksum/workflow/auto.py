"""One training of a portfolio: members within a budget, blended by validation, beside simpler methods."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from walksum.data.encoding import Encoding
from walksum.data.problem import Problem
from walksum.field.fit import LEVEL_95
from walksum.portfolio import clock
from walksum.portfolio.fit import WITHOUT_EDGES, Answer, Portfolio, fit_portfolio
from walksum.portfolio.folds import MOST_TURNS, cross_validation, given_validation
from walksum.portfolio.problem import WIDE, directed, mean_weight
from walksum.portfolio.problem import Problem as PortfolioProblem
from walksum.training import Epoch, Outcome
from walksum.training.devices import available_device
from walksum.workflow.comparisons import Comparison, compare
from walksum.workflow.fit import OnEpoch, OnMember, Result
from walksum.workflow.importance import importance_of_portfolio
from walksum.workflow.job import Job
from walksum.workflow.prepare import PreparedData, as_table, prepare_data
from walksum.workflow.scorer import calibration_record, fitted_temperature, tempered

FOLDS = 5
SHOWN = 12  # members in metrics.json


def fit_auto(job: Job, problem: Problem, on_epoch: OnEpoch | None, on_member: OnMember | None) -> Result:
    """Fit a portfolio, score it once on the test nodes, and compare it with simpler methods."""
    start = clock.now()
    prepared = prepare_data(job, problem)
    asked, learn, notes = portfolio_problem(job, prepared)
    portfolio = fit_portfolio(asked, prepared.scorer, job.budget, callback=on_member)
    took = clock.now() - start
    answer, calibration = portfolio.here(), None
    if not problem.regression:
        judged = asked.judged
        temperature = fitted_temperature(answer.value[judged], asked.y[judged].astype(np.int64))
        prepared = prepared.with_shares(0.0, temperature)
    found = output_of(answer, prepared.encoding, problem.regression)
    if not problem.regression:
        before = torch.from_numpy(answer.value).float()
        calibration = calibration_record(before, found.output, prepared.scorer, problem, prepared.split.test)
    interrupted, importance = portfolio.interrupted, None
    if not portfolio.complete and not interrupted:
        notes.append(f"the budget of {job.budget:g} s ended before all members were trained; budget= gives more")
    table = portfolio.table(prepared.scorer)
    rows = Comparison.of(job, prepared, found.output)
    if WITHOUT_EDGES in portfolio.blends and any(member.uses_graph for member in portfolio.members):
        alone = output_of(portfolio.here(WITHOUT_EDGES), prepared.encoding, problem.regression)
        rows.add(f"{job.title} without edges", alone.output, True)
    if not interrupted:
        try:
            compare(job, prepared, rows, on_epoch, learn)
            importance = importance_of_portfolio(job, prepared, portfolio)
        except KeyboardInterrupt:
            interrupted = True
    graph = rows.graph()
    record = {"members": table[:SHOWN], "count": len(table), "learned_from": len(learn), "graph": graph}
    # in place of epochs: the best member's validation score, by which the best of several seeds is chosen
    best = Epoch(0, float("nan"), float("nan"), max(row["validation"] for row in table), float("nan"))
    device = available_device(job.device)
    outcome = Outcome(best, [], took, portfolio.interrupted, seed=job.seed, device=device)
    by = "a Gaussian field, calibrated by leave-one-out" if portfolio.fields else "out-of-fold errors"
    return Result(
        job,
        prepared,
        portfolio,
        outcome,
        found.output,
        rows.scores,
        solve=None,
        notes=prepared.notes + notes + rows.notes,
        interrupted=interrupted,
        seconds={job.title: took} | rows.seconds,
        low=found.low,
        high=found.high,
        interval_by=by if problem.regression else "",
        portfolio=record,
        parts=rows.parts(),
        graph=graph,
        calibration=calibration,
        importance=importance,
    )


def portfolio_problem(job: Job, prepared: PreparedData) -> tuple[PortfolioProblem, Tensor, list[str]]:
    """The problem as the members of a portfolio read it, the nodes they learn from, and notes for the reader."""
    problem, split, notes = prepared.problem, prepared.split, []
    if problem.graph.edge_weight is not None and problem.graph.edge_weight.min() < 0:
        raise ValueError(
            "some edge weights are negative, and model='auto' divides by sums of weights; leave out weight=, give "
            "sizes without a sign, or take a design that knows signs: design='diagonally-dominant'"
        )
    train, val = split.train.numpy(), split.val.numpy()
    both, classes = np.sort(np.concatenate([train, val])), 0 if problem.regression else len(problem.classes)
    y = prepared.y.double().numpy().copy()
    y[np.setdiff1d(np.arange(len(y)), both)] = np.nan  # test targets are not even there
    # published splits say how many labels may be learned from; one's own table wants the best use of all
    # and nodes that follow each other in time cannot take turns
    turns = problem.data is None and not split.ordered and len(both) <= MOST_TURNS and prepared.x.size(1) <= WIDE
    folds = cross_validation(y, both, classes, FOLDS, job.seed, split.groups) if turns else []
    if not turns or np.array_equal(*folds[0]):  # most classes have one node, and none could judge in turns
        folds, turns = given_validation(both, val), False
    else:
        notes.append("training and validation nodes took turns in learning and judging, for all rows but MLP and GLT")
    X = as_table(prepared.x)
    arcs, device = directed(problem.edge_index.numpy()), available_device(job.device)
    made = PortfolioProblem(
        X, problem.graph, y, classes, folds, job.seed, device, arcs, position=problem.position,
        arc_weight=_arc_weight(problem), unit=mean_weight(problem.graph) if problem.places is None else None,
    )  # fmt: skip
    return made, torch.from_numpy(both) if turns else split.train, notes


@dataclass(frozen=True)
class Output:
    """Calibrated probabilities ``[N, C]``, or numbers in their units with the ends of their intervals ``[N]``."""

    output: Tensor
    low: Tensor | None = None
    high: Tensor | None = None


def output_of(answer: Answer, encoding: Encoding, regression: bool) -> Output:
    """Convert a portfolio's answer to calibrated probabilities, or to the target's units with intervals."""
    if not regression:
        return Output(torch.from_numpy(tempered(answer.value, encoding.temperature)).float())
    reach = 0.0 if answer.std is None else LEVEL_95 * answer.std
    low, value, high = (torch.from_numpy(encoding.in_units(answer.value + s * reach)) for s in (-1, 0, 1))
    return Output(value.float(), *((low, high) if answer.std is not None else ()))


def ask(
    portfolio: Portfolio,
    problem: Problem,
    x: Tensor,
    encoding: Encoding,
    residuals: np.ndarray | None,
    device: str = "cpu",
) -> Answer:
    """Predict the nodes of another problem, whose known targets the portfolio may read."""
    return portfolio.ask(as_portfolio_problem(portfolio, problem, x, encoding, device), residuals)


def as_portfolio_problem(
    portfolio: Portfolio, problem: Problem, x: Tensor, encoding: Encoding, device: str = "cpu"
) -> PortfolioProblem:
    """Convert another problem to the form that the members of a portfolio read."""
    y = problem.y.double().numpy().copy()
    if problem.regression:
        y = encoding.standardise(y)
    else:
        y[y < 0] = np.nan
    arcs, weight = directed(problem.edge_index.numpy()), _arc_weight(problem)
    return portfolio.problem.other(as_table(x), problem.graph, y, arcs, device, problem.position, weight)


def _arc_weight(problem: Problem) -> np.ndarray | None:
    return None if problem.edge_weight is None else problem.edge_weight.double().numpy()
