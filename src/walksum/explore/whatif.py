"""What if: other features, an edge less, an edge of the other sign; and what the model then predicts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from walksum.precision import Precision
from walksum.solvers import CG
from walksum.workflow.fit import predict
from walksum.workflow.trained_run import TrainedRun

ALL = "all nodes"
DROP, FLIP = "drop", "flip"

Edge = tuple[int, int]


@dataclass(frozen=True)
class Changes:
    """What is imagined to be different.

    Attributes:
        features: nodes and the class whose mean features they get instead of their own.
        dropped: edges that are not there.
        flipped: edges whose coupling in J has the other sign.
    """

    features: tuple[tuple[int, str], ...] = ()
    dropped: tuple[Edge, ...] = ()
    flipped: tuple[Edge, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.features or self.dropped or self.flipped)

    def with_features(self, trained: TrainedRun, name: str, kind: str) -> Changes:
        node = trained.node(name)
        if kind not in kinds(trained):
            raise ValueError(f"There is no class {kind!r}; choose one of {', '.join(kinds(trained))}.")
        kept = tuple(each for each in self.features if each[0] != node)
        return replace(self, features=(*kept, (node, kind)))

    def with_edge(self, trained: TrainedRun, one: str, other: str, how: str) -> Changes:
        edge = find_edge(trained, one, other)
        dropped, flipped = (tuple(each for each in kept if each != edge) for kept in (self.dropped, self.flipped))
        if how == DROP:
            return replace(self, dropped=(*dropped, edge), flipped=flipped)
        return replace(self, dropped=dropped, flipped=(*flipped, edge))

    def to_json(self) -> dict[str, Any]:
        return {"features": self.features, "dropped": self.dropped, "flipped": self.flipped}


def from_json(record: dict[str, Any] | None) -> Changes:
    """The changes as the page holds them; a bad request where another program wrote them."""
    from werkzeug.exceptions import BadRequest

    try:
        return Changes(**{name: tuple((a, b) for a, b in values) for name, values in (record or {}).items()})
    except (AttributeError, TypeError, ValueError) as error:
        raise BadRequest("The changes are not those of the page.") from error


def kinds(trained: TrainedRun) -> list[str]:
    """Whose mean features a node may be given."""
    return [*trained.problem.classes, ALL]


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

    def _output(self, changes: Changes) -> Tensor:
        trained = self.trained
        x, problem = trained.x, trained.problem
        if changes.features:
            x = x.clone()
            for node, kind in changes.features:
                x[node] = mean_features(trained, kind)
        edges, weight = trained.graph.edges, trained.graph.edge_weight
        kept, signs = torch.ones(edges.size(1), dtype=torch.bool), torch.ones(edges.size(1))
        kept[[edge_number(trained, edge) for edge in changes.dropped]] = False
        signs[[edge_number(trained, edge) for edge in changes.flipped]] = -1
        if changes.dropped:
            weight = None if weight is None else weight[kept]
            problem = replace(problem, edge_index=edges[:, kept], edge_weight=weight)
        turned = flipped(trained.model, signs[kept]) if changes.flipped else nullcontext()
        # ordering the elimination of a graph that is solved on once takes longer than iterating
        solved = iterating(trained.model) if changes.dropped else nullcontext()
        with self._lock, turned, solved:
            return predict(trained.model, x, problem, trained.encoding)


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
    """Every layer solves by conjugate gradients for a while."""
    usual = [layer.solver for layer in model.mixers]
    try:
        for layer in model.mixers:
            layer.solver = CG()
        yield
    finally:
        for layer, solver in zip(model.mixers, usual, strict=True):
            layer.solver = solver
