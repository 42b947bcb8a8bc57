"""What a worker does with a group of runs: lock them, train them, record each as soon as it is finished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.spec import RunSpec
from walksum.paper.sweep.store import AlreadyRecorded, RunLocks, Store

if TYPE_CHECKING:
    from walksum.paper.runs import Progress


@dataclass(frozen=True)
class WorkerSettings:
    """What every worker of a sweep must know; it travels to other processes.

    Args:
        folder: of the store.
        since: see Store.
        trainer: instead of :func:`walksum.paper.runs.train_runs`.
    """

    folder: str
    device: str = "cpu"
    root: str | None = None
    batched: bool | None = None
    since: int = 0
    trainer: Callable[..., None] | None = None

    def train(
        self,
        specs: Sequence[RunSpec],
        on_record: Callable[[RunRecord], None],
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """Train them; what ends without a record gets one that says so."""
        recorded: set[str] = set()

        def keep(record: RunRecord) -> None:
            on_record(record)
            recorded.add(record.key)

        message = "the training ended without a result"
        options: dict[str, Any] = {"device": self.device, "root": self.root, "batched": self.batched}
        try:
            (self.trainer or _train_runs())(list(specs), **options, on_record=keep, on_progress=on_progress)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
        for spec in specs:
            if spec.key not in recorded:
                on_record(failed(spec, message, self.device))


def _train_runs() -> Callable[..., None]:
    from walksum.paper.runs import train_runs  # brings torch

    return train_runs


def work_on(
    specs: Sequence[RunSpec],
    settings: WorkerSettings,
    store: Store,
    locks: RunLocks,
    on_progress: Callable[[Progress], None] | None = None,
) -> tuple[tuple[RunSpec, ...], int]:
    """Train what is missing and free; returns the runs that another process works on, and how many were trained."""
    ours = locks.take(spec.key for spec in specs)
    broken: list[Exception] = []

    def append(record: RunRecord) -> None:
        if broken:
            raise broken[0]
        try:
            with suppress(AlreadyRecorded):
                store.append(record, settings.since)
        except Exception as error:
            broken.append(error)  # whatever the trainer makes of it, a store that cannot be written ends the sweep
            raise

    try:
        store.refresh()
        todo = store.missing([spec for spec in specs if spec.key in ours], settings.since)
        if todo:
            settings.train(todo, append, on_progress)
    finally:
        locks.free(ours)
    return tuple(spec for spec in specs if spec.key not in ours), len(todo)


def in_words(progress: Progress) -> str:
    runs = f"{progress.done} of {progress.done + progress.running} runs done, "
    return f"({runs}epoch {progress.epoch}, best validation accuracy {progress.best:.3f})"


def failed(spec: RunSpec, message: str, device: str = "") -> RunRecord:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return RunRecord(spec, "failed", message=message, device=device, finished=now)


def record_failed(store: Store, spec: RunSpec, message: str, since: int = 0) -> None:
    with suppress(AlreadyRecorded):
        store.append(failed(spec, message), since)
