"""Search: trials of design, coupling, width, dropout and learning rate, compared on the validation nodes alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from torch import nn

from walksum._checks import check_choice, check_count
from walksum.data.problem import Problem
from walksum.designs import NAMES
from walksum.training import Outcome
from walksum.training.history import rank
from walksum.workflow.fit import OnEpoch, fit_model
from walksum.workflow.job import GLT_NAME, Job
from walksum.workflow.prepare import PreparedData, prepare_data

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
ENGINES = ("local", "ray")

Fitted = tuple[nn.Module, Outcome]
Train = Callable[[Iterable[Job]], Iterator[Fitted]]


@dataclass(frozen=True)
class SearchPlan:
    """How many trials, how many of them are drawn at a time, and what trains them.

    The choices depend on ``workers``, not on the engine: "ray" trains as many at the same time, "local" one by one.
    """

    trials: int = 0
    engine: str = "local"
    workers: int = 1

    def check(self) -> None:
        if self.trials != 0:
            check_count("search", self.trials)
        check_choice("engine", self.engine, ENGINES)
        check_count("workers", self.workers)
        if not self.trials and (self.engine != "local" or self.workers != 1):
            raise ValueError("engine= and workers= are for trials of a search; say how many with search=")


@dataclass(frozen=True)
class Trial:
    job: Job
    val_score: float
    seconds: float


@dataclass(frozen=True)
class SearchResult:
    """The best trial, its trained model, and all trials in order."""

    job: Job
    fitted: Fitted
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
    """Draws jobs and receives their scores, in the same order."""

    name: str

    def ask(self, start: Job) -> Job: ...

    def tell(self, val_score: float) -> None: ...


def search(
    start: Job,
    problem: Problem,
    plan: SearchPlan,
    on_epoch: OnEpoch | None = None,
    on_trial: OnTrial | None = None,
    sampler: Sampler | None = None,
) -> SearchResult:
    """Train trials on one split, the first with the job as given; the test nodes are not used."""
    prepared, sampler = prepare_data(start, problem), sampler or best_sampler(start.seed)
    done: list[Trial] = []
    best: tuple[Job, Fitted] | None = None
    interrupted = False
    with _trainer(plan, prepared, start.device, on_epoch) as train:
        try:
            for job, fitted in _trained(start, plan, sampler, train):
                trial = Trial(job, fitted[1].best.val_score, fitted[1].seconds)
                if done:
                    sampler.tell(trial.val_score)
                done.append(trial)
                if best is None or rank(fitted[1].best) > rank(best[1][1].best):
                    best = job, fitted
                if on_trial is not None:
                    on_trial(len(done), trial)
                if interrupted := fitted[1].interrupted:
                    break
        except KeyboardInterrupt:
            interrupted = True
    if best is None:
        raise KeyboardInterrupt
    job, (model, outcome) = best
    return SearchResult(job, (model, replace(outcome, interrupted=interrupted)), done, sampler.name)


def _trained(start: Job, plan: SearchPlan, sampler: Sampler, train: Train) -> Iterator[tuple[Job, Fitted]]:
    """Jobs and their trained models; ``workers`` jobs are drawn at a time."""
    for first in range(0, plan.trials, plan.workers):
        numbers = range(first, min(first + plan.workers, plan.trials))
        jobs = [sampler.ask(start) if number else start for number in numbers]
        yield from zip(jobs, train(jobs), strict=True)


def _trainer(
    plan: SearchPlan, prepared: PreparedData, device: str, on_epoch: OnEpoch | None
) -> AbstractContextManager[Train]:
    if plan.engine == "ray":
        return _ray_trainer(prepared, device, plan.workers)
    return nullcontext(lambda jobs: (fit_model(job, prepared, on_epoch) for job in jobs))


def best_sampler(seed: int) -> Sampler:
    try:
        return TPE(seed)
    except ImportError:
        return Random(seed)


class Random:
    """Random search: every setting is drawn independently and uniformly."""

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
        self.asked: list[Any] = []

    def ask(self, start: Job) -> Job:
        trial = self.study.ask()
        self.asked.append(trial)
        chosen = {name: trial.suggest_categorical(name, choices) for name, choices in _choices(start).items()}
        return replace(start, **chosen, lr=trial.suggest_float("lr", *LEARNING_RATES, log=True))

    def tell(self, val_score: float) -> None:
        self.study.tell(self.asked.pop(0), val_score)


def _choices(start: Job) -> dict[str, tuple[Any, ...]]:
    return {name: choices for name, choices in CHOICES.items() if start.model == GLT_NAME or name not in OF_GLT}


def find_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ValueError("engine='ray' needs the package ray: pip install 'walksum[ray]'") from error
    return ray


def connect() -> tuple[Any, bool]:
    """Connect to Ray on the cluster of $RAY_ADDRESS, or start it on this machine; also whether we started it."""
    ray = find_ray()
    ours = not ray.is_initialized()
    if ours:
        ray.init(log_to_driver=False, include_dashboard=False, logging_level="error", configure_logging=False)
    return ray, ours


@contextmanager
def _ray_trainer(prepared: PreparedData, device: str, workers: int) -> Iterator[Train]:
    """Trains jobs at the same time, one task each; a task whose process dies is tried once more."""
    ray, ours = connect()
    # several tasks may share a GPU: most of a step is the host's
    share = 0 if device == "cpu" else min(1, ray.cluster_resources().get("GPU", 0) / workers)
    task = ray.remote(fit_model).options(num_cpus=1, num_gpus=share, max_retries=1)
    data = ray.put(prepared)

    def train(jobs: Iterable[Job]) -> Iterator[Fitted]:
        tasks = [task.remote(job, data) for job in jobs]
        try:
            for each in tasks:
                yield ray.get(each)
        finally:
            for each in tasks:  # what an interrupt left; finished ones do not mind
                ray.cancel(each, force=True)

    try:
        yield train
    finally:
        if ours:  # with all its processes
            ray.shutdown()
