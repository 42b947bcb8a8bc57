"""What each epoch of a run measured, which epoch is the best so far, and when to stop."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor, nn

from walksum.training.recipe import Recipe

# steps, residual and status of every layer's solve, going forward and going backward, in one training step
LayerSolves = tuple[tuple[int, float, str], ...]
StepSolves = tuple[LayerSolves, LayerSolves]


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

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Epoch:
        """An epoch as JSON holds it: null was NaN; fields that are unknown or missing are left out."""
        known: dict[str, Any] = {each.name: record[each.name] for each in fields(cls) if each.name in record}
        missing = [name for name, value in known.items() if value is None and not name.endswith("_steps")]
        return cls(**known | dict.fromkeys(missing, math.nan))


def rank(epoch: Epoch, select: str = "score") -> tuple[float, ...]:
    """Of two epochs, or the best epochs of two runs, the one of higher rank is better; a diverged one is the worst."""
    finite = math.isfinite(epoch.val_loss)
    return (finite, -epoch.val_loss) if select == "loss" else (finite, epoch.val_score, -epoch.val_loss)


@dataclass
class History:
    """One run while it trains.

    Args:
        validated: whether there are validation nodes; without them the last epoch counts as the best.
        ended: "" while it goes on; "patience", "max_epochs", "diverged" or "interrupted".
        solves: of each epoch; runs that train together share one list.
        weights: of the best epoch, where they are kept.
    """

    seed: int
    model: nn.Module | None = None
    validated: bool = True
    epochs: list[Epoch] = field(default_factory=list)
    best: Epoch | None = None
    ended: str = ""
    seconds: float = 0.0
    solves: list[StepSolves] = field(default_factory=list)
    weights: dict[str, Tensor] | None = None

    def add(self, epoch: Epoch, recipe: Recipe) -> bool:
        """Add an epoch and decide whether it was the last; True if it is the best so far."""
        self.epochs.append(epoch)
        if not all(map(math.isfinite, (epoch.train_loss, *[epoch.val_loss] * self.validated))):
            self.ended = "diverged"
            self.best = self.best or epoch
            return False
        better = not self.validated or self.best is None or rank(epoch, recipe.select) > rank(self.best, recipe.select)
        if better:
            self.best = epoch
        assert self.best is not None
        if epoch.number - self.best.number >= recipe.patience:
            self.ended = "patience"
        elif epoch.number >= recipe.max_epochs:
            self.ended = "max_epochs"
        return better


@dataclass(frozen=True)
class Outcome:
    """A finished run: the epoch chosen on the validation nodes, and how it came about.

    Args:
        best, history: the chosen epoch, and all of them.
        seconds: of the run; of runs trained together, its share.
        interrupted: whether Ctrl-C ended it; best and weights are then those so far.
        model: with the weights of the best epoch, in evaluation mode; None where weights were not kept.
        seed, seeds: of the run, and of all that trained together with it.
        ended: "patience", "max_epochs", "diverged", "interrupted", or "deadline" where a budget ended it.
        solves: of every epoch.
        captured: whether the training step ran as a CUDA graph; ``not_captured`` says why not.
        peak_memory: bytes on the GPU, of all runs together.
        parameters: number of trained numbers.
        device: where it was trained.
    """

    best: Epoch
    history: list[Epoch]
    seconds: float
    interrupted: bool = False
    model: nn.Module | None = None
    seed: int = 0
    seeds: tuple[int, ...] = (0,)
    ended: str = ""
    solves: list[StepSolves] = field(default_factory=list)
    captured: bool = False
    not_captured: str | None = None
    peak_memory: int | None = None
    parameters: int = 0
    device: str = "cpu"

    @property
    def diverged(self) -> bool:
        return self.ended == "diverged"
