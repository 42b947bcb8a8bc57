"""What if: other features, an edge less, an edge of the other sign; and what the model then predicts."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from walksum.data.frames import name_list
from walksum.data.problem import Problem
from walksum.nn import GLT
from walksum.portfolio.fit import Portfolio
from walksum.precision import Precision
from walksum.solvers import CG
from walksum.workflow.trained_run import TrainedRun

ALL = "all nodes"
MOST_NAMED = 12  # categories in a message
DROP, FLIP = "drop", "flip"

Edge = tuple[int, int]


@dataclass(frozen=True)
class Changes:
    """Hypothetical changes of features and edges.

    Attributes:
        features: nodes and the class whose mean features they get instead of their own.
        values: nodes, a column of theirs, and what stands there instead.
        dropped: edges that are not there.
        flipped: edges whose coupling in J has the other sign.
    """

    features: tuple[tuple[int, str], ...] = ()
    dropped: tuple[Edge, ...] = ()
    flipped: tuple[Edge, ...] = ()
    values: tuple[tuple[int, str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.features or self.dropped or self.flipped or self.values)

    @property
    def nodes(self) -> frozenset[int]:
        """The nodes that the changes touch."""
        ends = [node for edge in (*self.dropped, *self.flipped) for node in edge]
        return frozenset([*(node for node, _ in self.features), *(node for node, _, _ in self.values), *ends])

    def with_features(self, trained: TrainedRun, name: str, kind: str) -> Changes:
        node = trained.node(name)
        if kind not in kinds(trained):
            raise ValueError(f"There is no class {kind!r}; choose one of {', '.join(kinds(trained))}.")
        mean_features(trained, kind)  # a class without nodes is known now
        kept = tuple(each for each in self.features if each[0] != node)
        return replace(self, features=(*kept, (node, kind)))

    def with_value(self, trained: TrainedRun, name: str, column: str, value: str) -> Changes:
        node = trained.node(name)
        encoded(trained, node, column, value)  # a value that cannot be is known now
        kept = tuple(each for each in self.values if each[:2] != (node, column))
        return replace(self, values=(*kept, (node, column, value)))

    def with_edge(self, trained: TrainedRun, one: str, other: str, how: str) -> Changes:
        edge = find_edge(trained, one, other)
        if how == FLIP and not isinstance(trained.model, GLT):
            raise ValueError("Only the J of a GLT can have an edge of the other sign.")
        dropped, flipped = (tuple(each for each in kept if each != edge) for kept in (self.dropped, self.flipped))
        if how == DROP:
            return replace(self, dropped=(*dropped, edge), flipped=flipped)
        return replace(self, dropped=dropped, flipped=(*flipped, edge))

    def to_json(self) -> dict[str, Any]:
        kept = {"features": self.features, "dropped": self.dropped, "flipped": self.flipped}
        return kept | ({"values": self.values} if self.values else {})


def from_json(record: dict[str, Any] | None) -> Changes:
    """The changes as the page holds them; a bad request where another program wrote them."""
    from werkzeug.exceptions import BadRequest

    try:
        known = dict(record or {})
        values = tuple((int(node), str(column), str(value)) for node, column, value in known.pop("values", ()))
        return Changes(**{name: tuple((a, b) for a, b in pairs) for name, pairs in known.items()}, values=values)
    except (AttributeError, TypeError, ValueError) as error:
        raise BadRequest("The changes are not those of the page.") from error


def kinds(trained: TrainedRun) -> list[str]:
    """The classes whose mean features a node can be given, and all nodes."""
    return [*trained.problem.classes, ALL]


def columns(trained: TrainedRun) -> list[str]:
    """The columns that can be changed at a node."""
    return trained.encoding.columns


def encoded(trained: TrainedRun, node: int, column: str, value: str) -> Tensor:
    """What a column of a node is encoded as with another value."""
    if column not in columns(trained):
        raise ValueError(f"The model reads no column {column!r}.")
    span, features, number = trained.encoding.span(column), trained.problem.features, math.nan
    kept = trained.encoding.categories.get(column)
    if kept is not None:
        if value not in kept:
            raise ValueError(
                f"{column} has no {value!r} among the training nodes; it takes {name_list(kept, MOST_NAMED)}."
            )
        return trained.encoding.encode(features.iloc[[node]].assign(**{column: [value]}))[0, span]
    with suppress(ValueError):
        number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{column} takes a number, not {value!r}.")
    if isinstance(features, Tensor):
        return torch.tensor([number])
    return trained.encoding.encode(features.iloc[[node]].assign(**{column: [number]}))[0, span]


def find_edge(trained: TrainedRun, one: str, other: str) -> Edge:
    a, b = sorted((trained.node(one), trained.node(other)))
    i, j = trained.graph.edges
    if not bool(((i == a) & (j == b)).any()):
        raise ValueError(f"There is no edge between {one!r} and {other!r}; click an edge of the drawing to name it.")
    return a, b


def edge_number(trained: TrainedRun, edge: Edge) -> int:
    i, j = trained.graph.edges
    return int(((i == edge[0]) & (j == edge[1])).nonzero()[0])


def describe(trained: TrainedRun, changes: Changes) -> list[str]:
    said = [f"node {trained.name(node)} has the mean features of {kind}" for node, kind in changes.features]
    said += [f"node {trained.name(node)} has {column} = {value}" for node, column, value in changes.values]
    for words, edges in (("without the edge", changes.dropped), ("other sign on the edge", changes.flipped)):
        said += [f"{words} {trained.name(a)} to {trained.name(b)}" for a, b in edges]
    return said


def mean_features(trained: TrainedRun, kind: str) -> Tensor:
    """The mean encoded features of a class (all nodes with that label), or of all nodes."""
    if kind == ALL:
        return trained.x.mean(0)
    members = trained.problem.y == trained.problem.classes.index(kind)
    if not bool(members.any()):
        raise ValueError(f"No node is labelled {kind!r}, so its mean features are not known.")
    return trained.x[members].mean(0)


class WhatIf:
    """The model's output under changes."""

    def __init__(self, trained: TrainedRun):
        self.trained = trained
        self._lock = threading.Lock()  # flipping hooks into the model for the length of one forward pass
        self.output = lru_cache(maxsize=16)(self._output)
        self.before = lru_cache(maxsize=16)(self._before)

    def _before(self, changes: Changes) -> Tensor:
        """Without the changes, but asked in the same way: of a portfolio, as if targets of those nodes were unknown."""
        trained = self.trained
        if not isinstance(trained.model, Portfolio):
            return trained.output
        return trained.answer(trained.x, trained.problem, changes.nodes)

    def _output(self, changes: Changes) -> Tensor:
        trained = self.trained
        x, problem = trained.x, trained.problem
        x = x.clone() if changes.features or changes.values else x
        for node, kind in changes.features:
            x[node] = mean_features(trained, kind)
        for node, column, value in changes.values:
            x[node, trained.encoding.span(column)] = encoded(trained, node, column, value)
        kept, signs = torch.ones(trained.graph.num_edges, dtype=torch.bool), torch.ones(trained.graph.num_edges)
        kept[[edge_number(trained, edge) for edge in changes.dropped]] = False
        signs[[edge_number(trained, edge) for edge in changes.flipped]] = -1
        if changes.dropped:
            problem = without_edges(problem, changes.dropped)
        turned = flipped(trained.model, signs[kept]) if changes.flipped else nullcontext()
        # ordering the elimination of a graph that is solved on once takes longer than iterating
        glt = isinstance(trained.model, GLT)
        solved = iterating(trained.model) if changes.dropped and glt else nullcontext()
        with self._lock, turned, solved:
            return trained.answer(x, problem, changes.nodes)


def without_edges(problem: Problem, dropped: tuple[Edge, ...]) -> Problem:
    """Without these edges in either direction; the others as they came, for a model may read where they lead."""
    ends, weight = problem.edge_index.sort(0).values, problem.edge_weight
    left = torch.stack([(ends != torch.tensor(edge)[:, None]).any(0) for edge in dropped]).all(0)
    weight = None if weight is None else weight[left]
    return replace(problem, edge_index=problem.edge_index[:, left], edge_weight=weight)


@contextmanager
def flipped(model: Any, signs: Tensor) -> Iterator[None]:
    """Multiply every J the model makes by signs, one per edge. |R| stays, so J stays walk-summable."""

    def turn(design: Any, inputs: Any, J: Precision) -> Precision:
        return Precision(J.graph, J.diag, J.off * signs.to(J.dtype))

    hooks = [layer.design.register_forward_hook(turn) for layer in model.mixers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def iterating(model: Any) -> Iterator[None]:
    """Let every layer solve by conjugate gradients inside the block."""
    usual = [layer.solver for layer in model.mixers]
    try:
        for layer in model.mixers:
            layer.solver = CG()
        yield
    finally:
        for layer, solver in zip(model.mixers, usual, strict=True):
            layer.solver = solver
