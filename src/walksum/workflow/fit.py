"""Train one model on a problem, and compare it with simpler methods on the same split."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from walksum.data.encoding import Encoding
from walksum.data.problem import Problem
from walksum.graph import Graph
from walksum.nn import GLT
from walksum.portfolio import clock
from walksum.portfolio.fit import Portfolio
from walksum.solvers import Solution
from walksum.training import Data, Epoch, Outcome, Recipe
from walksum.training import fit as train
from walksum.training.scoring import Score
from walksum.workflow.job import AUTO_NAME, Job, new_model, smoothed
from walksum.workflow.prepare import PreparedData, prepare_data
from walksum.workflow.scorer import calibration_record, fitted_temperature

LEVEL = 0.95  # of intervals
SMOOTHING = (0.0, 0.8, 0.9, 0.95)  # scales of a propagation of probabilities that validation nodes choose from

OnMember = Callable[[str, int, int, float], None]  # what was trained, how many are done, of how many, seconds
OnEpoch = Callable[[str, Epoch, Epoch, Recipe], None]  # model, this epoch, the best so far, recipe


@dataclass(frozen=True)
class Result:
    """A trained model with its predictions and scores, beside those of simpler methods."""

    job: Job
    prepared: PreparedData
    model: nn.Module | Portfolio
    outcome: Outcome
    output: Tensor  # probabilities [N, classes], or predicted numbers [N]
    scores: dict[str, Score]  # on the test nodes, by method; the model's own first
    solve: Solution | None  # of the last layer, in evaluation
    notes: list[str]
    interrupted: bool = False
    seconds: dict[str, float] = field(default_factory=dict)  # by compared method
    low: Tensor | None = None  # ends of each number's 95 % interval [N]
    high: Tensor | None = None
    interval_by: str = ""
    interval_reach: float | None = None  # half their width in standardised units, where it is the same for all
    portfolio: dict[str, Any] | None = None  # members and what they learned from, as metrics.json holds them
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)  # all metrics by part of the split and method
    graph: dict[str, Any] | None = None  # whether the graph helped
    calibration: dict[str, Any] | None = None
    importance: dict[str, Any] | None = None

    @property
    def problem(self) -> Problem:
        return self.prepared.problem

    @property
    def score(self) -> Score:
        return self.scores[self.job.title]

    @property
    def prediction(self) -> Tensor:
        """The class of each node, or its number."""
        return self.output if self.problem.regression else self.prepared.encoding.weighed(self.output).argmax(1)

    @property
    def plain_scores(self) -> dict[str, float]:
        """Test accuracy or R^2 by method, whatever the metric."""
        name, test = "r2" if self.problem.regression else "accuracy", self.parts.get("test", {})
        return {method: test[method][name] if method in test else each.value for method, each in self.scores.items()}

    @property
    def margin(self) -> Tensor | None:
        """Half the width of each number's interval ``[N]``."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def coverage(self) -> float | None:
        """The share of test nodes whose number lies in its interval."""
        if self.low is None or self.high is None:
            return None
        test, y = self.prepared.split.test, self.problem.y
        return float(((self.low <= y) & (y <= self.high))[test].double().mean())


def fit_model(
    job: Job, prepared: PreparedData, on_epoch: OnEpoch | None = None, deadline: float = math.inf
) -> tuple[nn.Module, Outcome]:
    """Train the job's model on the job's device, from weights drawn with the job's seed.

    A training that the ``deadline`` ends keeps its best epoch so far and does not count as interrupted.
    """
    model, recipe = make_model(job, prepared.problem, prepared.encoding), job.recipe()
    timed_out = False

    def report(epoch: Epoch, best: Epoch) -> None:
        nonlocal timed_out
        if on_epoch is not None:
            on_epoch(job.title, epoch, best, recipe)
        if clock.now() > deadline:
            timed_out = True
            raise KeyboardInterrupt

    edges, task = edges_for(model, prepared.problem), prepared.problem.task
    chosen_by = None if job.metric is None else prepared.scorer
    data = Data(prepared.x, edges, prepared.y, prepared.split, task, chosen_by)
    outcome = train(model, data, recipe, device=job.device, on_epoch=report)
    return model, replace(outcome, interrupted=False, ended="deadline") if timed_out else outcome


def fit_once(
    job: Job,
    problem: Problem,
    on_epoch: OnEpoch | None = None,
    fitted: tuple[nn.Module, Outcome] | None = None,
    on_member: OnMember | None = None,
    searched: tuple[int, float] = (0, 0.0),
) -> Result:
    """Train the job's model (unless it is ``fitted`` already), then the comparisons, on one split of the problem.

    ``searched``: trials and seconds of the search that found the job; compared rows get as many, and no less time than
    the model's own training took.
    """
    from walksum.workflow.auto import fit_auto  # both train by fit_model
    from walksum.workflow.comparisons import Comparison, compare
    from walksum.workflow.importance import importance_of_network

    if job.model == AUTO_NAME:
        return fit_auto(job, problem, on_epoch, on_member)
    prepared = prepare_data(job, problem)
    model, outcome = fitted or fit_model(job, prepared, on_epoch)
    if not math.isfinite(outcome.best.val_loss):
        raise ValueError(
            f"training diverged: the validation loss is {outcome.best.val_loss} in its best epoch with "
            f"lr={job.recipe().lr:g}; take a smaller one"
        )
    prepared, output, calibration = _calibrated(with_smoothing(job, prepared, model), model)
    found, interrupted, importance = Comparison.of(job, prepared, output), outcome.interrupted, None
    if not interrupted:
        try:
            own = searched[0], max(searched[1], outcome.seconds)  # no row gets less time than the model itself took
            compare(job, prepared, found, on_epoch, searched=own)
            importance = importance_of_network(job, prepared, model)
        except KeyboardInterrupt:
            interrupted = True
    notes = prepared.notes + found.notes
    if not isinstance(model, GLT) and problem.edge_weight is not None:
        notes.append(f"model {job.model} does not use edge weights")
    reach = conformal_reach(output, prepared) if problem.regression else None
    low, high = (None, None) if reach is None else interval_around(output, prepared.encoding, reach)
    return Result(
        job,
        prepared,
        model,
        outcome,
        output,
        found.scores,
        solve=model.mixers[-1].last_solve if isinstance(model, GLT) else None,
        notes=notes,
        interrupted=interrupted,
        seconds={job.title: outcome.seconds} | found.seconds,
        low=low,
        high=high,
        interval_by="split-conformal" if problem.regression else "",
        interval_reach=reach,
        parts=found.parts(),
        graph=found.graph(),
        calibration=calibration,
        importance=importance,
    )


def _calibrated(prepared: PreparedData, model: nn.Module) -> tuple[PreparedData, Tensor, dict[str, Any] | None]:
    """Predict all nodes; probabilities with a temperature that is fitted on the validation nodes, and its record."""
    problem, val = prepared.problem, prepared.split.val
    before = predict(model, prepared.x, problem, prepared.encoding)
    if problem.regression:
        return prepared, before, None
    temperature = fitted_temperature(before[val].double().numpy(), problem.y[val].numpy())
    prepared = prepared.with_shares(prepared.encoding.smoothing, temperature)
    output = predict(model, prepared.x, problem, prepared.encoding)
    return prepared, output, calibration_record(before, output, prepared.scorer, problem, prepared.split.test)


def conformal_reach(output: Tensor, prepared: PreparedData) -> float:
    """Half the width of split-conformal 95 % intervals, from the errors of the validation nodes.

    Errors are taken on the transformed target, where they vary less from node to node.
    """
    val = prepared.split.val
    z = torch.from_numpy(prepared.encoding.standardise(output.double().numpy()))
    off = (z - prepared.y)[val].abs().double().sort().values
    return float(off[min(len(off), math.ceil(LEVEL * (len(off) + 1))) - 1])


def interval_around(output: Tensor, encoding: Encoding, reach: float) -> tuple[Tensor, Tensor]:
    """Lower and upper end of each interval, in the target's units."""
    z = encoding.standardise(output.double().cpu().numpy())
    low, high = (torch.from_numpy(encoding.in_units(z + s * reach)) for s in (-1, 1))
    return low, high


def make_model(job: Job, problem: Problem, encoding: Encoding) -> nn.Module:
    """Make the job's model for this problem, with weights drawn from the job's seed."""
    torch.manual_seed(job.seed)
    return new_model(job, encoding.num_features, problem.outputs, problem.num_nodes)


def with_smoothing(job: Job, prepared: PreparedData, model: nn.Module) -> PreparedData:
    """The same with the propagation of this model's probabilities that is best on the validation nodes, of equals
    the farthest.

    An MLP stays without: it is there to show what the columns alone can tell.
    """
    prepared, problem, val = prepared.with_shares(0.0), prepared.problem, prepared.split.val
    if problem.regression or job.model == "mlp" or not problem.graph.num_edges:
        return prepared
    scorer, y = prepared.scorer, problem.y[val].numpy()

    def judge(scale: float) -> tuple[float, float]:
        shares = predict(model, prepared.x, problem, replace(prepared.encoding, smoothing=scale))
        return scorer.metric.gain(scorer.read(shares[val].double().numpy()), y), scale

    return prepared.with_shares(max(SMOOTHING, key=judge))


@torch.no_grad()
def predict(model: nn.Module, x: Tensor, problem: Problem, encoding: Encoding) -> Tensor:
    """Predict all nodes: probabilities ``[N, C]``, or numbers ``[N]`` in the target's units."""
    output = smoothed(model, encoding.smoothing).eval()(x, edges_for(model, problem).to(x.device))
    if problem.regression:
        return torch.from_numpy(encoding.in_units(output.squeeze(-1).cpu().numpy())).to(output)
    return (output / encoding.temperature).softmax(-1)


def edges_for(model: nn.Module, problem: Problem) -> Graph | Tensor:
    """Edges in both directions, as all rows of a comparison read them."""
    if isinstance(model, GLT):
        return problem.graph
    return problem.edge_index if getattr(model, "as_listed", False) else problem.both_directions
