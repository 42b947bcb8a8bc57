"""The whole model's influence: how one node's prediction moves with the features of every node, by one gradient."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from walksum.analysis.influence import shares
from walksum.explore.member_outputs import (
    ColumnEffect,
    column_effects,
    has_derivatives,
    member_outputs,
    reads_no_features,
)
from walksum.portfolio.blend import Blend
from walksum.portfolio.fit import ELSEWHERE, WITHOUT_TARGETS, Portfolio
from walksum.portfolio.problem import Problem
from walksum.workflow.auto import as_portfolio_problem
from walksum.workflow.job import smoothed
from walksum.workflow.trained_run import TrainedRun

STEP = 1e-4  # of a standardised number, for the slope of its units


@dataclass(frozen=True)
class WholeInfluence:
    r"""Derivatives of q, the prediction of one node: a number in its units, or the log-odds of the predicted class.

    Attributes:
        node: whose prediction.
        size: :math:`\sum_f |\partial q / \partial x_{uf}|` for every node u ``[N]``.
        adds: :math:`\sum_f (x_{uf} - \bar x_f)\, \partial q / \partial x_{uf}` ``[N]``: to first order, how much q
            would fall if the node had mean features.
        covered: the share of the model's weight whose derivatives these are; 1 of a single network.
        left_out: members without derivatives, the heaviest first, and their weights.
    """

    node: int
    size: np.ndarray
    adds: np.ndarray
    covered: float = 1.0
    left_out: tuple[tuple[str, float], ...] = ()

    @property
    def share(self) -> np.ndarray:
        return shares(self.size)


class WholeModel:
    """A trained model as a function of all features: one forward pass, kept, and one backward pass per node."""

    def __init__(self, trained: TrainedRun):
        self.trained = trained
        self._lock = threading.Lock()  # the kept graph of the forward pass is walked by one request at a time

    def influence(self, node: int) -> WholeInfluence:
        """Each linear system of the model is solved once more, for its derivative."""
        with self._lock, torch.enable_grad():
            x, output, covered, left_out = self._forward
            q = _prediction(self.trained, output[node], node)
            slope = torch.zeros_like(x)
            if q.requires_grad:
                (slope,) = torch.autograd.grad(q, x, retain_graph=True)
        if not bool(torch.isfinite(slope).all()):
            raise ValueError("The gradient of the model holds NaN or infinity: its training diverged.")
        moved = slope.double() * (x.detach() - x.detach().mean(0)).double()
        return WholeInfluence(node, slope.double().abs().sum(1).numpy(), moved.sum(1).numpy(), covered, left_out)

    def columns(self, node: int) -> list[ColumnEffect]:
        """What the trees of a portfolio make of each column they read, in the target's units or in probability."""
        trained, portfolio = self.trained, self.trained.model
        if not isinstance(portfolio, Portfolio):
            return []
        problem, blend = self._asked
        own = 0 if trained.problem.regression else int(trained.prediction[node])
        found = column_effects(trained, portfolio, problem, blend, node, own)
        if not trained.problem.regression:
            return found
        unit = _slope(trained, float(trained.encoding.standardise(trained.prediction[[node]].astype(np.float64))[0]))
        return [replace(each, effect=each.effect * unit) for each in found]

    @cached_property
    def _asked(self) -> tuple[Problem, Blend]:
        """The run as the members of a portfolio read it, and how they are blended for it."""
        trained, portfolio = self.trained, self.trained.model
        assert isinstance(portfolio, Portfolio)
        known = replace(trained.problem, y=trained.known_y)
        problem = as_portfolio_problem(portfolio, known, trained.x, trained.encoding)
        which = ELSEWHERE if len(problem.known) and ELSEWHERE in portfolio.blends else WITHOUT_TARGETS
        return problem, portfolio.blends[which]

    @cached_property
    def _forward(self) -> tuple[Tensor, Tensor, float, tuple[tuple[str, float], ...]]:
        trained = self.trained
        x = trained.x.detach().clone().requires_grad_()
        if isinstance(trained.model, Portfolio):
            return x, *_blended(trained, trained.model, x, *self._asked)
        return x, smoothed(trained.model, trained.encoding.smoothing).eval()(x, trained.edges), 1.0, ()


def _prediction(trained: TrainedRun, output: Tensor, node: int) -> Tensor:
    """q of a node's ``output [C]``: its number in the target's units, or the log-odds of its class."""
    if trained.problem.regression:
        return output.reshape(-1)[0] * _slope(trained, float(output.detach().reshape(-1)[0]))
    score = output / trained.encoding.temperature
    own = int(trained.prediction[node])
    others = torch.cat([score[:own], score[own + 1 :]])
    return score[own] - others.logsumexp(0)


def _slope(trained: TrainedRun, value: float) -> float:
    """Of the target's units by a standardised number."""
    uncut = replace(trained.encoding, target_ends=[None, None])  # at an end of the target half a step would be cut
    low, high = uncut.in_units(np.array([value - STEP, value + STEP]))
    return float(high - low) / (2 * STEP)


def _blended(
    trained: TrainedRun, portfolio: Portfolio, x: Tensor, problem: Problem, blend: Blend
) -> tuple[Tensor, float, tuple]:
    """The blend's numbers or log-probabilities ``[N, C]``, in which members without derivatives are constant."""
    classes = problem.classes
    now = torch.from_numpy(portfolio.ask(problem, trained.residuals).value).double().reshape(problem.num_nodes, -1)
    moving, covered, left_out = torch.zeros_like(now), 0.0, []
    for k in np.argsort(-blend.weights, kind="stable")[: int((blend.weights > 0).sum())].tolist():
        member, weight = portfolio.members[k], float(blend.weights[k])
        assert member.model is not None
        if has_derivatives(member.model):
            out = member_outputs(member.model, member.index, problem, x).double()  # [folds, N, C]
            if classes:  # as the blend sharpens them
                out = ((out.softmax(-1) + 1e-5).log() * float(blend.powers[k])).softmax(-1)
            moving = moving + weight * out.mean(0)
        elif not reads_no_features(member.model):
            left_out.append((member.name, weight))
            continue
        covered += weight
    blended = now + moving - moving.detach()
    return blended.clamp_min(1e-12).log() if classes else blended, covered, tuple(left_out)
