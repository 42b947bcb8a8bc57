"""Train many seeds of one model: in batches where that is faster, else one after another."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from walksum._torch import is_out_of_memory
from walksum.nn import GLTConv
from walksum.training.data import Data
from walksum.training.history import Outcome
from walksum.training.loop import Batch, DivergedTogether
from walksum.training.recipe import Recipe

ROWS_ON_CPU = 6000  # nodes times runs of a batch on a CPU: beyond, it leaves the caches and is slower than run by run

Factory = Callable[[int], nn.Module]


@dataclass(frozen=True)
class Progress:
    """The progress of a batch: how many runs ended before it, and its runs."""

    before: int
    batch: Batch

    @property
    def done(self) -> int:
        return self.before + sum(bool(run.ended) for run in self.batch.runs)

    @property
    def running(self) -> int:
        return sum(not run.ended for run in self.batch.runs)

    @property
    def epoch(self) -> int:
        return max(len(run.epochs) for run in self.batch.runs)

    @property
    def best(self) -> float:
        """The mean of the best validation scores so far."""
        scores = [run.best.val_score for run in self.batch.runs if run.best is not None]
        return sum(scores) / max(1, len(scores))


@dataclass(frozen=True)
class Finished:
    """A run that ended; ``note`` says why it was trained alone, if it was to be in a batch."""

    outcome: Outcome
    note: str = ""


@dataclass(frozen=True)
class Failure:
    """A run that raised: ``kind`` is "oom" or "failed"."""

    seed: int
    kind: str
    message: str


Event = Progress | Finished | Failure


@dataclass(frozen=True)
class SeedTrainer:
    """Trains the same model from several seeds; an iterator of events, so that nothing of the caller's runs inside.

    Args:
        factory: makes the model of a seed; torch's generators are seeded with it before.
        data: on the device to train on, with a split for every seed.
        recipe: how to train.
        stack: runs that train together; None: what pays.
        keep_weights, capture: as in :class:`walksum.training.loop.Batch`.

    A batch that does not fit in memory, or in which a shared solve turned non-finite, is halved and tried again. The
    runs of a batch that raises anything else are trained one after another.
    """

    factory: Factory
    data: Data
    recipe: Recipe
    stack: int | None = None
    keep_weights: bool = True
    capture: bool = True

    def train(self, seeds: Sequence[int]) -> Iterator[Event]:
        size = self.batch_size(seeds)
        with one_thread(size * self.data.x.size(0) <= ROWS_ON_CPU and self.data.device.type == "cpu"):
            for first in range(0, len(seeds), size):
                yield from self._attempt(seeds[first : first + size], size > 1, before=first)

    def batch_size(self, seeds: Sequence[int]) -> int:
        if self.stack is not None:
            return max(1, min(self.stack, len(seeds)))
        if self.data.device.type != "cpu":
            return len(seeds)
        if len(seeds) < 2 or not any(isinstance(layer, GLTConv) for layer in self.model(seeds[0]).modules()):
            return 1  # dense products and scatters gain nothing from a batch on a CPU; solves do
        return min(len(seeds), max(1, ROWS_ON_CPU // self.data.x.size(0)))

    def model(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return self.factory(seed).to(self.data.device)

    def batch(self, seeds: Sequence[int]) -> Batch:
        models = [self.model(seed) for seed in seeds]
        if len(models) > 1:
            torch.manual_seed(seeds[0])  # of the dropout of all
        return Batch(models, seeds, self.data, self.recipe, keep_weights=self.keep_weights, capture=self.capture)

    def _attempt(self, seeds: Sequence[int], stacked: bool, before: int, note: str = "") -> Iterator[Event]:
        left, error = list(seeds), None
        try:
            batch = self.batch(seeds)
            for ended in batch.epochs():
                for outcome in ended:
                    left.remove(outcome.seed)
                    yield Finished(outcome, note)
                yield Progress(before, batch)
        except Exception as caught:
            error = _in_words(caught)  # the words alone: the traceback holds the memory that the next try needs
        if error is None:
            return
        batch = None  # type: ignore[assignment]
        gc.collect()
        if self.data.device.type == "cuda":
            torch.cuda.empty_cache()
        kind, message = error
        before += len(seeds) - len(left)
        if len(seeds) == 1 and not stacked:
            yield Failure(seeds[0], kind, "; ".join(filter(None, (note, message))))
        elif kind == "failed" or len(left) == 1:
            for place, seed in enumerate(left):
                yield from self._attempt([seed], False, before + place, note or f"trained alone: {message}")
        else:
            half = -(-len(left) // 2)
            yield from self._attempt(left[:half], True, before, note)
            yield from self._attempt(left[half:], True, before + half, note)


def _in_words(error: Exception) -> tuple[str, str]:
    text = f"{type(error).__name__}: {error}".strip().splitlines()[0][:500]
    if is_out_of_memory(error):
        return "oom", text
    return ("diverged" if isinstance(error, DivergedTogether) else "failed"), text


@contextmanager
def one_thread(few: bool) -> Iterator[None]:
    """One thread where operations are short: two that wait for each other take four times as long on a busy machine."""
    before = torch.get_num_threads()
    if few:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
