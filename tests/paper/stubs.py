"""Trainers that train nothing, in a module that spawned processes find, and an engine without processes."""

import os
import signal
import time
from pathlib import Path

from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.store import RUN_LOCKS, RunLocks, Store
from walksum.paper.sweep.sweep import Ended
from walksum.paper.sweep.worker import work_on


def good(specs, *, on_record, **_):
    for spec in specs:
        on_record(RunRecord(spec, "ok", test_accuracy=0.5 + spec.seed / 100))


def raising(specs, *, on_record, **_):
    good(specs[:1], on_record=on_record)
    raise TypeError("no such thing")


def forgetful(specs, *, on_record, **_):
    good(specs[:-1], on_record=on_record)


def out_of_memory(specs, *, on_record, **_):
    for spec in specs:
        on_record(RunRecord(spec, "oom", message="too large"))


def ignoring_errors(specs, *, on_record, **_):
    """Goes on whatever happens to its records."""
    for spec in specs:
        try:
            on_record(RunRecord(spec, "ok"))
        except Exception:
            continue


def _die():
    os.kill(os.getpid(), signal.SIGKILL)


def dying_once_or_always(specs, *, root, on_record, **_):
    """Killed: with mlp always; else once, after the first run. ``root`` is a folder that remembers it."""
    if specs[0].model == "mlp":
        _die()
    good(specs[:1], on_record=on_record)
    try:
        (Path(root) / specs[0].model).touch(exist_ok=False)
    except FileExistsError:
        good(specs[1:], on_record=on_record)
    else:
        _die()


def slow(specs, *, on_record, **_):
    for spec in specs:
        time.sleep(0.02)
        good([spec], on_record=on_record)


class Inline:
    """An engine that works in this process, one group at a time."""

    def __init__(self, settings, workers=1):
        self.settings, self.workers = settings, workers
        self.store, self.locks = Store(settings.folder), RunLocks(Path(settings.folder) / RUN_LOCKS)
        self.started, self.waiting, self.stopped = [], [], False

    def running(self):
        return len(self.waiting)

    def start(self, group):
        self.started.append(group)
        self.waiting.append(group)

    def poll(self, seconds):
        groups, self.waiting = self.waiting, []
        return [self.end(group) for group in groups]

    def end(self, group):
        return Ended(group, *work_on(group.specs, self.settings, self.store, self.locks))

    def doing(self):
        return []

    def stop(self):
        self.stopped = True
        self.locks.close()
