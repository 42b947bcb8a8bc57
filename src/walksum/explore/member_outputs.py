"""A portfolio's members at one node: outputs that have derivatives by features, and what trees make of columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from walksum.portfolio.arrays import Additive
from walksum.portfolio.blend import Blend, sharpened, softmax
from walksum.portfolio.columns import (
    ALL_OWN,
    COLUMNS,
    LABEL_SCALES,
    MOST_COLUMNS,
    NEAR_LABELS,
    SMOOTHED,
    WALK_WORDS,
    Standard,
    arc_matrices,
    carried,
    exact_diagonal,
    kinds_of_directions,
    mean_over,
    own_columns,
    smoothed_basis,
    surroundings,
)
from walksum.portfolio.deep import DeepBanks
from walksum.portfolio.features import SCALES, neighbour_mean
from walksum.portfolio.fit import Portfolio
from walksum.portfolio.kriging import Kriging
from walksum.portfolio.labels import LabelPropagation
from walksum.portfolio.problem import Problem
from walksum.portfolio.schedule import Model
from walksum.portfolio.spread import layer
from walksum.portfolio.stacked import StackedNetworks
from walksum.portfolio.tabular import Tabular, log_shares
from walksum.workflow.trained_run import TrainedRun

ARC_WORDS = "where its edges lead", "where its edges come from"


def reads_no_features(model: Model) -> bool:
    """Members of known targets and places alone: their derivative by features is zero."""
    return isinstance(model, LabelPropagation) or (isinstance(model, Kriging) and model.columns == "none")


def has_derivatives(model: Model) -> bool:
    """Networks and linear models have; trees move in jumps, and kriging on columns is not differentiated here."""
    if isinstance(model, Tabular):
        return all(each.trees is None for each in model.models)
    return isinstance(model, StackedNetworks | DeepBanks)


def member_outputs(model: Model, index: int, problem: Problem, x: Tensor) -> Tensor:
    """``[folds, N, C]`` of one member, as ``model.outputs(problem)[index]``, but differentiable in ``x [N, F]``."""
    if isinstance(model, StackedNetworks):
        return _of_stack(model.keep([index]), problem, x)
    if isinstance(model, DeepBanks):
        if model.standard is None:
            return model.answer(problem, _Table(x.float()), problem.known)
        degree = torch.log1p(problem.graph.degree.double())[:, None]
        own = x.double() if x.size(1) <= MOST_COLUMNS else _own(problem, x)
        read = _standardised(model.standard, torch.cat([own, degree], 1))
        return model.answer(problem, read, problem.known)
    assert isinstance(model, Tabular)
    read = _columns(model.columns, problem, x)
    return torch.stack([_linear(each, read, problem.classes) for each in model.models])


@dataclass(frozen=True)
class _Table:
    """What networks multiply with their first weights."""

    x: Tensor

    def times(self, weight: Tensor, p: float) -> Tensor:
        return torch.tensordot(self.x, weight, 1)


def _of_stack(model: StackedNetworks, problem: Problem, x: Tensor) -> Tensor:
    parts = []
    for standard, networks in zip(model.standards, model.turns, strict=True):
        if model.inputs in ("raw", "rows"):
            total = x.abs().sum(1, keepdim=True)
            read = x if model.inputs == "raw" else x / torch.where(total > 0, total, 1.0)
        else:
            read = _columns(model.inputs, problem, x)
        read = read.float() if standard is None else _standardised(standard, read)
        parts.append(networks.forward(_Table(read), problem.graph))  # type: ignore[arg-type]
    return torch.cat(parts)


def _standardised(standard: Standard, columns: Tensor) -> Tensor:
    mean, spread = (torch.from_numpy(np.asarray(each)) for each in (standard.mean, standard.spread))
    return ((columns - mean) / spread).float().clamp(-8, 8)


def _own(problem: Problem, x: Tensor) -> Tensor:
    """As :func:`walksum.portfolio.columns.own_columns`."""
    width = own_columns(problem).shape[1]  # which finds the basis of a wide table, if it is to be reduced
    return x.double() if width == x.size(1) else x.double() @ torch.from_numpy(problem.basis).T


def _columns(name: str, problem: Problem, x: Tensor) -> Tensor:
    """As ``COLUMNS[name]``: what depends on x is computed from it, the rest (degrees, targets) is constant."""
    if name.startswith("directions"):
        found = x.double() @ torch.from_numpy(smoothed_basis(problem)).T
        return torch.cat([carried(problem.graph, found, kind) for kind in kinds_of_directions(name)], 1)
    if name == ALL_OWN:
        return x.double()
    own = _own(problem, x)
    if name == "x":
        return own
    if name == "smoothed":
        return layer(SMOOTHED)(own, problem.graph)
    constant = torch.from_numpy(np.ascontiguousarray(COLUMNS[name](problem, problem.known), dtype=np.float64))
    F, mean, graph = own.size(1), _matrix(neighbour_mean(problem.graph)), problem.graph
    near = torch.sparse.mm(mean, own)
    moving = {0: own, F + 1: near, 2 * F + 1: torch.sparse.mm(mean, near)}  # by the first column; F: the degree
    moving |= {(3 + k) * F + 1: layer((s, False))(own, graph) for k, s in enumerate(SCALES)}
    last = surroundings(problem).shape[1]
    for k, arcs in enumerate(arc_matrices(problem)):  # directed means, each followed by a column of degrees
        moving[last - (2 - k) * (F + 1)] = torch.sparse.mm(_matrix(mean_over(arcs)), own)
    parts, place = [], 0
    for first, part in sorted(moving.items()):
        parts += [constant[:, place:first], part]
        place = first + F
    return torch.cat([*parts, constant[:, place:]], 1)


def _matrix(A: sp.spmatrix) -> Tensor:
    A = A.tocoo()
    where = torch.from_numpy(np.stack([A.row, A.col]).astype(np.int64))
    return torch.sparse_coo_tensor(where, torch.from_numpy(A.data), A.shape, check_invariants=False)


def _linear(model: Additive, columns: Tensor, classes: int) -> Tensor:
    """As ``log_shares(model(X))``."""
    assert model.weight is not None
    if model.limits is not None:
        columns = columns.clamp(*torch.from_numpy(model.limits))
    score = torch.from_numpy(model.start) + columns @ torch.from_numpy(np.ascontiguousarray(model.weight))
    if not classes:
        return score
    if model.link == "sigmoid":
        score = torch.cat([torch.zeros_like(score), score], 1)
    share = torch.full((len(columns), classes), 1e-4, dtype=score.dtype)
    share = share.index_add(1, torch.from_numpy(model.codes), score.softmax(1))
    return (share / share.sum(1, keepdim=True)).log()


@dataclass(frozen=True)
class ColumnEffect:
    """One column as trees read it.

    Attributes:
        name: what it holds.
        value: at the node.
        effect: by how much the blend falls if the column has its mean there instead; in standardised units of a
            number, or in probability of ``own``.
    """

    name: str
    value: float
    effect: float


def column_effects(
    trained: TrainedRun, portfolio: Portfolio, problem: Problem, blend: Blend, node: int, own: int
) -> list[ColumnEffect]:
    """Of all members of trees together, the largest first; every column is changed by itself, all others as they are.

    Args:
        problem: the run as the members read it.
        own: the class whose probability is looked at; 0 of a number.
    """
    effects: dict[str, float] = {}
    values: dict[str, float] = {}
    for k in np.flatnonzero(blend.weights):
        member = portfolio.members[k]
        if not isinstance(member.model, Tabular) or all(each.trees is None for each in member.model.models):
            continue
        X = COLUMNS[member.model.columns](problem, problem.known)
        rows = np.tile(X[node], (X.shape[1] + 1, 1))  # the last one is as it is
        rows[np.arange(X.shape[1]), np.arange(X.shape[1])] = X.mean(0)
        found = np.stack([log_shares(each(rows), each.codes, problem.classes) for each in member.model.models])
        if problem.classes:
            found = sharpened(softmax(found)[None], blend.powers[[k]])[0]
        out = blend.weights[k] * found.mean(0)[:, own]
        for name, value, effect in zip(
            column_names(trained, problem, member.model.columns), X[node], out[-1] - out[:-1], strict=True
        ):
            effects[name] = effects.get(name, 0.0) + float(effect)
            values[name] = float(value)
    order = sorted(effects, key=lambda name: -abs(effects[name]))
    return [ColumnEffect(name, values[name], effects[name]) for name in order]


def column_names(trained: TrainedRun, problem: Problem, columns: str) -> list[str]:
    """In words, in the order of ``COLUMNS[columns]``."""
    if columns == ALL_OWN:
        return feature_names(trained, problem.X.shape[1])
    own = feature_names(trained, own_columns(problem).shape[1])
    if columns == "x":
        return own
    if columns.startswith("directions"):
        return [
            f"direction {k + 1} of the surroundings, {WALK_WORDS[kind]}"
            for kind in kinds_of_directions(columns) for k in range(len(smoothed_basis(problem)))
        ]  # fmt: skip
    if columns == "smoothed":
        return [f"{name}: spread, scale {SMOOTHED[0]:g}" for name in own]
    if columns == "neighbours":
        return [*own, *(f"{name}: mean of its neighbours" for name in own), "log of the degree", *_amounts(problem)]
    names = [*own, "log of the degree"]
    for words in ("mean of its neighbours", "mean two hops away", *(f"spread, scale {s:g}" for s in SCALES)):
        names += [f"{name}: {words}" for name in own]
    if exact_diagonal(problem):
        names += [f"return of a walk, scale {s:g}" for s in (0.5, 0.9)]
    names += _amounts(problem)
    if problem.arcs is not None:
        for words in ARC_WORDS:
            names += [*(f"{name}: mean {words}" for name in own), f"log of the number {words}"]
    if columns == "surroundings":
        return names
    along = list[str]()
    targets = trained.problem.classes if problem.classes else [f"known {trained.problem.target}"]
    near = [*(f"{name} of its neighbours" for name in targets), "share of neighbours with a known target"]
    for words in ARC_WORDS if problem.arcs is not None and problem.arc_targets else ():
        along += [*(f"{name} {words}" for name in targets), f"share with a known target {words}"]
    if columns == NEAR_LABELS:
        far = [*(f"{name} two hops away" for name in targets), "share of nodes two hops away with a known target"]
        return names + near + far + along
    return names + [f"{name} of others, scale {s:g}" for s in LABEL_SCALES for name in targets] + near + along


def _amounts(problem: Problem) -> list[str]:
    """The names of :func:`walksum.portfolio.columns.amounts`."""
    if problem.unit is None:
        return []
    which = [""] if problem.arcs is None else [" that leave", " that arrive"]
    return [f"log of the sum of weights{each}" for each in which]


def feature_names(trained: TrainedRun, width: int) -> list[str]:
    names = trained.encoding.feature_names
    return names if len(names) == width else [f"direction {k + 1} of the features" for k in range(width)]
