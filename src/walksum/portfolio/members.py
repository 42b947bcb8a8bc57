"""The members: which models are tried on a problem, in which order, and how the clock is shared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch

from walksum.portfolio.arrays import Arrays
from walksum.portfolio.blend import Metric
from walksum.portfolio.columns import COLUMNS, Standard, by_row, exact_diagonal, needs_targets, needs_this_graph
from walksum.portfolio.deep import DeepBanks, fit_deep
from walksum.portfolio.features import other_targets
from walksum.portfolio.kriging import MOST_LENGTHS, Kriging, fit_kriging
from walksum.portfolio.problem import Problem
from walksum.portfolio.stack import Config, Input, Networks, Operator, Stack, StackRecipe
from walksum.portfolio.tabular import MODELS, Tabular, fit_tabular

BANK: tuple[Operator, ...] = ((0.0, False), (0.5, False), (0.9, False), (-0.5, False), (-0.9, False))
SMOOTH: tuple[tuple[Operator, ...], ...] = (((0.8, True),), ((0.9, True),), ((0.95, True),), ((0.9, False),))
MANY = 1000  # rows to learn from that a deep network deserves its time with
ALONE: tuple[Operator, ...] = ((0.0, False),)


class Model(Protocol):
    """What a training leaves, to be asked about other tables and to be kept in a file."""

    def outputs(self, problem: Problem) -> np.ndarray: ...  # [members, folds, N, C]

    def keep(self, which: list[int]) -> Model: ...  # some of its members

    def state(self) -> tuple[dict[str, Any], Arrays]: ...  # JSON, arrays


@dataclass
class Member:
    """One blended model: its outputs on all nodes, by fold, and where to ask for others."""

    name: str
    outputs: np.ndarray  # [folds, N, C]: logits, log-probabilities or standardised numbers
    uses_graph: bool
    uses_targets: bool  # of other nodes, at prediction
    seconds: float
    model: Model | None = None  # None: of the training graph alone
    index: int = 0  # among the members of the model


@dataclass
class Trained:
    """What one training gave: members by name, their outputs ``[members, folds, N, C]``, whether it was whole."""

    names: list[str]
    outputs: np.ndarray
    model: Model | None
    complete: bool = True


@dataclass(frozen=True)
class Task:
    """One training that yields members; ``share`` is its part of the clock."""

    name: str
    share: float
    uses_graph: bool
    run: Callable[[float], Trained]  # deadline -> members
    uses_targets: bool = False


def tasks(problem: Problem, metric: Metric, which: tuple[str, ...] | None = None, repeat: int = 1) -> list[Task]:
    """All trainings for this problem; ``which`` keeps those whose name starts so, networks have ``repeat`` seeds."""
    networks, tabular, deep = [*_stacks(problem, repeat)], [*_tabular(problem)], [*_deep(problem, metric)]
    boosting = [task for task in tabular if task.name.startswith("boosting")]
    others = [task for task in tabular if not task.name.startswith("boosting")]
    # members without edges come second, so that what the graph gave is known early
    boosting = boosting[:1] + sorted(boosting[1:], key=lambda task: task.uses_graph)
    if problem.wide:  # boosting takes its time on hundreds of columns
        made = [*_labels(problem), networks[0], networks[3], *networks[1:3], *others, *networks[4:], *boosting]
    elif len(problem.folds[0][0]) < MANY:
        made = [*_labels(problem), *boosting, *networks, *others, *deep]
    else:
        made = [*_labels(problem), *boosting, networks[0], *deep, *networks[1:], *others]
    if problem.position is not None:  # what tables of places are mostly learned by, and quickly, comes first
        quick = [task for task in others if task.name.startswith(("linear", "extra trees"))]
        made = [*_kriging(problem), *quick, *(task for task in made if task not in quick)]
    return [task for task in made if which is None or task.name.startswith(which)]


def run_tasks(todo: list[Task], budget: float, progress: Callable[..., None] | None) -> tuple[list[Member], bool, bool]:
    """Members in order, whether the clock cut nothing short, and whether Ctrl-C did: it keeps what is there."""
    members: list[Member] = []
    start, complete, interrupted = time.monotonic(), True, False
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
            found = task.run(deadline)
        except KeyboardInterrupt:
            if not members:
                raise
            complete, interrupted = False, True
            break
        seconds = time.monotonic() - now
        each = seconds / max(1, len(found.names))
        for index, (name, out) in enumerate(zip(found.names, found.outputs, strict=True)):
            members.append(Member(name, out, task.uses_graph, task.uses_targets, each, found.model, index))
        complete &= found.complete
        try:
            if progress is not None:
                progress(task.name, k + 1, len(todo), time.monotonic() - start)
        except KeyboardInterrupt:
            complete, interrupted = False, True
            break
    return members, complete, interrupted


def _stacks(problem: Problem, repeat: int) -> Iterator[Task]:
    """Networks: on words with strong dropout of the input, on narrow tables without."""
    bank = ("bank", "outputs", [BANK], 2)
    hidden = ("hidden", "hidden", [BANK], 2)
    smooth = ("smooth", "outputs", list(SMOOTH), 1)
    alone = ("mlp", "outputs", [ALONE], 3)
    few = ("mlp", "outputs", [ALONE], 2 if problem.classes else 4)
    narrow: dict[str, Any] = {"dropout": 0.3, "input_dropout": 0.0, "patience": 100}
    plans: list[tuple[str, tuple[float, float], list, dict[str, Any]]] = []
    if problem.wide:
        plans.append(("raw", (5e-3, 2e-2), [smooth, bank, hidden, alone], {}))
        plans.append(("rows", (1e-3, 5e-3), [smooth, bank, hidden, alone], {}))
    else:
        plans.append(("x", (1e-4, 1e-3), [hidden, bank, alone] + [smooth] * bool(problem.classes), narrow))
    if problem.graph.num_edges:
        how = narrow | ({"dropout": 0.5, "input_dropout": 0.3} if problem.wide else {})
        decays = (1e-3, 1e-2) if problem.wide else (1e-4, 1e-3)
        plans.append(("surroundings", decays, [few], how))
        if exact_diagonal(problem):
            plans.append(("place + surroundings + labels", decays, [few], how))
    if not problem.wide:
        plans.reverse()  # on narrow tables the surroundings say most
    for name, decays, groups, how in plans:
        for kind, where, operators, seeds in groups:
            configs = [
                Config(_name(kind, ops, name, decay, seed), ops, decay, seed=100 * j + seed)
                for j, decay in enumerate(decays) for ops in operators for seed in range(repeat * seeds)
            ]  # fmt: skip
            share = len(configs) * (2.0 if kind == "hidden" else 1.0)
            uses_graph = kind != "mlp" or "surroundings" in name
            runner = _stack_runner(problem, name, configs, StackRecipe(where=where, **how))
            yield Task(f"{kind} {name}", share, uses_graph, runner, needs_targets(name))


def _name(kind: str, operators: tuple[Operator, ...], inputs: str, decay: float, seed: int) -> str:
    scale = "" if len(operators) > 1 or kind == "mlp" else f" {operators[0][0]:g}" + ("L" if operators[0][1] else "")
    return f"{kind}{scale} {inputs}, decay {decay:g}, seed {seed}"


@dataclass
class StackedNetworks:
    """Networks of one stack on one kind of input; those whose input holds targets come fold by fold."""

    inputs: str
    standards: list[Standard | None]
    turns: list[Networks]
    folds: int  # of each turn

    def outputs(self, problem: Problem) -> np.ndarray:
        """``[members, folds, N, C]`` for another table."""
        parts, graph = [], problem.graph.to(problem.device)
        for standard, networks in zip(self.standards, self.turns, strict=True):
            x = Input(_read(self.inputs, problem, problem.known, standard), problem.device)
            with torch.no_grad():
                out = networks.to(problem.device).forward(x, graph).double().cpu().numpy()
            parts.append(out.reshape(-1, self.folds, *out.shape[1:]))
        return np.concatenate(parts, 1)

    def keep(self, which: list[int]) -> StackedNetworks:
        who = torch.tensor([m * self.folds + fold for m in which for fold in range(self.folds)])
        return replace(self, turns=[networks.take(who) for networks in self.turns])

    def state(self) -> tuple[dict[str, Any], Arrays]:
        first, arrays = self.turns[0], {"uses": self.turns[0].uses.numpy()}
        for k, (standard, networks) in enumerate(zip(self.standards, self.turns, strict=True)):
            arrays |= {f"{k}.{name}": p.numpy() for name, p in networks.parameters.items()}
            if standard is not None:
                arrays |= {f"{k}.mean": standard.mean, f"{k}.spread": standard.spread}
        how = {"operators": first.operators, "where": first.where, "inputs": self.inputs}
        return how | {"folds": self.folds, "turns": len(self.turns)}, arrays

    @classmethod
    def of_state(cls, config: dict[str, Any], arrays: Arrays) -> StackedNetworks:
        operators = [(float(scale), bool(loops)) for scale, loops in config["operators"]]
        standards: list[Standard | None] = []
        turns = []
        for k in range(config["turns"]):
            mine = {n.removeprefix(f"{k}."): v for n, v in arrays.items() if n.startswith(f"{k}.")}
            standards.append(Standard(mine.pop("mean"), mine.pop("spread")) if "mean" in mine else None)
            parameters = {name: torch.from_numpy(value) for name, value in mine.items()}
            turns.append(Networks(operators, config["where"], torch.from_numpy(arrays["uses"]), parameters))
        return cls(config["inputs"], standards, turns, config["folds"])


def _read(inputs: str, problem: Problem, train: np.ndarray, standard: Standard | None) -> Any:
    if inputs in WORDS:
        return WORDS[inputs](problem.X)
    columns = COLUMNS[inputs](problem, train)
    return columns if standard is None else standard(columns)


WORDS: dict[str, Callable[[Any], Any]] = {"raw": lambda X: X, "rows": by_row}


def _stack_runner(problem: Problem, inputs: str, configs: list[Config], how: StackRecipe) -> Any:
    """Where the input holds targets, each fold has its own."""

    def run(deadline: float) -> Trained:
        graph, parts, complete = problem.graph.to(problem.device), [], True
        by_fold = needs_targets(inputs)
        turns = [[fold] for fold in problem.folds] if by_fold else [problem.folds]
        standards: list[Standard | None] = []
        networks = []
        for k, folds in enumerate(turns):
            now = time.monotonic()
            until = now + (deadline - now) / (len(turns) - k)
            x, standard = problem.once(("input", inputs, k), lambda folds=folds: _input(problem, inputs, folds[0][0]))
            found = Stack(replace(problem, folds=folds, kept={}), x, graph, configs, how).train(until)
            parts.append(found.outputs)
            standards.append(standard)
            networks.append(found.networks)
            complete &= found.complete
        model = StackedNetworks(inputs, standards, networks, 1 if by_fold else len(problem.folds))
        names = [config.name for config in configs]
        return Trained(names, np.concatenate(parts, 1), None if needs_this_graph(inputs) else model, complete)

    return run


def _input(problem: Problem, inputs: str, train: np.ndarray) -> tuple[Input, Standard | None]:
    if inputs in WORDS:
        return Input(WORDS[inputs](problem.X), problem.device), None
    columns = COLUMNS[inputs](problem, train)
    standard = Standard.of(columns)
    return Input(standard(columns), problem.device), standard


def _tabular(problem: Problem) -> Iterator[Task]:
    sets = [name for name in COLUMNS if name == "x" or problem.graph.num_edges]
    sets = [name for name in sets if not needs_targets(name) or exact_diagonal(problem)]
    plans = [(model, columns, 1 if model == "linear" else 3) for columns in reversed(sets) for model in MODELS]
    for model, columns, share in sorted(plans, key=lambda plan: plan[0] == "boosting"):  # the slowest last
        if needs_this_graph(columns) and model != "boosting":
            continue
        heavy = 6 if model == "boosting" else 0
        runner = _tabular_runner(problem, model, columns)
        yield Task(f"{model} {columns}", share + heavy, columns != "x", runner, needs_targets(columns))


def _tabular_runner(problem: Problem, model: str, columns: str) -> Any:
    def run(deadline: float) -> Trained:
        found = fit_tabular(problem, columns, MODELS[model], deadline)
        if found is None:
            return Trained([], np.zeros((0, 0)), None, False)
        out, fitted = found
        return Trained([f"{model} {columns}"], out[None], None if needs_this_graph(columns) else fitted)

    return run


@dataclass
class LabelPropagation:
    """The known targets alone, spread."""

    scales: list[float]

    def outputs(self, problem: Problem) -> np.ndarray:
        """``[scales, 1, N, C]`` for another table."""
        return np.stack([_spread(problem, problem.known, scale)[None] for scale in self.scales])

    def keep(self, which: list[int]) -> LabelPropagation:
        return LabelPropagation([self.scales[k] for k in which])

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {"scales": self.scales}, {}

    @classmethod
    def of_state(cls, config: dict[str, Any], arrays: Arrays) -> LabelPropagation:
        return cls(list(config["scales"]))


def _labels(problem: Problem) -> Iterator[Task]:
    if not problem.graph.num_edges or not exact_diagonal(problem):
        return
    scales = [0.9, 0.99]

    def run(deadline: float) -> Trained:
        found = [[_spread(problem, train, s) for train, _ in problem.folds] for s in scales]
        return Trained([f"label propagation {s:g}" for s in scales], np.array(found), LabelPropagation(scales))

    yield Task("label propagation", 0.5, True, run, True)


def _spread(problem: Problem, train: np.ndarray, scale: float) -> np.ndarray:
    y = problem.y[train]
    if not problem.classes:
        return other_targets(problem.graph, train, y[:, None], (scale,), ratio=True)
    Y = np.eye(problem.classes)[y.astype(np.int64)]
    mass = np.maximum(other_targets(problem.graph, train, Y, (scale,)), 0)
    prior = Y.mean(0) * 1e-3
    return np.log((mass + prior + 1e-6) / (mass + prior + 1e-6).sum(1, keepdims=True))


def _kriging(problem: Problem) -> Iterator[Task]:
    """Of numbers at places; with the columns too unless they are words."""
    if problem.position is None or problem.classes:
        return

    def runner(columns: str, name: str) -> Any:
        def run(deadline: float) -> Trained:
            found = fit_kriging(problem, columns, deadline)
            if found is None:
                return Trained([], np.zeros((0, 0)), None, False)
            return Trained([name], found[0][None], found[1])

        return run

    names = {"none": "kriging place", "one": "kriging place + x", "each": "kriging place + each x"}
    for columns, name in names.items():
        if columns == "none" or (not problem.wide and (columns == "one" or problem.X.shape[1] <= MOST_LENGTHS)):
            yield Task(name, 3, True, runner(columns, name), True)


def _deep(problem: Problem, metric: Metric) -> Iterator[Task]:
    if problem.wide or not problem.classes or problem.num_nodes < 500:
        return

    def runner(layers: int, seed: int) -> Any:
        def run(deadline: float) -> Trained:
            out, model, whole = fit_deep(problem, layers, metric, deadline, seed)
            return Trained([f"deep bank {layers} layers, seed {seed}"], out[None], model, whole)

        return run

    for layers, seed in ((5, 0), (10, 0), (10, 1)):
        yield Task(f"deep bank {layers} layers, seed {seed}", 40, True, runner(layers, seed))


KINDS: dict[str, Any] = {
    "networks": StackedNetworks,
    "tabular": Tabular,
    "deep": DeepBanks,
    "labels": LabelPropagation,
    "kriging": Kriging,
}
