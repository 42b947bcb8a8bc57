"""The portfolio: which members are tried on a problem, in which order, and how the clock is shared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from walksum.estimators.auto.blend import Metric
from walksum.estimators.auto.deep import fit_deep
from walksum.estimators.auto.problem import Problem
from walksum.estimators.auto.stack import Config, Input, Operator, Stack, StackRecipe
from walksum.estimators.auto.tabular import COLUMNS, MODELS, fit_tabular, own_columns, surroundings
from walksum.estimators.features import other_targets

BANK: tuple[Operator, ...] = ((0.0, False), (0.5, False), (0.9, False), (-0.5, False), (-0.9, False))
SMOOTH: tuple[tuple[Operator, ...], ...] = (((0.8, True),), ((0.9, True),), ((0.95, True),), ((0.9, False),))
ALONE: tuple[Operator, ...] = ((0.0, False),)


@dataclass
class Member:
    """One blended model: its outputs on all nodes, by fold."""

    name: str
    outputs: np.ndarray  # [folds, N, C]: logits, log-probabilities or standardised numbers
    uses_graph: bool
    seconds: float


@dataclass(frozen=True)
class Task:
    """One training that yields members; ``share`` is its part of the clock."""

    name: str
    share: float
    uses_graph: bool
    run: Callable[[float], tuple[list[tuple[str, np.ndarray]], bool]]  # deadline -> named outputs, whether complete


def tasks(problem: Problem, metric: Metric, which: tuple[str, ...] | None = None, repeat: int = 1) -> list[Task]:
    """All trainings for this problem; ``which`` keeps those whose name starts so, networks have ``repeat`` seeds."""
    networks, tabular, deep = [*_stacks(problem, repeat)], [*_tabular(problem)], [*_deep(problem, metric)]
    boosting = [task for task in tabular if task.name.startswith("boosting")]
    others = [task for task in tabular if not task.name.startswith("boosting")]
    if problem.wide:  # boosting takes its time on hundreds of columns
        made = [*_labels(problem), *networks[:3], *others, *networks[3:], *boosting]
    else:
        made = [*_labels(problem), *boosting, networks[0], *deep, *networks[1:], *others]
    return [task for task in made if which is None or task.name.startswith(which)]


def run_tasks(todo: list[Task], budget: float, progress: Callable[..., None] | None) -> tuple[list[Member], bool]:
    """Members in order; False where the clock cut something short. Ctrl-C keeps what is there."""
    members: list[Member] = []
    start, complete = time.monotonic(), True
    end = start + budget
    for k, task in enumerate(todo):
        now = time.monotonic()
        if now >= end:
            complete = False
            break
        # where time is short, the first members train to their end and the last are left out: a member that was cut
        # off early is worth less than none
        share = max(0.35, 1.5 * task.share / sum(each.share for each in todo[k:]))
        deadline = now + (end - now) * min(1.0, share)
        try:
            found, whole = task.run(deadline)
        except KeyboardInterrupt:
            if not members:
                raise
            complete = False
            break
        seconds = time.monotonic() - now
        members += [Member(name, out, task.uses_graph, seconds / len(found)) for name, out in found]
        complete &= whole
        if progress is not None:
            progress(task.name, k + 1, len(todo), time.monotonic() - start)
    return members, complete


def _stacks(problem: Problem, repeat: int) -> Iterator[Task]:
    """Networks: on words with strong dropout of the input, on narrow tables without."""
    bank = ("bank", "outputs", [BANK], 2)
    hidden = ("hidden", "hidden", [BANK], 2)
    smooth = ("smooth", "outputs", list(SMOOTH), 1)
    alone = ("mlp", "outputs", [ALONE], 3)
    few = ("mlp", "outputs", [ALONE], 2 if problem.classes else 4)
    narrow: dict[str, Any] = {"dropout": 0.3, "input_dropout": 0.0, "patience": 100}
    table: Any = lambda train: _standardised(own_columns(problem))  # noqa: E731
    around: Any = lambda train: _standardised(surroundings(problem))  # noqa: E731
    labels: Any = lambda train: _standardised(COLUMNS["surroundings + labels"](problem, train))  # noqa: E731
    plans: list[tuple[str, Any, tuple[float, float], list, dict[str, Any]]] = []
    if problem.wide:
        plans.append(("raw", lambda train: problem.X, (5e-3, 2e-2), [smooth, bank, hidden, alone], {}))
        plans.append(("rows", lambda train: _by_row(problem.X), (1e-3, 5e-3), [smooth, bank, hidden, alone], {}))
    else:
        plans.append(("x", table, (1e-4, 1e-3), [hidden, bank, alone] + [smooth] * bool(problem.classes), narrow))
    if problem.graph.num_edges:
        how = narrow | ({"dropout": 0.5, "input_dropout": 0.3} if problem.wide else {})
        decays = (1e-3, 1e-2) if problem.wide else (1e-4, 1e-3)
        plans.append(("surroundings", around, decays, [few], how))
        plans.append(("surroundings + labels", labels, decays, [few], how))
    if not problem.wide:
        plans.reverse()  # on narrow tables the surroundings say most
    for name, make, decays, groups, how in plans:
        for kind, where, operators, seeds in groups:
            configs = [
                Config(_name(kind, ops, name, decay, seed), ops, decay, seed=100 * j + seed)
                for j, decay in enumerate(decays) for ops in operators for seed in range(repeat * seeds)
            ]  # fmt: skip
            share = len(configs) * (2.0 if kind == "hidden" else 1.0)
            uses_graph = kind != "mlp" or name.startswith("surroundings")
            by_fold = name.endswith("labels")
            runner = _stack_runner(problem, name, make, configs, StackRecipe(where=where, **how), by_fold)
            yield Task(f"{kind} {name}", share, uses_graph, runner)


def _name(kind: str, operators: tuple[Operator, ...], inputs: str, decay: float, seed: int) -> str:
    scale = "" if len(operators) > 1 or kind == "mlp" else f" {operators[0][0]:g}" + ("L" if operators[0][1] else "")
    return f"{kind}{scale} {inputs}, decay {decay:g}, seed {seed}"


def _stack_runner(
    problem: Problem, key: str, make: Callable[[Any], Any], configs: list[Config], how: StackRecipe, by_fold: bool
) -> Any:
    """by_fold: the input holds targets, so each fold has its own."""

    def run(deadline: float) -> tuple[list[tuple[str, np.ndarray]], bool]:
        graph, parts, complete = problem.graph.to(problem.device), [], True
        turns = [[fold] for fold in problem.folds] if by_fold else [problem.folds]
        for k, folds in enumerate(turns):
            slot, now = ("input", key, k), time.monotonic()
            until = now + (deadline - now) / (len(turns) - k)
            x = problem.once(slot, lambda folds=folds: Input(make(folds[0][0]), problem.device))
            found = Stack(replace(problem, folds=folds, kept={}), x, graph, configs, how).train(until)
            parts.append(found.outputs)
            complete &= found.complete
        outputs = np.concatenate(parts, 1)
        return [(config.name, out) for config, out in zip(configs, outputs, strict=True)], complete

    return run


def _tabular(problem: Problem) -> Iterator[Task]:
    sets = ["x", "surroundings", "surroundings + labels"] if problem.graph.num_edges else ["x"]
    plans = [(model, columns, 1 if model == "linear" else 3) for columns in reversed(sets) for model in MODELS]
    for model, columns, share in sorted(plans, key=lambda plan: plan[0] == "boosting"):  # the slowest last
        heavy = 6 if model == "boosting" else 0
        yield Task(f"{model} {columns}", share + heavy, columns != "x", _tabular_runner(problem, model, columns))


def _tabular_runner(problem: Problem, model: str, columns: str) -> Any:
    def run(deadline: float) -> tuple[list[tuple[str, np.ndarray]], bool]:
        out = fit_tabular(problem, columns, MODELS[model], deadline)
        return ([] if out is None else [(f"{model} {columns}", out)]), out is not None

    return run


def _labels(problem: Problem) -> Iterator[Task]:
    """The known targets alone, spread."""
    if not problem.graph.num_edges:
        return

    def run(deadline: float) -> tuple[list[tuple[str, np.ndarray]], bool]:
        return [(f"label propagation {s:g}", _spread(problem, s)) for s in (0.9, 0.99)], True

    yield Task("label propagation", 0.5, True, run)


def _spread(problem: Problem, scale: float) -> np.ndarray:
    out = np.zeros((len(problem.folds), problem.num_nodes, problem.outputs))
    for k, (train, _) in enumerate(problem.folds):
        y = problem.y[train]
        if not problem.classes:
            out[k] = other_targets(problem.graph, train, y[:, None], (scale,), ratio=True)
            continue
        Y = np.eye(problem.classes)[y.astype(np.int64)]
        mass = np.maximum(other_targets(problem.graph, train, Y, (scale,)), 0)
        prior = Y.mean(0) * 1e-3
        out[k] = np.log((mass + prior + 1e-6) / (mass + prior + 1e-6).sum(1, keepdims=True))
    return out


def _deep(problem: Problem, metric: Metric) -> Iterator[Task]:
    if problem.wide or not problem.classes or problem.num_nodes < 500:
        return

    def runner(layers: int, seed: int) -> Any:
        def run(deadline: float) -> tuple[list[tuple[str, np.ndarray]], bool]:
            X = _standardised(np.concatenate([own_columns(problem), _degree(problem)], 1))
            out, whole = fit_deep(problem, X, layers, metric, deadline, seed)
            return [(f"deep bank {layers} layers, seed {seed}", out)], whole

        return run

    for layers, seed in ((5, 0), (10, 0), (10, 1)):
        yield Task(f"deep bank {layers} layers, seed {seed}", 40, True, runner(layers, seed))


def _degree(problem: Problem) -> np.ndarray:
    return np.log1p(problem.graph.degree.cpu().numpy().astype(np.float64))[:, None]


def _standardised(X: np.ndarray) -> np.ndarray:
    spread = X.std(0)
    return ((X - X.mean(0)) / np.where(spread > 1e-12, spread, 1.0)).astype(np.float32).clip(-8, 8)


def _by_row(X: Any) -> Any:
    X = sp.csr_matrix(X)
    total = np.asarray(abs(X).sum(1)).ravel()
    return sp.diags(1 / np.where(total > 0, total, 1.0)) @ X
