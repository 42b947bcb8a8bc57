"""Search: trials of design, coupling, width, dropout and learning rate, compared on the validation nodes alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from torch import nn

from walksum.data.problem import Problem
from walksum.designs import NAMES
from walksum.training import Outcome
from walksum.training.history import rank
from walksum.workflow.fit import Job, OnEpoch, fit_model, prepare_data
from walksum.workflow.models import GLT_NAME

CHOICES: dict[str, tuple[Any, ...]] = {
    "design": NAMES,
    "learned": (False, True),
    "coupling": ("attractive", "repulsive"),
    "hidden": (16, 32, 64, 128),
    "dropout": (0.0, 0.2, 0.4, 0.6, 0.8),
}
LEARNING_RATES = (5e-4, 2e-2)  # between these, evenly in the logarithm
OF_GLT = ("design", "learned", "coupling")  # other models have no J
VARIED = (*CHOICES, "lr")


@dataclass(frozen=True)
class Trial:
    job: Job
    val_score: float
    seconds: float


@dataclass(frozen=True)
class SearchResult:
    """The best trial, its trained model, and all trials in order."""

    job: Job
    fitted: tuple[nn.Module, Outcome]
    trials: list[Trial]
    by: str

    @property
    def interrupted(self) -> bool:
        return self.fitted[1].interrupted

    def record(self) -> dict[str, Any]:
        """For metrics.json: what each trial was and reached."""
        trials = [
            {**{name: getattr(each.job, name) for name in VARIED}, "val_score": each.val_score, "seconds": each.seconds}
            for each in self.trials
        ]
        return {"by": self.by, "trials": trials}


OnTrial = Callable[[int, Trial], None]  # number from 1 on, what it was and reached


class Sampler(Protocol):
    name: str

    def ask(self, start: Job) -> Job: ...

    def tell(self, val_score: float) -> None: ...


def search(
    start: Job,
    problem: Problem,
    trials: int,
    on_epoch: OnEpoch | None = None,
    on_trial: OnTrial | None = None,
    sampler: Sampler | None = None,
) -> SearchResult:
    """``trials`` trainings on one split, the first with the job as given. The test nodes are never looked at."""
    prepared, sampler = prepare_data(start, problem), sampler or best_sampler(start.seed)
    done: list[Trial] = []
    best: tuple[Job, tuple[nn.Module, Outcome]] | None = None
    for number in range(trials):
        job = start if number == 0 else sampler.ask(start)
        fitted = fit_model(job, prepared, on_epoch)
        trial = Trial(job, fitted[1].best.val_score, fitted[1].seconds)
        if number:
            sampler.tell(trial.val_score)
        done.append(trial)
        if best is None or rank(fitted[1].best) > rank(best[1][1].best):
            best = job, fitted
        if on_trial is not None:
            on_trial(number + 1, trial)
        if fitted[1].interrupted:
            best = best[0], (best[1][0], replace(best[1][1], interrupted=True))
            break
    assert best is not None
    return SearchResult(best[0], best[1], done, sampler.name)


def best_sampler(seed: int) -> Sampler:
    try:
        return TPE(seed)
    except ImportError:
        return Random(seed)


class Random:
    """Every choice on its own, evenly."""

    name = "random search"

    def __init__(self, seed: int):
        self.draw = np.random.default_rng(seed)

    def ask(self, start: Job) -> Job:
        chosen = {name: choices[int(self.draw.integers(len(choices)))] for name, choices in _choices(start).items()}
        low, high = map(math.log, LEARNING_RATES)
        return replace(start, **chosen, lr=math.exp(self.draw.uniform(low, high)))

    def tell(self, val_score: float) -> None:
        pass


class TPE:
    """Optuna's tree-structured Parzen estimator: later trials look where earlier ones did well."""

    name = "TPE (Optuna)"

    def __init__(self, seed: int):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
        self.trial: Any = None

    def ask(self, start: Job) -> Job:
        self.trial = self.study.ask()
        chosen = {name: self.trial.suggest_categorical(name, choices) for name, choices in _choices(start).items()}
        return replace(start, **chosen, lr=self.trial.suggest_float("lr", *LEARNING_RATES, log=True))

    def tell(self, val_score: float) -> None:
        self.study.tell(self.trial, val_score)


def _choices(start: Job) -> dict[str, tuple[Any, ...]]:
    return {name: choices for name, choices in CHOICES.items() if start.model == GLT_NAME or name not in OF_GLT}
