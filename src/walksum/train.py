"""One training run, readable from top to bottom."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from walksum.data.splits import Split


@dataclass(frozen=True)
class Recipe:
    """How to train. The defaults are the paper's for graph linear transformations.

    Args:
        lr, weight_decay: of Adam.
        patience: stop after so many epochs without a better validation accuracy (ties: a lower loss).
        max_epochs: stop here in any case.
    """

    lr: float = 1e-3
    weight_decay: float = 5e-4
    patience: int = 100
    max_epochs: int = 2000


@dataclass(frozen=True)
class Epoch:
    """What one epoch measured."""

    number: int
    train_loss: float
    val_loss: float
    val_accuracy: float
    test_accuracy: float


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
) -> Outcome:
    """Fit ``model(x, edges) -> logits`` on the training nodes; keep the weights that are best on validation.

    ``on_epoch(epoch, best)`` is called after each epoch. Ctrl-C ends the run early with the best weights so far.
    """
    recipe = recipe or Recipe()
    optimiser = torch.optim.Adam(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    after_step = getattr(model, "after_step", lambda: None)  # some baselines project their weights back
    history: list[Epoch] = []
    best: Epoch | None = None
    weights = copy.deepcopy(model.state_dict())
    started, interrupted = time.perf_counter(), False
    try:
        for number in range(1, recipe.max_epochs + 1):
            model.train()
            optimiser.zero_grad()
            loss = cross_entropy(model(x, edges)[split.train], y[split.train])
            loss.backward()
            optimiser.step()
            after_step()

            epoch = _evaluate(model, x, edges, y, split, number, loss.item())
            history.append(epoch)
            if best is None or _rank(epoch) > _rank(best):
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


def _rank(epoch: Epoch) -> tuple[float, float]:
    return epoch.val_accuracy, -epoch.val_loss


@torch.no_grad()
def _evaluate(
    model: nn.Module, x: Tensor, edges: Any, y: Tensor, split: Split, number: int, train_loss: float
) -> Epoch:
    model.eval()
    logits = model(x, edges)
    hit = logits.argmax(-1) == y
    return Epoch(
        number=number,
        train_loss=train_loss,
        val_loss=cross_entropy(logits[split.val], y[split.val]).item(),
        val_accuracy=hit[split.val].float().mean().item(),
        test_accuracy=hit[split.test].float().mean().item(),
    )
