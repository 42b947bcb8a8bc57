"""Gaussian processes on a table and its graph: a covariance of columns and of entries of the operator's inverse."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from walksum.analysis.inverse import units
from walksum.portfolio import clock
from walksum.portfolio.columns import COLUMNS, Standard
from walksum.portfolio.kriging import STEPS, conditional_mean, matern, most_likely, square_distance
from walksum.portfolio.problem import Problem, once
from walksum.portfolio.spread import layer
from walksum.solving import solve

SCALES = (0.8, 0.95, 0.995)  # of the operators: near, farther and far neighbours
POWERS = (1, 2, 2)  # of their inverses: what reaches far is smooth
MOST_NODES, MOST_ROWS = 5000, 3000  # covariances are dense: all nodes by known rows, and a factorisation of the latter
WIDTH = 0.25  # standard deviation of the logarithm of a parameter, before the data speak: a wider one overfits
ENOUGH = 0.3  # of the steps: the first ones gain most
FURTHER = 10  # steps from the first fold's parameters, which are near those of any other
LONGER = 0.5  # of its share, that a process may take beyond it: some of its folds alone are worth nothing
FEW = 32  # columns of an inverse whose time tells that of all
ROWS = 800  # that the parameters are fitted to: an evaluation is cubic in them
MIDDLE = (0.25, 0.7, 0.5, 0.3, *3 * [0.35], *3 * [0.2])  # n, s_0, s_1, s_2, g_k, c_k, for a target of variance one


class _Table:
    r"""A Gaussian process on columns ``x``, of which ``u`` are a node's own, and a graph.

    .. math:: k = s_0^2 M(|(x - x') / l|) + s_1^2 M(|(u - u') / m|) + s_2^2 x^T x' / F
                  + \sum_k (g_k^2 + c_k^2 u^T u' / U) (I - a_k D^{-1/2} A D^{-1/2})^{-p_k}_{ij} / d_k + 1 + n^2 [i = j]

    M is the Matern covariance of smoothness 5/2, d_k the mean diagonal at known rows, U the number of own columns. A
    power p_k of 2 makes a smoother field (alpha = 2 of Lindgren et al. 2011). c_k lets the own columns' coefficients
    vary over the graph (Gelfand et al. 2003): what a column means may differ between regions. Parameters are the
    logarithms of ``n, s, g, c, l, m``. It needs the entries of the inverses at all known rows, so no other graph is
    predicted by it.
    """

    def __init__(self, problem: Problem, columns: str):
        known = problem.labelled
        values = COLUMNS[columns](problem, known)
        self.x = torch.from_numpy(Standard.of(values)(values)).double()
        self.own = problem.X.shape[1]  # they come first among all sets of columns
        self.y = torch.from_numpy(problem.y)
        self.place = torch.zeros(problem.num_nodes, dtype=torch.int64)  # of a known row among those
        self.place[torch.from_numpy(known)] = torch.arange(len(known))
        self.graph = _inverse_columns(problem)

    def prior(self) -> Tensor:
        lengths = [self.x.size(1) ** 0.5] * self.x.size(1) + [1.5 * self.own**0.5] * self.own
        return torch.log(torch.tensor([*MIDDLE, *lengths], dtype=torch.float64))

    def covariance(self, theta: Tensor, rows: Tensor, known: Tensor) -> Tensor:
        s, F = theta.exp(), self.x.size(1)
        x, z, first, count = self.x[rows], self.x[known], len(MIDDLE), len(SCALES)
        u, v = x[:, : self.own], z[:, : self.own]
        K = s[1] ** 2 * _smooth(x, z, s[first : first + F]) + s[3] ** 2 * (x @ z.T) / F + 1.0
        K = K + s[2] ** 2 * _smooth(u, v, s[first + F :])
        alike = u @ v.T / self.own
        for g, c, C in zip(s[4 : 4 + count], s[4 + count : first], self.graph, strict=True):
            K = K + (g**2 + c**2 * alike) * C[rows[:, None], self.place[known]]
        return K

    def with_noise(self, theta: Tensor, known: Tensor) -> Tensor:
        noise = (2 * theta[0]).exp() + 1e-6
        return self.covariance(theta, known, known) + noise * torch.eye(len(known), dtype=theta.dtype)

    def fit(self, train: np.ndarray, seed: int, start: np.ndarray | None, until: float) -> np.ndarray:
        if len(train) > ROWS:
            train = np.random.default_rng(seed).choice(train, ROWS, replace=False)
        rows, prior = torch.from_numpy(train), self.prior()
        first, steps = (prior.numpy(), STEPS) if start is None else (start, FURTHER)
        covariance = partial(self.with_noise, known=rows)
        return most_likely(covariance, self.y[rows], prior, WIDTH, first, steps, until)[1]

    def seconds(self, problem: Problem) -> float:
        """About how long all folds take at least, by the time of one evaluation; derivatives cost twice as much."""
        rows = torch.from_numpy(problem.folds[0][0])
        some, folds = rows[:ROWS], len(problem.folds)
        start = clock.now()
        with torch.no_grad():
            torch.linalg.cholesky(self.with_noise(self.prior(), some))
        each = clock.now() - start
        answers = len(rows) * (len(self.x) + len(rows)) / len(some) ** 2  # entries of covariances, in evaluations
        return each * (3 * ENOUGH * (STEPS + FURTHER * (folds - 1)) + folds * answers)

    def predict(self, values: np.ndarray, known: np.ndarray) -> np.ndarray:
        """The conditional mean at every node ``[N, 1]``, at ``known`` ones from all others."""
        theta, rows = torch.from_numpy(values), torch.from_numpy(known)
        with torch.no_grad():
            cross = self.covariance(theta, torch.arange(len(self.x)), rows)
            return conditional_mean(self.with_noise(theta, rows), cross, rows, self.y[rows])


def _smooth(x: Tensor, z: Tensor, lengths: Tensor) -> Tensor:
    return matern((square_distance(x / lengths, z / lengths) + 1e-12).sqrt(), 2.5)


@once("inverse columns")
def _inverse_columns(problem: Problem) -> list[Tensor]:
    """Columns of the inverses' powers at known rows ``[N, n]``, their diagonal about one."""
    rows, found = torch.from_numpy(problem.labelled), []
    with torch.no_grad():
        for scale, power in zip(SCALES, POWERS, strict=True):
            J = layer((scale, False)).precision(problem.graph.to("cpu"), torch.float64)
            C = units(problem.num_nodes, rows)
            for _ in range(power):
                C = solve(J, C)
            found.append(C / C[rows, torch.arange(len(rows))].mean())
    return found


@once("inverse seconds")
def _inverse_seconds(problem: Problem) -> float:
    """About how long those columns take, by a few of them; on a dense graph minutes."""
    J = layer((SCALES[-1], False)).precision(problem.graph.to("cpu"), torch.float64)
    some = torch.eye(problem.num_nodes, min(FEW, problem.num_nodes), dtype=torch.float64)
    with torch.no_grad():
        solve(J, some)  # prepares
        start = clock.now()
        solve(J, some)
    return (clock.now() - start) * len(problem.labelled) / some.size(1) * sum(POWERS)


def fit_process(problem: Problem, columns: str, deadline: float) -> tuple[np.ndarray, bool] | None:
    """Outputs ``[folds, N, 1]`` by parameters of the largest posterior, each fold's own; None if time ran out.

    Where time is short each fold takes fewer steps, and the second answer is False.
    """
    last = deadline + LONGER * (deadline - clock.now())
    if clock.now() + _inverse_seconds(problem) > last:
        return None
    table = _Table(problem, columns)
    if clock.now() + table.seconds(problem) > last:
        return None
    found: list[np.ndarray] = []
    folds = []
    steps = [STEPS] + [FURTHER] * (len(problem.folds) - 1)
    for k, (train, _) in enumerate(problem.folds):
        now = clock.now()
        if now > last:  # the machine has become busy
            return None
        until = now + (deadline - now) * steps[k] / sum(steps[k:])
        found.append(table.fit(train, problem.seed, found[0] if found else None, until))
        folds.append(table.predict(found[-1], train))
    return np.stack(folds), clock.now() < deadline


def suits(problem: Problem) -> bool:
    """Numbers on a narrow table with edges, few enough for dense covariances."""
    few = problem.num_nodes <= MOST_NODES and len(problem.labelled) <= MOST_ROWS
    return few and not problem.classes and not problem.wide and problem.graph.num_edges > 0
