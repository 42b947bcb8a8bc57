"""The training loop: runs that train together, from the first epoch to the choice of the best one."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from walksum.nn import GLTConv
from walksum.training.data import Data
from walksum.training.history import Epoch, History, Outcome, StepSolves
from walksum.training.recipe import Recipe
from walksum.training.steps import last_solves, make_step

SYNC_EVERY = 10  # epochs of a GPU between two synchronisations with the host
SIZES = (1, 3, 6, 12, 20)  # to which a batch on a GPU shrinks, as solvers prepare for each size; on a CPU to any


class DivergedTogether(RuntimeError):
    """All runs of a batch became non-finite at once: a solve they share spreads NaN from one to all."""


class Batch:
    """Runs of one kind of model that train together, each on its own split; a single run is a batch of one.

    Args:
        models: one per seed, on the device of the data.
        seeds: of the runs; they name the splits.
        data, recipe: what to train on, and how.
        keep_weights: whether each model gets its best weights in the end. Without them, stacked runs on a GPU train for
            ``SYNC_EVERY`` epochs before the host looks at what they measured; what a run did after its end is ignored.
        capture: whether a single run on a GPU may be captured as a CUDA graph.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        seeds: Sequence[int],
        data: Data,
        recipe: Recipe,
        *,
        keep_weights: bool = True,
        capture: bool = True,
    ):
        self.data, self.recipe, self.seeds, self.keep_weights = data, recipe, tuple(seeds), keep_weights
        self.nodes, self.val, self.test = (data.subset(part, seeds) for part in ("train", "val", "test"))
        if data.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(data.device)
        self.step = make_step(models, data, recipe, self.nodes, capture)
        self.layers = [layer for layer in self.step.model.modules() if isinstance(layer, GLTConv)]
        self.solves: list[StepSolves] = []
        self.runs = [
            History(seed, model, validated=not self.val.empty, solves=self.solves)
            for seed, model in zip(seeds, models, strict=True)
        ]
        self.active = list(self.runs)  # those the step still trains, in its order
        self.sync_every, self.sizes = sync_interval(data.device, len(self.runs), keep_weights)

    def epochs(self) -> Iterator[list[Outcome]]:
        """Train; after each look at what was measured, the runs that have just ended."""
        clock, measured = time.perf_counter(), []
        for number in range(len(self.solves) + 1, self.recipe.max_epochs + 1):  # after those of a checkpoint
            losses = self.step()
            self.solves.append(last_solves(self.layers))
            measured.append(self._measure(losses))
            if number % self.sync_every and number < self.recipe.max_epochs:
                continue

            running = [run for run in self.active if not run.ended]
            self._note(number - len(measured), torch.stack(measured).tolist())
            measured = []
            seconds, clock = time.perf_counter() - clock, time.perf_counter()
            for run in running:
                run.seconds += seconds / len(running)
            yield [self._outcome(run) for run in running if run.ended]
            if all(run.ended for run in self.active):
                return
            self._shrink()

    def interrupt(self) -> list[Outcome]:
        """End the runs that still go on; what they have so far counts."""
        running = [run for run in self.runs if not run.ended and run.best is not None]
        for run in running:
            run.ended = "interrupted"
        return [self._outcome(run) for run in running]

    def _measure(self, losses: Tensor) -> Tensor:
        """Training loss, validation loss and score, test score of each run, ``[S, 4]``; NaN without such nodes."""
        nothing = torch.full_like(losses, math.nan)
        if self.val.empty and self.test.empty:
            return torch.stack([losses, nothing, nothing, nothing], 1)
        outputs = self.step.outputs()
        test = nothing if self.test.empty else self.test.scores(outputs)
        val = (nothing, nothing) if self.val.empty else (self.val.losses(outputs), self.val.scores(outputs))
        return torch.stack([losses, *val, test], 1)

    def _note(self, before: int, epochs: list[list[list[float]]]) -> None:
        """Add what was measured after epoch ``before`` to the histories."""
        going = [run for run in self.active if not run.ended]
        for number, rows in enumerate(epochs, before + 1):
            steps = [max((solve[0] for solve in each), default=None) for each in self.solves[number - 1]]
            for place, (run, row) in enumerate(zip(self.active, rows, strict=True)):
                if run.ended:
                    continue
                better = run.add(Epoch(number, row[0], row[1], row[2], row[3], *steps), self.recipe)
                if self.keep_weights and ((better and run.validated) or (run.ended and run.weights is None)):
                    run.weights = self.step.weights(place)
        if sum(run.ended == "diverged" for run in going) > 1 and all(run.ended for run in self.active):
            raise DivergedTogether

    def _shrink(self) -> None:
        """Go on without runs that ended, filled up with some of them to one of the sizes."""
        running = [k for k, run in enumerate(self.active) if not run.ended]
        size = next((size for size in self.sizes if size >= len(running)), len(self.active))
        if size >= len(self.active):
            return
        ended = [k for k, run in enumerate(self.active) if run.ended]
        kept = sorted(running + ended[: size - len(running)])
        runs = torch.tensor(kept, device=self.data.device)
        self.step.keep(runs)
        self.val, self.test = self.val.select(runs), self.test.select(runs)
        self.active = [self.active[k] for k in kept]

    def _outcome(self, run: History) -> Outcome:
        assert run.best is not None
        if self.keep_weights and run.model is not None:
            weights = run.weights or self.step.weights(self.active.index(run))
            run.model.load_state_dict(weights)
            run.model.eval()
        return Outcome(
            run.best,
            run.epochs,
            run.seconds,
            interrupted=run.ended == "interrupted",
            model=run.model if self.keep_weights else None,
            seed=run.seed,
            seeds=self.seeds,
            ended=run.ended,
            solves=self.solves[: len(run.epochs)],
            captured=self.step.captured,
            not_captured=self.step.not_captured,
            peak_memory=torch.cuda.max_memory_allocated(self.data.device) if self.data.device.type == "cuda" else None,
            parameters=sum(p.numel() for p in self.step.model.parameters()),
            device=self.data.device.type,
        )


def sync_interval(device: torch.device, runs: int, keep_weights: bool) -> tuple[int, Sequence[int]]:
    """Epochs between two readings of what was measured, and the sizes a batch may shrink to."""
    if device.type == "cpu":
        return 1, range(1, runs)
    return 1 if keep_weights or runs == 1 else SYNC_EVERY, SIZES
