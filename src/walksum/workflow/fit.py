"""One training: a problem in; a trained model and honest comparisons out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from walksum.analysis.variance import marginal_variance
from walksum.data.encoding import Encoding
from walksum.data.encoding import fit as fit_columns
from walksum.data.problem import Problem
from walksum.data.problem_split import split_problem
from walksum.data.splits import Split
from walksum.designs import check_design
from walksum.graph import Graph
from walksum.nn import GLT
from walksum.portfolio.fit import Portfolio
from walksum.solvers import Solution, resolve_name
from walksum.training import Data, Epoch, Outcome, Recipe
from walksum.training import fit as train
from walksum.training.devices import available_device
from walksum.training.metrics import Score, score_classes, score_numbers
from walksum.workflow.models import AUTO_NAME, GLT_NAME, check_model, default_lr, new_model

TITLES = {GLT_NAME: "GLT", "mlp": "MLP"}
SLOW_PATIENCE, PATIENCE = 200, 100  # the paper's, for the fixed Laplacian and for all else
LEVEL = 0.95  # of intervals
# what only a network has; whoever sets one of them and names no model means a GLT
NETWORK_SETTINGS = ["design", "learned", "coupling", "solver", "hidden", "layers", "dropout", "lr", "patience"]
NETWORK_SETTINGS += ["max_epochs"]
DIGITS_WIDTH = 128  # over five splits 0.2 points above 64, on validation and on test nodes

OnMember = Callable[[str, int, int, float], None]  # what was trained, how many are done, of how many, seconds
OnEpoch = Callable[[str, Epoch, Epoch, Recipe], None]  # model, this epoch, the best so far, recipe


@dataclass(frozen=True)
class Job:
    """How to train. Every setting that decides the result is here.

    Args:
        model: "auto", a portfolio blended by validation; "glt"; or a compared model such as "gcn" or "mlp".
        budget: seconds for the members of a portfolio, and again for the rows compared with any model.
        design, learned, coupling: how J is made from the graph; coupling None: the paper's.
        solver: how mu is found.
        hidden, layers, dropout: of the model.
        lr, patience: of the training; None: what the paper uses for the model.
        max_epochs: epochs at most.
        split: counts ("87,59,37"), fractions ("0.6,0.2,0.2") or a protocol; None: see
            :func:`walksum.data.problem_split.split_problem`.
        seed: decides the split and the initial weights.
        device: "auto", "cpu" or "cuda".
    """

    model: str = GLT_NAME
    design: str = "diagonally-dominant"
    learned: bool = False
    coupling: str | None = None
    solver: str = "auto"
    hidden: int = 64
    layers: int = 2
    dropout: float = 0.6
    lr: float | None = None
    patience: int | None = None
    max_epochs: int = 2000
    split: str | None = None
    seed: int = 0
    device: str = "auto"
    budget: float = 60.0

    def check(self) -> None:
        """Refuse what cannot work, before a large file is read."""
        check_model(self.model)
        check_design(self.design, self.learned, self.coupling)
        resolve_name(self.solver)
        available_device(self.device)
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout}; expected a rate in [0, 1)")
        if self.lr is not None and not self.lr > 0:
            raise ValueError(f"lr={self.lr}; expected a positive number")
        if isinstance(self.budget, bool) or not isinstance(self.budget, int | float) or not self.budget > 0:
            raise ValueError(f"budget={self.budget!r}; expected a positive number of seconds")

    def recipe(self) -> Recipe:
        slow = self.model == GLT_NAME and self.design == "laplacian" and not self.learned
        return Recipe(
            lr=default_lr(self.model) if self.lr is None else self.lr,
            patience=(SLOW_PATIENCE if slow else PATIENCE) if self.patience is None else self.patience,
            max_epochs=self.max_epochs,
        )

    @property
    def title(self) -> str:
        return TITLES.get(self.model, self.model)

    @property
    def settings(self) -> str:
        """What a search varies, in words; of a portfolio its budget."""
        if self.model == AUTO_NAME:
            return f"budget {self.budget:g} s"
        common = f"width {self.hidden}, dropout {self.dropout:g}, lr {self.recipe().lr:.2g}"
        if self.model != GLT_NAME:
            return common
        design = f"{'learned' if self.learned else 'fixed'} {self.design}"
        return f"{design}, {self.coupling or 'default'} coupling, {common}"


def default_width(problem: Problem) -> int:
    """The paper's width; a larger one for the digits, where it pays."""
    return DIGITS_WIDTH if problem.name == "digits" else Job.hidden


@dataclass(frozen=True)
class PreparedData:
    """What a job learns from: one split of a problem, encoded by its training nodes."""

    problem: Problem
    split: Split
    encoding: Encoding
    x: Tensor
    y: Tensor
    notes: list[str]


@dataclass(frozen=True)
class Result:
    """A trained model, next to what simpler methods reach with the same labels."""

    job: Job
    prepared: PreparedData
    model: nn.Module | Portfolio
    outcome: Outcome
    output: Tensor  # probabilities [N, classes], or predicted numbers [N]
    scores: dict[str, Score]  # on the test nodes, by method; the model's own first
    solve: Solution | None  # of the last layer, in evaluation
    variance: Tensor | None  # marginal variance of each node in the last layer
    variance_by: str | None
    notes: list[str]
    interrupted: bool = False
    seconds: dict[str, float] = field(default_factory=dict)  # by compared method
    margin: Tensor | None = None  # half the width of each number's 95 % interval [N]
    margin_by: str = ""
    portfolio: dict[str, Any] | None = None  # members and what the graph gave, as metrics.json holds them

    @property
    def problem(self) -> Problem:
        return self.prepared.problem

    @property
    def score(self) -> Score:
        return self.scores[self.job.title]

    @property
    def prediction(self) -> Tensor:
        """The class of each node, or its number."""
        return self.output if self.problem.regression else self.output.argmax(1)

    @property
    def coverage(self) -> float | None:
        """The share of test nodes whose number lies in its interval."""
        if self.margin is None:
            return None
        test = self.prepared.split.test
        off = (self.output - self.problem.y)[test].abs()
        return float((off <= self.margin[test]).double().mean())


def prepare_data(job: Job, problem: Problem) -> PreparedData:
    """Split and encode a problem as the job says."""
    check_model(job.model)
    split = split_problem(problem, job.split, job.seed)
    encoding, notes = fit_encoding(problem, split)
    notes += encoding.notes(problem.features)
    x, y = encoding.encode(problem.features), standardised(problem.y, encoding)
    return PreparedData(problem, split, encoding, x, y, notes)


def fit_model(job: Job, prepared: PreparedData, on_epoch: OnEpoch | None = None) -> tuple[nn.Module, Outcome]:
    """The job's model, trained on the job's device; its weights start from the job's seed."""
    model, recipe = make_model(job, prepared.problem, prepared.encoding), job.recipe()
    report = None if on_epoch is None else lambda epoch, best: on_epoch(job.title, epoch, best, recipe)
    edges, task = edges_for(model, prepared.problem), prepared.problem.task
    data = Data(prepared.x, edges, prepared.y, prepared.split, task)
    return model, train(model, data, recipe, device=job.device, on_epoch=report)


def fit_once(
    job: Job,
    problem: Problem,
    on_epoch: OnEpoch | None = None,
    fitted: tuple[nn.Module, Outcome] | None = None,
    on_member: OnMember | None = None,
) -> Result:
    """Train the job's model (unless it is ``fitted`` already), then the comparisons, on one split of the problem."""
    from walksum.workflow.auto import fit_auto  # both train by fit_model
    from walksum.workflow.comparisons import compare

    if job.model == AUTO_NAME:
        return fit_auto(job, problem, on_epoch, on_member)
    prepared = prepare_data(job, problem)
    model, outcome = fitted or fit_model(job, prepared, on_epoch)
    if not math.isfinite(outcome.best.val_loss):
        raise ValueError(
            f"training diverged: the validation loss is {outcome.best.val_loss} in its best epoch with "
            f"lr={job.recipe().lr:g}; take a smaller one"
        )
    output = predict(model, prepared.x, problem, prepared.encoding)
    scores, interrupted = {job.title: score(output, problem, prepared.split)}, outcome.interrupted
    seconds, notes = {job.title: outcome.seconds}, list(prepared.notes)
    if not interrupted:
        try:
            others, took, more = compare(job, prepared, on_epoch)
            scores, seconds, notes = scores | others, seconds | took, notes + more
        except KeyboardInterrupt:
            interrupted = True
    solve = variance = by = None
    if isinstance(model, GLT):
        solve = model.mixers[-1].last_solve
        variance, by = marginal_variance(model.precisions(prepared.x, problem.graph)[-1])
    elif problem.edge_weight is not None:
        notes.append(f"model {job.model} does not use edge weights")
    margin = conformal_margin(output, problem, prepared.split) if problem.regression else None
    by_whom = "split-conformal" if margin is not None else ""
    return Result(
        job, prepared, model, outcome, output, scores, solve, variance, by, notes, interrupted, seconds, margin, by_whom
    )


def conformal_margin(output: Tensor, problem: Problem, split: Split) -> Tensor:
    """The distance within which 95 % of the validation nodes' errors lie, one counted more: split-conformal."""
    off = (output - problem.y)[split.val].abs().double().sort().values
    rank = min(len(off), math.ceil(LEVEL * (len(off) + 1)))
    return off[rank - 1].expand(problem.num_nodes)


def make_model(job: Job, problem: Problem, encoding: Encoding) -> nn.Module:
    """The job's model for this problem, its weights drawn from the job's seed."""
    torch.manual_seed(job.seed)
    return new_model(job, encoding.num_features, problem.outputs, problem.num_nodes)


def fit_encoding(problem: Problem, split: Split) -> tuple[Encoding, list[str]]:
    """How columns and target are encoded, from the training nodes; and notes on what was left out."""
    encoding, notes = fit_columns(problem.features, split.train)
    if encoding.num_features == 0:
        why = "".join(f"; {note}" for note in [*problem.notes, *notes])
        raise ValueError(f"no column is left to learn from; give usable ones by features={why}")
    if problem.regression:
        known = problem.y[split.train].double()
        scale = float(known.std(correction=0)) or 1.0
        encoding = replace(encoding, target_mean=float(known.mean()), target_scale=scale)
    return encoding, notes


def standardised(y: Tensor, encoding: Encoding) -> Tensor:
    """The target as the model sees it: numbers around 0 of size 1."""
    return (y - encoding.target_mean) / encoding.target_scale if y.is_floating_point() else y


@torch.no_grad()
def predict(model: nn.Module, x: Tensor, problem: Problem, encoding: Encoding) -> Tensor:
    """Probabilities of the classes ``[N, C]``, or numbers ``[N]`` in the target's units."""
    output = model.eval()(x, edges_for(model, problem).to(x.device))
    if problem.regression:
        return output.squeeze(-1) * encoding.target_scale + encoding.target_mean
    return output.softmax(-1)


def edges_for(model: nn.Module, problem: Problem) -> Graph | Tensor:
    return problem.graph if isinstance(model, GLT) else problem.edge_index


def score(output: Tensor, problem: Problem, split: Split) -> Score:
    """Of the test nodes."""
    truth, predicted = problem.y[split.test], output[split.test]
    return score_numbers(predicted, truth) if problem.regression else score_classes(predicted.argmax(1), truth)
