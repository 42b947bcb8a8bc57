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
from walksum.portfolio.columns import COLUMNS, Standard, by_row, can_leave_one_out, needs_targets, needs_this_graph
from walksum.portfolio.deep import DeepBanks, fit_deep
from walksum.portfolio.features import other_targets
from walksum.portfolio.input import Input
from walksum.portfolio.joint import LARGEST, KnownField
from walksum.portfolio.problem import Fold, Problem
from walksum.portfolio.spread import Operator
from walksum.portfolio.stack import Config, Networks, Stack, StackRecipe
from walksum.portfolio.tabular import MODELS, Tabular, fit_tabular

BANK: tuple[Operator, ...] = ((0.0, False), (0.5, False), (0.9, False), (-0.5, False), (-0.9, False))
SMOOTH: tuple[tuple[Operator, ...], ...] = (((0.8, True),), ((0.9, True),), ((0.95, True),), ((0.9, False),))
HOPELESS = 0.05  # of the score: five temperatures of the blend's weights
MANY = 1000  # rows to learn from that a deep network deserves its time with
ALONE: tuple[Operator, ...] = ((0.0, False),)


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


@dataclass
class Trained:
    """What one training gave: members by name, their outputs ``[members, folds, N, C]``, whether it was whole."""

    names: list[str]
    outputs: np.ndarray
    model: Model | None
    complete: bool = True
    refit: Refit | None = None


@dataclass(frozen=True)
class Task:
    """One training that yields members; ``share`` is its part of the clock, the first word of the name its family."""

    name: str
    share: float
    uses_graph: bool
    run: Callable[[float], Trained]  # deadline -> members
    uses_targets: bool = False
    always: bool = False  # what others are compared with: run even where its family has no chance

    @property
    def family(self) -> str:
        return self.name.split()[0]


def tasks(problem: Problem, metric: Metric, which: tuple[str, ...] | None = None, repeat: int = 1) -> list[Task]:
    """All trainings for this problem; ``which`` keeps those whose name starts so, networks have ``repeat`` seeds."""
    networks, tabular, deep = [*_stacks(problem, repeat)], [*_tabular(problem)], [*_deep(problem, metric)]
    boosting = [task for task in tabular if task.name.startswith("boosting")]
    others = [task for task in tabular if not task.name.startswith("boosting")]
    # members without edges come second, so that what the graph gave is known early
    boosting = sorted(boosting, key=lambda task: (task.uses_graph, task.uses_targets))
    if problem.wide:  # boosting takes its time on hundreds of columns
        made = [*_labels(problem), networks[0], networks[3], *networks[1:3], *others, *networks[4:], *boosting]
    elif len(problem.folds[0][0]) < MANY:
        made = [*_labels(problem), *boosting, *networks, *others, *deep]
    else:
        made = [*_labels(problem), *boosting, networks[0], *deep, *networks[1:], *others]
    return [task for task in made if which is None or task.name.startswith(which)]


def run_tasks(
    todo: list[Task], problem: Problem, metric: Metric, budget: float, progress: Callable[..., None] | None = None
) -> tuple[list[Member], bool, bool]:
    """Members in order, whether the clock cut nothing short, and whether Ctrl-C did: it keeps what is there."""
    members: list[Member] = []
    start, complete, interrupted = time.monotonic(), True, False
    end, scores = start + budget, Scores(problem, metric)
    for k, task in enumerate(todo):
        now = time.monotonic()
        if now >= end:
            complete = False
            break
        if scores.hopeless(task):
            continue
        # where time is short, the first members train to their end and the last are left out: a member that was cut
        # off early is worth less than none
        share = max(0.35, 1.5 * task.share / sum(each.share for each in todo[k:]))
        deadline = now + (end - now) * min(1.0, share)
        try:
            found = task.run(deadline)
            seconds = time.monotonic() - now
            each = seconds / max(1, len(found.names))
            for index, (name, out) in enumerate(zip(found.names, found.outputs, strict=True)):
                members.append(
                    Member(name, out, task.uses_graph, task.uses_targets, each, found.model, index, found.refit)
                )
                scores.add(task.family, out)
            complete &= found.complete
            if progress is not None:
                progress(task.name, k + 1, len(todo), time.monotonic() - start)
        except KeyboardInterrupt:
            if not members:
                raise
            complete, interrupted = False, True
            break
    return members, complete, interrupted


class Scores:
    """The best score of each family of members, so that no time is spent on kin of those that would weigh nothing."""

    def __init__(self, problem: Problem, metric: Metric):
        self.problem, self.metric = problem, metric
        self.best: dict[str, float] = {}

    def add(self, family: str, outputs: np.ndarray) -> None:
        rows = self.problem.judged
        score = self.metric(self.problem.out_of_fold(outputs)[rows], self.problem.y[rows])
        self.best[family] = max(score, self.best.get(family, -np.inf))

    def hopeless(self, task: Task) -> bool:
        """Whether its family lies so far back that the blend would give it nothing; numbers are blended otherwise."""
        if task.always or not self.problem.classes or task.family not in self.best:
            return False
        return self.best[task.family] < max(self.best.values()) - HOPELESS


def _stacks(problem: Problem, repeat: int) -> Iterator[Task]:
    """Networks: on words with strong dropout of the input, on narrow tables without."""
    bank = ("bank", "outputs", [BANK], 2)
    hidden = ("hidden", "hidden", [BANK], 2)
    smooth = ("smooth", "outputs", list(SMOOTH), 1)
    alone = ("mlp", "outputs", [ALONE], 3)
    few = ("mlp", "outputs", [ALONE], 2)
    if not problem.classes:  # what reads no surroundings weighs little there, and five folds cost five times
        bank, alone = (*bank[:3], 1), (*alone[:3], 1)
    narrow: dict[str, Any] = {"dropout": 0.3, "input_dropout": 0.0}
    plans: list[tuple[str, tuple[float, float], list, dict[str, Any]]] = []
    if problem.wide:
        plans.append(("raw", (5e-3, 2e-2), [smooth, bank, hidden, alone], {}))
        plans.append(("rows", (1e-3, 5e-3), [smooth, bank, hidden, alone], {}))
    else:
        plans.append(("x", (1e-4, 1e-3), [bank, alone] + [hidden, smooth] * bool(problem.classes), narrow))
    if problem.graph.num_edges:
        how = narrow | ({"dropout": 0.5, "input_dropout": 0.3} if problem.wide else {})
        decays = (1e-3, 1e-2) if problem.wide else (1e-4, 1e-3)
        plans.append(("surroundings", decays, [few], how))
        if can_leave_one_out(problem):
            plans.append(("place + surroundings + labels", decays, [few], how))
    if not problem.classes and not problem.wide and problem.graph.num_edges and problem.num_nodes <= LARGEST:
        plans.append(("surroundings", (1e-4, 1e-3), [("joint", "outputs", [ALONE], 2)], narrow))
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
            runner = _stack_runner(problem, name, configs, StackRecipe(where=where, **how), kind == "joint")
            reads_targets = kind == "joint" or needs_targets(name)
            yield Task(f"{kind} {name}", share, uses_graph, runner, reads_targets, not uses_graph)


def _name(kind: str, operators: tuple[Operator, ...], inputs: str, decay: float, seed: int) -> str:
    scale = "" if len(operators) > 1 or operators == ALONE else f" {operators[0][0]:g}" + ("L" if operators[0][1] else "")
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


def _stack_runner(problem: Problem, inputs: str, configs: list[Config], how: StackRecipe, joint: bool = False) -> Any:
    """Where the input holds targets, each fold has its own, as where the residuals are a field."""

    def run(deadline: float) -> Trained:
        graph, parts, complete = problem.graph.to(problem.device), [], True
        by_fold = joint or needs_targets(inputs)
        turns = [[fold] for fold in problem.folds] if by_fold else [problem.folds]
        standards: list[Standard | None] = []
        networks = []
        for k, folds in enumerate(turns):
            now = time.monotonic()
            until = now + (deadline - now) / (len(turns) - k)
            x, standard = problem.once(("input", inputs, k), lambda folds=folds: _input(problem, inputs, folds[0][0]))
            field = problem.once(("field", inputs, k), lambda f=folds[0]: _field(problem, inputs, f)) if joint else None
            found = Stack(replace(problem, folds=folds, kept={}), x, graph, configs, how, field).train(until)
            parts.append(found.outputs)
            standards.append(standard)
            networks.append(found.networks)
            complete &= found.complete
        model = StackedNetworks(inputs, standards, networks, 1 if by_fold else len(problem.folds))
        names = [config.name for config in configs]
        kept = None if joint or needs_this_graph(inputs) else model

        def refit(which: list[int]) -> np.ndarray:
            some, epochs = [configs[k] for k in which], found.epochs[which]
            x, _ = _input(problem, inputs, problem.labelled)
            return Stack(problem, x, graph, some, how).train(epochs=epochs).outputs[:, 0]

        return Trained(names, np.concatenate(parts, 1), kept, complete, refit)

    return run


def _field(problem: Problem, inputs: str, fold: Fold) -> KnownField:
    columns = COLUMNS[inputs](problem, fold[0])
    return KnownField.of(problem, Standard.of(columns)(columns), fold)


def _input(problem: Problem, inputs: str, train: np.ndarray) -> tuple[Input, Standard | None]:
    if inputs in WORDS:
        return Input(WORDS[inputs](problem.X), problem.device), None
    columns = COLUMNS[inputs](problem, train)
    standard = Standard.of(columns)
    return Input(standard(columns), problem.device), standard


def _tabular(problem: Problem) -> Iterator[Task]:
    sets = [name for name in COLUMNS if name == "x" or problem.graph.num_edges]
    sets = [name for name in sets if not needs_targets(name) or can_leave_one_out(problem)]
    plans = [(model, columns, 1 if model == "linear" else 3) for columns in reversed(sets) for model in MODELS]
    for model, columns, share in sorted(plans, key=lambda plan: plan[0] == "boosting"):  # the slowest last
        if needs_this_graph(columns) and model != "boosting":
            continue
        if model == "extra trees" and not problem.classes:
            continue  # 0.03 in R^2 below boosting on the counties, at four times its cost
        heavy = 6 if model == "boosting" else 0
        runner = _tabular_runner(problem, model, columns)
        always = columns == "x" or (model, columns) == ("boosting", "surroundings")
        yield Task(f"{model} {columns}", share + heavy, columns != "x", runner, needs_targets(columns), always)


def _tabular_runner(problem: Problem, model: str, columns: str) -> Any:
    def run(deadline: float) -> Trained:
        found = fit_tabular(problem, columns, MODELS[model], deadline)
        if found is None:
            return Trained([], np.zeros((0, 0)), None, False)
        out, fitted = found

        def refit(which: list[int]) -> np.ndarray:
            whole = replace(problem, folds=[(problem.labelled, problem.labelled)])
            again = fit_tabular(whole, columns, MODELS[model], float("inf"))
            assert again is not None
            return again[0]

        return Trained([f"{model} {columns}"], out[None], None if needs_this_graph(columns) else fitted, refit=refit)

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
    if not problem.graph.num_edges or not can_leave_one_out(problem):
        return
    scales = [0.9, 0.99]

    def run(deadline: float) -> Trained:
        found = [[_spread(problem, train, s) for train, _ in problem.folds] for s in scales]

        def refit(which: list[int]) -> np.ndarray:
            return np.stack([_spread(problem, problem.labelled, scales[k]) for k in which])

        names = [f"label propagation {s:g}" for s in scales]
        return Trained(names, np.array(found), LabelPropagation(scales), refit=refit)

    yield Task("label propagation", 0.5, True, run, True)


def _spread(problem: Problem, train: np.ndarray, scale: float) -> np.ndarray:
    y = problem.y[train]
    if not problem.classes:
        return other_targets(problem.graph, train, y[:, None], (scale,), ratio=True)
    Y = np.eye(problem.classes)[y.astype(np.int64)]
    mass = np.maximum(other_targets(problem.graph, train, Y, (scale,)), 0)
    prior = Y.mean(0) * 1e-3
    return np.log((mass + prior + 1e-6) / (mass + prior + 1e-6).sum(1, keepdims=True))


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
}
