"""The main job: a problem in; a trained model and honest comparisons out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from walksum.analysis.variance import marginal_variance
from walksum.data.encoding import Encoding, fit
from walksum.data.problem import Problem
from walksum.data.problem_split import split_problem
from walksum.data.splits import Split
from walksum.graph import Graph
from walksum.nn import GLT
from walksum.paper.models import BASELINES, make_baseline
from walksum.solvers import Solution
from walksum.training.loop import Epoch, Outcome, Recipe, train
from walksum.training.metrics import Score, score_classes, score_numbers
from walksum.workflow.models import GLT_NAME, check_model

ALPHAS = (0.2, 0.5, 0.8, 0.9, 0.95, 0.99)
SPREADING_LIMIT = 3000  # nodes up to which LabelSpreading, which is dense, is run beside

TITLES = {GLT_NAME: "GLT", "mlp": "MLP"}

OnEpoch = Callable[[str, Epoch, Epoch, Recipe], None]


@dataclass(frozen=True)
class Job:
    """How to train. Every number that decides the result is here; None: what the paper uses for the model."""

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

    def recipe(self) -> Recipe:
        default_lr = 1e-3 if self.model == GLT_NAME else BASELINES[self.model].lr
        slow = self.model == GLT_NAME and self.design == "laplacian" and not self.learned
        return Recipe(
            lr=default_lr if self.lr is None else self.lr,
            patience=(200 if slow else 100) if self.patience is None else self.patience,
            max_epochs=self.max_epochs,
        )

    @property
    def title(self) -> str:
        return TITLES.get(self.model, self.model)


@dataclass(frozen=True)
class Material:
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
    material: Material
    model: nn.Module
    outcome: Outcome
    output: Tensor  # probabilities [N, classes], or predicted numbers [N]
    scores: dict[str, Score]  # on the test nodes, by method; the model's own first
    solve: Solution | None  # of the last layer, in evaluation
    variance: Tensor | None  # marginal variance of each node in the last layer
    variance_by: str | None
    notes: list[str]
    interrupted: bool = False

    @property
    def problem(self) -> Problem:
        return self.material.problem

    @property
    def score(self) -> Score:
        return self.scores[self.job.title]

    @property
    def prediction(self) -> Tensor:
        """The class of each node, or its number."""
        return self.output if self.problem.regression else self.output.argmax(1)


def material_of(job: Job, problem: Problem) -> Material:
    check_model(job.model)
    split = split_problem(problem, job.split, job.seed)
    encoding, notes = fit_encoding(problem, split)
    notes += encoding.notes(problem.features)
    return Material(
        problem, split, encoding, encoding.encode(problem.features), standardised(problem.y, encoding), notes
    )


def fit_model(job: Job, material: Material, on_epoch: OnEpoch | None = None) -> tuple[nn.Module, Outcome]:
    """The job's model, trained; its weights start from the job's seed."""
    model, recipe = make_model(job, material.problem, material.encoding), job.recipe()
    told = None if on_epoch is None else lambda epoch, best: on_epoch(job.title, epoch, best, recipe)
    edges = edges_for(model, material.problem)
    return model, train(model, material.x, edges, material.y, material.split, recipe, told, material.problem.task)


def run(
    job: Job, problem: Problem, on_epoch: OnEpoch | None = None, fitted: tuple[nn.Module, Outcome] | None = None
) -> Result:
    """Train the job's model (unless it is ``fitted`` already), then the comparisons, on one split of the problem."""
    material = material_of(job, problem)
    model, outcome = fitted or fit_model(job, material, on_epoch)
    if not math.isfinite(outcome.best.val_loss):
        raise ValueError(
            f"training diverged: the validation loss is {outcome.best.val_loss} in its best epoch; take a smaller --lr "
            f"than {job.recipe().lr:g}"
        )
    output = predict(model, material.x, problem, material.encoding)
    scores, interrupted = {job.title: score(output, problem, material.split)}, outcome.interrupted
    if not interrupted:
        try:
            scores |= comparisons(job, material, on_epoch)
        except KeyboardInterrupt:
            interrupted = True
    solve = variance = by = None
    notes = list(material.notes)
    if isinstance(model, GLT):
        solve = model.mixers[-1].last_solve
        variance, by = marginal_variance(model.precisions(material.x, problem.graph)[-1])
    elif problem.edge_weight is not None:
        notes.append(f"model {job.model} does not use edge weights")
    return Result(job, material, model, outcome, output, scores, solve, variance, by, notes, interrupted)


def comparisons(job: Job, material: Material, on_epoch: OnEpoch | None) -> dict[str, Score]:
    """An MLP, which sees no graph; label spreading, which sees no features; what knows the target's distribution."""
    found, problem, split = {}, material.problem, material.split
    if job.model != "mlp":
        plain = replace(job, model="mlp", lr=None, patience=None)
        mlp, outcome = fit_model(plain, material, on_epoch)
        if outcome.interrupted:
            raise KeyboardInterrupt
        found["MLP"] = score(predict(mlp, material.x, problem, material.encoding), problem, split)
    truth = problem.y[split.test]
    if problem.regression:
        return found | {"mean": score_numbers(problem.y[split.train].mean().expand_as(truth), truth)}
    if problem.num_nodes <= SPREADING_LIMIT:
        guess = label_spreading(problem.graph, problem.y, split)
        found["LabelSpreading"] = score_classes(guess[split.test], truth)
    common = int(torch.bincount(problem.y[split.train]).argmax())
    return found | {"majority class": score_classes(torch.full_like(truth, common), truth)}


def make_model(job: Job, problem: Problem, encoding: Encoding) -> nn.Module:
    """The job's model for this problem, its weights drawn from the job's seed."""
    torch.manual_seed(job.seed)
    if job.model == GLT_NAME:
        return GLT(
            encoding.num_features,
            job.hidden,
            job.layers,
            problem.outputs,
            design=job.design,
            learned=job.learned,
            coupling=job.coupling,
            dropout=job.dropout,
            solver=job.solver,
        )
    return make_baseline(**baseline_config(job, encoding.num_features, problem.outputs, problem.num_nodes))


def baseline_config(job: Job, in_channels: int, out_channels: int, num_nodes: int) -> dict[str, Any]:
    return {
        "name": job.model,
        "in_channels": in_channels,
        "out_channels": out_channels,
        "num_nodes": num_nodes,
        "hidden_channels": job.hidden,
        "dropout": job.dropout,
    }


def fit_encoding(problem: Problem, split: Split) -> tuple[Encoding, list[str]]:
    encoding, notes = fit(problem.features, split.train)
    if encoding.num_features == 0:
        why = "".join(f"; {note}" for note in [*problem.notes, *notes])
        raise ValueError(f"no column is left to learn from; name usable ones by --features{why}")
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
    output = model.eval()(x, edges_for(model, problem))
    if problem.regression:
        return output.squeeze(-1) * encoding.target_scale + encoding.target_mean
    return output.softmax(-1)


def edges_for(model: nn.Module, problem: Problem) -> Graph | Tensor:
    return problem.graph if isinstance(model, GLT) else problem.edge_index


def score(output: Tensor, problem: Problem, split: Split) -> Score:
    truth, found = problem.y[split.test], output[split.test]
    return score_numbers(found, truth) if problem.regression else score_classes(found.argmax(1), truth)


def label_spreading(graph: Graph, y: Tensor, split: Split) -> Tensor:
    """Classes by scikit-learn's LabelSpreading on the same graph and labels, alpha chosen on validation."""
    from sklearn.semi_supervised import LabelSpreading

    adjacency = torch.zeros(graph.num_nodes, graph.num_nodes)
    i, j = graph.edges
    adjacency[i, j] = adjacency[j, i] = 1.0
    known = torch.full_like(y, -1)
    known[split.train] = y[split.train]
    best, chosen = -1.0, y
    for alpha in ALPHAS:
        spread = LabelSpreading(kernel=lambda X, Y: adjacency.numpy(), alpha=alpha, max_iter=1000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a part of the graph without labels divides by zero there
            guess = torch.from_numpy(spread.fit(adjacency.numpy(), known.numpy()).transduction_)
        right = (guess == y)[split.val].double().mean().item()
        if right >= best:
            best, chosen = right, guess
    return chosen
