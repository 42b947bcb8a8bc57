"""The training loop over a team: the device trains and measures, the host looks once in a while and judges.

Nothing in an epoch waits for the device except what a solver itself asks. A run that should have stopped is noticed
at the next look; what it did since is ignored.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from walksum.nn import GLTConv
from walksum.paper.journal import Journal, Pass, place
from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.spec import RunSpec
from walksum.paper.team import Alone, Stack, Team
from walksum.paper.workbench import Workbench
from walksum.solvers import Solution

LOOK = 10  # epochs between two looks of the host; on a CPU it looks at every one
SIZES = (1, 3, 6, 12, 20)  # to which a team shrinks, as solvers on a GPU prepare for each; on a CPU to any
PULSE = 0.25  # seconds between two signs of life


@dataclass(frozen=True)
class Progress:
    """A sign of life from a team in training; ``best`` is the mean of its best validation scores so far."""

    done: int
    running: int
    epoch: int
    best: float


class Contaminated(RuntimeError):
    """All runs of a batch became non-finite at once: a solve they share spreads NaN from one to all."""


@dataclass(frozen=True)
class Part:
    """The same part of every member's split: node numbers ``[S, n]``, their labels, which of them count, how many.

    Sums are divided, not terms: as a sum of n-ths, equal counts would differ in their last bits, and a tie between
    epochs would be broken by them.
    """

    nodes: Tensor
    y: Tensor
    counts: Tensor
    size: Tensor

    @classmethod
    def of(cls, parts: Sequence[Tensor], y: Tensor) -> Part:
        longest = max(part.numel() for part in parts)
        nodes = torch.zeros(len(parts), longest, dtype=torch.int64)
        counts = torch.zeros(len(parts), longest)
        for row, part in enumerate(parts):
            nodes[row, : part.numel()], counts[row, : part.numel()] = part, 1
        nodes, counts = nodes.to(y.device), counts.to(y.device)
        return cls(nodes, y[nodes], counts, counts.sum(1))

    def of_members(self, members: Tensor) -> Part:
        return Part(self.nodes[members], self.y[members], self.counts[members], self.size[members])

    def losses(self, outputs: Tensor) -> Tensor:
        """Cross-entropy of each member, ``[S]``."""
        picked = self._picked(outputs)
        each = cross_entropy(picked.flatten(0, 1), self.y.flatten(), reduction="none")
        return (each.view(self.y.shape) * self.counts).sum(1) / self.size

    def scores(self, outputs: Tensor) -> Tensor:
        """Accuracy of each member, ``[S]``."""
        right = self._picked(outputs).argmax(-1) == self.y
        return (right * self.counts).sum(1) / self.size

    def _picked(self, outputs: Tensor) -> Tensor:
        return outputs.gather(1, self.nodes.unsqueeze(-1).expand(-1, -1, outputs.size(-1)))


def train_team(bench: Workbench, specs: Sequence[RunSpec], stacked: bool) -> Iterator[RunRecord | Progress]:
    """Train these runs together; each record comes as soon as its run is finished."""
    if bench.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(bench.device)
    clock = time.perf_counter()
    team: Team = Stack(bench, [spec.seed for spec in specs]) if stacked else Alone(bench, specs[0].seed)
    splits = [bench.splits[spec.seed] for spec in specs]
    train, val, test = (
        Part.of([getattr(split, name) for split in splits], bench.y) for name in ("train", "val", "test")
    )
    passes: list[tuple[Pass, Pass]] = []
    journals = [Journal(spec, split.digest(), passes) for spec, split in zip(specs, splits, strict=True)]
    members, parameters = list(journals), sum(p.numel() for p in team.model.parameters())
    measured: list[Tensor] = []
    pulse, epoch = 0.0, 0
    look, sizes = rhythm(bench.device, len(specs))

    while not all(journal.done for journal in journals):
        epoch += 1
        loss = train.losses(team.outputs(training=True))
        loss.sum().backward()
        passes.append(_passes(team.model))
        team.step()
        with torch.no_grad():
            outputs = team.outputs(training=False)
            measured.append(torch.stack([loss, val.losses(outputs), val.scores(outputs), test.scores(outputs)], 1))
        if epoch % look and epoch < bench.cell.max_epochs:
            continue

        running = [journal for journal in members if not journal.done]
        _note(members, torch.stack(measured).tolist())
        measured.clear()
        seconds, clock = time.perf_counter() - clock, time.perf_counter()
        for journal in running:
            journal.seconds += seconds / len(running)
            if journal.done:
                facts = {"batch": len(specs), "parameters": parameters, "peak_memory": _peak(bench.device)}
                yield journal.record(**facts, **place(bench.device))
        if clock - pulse >= PULSE:
            pulse = clock
            yield _progress(journals, epoch)
        kept = _worth_keeping(members, sizes)
        if len(kept) < len(members):
            at = torch.tensor(kept, device=bench.device)
            team.keep(at)
            train, val, test = (part.of_members(at) for part in (train, val, test))
            members = [members[k] for k in kept]
    yield _progress(journals, epoch)


def rhythm(device: torch.device, runs: int) -> tuple[int, Sequence[int]]:
    """Epochs between two looks, and the sizes a team may shrink to."""
    return (1, range(1, runs)) if device.type == "cpu" else (LOOK, SIZES)


def _note(members: Sequence[Journal], epochs: list[list[list[float]]]) -> None:
    before = [journal.done for journal in members]
    for rows in epochs:
        for journal, row in zip(members, rows, strict=True):
            if not journal.done:
                journal.take((row[0], row[1], row[2], row[3]))
    fallen = [
        journal for journal, was in zip(members, before, strict=True) if journal.outcome == "diverged" and not was
    ]
    if len(fallen) > 1 and all(journal.done for journal in members):
        raise Contaminated


def _worth_keeping(members: Sequence[Journal], sizes: Sequence[int]) -> list[int]:
    """The runs that go on, filled up with finished ones to one of the sizes."""
    running = [k for k, journal in enumerate(members) if not journal.done]
    size = next((size for size in sizes if size >= len(running)), len(members))
    if not running or size >= len(members):
        return list(range(len(members)))
    finished = [k for k, journal in enumerate(members) if journal.done]
    return sorted(running + finished[: size - len(running)])


def _passes(model: nn.Module) -> tuple[Pass, Pass]:
    mixers = [layer for layer in model.modules() if isinstance(layer, GLTConv)]
    return _seen([mixer.last_solve for mixer in mixers]), _seen([mixer.last_backward_solve for mixer in mixers])


def _seen(solutions: Sequence[Solution | None]) -> Pass:
    return tuple((s.steps, s.residual, s.status.name) for s in solutions if s is not None)


def _progress(journals: Sequence[Journal], epoch: int) -> Progress:
    scores = [journal.best_score for journal in journals if journal.best]
    done = sum(journal.done for journal in journals)
    return Progress(done, len(journals) - done, epoch, sum(scores) / max(1, len(scores)))


def _peak(device: torch.device) -> int | None:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
