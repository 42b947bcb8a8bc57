"""One training run, readable from top to bottom."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from walksum._checks import check_choice, check_count
from walksum.data.splits import Split
from walksum.nn import GLT
from walksum.training.cuda_graph import TrainingStep


@dataclass(frozen=True)
class Task:
    """What is predicted: decides the loss to descend and the score (the higher the better) to choose by."""

    loss: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor], float]


def accuracy(output: Tensor, y: Tensor) -> float:
    """The share of nodes whose largest output stands at their class."""
    return (output.argmax(-1) == y).float().mean().item()


def r_squared(output: Tensor, y: Tensor) -> float:
    """1 - (mean squared error) / (variance of y): 1 is perfect, 0 as good as the mean."""
    y, output = y.double(), output.squeeze(-1).double()
    return float(1 - (output - y).square().sum() / (y - y.mean()).square().sum().clamp_min(1e-300))


TASKS = {
    "classification": Task(cross_entropy, accuracy),
    "regression": Task(lambda output, y: mse_loss(output.squeeze(-1), y), r_squared),
}


@dataclass(frozen=True)
class Recipe:
    """How to train. The defaults are the paper's for graph linear transformations.

    Args:
        lr, weight_decay: of Adam.
        patience: stop after so many epochs without a better validation score (ties: a lower loss).
        max_epochs: stop here in any case.
    """

    lr: float = 1e-3
    weight_decay: float = 5e-4
    patience: int = 100
    max_epochs: int = 2000


@dataclass(frozen=True)
class Epoch:
    """What one epoch measured. The score is the task's: accuracy or R^2; NaN without nodes to measure it on.

    The steps are those of the solves of the training pass, the most of any layer; None for models that solve nothing.
    """

    number: int
    train_loss: float
    val_loss: float
    val_score: float
    test_score: float
    forward_steps: int | None = None
    backward_steps: int | None = None


@dataclass(frozen=True)
class Outcome:
    """The epoch chosen on the validation nodes, whose weights the model now has, and how it came about."""

    best: Epoch
    history: list[Epoch]
    seconds: float
    interrupted: bool = False


def train(
    model: nn.Module,
    x: Tensor,
    edges: Any,
    y: Tensor,
    split: Split,
    recipe: Recipe | None = None,
    on_epoch: Callable[[Epoch, Epoch], None] | None = None,
    task: str = "classification",
) -> Outcome:
    """Fit ``model(x, edges) -> outputs`` on the training nodes; keep the weights that are best on validation.

    A split without validation nodes trains for ``max_epochs`` and keeps the last weights.
    ``on_epoch(epoch, best)`` is called after each epoch. Ctrl-C ends the run early with the best weights so far.
    """
    check_choice("task", task, tuple(TASKS))
    recipe, loss_of = recipe or Recipe(), TASKS[task].loss
    check_count("max_epochs", recipe.max_epochs)
    validated = split.val.numel() > 0
    optimiser = make_optimiser(model, recipe)
    train_step = TrainingStep(partial(_loss, model, x, edges, split.train.to(y.device), y, loss_of), optimiser)
    after_step = getattr(model, "after_step", lambda: None)  # some baselines project their weights back
    history: list[Epoch] = []
    best: Epoch | None = None
    weights = copy.deepcopy(model.state_dict())
    started, interrupted = time.perf_counter(), False
    try:
        for number in range(1, recipe.max_epochs + 1):
            model.train()
            loss = train_step()
            after_step()

            epoch = Epoch(number, loss, math.nan, math.nan, math.nan, *_steps(model))
            if validated:
                epoch = _evaluate(model, x, edges, y, split, epoch, TASKS[task])
            history.append(epoch)
            if not validated:
                best, weights = epoch, model.state_dict()
            elif best is None or _rank(epoch) > _rank(best):
                best, weights = epoch, copy.deepcopy(model.state_dict())
            if on_epoch is not None:
                on_epoch(epoch, best)
            if number - best.number >= recipe.patience:
                break
    except KeyboardInterrupt:
        if best is None:
            raise
        interrupted = True
    assert best is not None
    model.load_state_dict(weights)
    model.eval()
    return Outcome(best, history, time.perf_counter() - started, interrupted)


def make_optimiser(model: nn.Module, recipe: Recipe) -> torch.optim.Adam:
    """Adam; on a GPU, for a model of ours, of the kind that a :class:`TrainingStep` can capture."""
    replayed = isinstance(model, GLT) and next(model.parameters()).is_cuda
    fast: dict[str, Any] = {"capturable": True, "fused": True} if replayed else {}
    return torch.optim.Adam(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay, **fast)


def _loss(model: nn.Module, x: Tensor, edges: Any, nodes: Tensor, y: Tensor, loss_of: Callable) -> Tensor:
    return loss_of(model(x, edges).index_select(0, nodes), y.index_select(0, nodes))


def _rank(epoch: Epoch) -> tuple[float, float]:
    return epoch.val_score, -epoch.val_loss


def _steps(model: nn.Module) -> tuple[int | None, int | None]:
    layers = getattr(model, "mixers", ())
    passes = [[each.last_solve for each in layers], [each.last_backward_solve for each in layers]]
    forward, backward = (max((each.steps for each in solves if each is not None), default=None) for solves in passes)
    return forward, backward


@torch.no_grad()
def _evaluate(model: nn.Module, x: Tensor, edges: Any, y: Tensor, split: Split, epoch: Epoch, task: Task) -> Epoch:
    model.eval()
    output = model(x, edges)
    return replace(
        epoch,
        val_loss=task.loss(output[split.val], y[split.val]).item(),
        val_score=task.score(output[split.val], y[split.val]),
        test_score=task.score(output[split.test], y[split.test]) if split.test.numel() else math.nan,
    )
