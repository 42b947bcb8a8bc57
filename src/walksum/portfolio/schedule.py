"""Trainings one after the other within a budget, and the members that they yield."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from walksum._torch import is_out_of_memory
from walksum.portfolio import clock
from walksum.portfolio.arrays import Arrays
from walksum.portfolio.blend import Metric, temperature
from walksum.portfolio.problem import Problem

HOPELESS = 4  # temperatures of the blend's weights
LAST = 0.05  # of the budget: with less left no training starts


class Model(Protocol):
    """What a training leaves, to be asked about other tables and to be kept in a file."""

    def outputs(self, problem: Problem) -> np.ndarray: ...  # [members, folds, N, C]

    def keep(self, which: list[int]) -> Model: ...  # some of its members

    def state(self) -> tuple[dict[str, Any], Arrays]: ...  # JSON, arrays


# which members of a training -> their outputs [which, N, C] after learning from all labelled rows, nobody judging
Refit = Callable[[list[int]], np.ndarray]


@dataclass
class Member:
    """One blended model: its outputs on all nodes, by fold, and where to ask for others."""

    name: str
    outputs: np.ndarray  # [folds, N, C]: logits, log-probabilities or standardised numbers
    uses_graph: bool
    uses_targets: bool  # of other nodes, at prediction
    seconds: float
    model: Model | None = None  # None: of the training graph alone
    index: int = 0  # among the members of its training
    refit: Refit | None = None
    local: Model | None = None  # can be asked about other columns of the training graph

    @property
    def family(self) -> str:
        return self.name.split()[0]

    def __getstate__(self) -> dict[str, Any]:
        """A copy elsewhere cannot train again."""
        return {**self.__dict__, "refit": None, "local": None}


@dataclass
class Trained:
    """What one training gave: members by name, their outputs ``[members, folds, N, C]``, whether it was whole."""

    names: list[str]
    outputs: np.ndarray
    model: Model | None
    complete: bool = True
    refit: Refit | None = None
    local: Model | None = None  # the same, to be asked about other columns of the training graph alone


def no_member() -> Trained:
    """What a training gives that had no time."""
    return Trained([], np.zeros((0, 0)), None, False)


@dataclass(frozen=True)
class Task:
    """One training that yields members; ``share`` is its part of the clock, the first word of the name its family."""

    name: str
    share: float
    uses_graph: bool
    run: Callable[[float], Trained]  # deadline -> members
    uses_targets: bool = False
    always: bool = False  # what others are compared with: run even where its family has no chance
    needed: bool = False  # run even where the clock has run out, so that the blend has one member that learns

    @property
    def family(self) -> str:
        return self.name.split()[0]


def run_tasks(
    todo: list[Task], problem: Problem, metric: Metric, budget: float, progress: Callable[..., None] | None = None
) -> tuple[list[Member], bool, bool]:
    """Members in order, whether the clock cut nothing short, and whether Ctrl-C did: it keeps what is there."""
    members: list[Member] = []
    lacking: list[str] = []  # what others trained is kept: a GPU that programs share may be full for one member alone
    start, complete, interrupted = clock.now(), True, False
    end, scores = start + budget, Scores(problem, metric)
    for k, task in enumerate(todo):
        now = clock.now()
        if now >= end - LAST * budget and not task.needed:
            complete = False
            continue
        if scores.hopeless(task):
            continue
        if members and not task.needed and end - now < task.share / 200 * budget:  # a deep network, too late
            complete = False
            continue
        # where time is short, the first members train to their end and the last are left out: a member that was cut
        # off early is worth less than none
        share = max(0.35, 1.5 * task.share / sum(each.share for each in todo[k:]))
        deadline = now + (end - now) * min(1.0, share)
        try:
            found = task.run(deadline)
            each = (clock.now() - now) / max(1, len(found.names))
            for index, (name, out) in enumerate(zip(found.names, found.outputs, strict=True)):
                uses = task.uses_graph, task.uses_targets
                members.append(Member(name, out, *uses, each, found.model, index, found.refit, found.local))
                scores.add(task, out)
            complete &= found.complete
            if progress is not None:
                progress(task.name, k + 1, len(todo), clock.now() - start)
        except (Exception, KeyboardInterrupt) as error:
            if is_interrupt(error):
                if not members:
                    raise KeyboardInterrupt from error
                complete, interrupted = False, True
                break
            if not is_out_of_memory(error):
                raise
            complete, cause = False, str(error).split("\n")[0]
            lacking.append(f"{task.name} was left out, since memory ran out on device={problem.device!r}: {cause}")
    if lacking and not members:
        raise MemoryError("; ".join(lacking))
    for text in lacking:
        warnings.warn(text, stacklevel=2)
    return members, complete, interrupted


def is_interrupt(error: BaseException | None) -> bool:
    """Whether Ctrl-C is the cause: numpy makes a ValueError of one that meets it while it reads a buffer's format."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or is_interrupt(error.__cause__))


class Scores:
    """The best score of each family of members, so that no time is spent on kin of those that would weigh nothing."""

    def __init__(self, problem: Problem, metric: Metric):
        self.problem, self.metric = problem, metric
        self.best: dict[tuple[str, bool, bool], float] = {}  # by family, and whether edges and targets are read

    def add(self, task: Task, outputs: np.ndarray) -> None:
        rows, key = self.problem.judged, (task.family, task.uses_graph, task.uses_targets)
        score = self.metric(self.problem.out_of_fold(outputs)[rows], self.problem.y[rows])
        self.best[key] = max(score, self.best.get(key, -np.inf))

    def hopeless(self, task: Task) -> bool:
        """Whether kin that read as much lie so far back that the blend would give it nothing.

        What a model makes of a node's own columns says little of what it makes of its surroundings, or of the targets
        there. Numbers are blended otherwise.
        """
        if task.always or not self.problem.classes:
            return False
        kin = [
            score for (family, graph, targets), score in self.best.items()
            if family == task.family and graph >= task.uses_graph and targets >= task.uses_targets
        ]  # fmt: skip
        return bool(kin) and max(kin) < max(self.best.values()) - HOPELESS * temperature(len(self.problem.judged))
