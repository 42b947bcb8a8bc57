"""The members: which models are tried on a problem, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from walksum.portfolio.blend import Metric, is_default
from walksum.portfolio.columns import (
    ALL_OWN,
    COLUMNS,
    EACH_WALK,
    MANY_NODES,
    NEAR_LABELS,
    PLACES,
    can_leave_one_out,
    needs_targets,
    needs_this_graph,
)
from walksum.portfolio.deep import DeepBanks, fit_deep, fit_words
from walksum.portfolio.joint import LARGEST
from walksum.portfolio.kriging import MOST_LENGTHS, Kriging, fit_kriging
from walksum.portfolio.labels import LabelPropagation, label_tasks
from walksum.portfolio.problem import WIDE, Problem
from walksum.portfolio.process import fit_process, suits
from walksum.portfolio.residual import MOST_OPERATIONS, affordable
from walksum.portfolio.schedule import Task, Trained, no_member
from walksum.portfolio.spread import Operator, is_small
from walksum.portfolio.stack import Config, StackRecipe
from walksum.portfolio.stacked import StackedNetworks, stack_runner
from walksum.portfolio.tabular import MODELS, Tabular, directed, fit_tabular, linear, strengths

BANK = tuple(Operator(scale) for scale in (0.0, 0.5, 0.9, -0.5, -0.9))
SMOOTH = (*((Operator(scale, loops=True),) for scale in (0.8, 0.9, 0.95)), (Operator(0.9),))
TWICE = tuple((Operator(scale, loops=True),) for scale in (0.5, 0.8, 0.9))  # of smoothed columns
NEAR, AROUND = Operator(0.8, loops=True), Operator(0.5, loops=True, own=False)  # before and after a hidden layer
MANY = 1000  # rows to learn from that a deep network deserves its time with
LARGE, COLUMNS_OF_LARGE = 5000, 100  # rows and columns of tables on which trees and stacked networks take their time
SEVERAL, LEAST_NODES = 300, 500  # rows to learn from, and nodes, that networks deep in words deserve theirs with
WHOLE = 100_000_000  # rows times columns times classes of a table that a line reads as it is: a second or two
ALONE = (Operator(0.0),)
UNJUDGED = ("label propagation", "place", "directed", "smooth", "linear x")  # what may answer without being judged
CONSISTENT = " consistent"  # in the name of networks whose predictions must agree over draws of the dropout


def tasks(problem: Problem, metric: Metric, which: tuple[str, ...] | None = None, repeat: int = 1) -> list[Task]:
    """All trainings for this problem; ``which`` keeps those whose name starts so, networks have ``repeat`` seeds."""
    networks, tabular, deep = [*_stacks(problem, metric, repeat)], [*_tabular(problem)], [*_deep(problem, metric)]
    processes = [*_processes(problem)]
    boosting = [task for task in tabular if task.name.startswith("boosting")]
    others = [task for task in tabular if not task.name.startswith("boosting")]
    # members without edges come second, so that what the graph gave is known early
    boosting = sorted(boosting, key=lambda task: (task.uses_graph, task.uses_targets))
    linear = [task for task in others if task.family == "linear"]
    linear = sorted(linear, key=lambda task: task.uses_graph)
    linear[1:1] = _directed(problem)
    slow = [task for task in others if task.family != "linear"]
    twice = [task for task in networks if task.family == "twice"]
    agreeing = [task for task in networks if task.name.endswith(CONSISTENT) and task not in twice]
    rest = [task for task in networks if task not in agreeing + twice]
    if _large(problem):  # what is quick, then the deep networks, which learn more per second than the others there
        made = [*label_tasks(problem), *linear, *deep[:1], *twice, *deep[1:]]
        made += [*(task for task in networks if task not in twice), *slow, *boosting]
    elif _middle(problem):  # trees and deep networks of words lead where neighbours differ, the stacks elsewhere
        boosting = sorted(boosting, key=lambda task: (not task.uses_graph, task.uses_targets))
        made = [*label_tasks(problem), *linear, *slow, *deep, *boosting[:2], rest[0], *twice, *agreeing]
        made += [*boosting[2:], *rest[1:]]
    elif problem.wide:  # linear models take a moment, boosting its time on hundreds of columns
        made = [*label_tasks(problem), *linear, rest[0], rest[3], *twice, *slow, *rest[1:3], *agreeing]
        made += [*rest[4:], *boosting]
    elif len(problem.folds[0][0]) < MANY:
        made = [*label_tasks(problem), *linear, *boosting, *slow, *processes, *networks, *deep]
    else:  # what takes a moment comes first, so that the shortest budget has members of all kinds
        made = [*label_tasks(problem), *linear, *boosting, *processes[:1], networks[0], *deep, *processes[1:]]
        made += [*networks[1:], *slow]
    if problem.position is not None:  # what tables of places are mostly learned by, and quickly, comes first
        quick = [task for task in others if task.name.startswith(("linear", "extra trees"))]
        made = [*_kriging(problem), *quick, *(task for task in made if task not in quick)]
    if problem.unjudged:
        made = [task for task in made if task.name.startswith(UNJUDGED)]
    return [task for task in made if which is None or task.name.startswith(which)]


def _stacks(problem: Problem, metric: Metric, repeat: int) -> Iterator[Task]:
    """Networks: on words with strong dropout of the input, on narrow tables without."""
    bank = ("bank", "outputs", [BANK], 2)
    hidden = ("hidden", "hidden", [BANK], 2)
    smooth = ("smooth", "outputs", list(SMOOTH), 1)
    alone = ("mlp", "outputs", [ALONE], 3)
    few = ("mlp", "outputs", [ALONE], 2)
    if not problem.classes:  # what reads no surroundings weighs little there, and five folds cost five times
        bank, alone = (*bank[:3], 1), (*alone[:3], 1)
    by = None if is_default(metric) else metric
    narrow: dict[str, Any] = {"dropout": 0.3, "input_dropout": 0.0}
    plans: list[tuple[str, tuple[float, ...], list, dict[str, Any]]] = []
    if problem.wide:
        plans.append(("raw", (5e-3, 2e-2), [smooth], {}))
        plans.append(("raw", (5e-3, 2e-2), [bank, hidden, alone], {"input_dropout": 0.0}))
        plans.append(("rows", (1e-3, 5e-3), [smooth, bank, hidden, alone], {}))
        if problem.classes and problem.graph.num_edges:
            plans += _twice(problem)
        if _few_labels(problem):
            plans += _consistent(problem)
    else:
        plans.append(("x", (1e-4, 1e-3), [bank, alone] + [hidden, smooth] * bool(problem.classes), narrow))
    if problem.graph.num_edges:
        how = narrow | ({"dropout": 0.5, "input_dropout": 0.3} if problem.wide else {})
        held = (1e-3, 1e-2) if problem.wide else (1e-4, 1e-3)
        plans.append(("surroundings", held, [few], how))
        if problem.classes and not problem.wide:
            plans.append(("smoothed", (1e-3,), [("smooth", "outputs", list(TWICE), 1)], narrow))
        plans.append(("place + surroundings + labels" if can_leave_one_out(problem) else NEAR_LABELS, held, [few], how))
    joint = not problem.classes and not problem.wide and problem.graph.num_edges and problem.num_nodes <= LARGEST
    if joint and affordable(problem.graph, MOST_OPERATIONS / len(problem.folds)):  # one field per fold
        plans.append(("surroundings", (1e-4, 1e-3), [("joint", "outputs", [ALONE], 2)], narrow))
    if not problem.wide:
        plans.reverse()  # on narrow tables the surroundings say most
    for name, decays, groups, how in plans:
        label = name + CONSISTENT * ("consistency" in how)
        for kind, where, operators, seeds in groups:
            configs = [
                Config(_name(kind, ops, label, decay, seed), ops, decay, seed=100 * j + seed)
                for j, decay in enumerate(decays) for ops in operators for seed in range(repeat * seeds)
            ]  # fmt: skip
            share = len(configs) * (2.0 if kind == "hidden" or "consistency" in how else 1.0)
            uses_graph = kind != "mlp" or "surroundings" in name
            runner = stack_runner(problem, name, configs, StackRecipe(where=where, **how), kind == "joint", by)
            reads_targets = kind == "joint" or needs_targets(name)
            yield Task(f"{kind} {label}", share, uses_graph, runner, reads_targets, always=not uses_graph)


def _few_labels(problem: Problem) -> bool:
    return problem.classes > 0 and len(problem.labelled) < problem.num_nodes / 2


def _twice(problem: Problem) -> Iterator[tuple[str, tuple[float, ...], list, dict[str, Any]]]:
    """Networks between two propagations: noisy columns are averaged before the hidden layer, as a GCN does it.

    Where a node has many neighbours, these say more than its own noisy row: one kind leaves that out.
    """
    how: dict[str, Any] = {"consistency": 1.0} if _few_labels(problem) else {}
    how["input_dropout"] = 0.6 if sp.issparse(problem.X) else 0.0
    for operator in (NEAR, AROUND):
        yield "raw", (5e-4, 5e-3), [("twice", "outputs", [(operator,)], 1)], how | {"before": operator}


def _consistent(problem: Problem) -> Iterator[tuple[str, tuple[float, ...], list, dict[str, Any]]]:
    """Where most nodes have no label: networks whose predictions there must not depend on the dropout."""
    how: dict[str, Any] = {"consistency": 1.0}
    both = [*SMOOTH[:2]]
    yield "raw", (5e-3, 2e-2), [("smooth", "outputs", both, 1)], how | {"node_dropout": 0.3}
    yield "rows", (1e-3,), [("smooth", "outputs", both, 1)], how
    yield "raw", (5e-3, 2e-2), [("mlp", "outputs", [ALONE], 2)], how
    if problem.graph.to(problem.device).derived(is_small):  # 64 columns per network are a dense product, or too slow
        rates = {"node_dropout": 0.5, "input_dropout": 0.5, "dropout": 0.5}
        yield "raw", (5e-3, 2e-2), [("smooth first", "outputs", [ALONE], 1)], how | rates | {"before": SMOOTH[1][0]}


def _name(kind: str, operators: tuple[Operator, ...], inputs: str, decay: float, seed: int) -> str:
    first, *others = operators
    scale = (
        "" if others or operators == ALONE else f" {first.scale:g}" + "L" * first.loops + " around" * (not first.own)
    )
    return f"{kind}{scale} {inputs}, decay {decay:g}, seed {seed}"


def _tabular(problem: Problem) -> Iterator[Task]:
    sets = [name for name in COLUMNS if name == "x" or (problem.graph.num_edges and name != "smoothed")]
    sets = [
        name for name in sets if name not in (*EACH_WALK, PLACES, ALL_OWN) and (problem.wide or name != "directions")
    ]
    sets = [name for name in sets if not needs_targets(name) or can_leave_one_out(problem) == (name != NEAR_LABELS)]
    plans = [(model, columns, 1 if model == "linear" else 3) for columns in reversed(sets) for model in MODELS]
    for model, columns, share in sorted(plans, key=lambda plan: plan[0] == "boosting"):  # the slowest last
        if (needs_this_graph(columns) or columns == "neighbours") and model != "boosting":
            continue
        if columns == "neighbours" and problem.wide:  # those of a wide table are not few
            continue
        if columns == "directions" and model == "linear":  # one per kind of walk instead
            continue
        if model == "extra trees" and not problem.classes and len(problem.labelled) >= MANY:
            continue  # 0.03 in R^2 below boosting on the counties, at four times its cost
        heavy = 6 if model == "boosting" else 0
        always = columns == "x" or (model, columns) == ("boosting", "surroundings")
        # with the shortest budget, or on a busy machine, the blend has boosting at least, or where that is slow a line
        slow = problem.wide or _large(problem)
        whole = always and (model == "boosting") != slow and model != "extra trees"
        needed = whole and columns == "x"
        whole &= needed or problem.X.shape[1] <= WIDE  # surroundings of more are thousands of columns
        name = f"{model} {columns}"
        runner = _tabular_runner(problem, MODELS[model], columns, whole, name)
        yield Task(name, share + heavy, columns != "x", runner, needs_targets(columns), always, needed)
    if problem.wide and problem.classes and problem.X.size and np.prod(problem.X.shape) * problem.classes <= WHOLE:
        # dense columns of one size have no leading directions: what few of them leave out may tell most
        runner = _tabular_runner(problem, partial(linear, strength=0.002), ALL_OWN, False, f"linear {ALL_OWN}")
        yield Task(f"linear {ALL_OWN}", 1, False, runner, always=True)


def _directed(problem: Problem) -> Iterator[Task]:
    """Linear models of words: on what neighbours near and far make of them; of classes also on the graph alone."""
    for columns in EACH_WALK if problem.wide and problem.graph.num_edges else ():
        for strength in strengths(problem.classes):
            name = f"directed {columns.split()[1]}" + f", C={strength:g}" * bool(problem.classes)
            yield Task(name, 1, True, _tabular_runner(problem, partial(directed, strength), columns, False, name))
    if problem.classes and problem.graph.num_edges and problem.num_nodes <= MANY_NODES:
        for strength in strengths(problem.classes):
            name = f"place C={strength:g}"
            yield Task(name, 1, True, _tabular_runner(problem, partial(directed, strength), PLACES, False, name))


def _runner(name: str, fit: Callable[[float], tuple[Any, ...] | None]) -> Callable[[float], Trained]:
    """Of a training of one member: ``fit(deadline)`` gives its outputs and the further fields of ``Trained``, or None
    where there was no time."""

    def run(deadline: float) -> Trained:
        found = fit(deadline)
        return no_member() if found is None else Trained([name], found[0][None], *found[1:])

    return run


def _tabular_runner(problem: Problem, make: Callable[[int, int], Any], columns: str, needed: bool, name: str) -> Any:
    def refit(which: list[int]) -> np.ndarray:
        whole = replace(problem, folds=[(problem.labelled, problem.labelled)])
        again = fit_tabular(whole, columns, make, float("inf"))
        assert again is not None
        return again[0]

    def fit(deadline: float) -> tuple[Any, ...] | None:
        found = fit_tabular(problem, columns, make, deadline, needed)
        if found is None:
            return None
        out, fitted = found
        return out, None if needs_this_graph(columns) else fitted, True, refit, fitted

    return _runner(name, fit)


def _kriging(problem: Problem) -> Iterator[Task]:
    """Of numbers at places; with the columns too unless they are words."""
    if problem.position is None or problem.classes:
        return
    names = {"none": "kriging place", "one": "kriging place + x", "each": "kriging place + each x"}
    for columns, name in names.items():
        if columns == "none" or (not problem.wide and (columns == "one" or problem.X.shape[1] <= MOST_LENGTHS)):
            yield Task(name, 3, True, _runner(name, partial(fit_kriging, problem, columns)), uses_targets=True)


def _processes(problem: Problem) -> Iterator[Task]:
    def fit(columns: str, deadline: float) -> tuple[Any, ...] | None:
        found = fit_process(problem, columns, deadline)
        return None if found is None else (found[0], None, found[1])

    for columns in ("surroundings", "neighbours") if suits(problem) else ():
        name = f"process {columns}"
        yield Task(name, 6, True, _runner(name, partial(fit, columns)), uses_targets=True)


def _deep(problem: Problem, metric: Metric) -> Iterator[Task]:
    large = _large(problem)
    if _middle(problem):
        yield from _deep_words(problem, metric)
    if not problem.classes or problem.num_nodes < LEAST_NODES or (problem.wide and not large):
        return
    for layers, seed in ((2, 0), (2, 1), (5, 0)) if large else ((5, 0), (10, 0), (10, 1)):
        name = f"deep bank {layers} layers, seed {seed}"
        yield Task(name, 40, True, _runner(name, partial(fit_deep, problem, layers, metric, seed=seed)))


def _deep_words(problem: Problem, metric: Metric) -> Iterator[Task]:
    seeds = 2 if len(problem.folds) == 1 else 1  # the networks of several folds are averaged already

    def fit(labels: float, deadline: float) -> tuple[Any, ...] | None:
        found = fit_words(problem, labels, metric, deadline, seeds)
        if found is None:
            return None
        epochs = found[1].epochs

        def refit(which: list[int]) -> np.ndarray:
            everyone = replace(problem, folds=[(problem.labelled, problem.labelled[:0])])
            again = fit_words(everyone, labels, metric, float("inf"), seeds, epochs)
            assert again is not None
            return again[0]

        return *found, refit

    for name, labels in (("deep bank words", 0.0), ("deep bank words + labels", 0.5)):
        yield Task(name, 12, True, _runner(name, partial(fit, labels)), uses_targets=labels > 0)


def _middle(problem: Problem) -> bool:
    """Words of a graph that is not large, with enough labels for deep networks."""
    enough = len(problem.folds[0][0]) >= SEVERAL and problem.num_nodes >= LEAST_NODES
    return bool(problem.classes and problem.wide and enough and problem.graph.num_edges) and not _large(problem)


def _large(problem: Problem) -> bool:
    rows, columns = problem.X.shape
    return problem.classes > 0 and len(problem.folds[0][0]) >= MANY and rows >= LARGE and columns >= COLUMNS_OF_LARGE


IGNORE_WEIGHTS = ("label propagation", "kriging", "process", "joint")  # members that count every labelled row the same
KINDS: dict[str, Any] = {
    "networks": StackedNetworks,
    "tabular": Tabular,
    "deep": DeepBanks,
    "labels": LabelPropagation,
    "kriging": Kriging,
}
