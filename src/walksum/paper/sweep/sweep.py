"""A sweep: what of a table is missing, in which order it is done, and what happens when something goes wrong."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, Protocol

from walksum.paper.sweep.spec import RunSpec, paper_spec, total
from walksum.paper.sweep.store import RUN_LOCKS, RunLocks, Store
from walksum.paper.sweep.worker import record_failed

TICK = 0.5  # seconds between two looks at the store
PATIENCE = 1.0  # seconds until runs that another sweep works on are looked at again
TRIES = 2  # of a group whose worker dies


@dataclass(frozen=True)
class Group:
    """Runs of one cell that one worker trains together."""

    specs: tuple[RunSpec, ...]
    deaths: int = 0

    @property
    def title(self) -> str:
        return f"{self.specs[0].model} on {self.specs[0].dataset}"


@dataclass(frozen=True)
class Ended:
    """A group that is no longer worked on.

    Args:
        busy: those of its runs that another process was working on.
        trained: how many were trained.
        died: how its worker died, if it did; then the group may be unfinished.
    """

    group: Group
    busy: tuple[RunSpec, ...] = ()
    trained: int = 0
    died: str = ""


class Engine(Protocol):
    """Where groups are trained. Records are in the store before a group is reported as ended."""

    workers: int

    def running(self) -> int: ...
    def start(self, group: Group) -> None: ...
    def poll(self, seconds: float) -> list[Ended]:
        """The groups that ended, after waiting at most so many seconds."""

    def doing(self) -> list[str]:
        """A description of what each worker is doing."""

    def stop(self) -> None: ...


def plan(models: Iterable[str], datasets: Iterable[str], seeds: Iterable[int], **changes: Any) -> list[RunSpec]:
    """Every run of a table with the paper's settings, ``changes`` on top."""
    models, seeds = list(models), list(seeds)
    return [paper_spec(model, name, seed, **changes) for name in datasets for model in models for seed in seeds]


def groups_of(specs: Sequence[RunSpec], workers: int = 1) -> list[Group]:
    """By cell, the longest first so that the end is short; with fewer cells than workers, cells are cut."""
    by_cell = sorted(specs, key=lambda spec: (spec.cell.key, spec.seed))
    cells = [tuple(cell) for _, cell in groupby(by_cell, key=lambda spec: spec.cell.key)]
    parts = max(1, workers // max(1, len(cells)))
    groups = [Group(part) for cell in cells for part in _cut(cell, parts)]
    return sorted(groups, key=lambda group: -total(group.specs))


def _cut(cell: tuple[RunSpec, ...], parts: int) -> list[tuple[RunSpec, ...]]:
    """Into parts of nearly equal size."""
    parts = min(parts, len(cell))
    ends = [round(k * len(cell) / parts) for k in range(parts + 1)]
    return [cell[a:b] for a, b in pairwise(ends)]


class Sweep:
    """Trains what is missing of ``specs`` in ``store``, beside other sweeps that do the same.

    Args:
        since: see Store; the size of the store at the start to try again what failed, else 0.
        time_limit: begin nothing new after so many seconds.
        on_tick: called about twice a second.
        on_note: called with a description of what went wrong.
    """

    def __init__(
        self,
        specs: Sequence[RunSpec],
        store: Store,
        engine: Engine,
        *,
        since: int = 0,
        time_limit: float | None = None,
        on_tick: Callable[[], None] = lambda: None,
        on_note: Callable[[str], None] = lambda text: None,
    ):
        self.specs, self.store, self.engine, self.since = list(specs), store, engine, since
        self.on_tick, self.on_note = on_tick, on_note
        self.locks = RunLocks(store.folder / RUN_LOCKS)
        self.started = time.monotonic()
        self.deadline = None if time_limit is None else self.started + time_limit
        self.trained = 0  # by workers of this sweep that did not die
        self.at_start = total(self.left())
        self._ready = deque(groups_of(self.left(), engine.workers))
        self._later: deque[tuple[float, Group]] = deque()

    def left(self) -> list[RunSpec]:
        return self.store.missing(self.specs, self.since)

    @property
    def out_of_time(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    def seconds_left(self) -> float | None:
        """At the pace so far; None before there is one."""
        left = total(self.left())
        done = self.at_start - left
        return (time.monotonic() - self.started) * left / done if done > 0 else None

    def run(self) -> None:
        """Until nothing is missing or time is up. An exception (Ctrl-C among them) ends the workers."""
        try:
            while self._begin() or self.engine.running() or ((self._ready or self._later) and not self.out_of_time):
                for ended in self.engine.poll(TICK):
                    self._settle(ended)
                self.store.refresh()
                self.on_tick()
        finally:
            self.engine.stop()
            self.locks.close()

    def _begin(self) -> bool:
        """Give work to idle workers; whether there was any."""
        begun = False
        while not self.out_of_time and self.engine.running() < self.engine.workers and (group := self._next()):
            self.engine.start(group)
            begun = True
        return begun

    def _next(self) -> Group | None:
        """The next group, less what others have done meanwhile."""
        while self._ready or (self._later and self._later[0][0] <= time.monotonic()):
            group = self._ready.popleft() if self._ready else self._later.popleft()[1]
            if specs := tuple(self.store.missing(group.specs, self.since)):
                return Group(specs, group.deaths)
        return None

    def _settle(self, ended: Ended) -> None:
        group = ended.group
        self.trained += ended.trained
        if ended.busy:
            self._later.append((time.monotonic() + PATIENCE, Group(ended.busy, group.deaths)))
        if ended.died:
            self._died(Group(group.specs, group.deaths + 1), ended.died)

    def _died(self, group: Group, how: str) -> None:
        self.store.refresh()
        if group.deaths < TRIES:
            self.on_note(f"the worker on {group.title} died ({how}); what it had not finished is tried once more")
            self._ready.append(group)
            return
        self.on_note(f"the worker on {group.title} died again ({how}); its runs are recorded as failed")
        # without the lock another sweep might be at it, and its result would be refused
        ours = self.locks.take(spec.key for spec in self.store.missing(group.specs, self.since))
        for spec in group.specs:
            if spec.key in ours:
                record_failed(self.store, spec, f"its worker died twice ({how})", self.since)
        self.locks.free(ours)
