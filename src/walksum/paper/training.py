"""train_runs: all runs of one cell of a table, as a batch where that works and pays, else one after another."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from walksum.paper.journal import Journal, place
from walksum.paper.loop import Contaminated, Progress, train_team
from walksum.paper.rows import row_of
from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.spec import RunSpec
from walksum.paper.workbench import Workbench, workbench

__all__ = ["train_runs", "Progress"]

Event = RunRecord | Progress
ROWS_ON_CPU = 6000  # nodes times runs of a batch on a CPU: beyond, it leaves the caches and is slower than run by run


def train_runs(
    specs: Sequence[RunSpec],
    *,
    device: str | torch.device = "cpu",
    root: str | os.PathLike[str] | None = None,
    batched: bool | None = None,
    on_record: Callable[[RunRecord], None],
    on_progress: Callable[[Progress], None] | None = None,
) -> None:
    """Train the runs of one cell.

    Args:
        specs: runs that differ in their seed alone.
        device: where to train.
        root: folder of the raw data, as in :func:`walksum.data.load`.
        batched: train them as one batch, or one after another; None: as a batch where that works and pays.
        on_record: called with the record of each run as soon as it is finished.
        on_progress: called a few times a second at most.

    A batch that does not fit in memory, or in which a shared solve turned non-finite, is halved and tried again. A
    batch that raises anything else is trained one after another, and its records say why. Ctrl-C goes on to the
    caller; runs in flight leave no record.
    """
    _check(specs)
    where = torch.empty(0, device=device).device
    with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []):
        for event in _train(list(specs), device, root, batched):
            if isinstance(event, RunRecord):
                on_record(event)
            elif on_progress is not None:
                on_progress(event)


def _check(specs: Sequence[RunSpec]) -> None:
    if len({spec.cell for spec in specs}) > 1:
        raise ValueError("specs are of several cells; train_runs takes runs that differ in their seed alone")
    if len({spec.seed for spec in specs}) < len(specs):
        raise ValueError("specs hold a seed twice; every run of a cell needs a seed of its own")


def _train(
    specs: list[RunSpec], device: str | torch.device, root: str | os.PathLike[str] | None, batched: bool | None
) -> Iterator[Event]:
    if specs:
        yield from train_on(workbench(specs, device, root), specs, batched)


def train_on(bench: Workbench, specs: list[RunSpec], batched: bool | None = None) -> Iterator[Event]:
    """Train the runs of one cell on a bench that is there."""
    size = _batch_size(bench, batched, len(specs))
    with _threads_that_pay(bench, size):
        for first in range(0, len(specs), size):
            for event in _attempt(bench, specs[first : first + size], stacked=size > 1):
                if isinstance(event, Progress):
                    event = replace(event, done=first + event.done)
                yield event


@contextmanager
def _threads_that_pay(bench: Workbench, size: int) -> Iterator[None]:
    """One thread where operations are short: two that wait for each other on a busy machine take four times as long."""
    before = torch.get_num_threads()
    if bench.device.type == "cpu" and size * bench.x.size(0) <= ROWS_ON_CPU:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _batch_size(bench: Workbench, batched: bool | None, runs: int) -> int:
    if batched is False:
        return 1
    if batched or bench.device.type != "cpu":
        return runs
    if row_of(bench.cell.model).baseline:
        return 1  # their time goes into dense products and scatters, which gain nothing from a batch on a CPU
    return min(runs, max(1, ROWS_ON_CPU // bench.x.size(0)))


def _attempt(bench: Workbench, specs: list[RunSpec], stacked: bool, note: str = "") -> Iterator[Event]:
    left, error = list(specs), None
    try:
        for event in train_team(bench, specs, stacked):
            if isinstance(event, RunRecord):
                left.remove(event.spec)
                event = replace(event, message=note)
            yield event
    except Exception as caught:
        error = _in_words(caught)  # the words alone: the traceback holds the memory that the next try needs
    if error is None:
        return
    gc.collect()
    if bench.device.type == "cuda":
        torch.cuda.empty_cache()
    outcome, message = error
    if len(specs) == 1 and not stacked:
        yield _failure(bench, specs[0], outcome, "; ".join(filter(None, (note, message))))
    elif outcome == "failed" or len(left) == 1:
        for spec in left:
            yield from _attempt(bench, [spec], False, note or f"trained alone: {message}")
    else:
        half = -(-len(left) // 2)
        for part in (left[:half], left[half:]):
            yield from _attempt(bench, part, True, note)


def _in_words(error: Exception) -> tuple[str, str]:
    text = f"{type(error).__name__}: {error}".strip().splitlines()[0][:500]
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in text:
        return "oom", text
    return ("diverged" if isinstance(error, Contaminated) else "failed"), text


def _failure(bench: Workbench, spec: RunSpec, outcome: str, message: str) -> RunRecord:
    journal = Journal(spec, bench.splits[spec.seed].digest(), [], outcome=outcome)
    return journal.record(message=message, **place(bench.device))
