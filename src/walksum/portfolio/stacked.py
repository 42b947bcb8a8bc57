"""Stacks as members: what their networks read, how they are trained, asked about other tables and kept in a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from walksum.portfolio import clock
from walksum.portfolio.arrays import Arrays
from walksum.portfolio.blend import Metric
from walksum.portfolio.columns import COLUMNS, Standard, by_row, needs_targets, needs_this_graph
from walksum.portfolio.input import Input, InputOfFolds
from walksum.portfolio.joint import KnownField
from walksum.portfolio.networks import Networks
from walksum.portfolio.problem import Fold, Problem
from walksum.portfolio.schedule import Trained, no_member
from walksum.portfolio.spread import Operator
from walksum.portfolio.stack import Config, Stack, StackRecipe


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
            out = networks.to(problem.device).answer(x, graph).double().cpu().numpy()
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
        how = {"operators": first.operators, "where": first.where, "before": first.before, "inputs": self.inputs}
        return how | {"folds": self.folds, "turns": len(self.turns)}, arrays

    @classmethod
    def of_state(cls, config: dict[str, Any], arrays: Arrays) -> StackedNetworks:
        operators = [Operator(*each) for each in config["operators"]]
        where, before = config["where"], config.get("before")
        if where == "first":  # as older runs name networks that propagate before the hidden layer alone
            where, before, operators = "outputs", operators[0], [Operator(0.0)]
        before = None if before is None else Operator(*before)
        standards: list[Standard | None] = []
        turns = []
        for k in range(config["turns"]):
            mine = {n.removeprefix(f"{k}."): v for n, v in arrays.items() if n.startswith(f"{k}.")}
            standards.append(Standard(mine.pop("mean"), mine.pop("spread")) if "mean" in mine else None)
            parameters = {name: torch.from_numpy(value) for name, value in mine.items()}
            turns.append(Networks(operators, where, torch.from_numpy(arrays["uses"]), parameters, before))
        return cls(config["inputs"], standards, turns, config["folds"])


def _read(inputs: str, problem: Problem, train: np.ndarray, standard: Standard | None) -> Any:
    if inputs in WORDS:
        return WORDS[inputs](problem.X)
    columns = COLUMNS[inputs](problem, train)
    return columns if standard is None else standard(columns)


WORDS: dict[str, Callable[[Any], Any]] = {"raw": lambda X: X, "rows": by_row}


def stack_runner(
    problem: Problem, inputs: str, configs: list[Config], how: StackRecipe, joint: bool = False,
    metric: Metric | None = None,
) -> Any:  # fmt: skip
    """Trains all configs on all folds; where the input holds targets, or residuals are a field, a fold has its own."""

    def run(deadline: float) -> Trained:
        graph, folds = problem.graph.to(problem.device), problem.folds
        by_fold = joint or needs_targets(inputs)
        read = [
            problem.once(("input", inputs, k), lambda fold=fold: _input(problem, inputs, fold[0]))
            for k, fold in enumerate(folds if by_fold else folds[:1])
        ]
        x = InputOfFolds([each for each, _ in read]) if by_fold else read[0][0]
        fields, start = [], clock.now()
        for k, fold in enumerate(folds if joint else []):
            fields.append(problem.once(("field", inputs, k), lambda fold=fold: _field(problem, inputs, fold)))
            if clock.now() + (clock.now() - start) / (k + 1) * (len(folds) - 1 - k) > deadline:
                return no_member()
        some = Stack(problem, x, graph, configs, how, fields or None, metric).affordable(deadline)
        if not some:
            return no_member()
        found = Stack(problem, x, graph, some, how, fields or None, metric).train(deadline)
        turns = [found.networks.take(torch.arange(k, len(some) * len(folds), len(folds))) for k in range(len(folds))]
        model = StackedNetworks(
            inputs, [standard for _, standard in read], turns if by_fold else [found.networks],
            1 if by_fold else len(folds),
        )  # fmt: skip
        names = [config.name for config in some]
        kept = None if joint or needs_this_graph(inputs) else model
        local = None if joint else model

        def refit(which: list[int]) -> np.ndarray:
            again, epochs = [some[k] for k in which], found.epochs[which]
            x, _ = _input(problem, inputs, problem.labelled)
            return Stack(problem, x, graph, again, how).train(epochs=epochs).outputs[:, 0]

        return Trained(names, found.outputs, kept, found.complete and some == configs, refit, local)

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
