"""Kriging members: the known targets of other places, weighed by a covariance of distance and of columns."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walksum.portfolio import clock
from walksum.portfolio.arrays import Arrays
from walksum.portfolio.problem import Problem

SMOOTHNESS = (0.5, 1.5, 2.5)  # of the Matern covariance
FITTED = 500  # rows that the parameters are fitted to: an evaluation is cubic in them
EXACT = 2000  # known rows up to which all are conditioned on; beyond, the nearest
NEAREST = 64
STEPS = 60
PRIOR = 2.0  # standard deviation of the logarithm of a parameter: a weak prior, for tables of a hundred rows
NOISY = np.log([0.95, 0.2])  # noise and size of the field that a second search starts from
MOST_LENGTHS = 30  # columns that may have lengths of their own
BROAD = 10.0  # standard deviation of the constant, in units of the target's


@dataclass
class Kriging:
    r"""A Gaussian process on places ``p`` and, if asked for, columns ``x``; one set of parameters per fold.

    .. math:: k = s_0^2 M_\nu(|p - p'| / l_0) + s_1^2 M_{5/2}(|(x - x') / l|) + s_2^2 x^T x' / F + c^2 + n^2 [i = j]

    Nothing of the training table is kept but the parameters: another table is predicted from its own known targets.

    Attributes:
        columns: how x is read: "none" of its terms, "one" length l for all columns, or one for "each".
        smoothness: :math:`\nu`.
        parameters: logarithms of ``n, s_0, l_0, s_1, s_2, l``, ``[folds, 3]``, ``[folds, 6]`` or ``[folds, 5 + F]``.
    """

    columns: str
    smoothness: float
    parameters: np.ndarray

    def outputs(self, problem: Problem) -> np.ndarray:
        """``[1, folds, N, 1]`` for another table."""
        return np.stack([self._predict(problem, problem.known, fold) for fold in range(len(self.parameters))])[None]

    def keep(self, which: list[int]) -> Kriging:
        return self

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {"columns": self.columns, "smoothness": self.smoothness}, {"parameters": self.parameters}

    @classmethod
    def of_state(cls, config: dict[str, Any], arrays: Arrays) -> Kriging:
        return cls(str(config["columns"]), float(config["smoothness"]), arrays["parameters"])

    def _predict(self, problem: Problem, known: np.ndarray, fold: int) -> np.ndarray:
        """The conditional mean at every node ``[N, 1]``, at ``known`` ones from all others."""
        p, x = _inputs(problem, self.columns)
        theta, y = torch.from_numpy(self.parameters[fold]), torch.from_numpy(problem.y[known])
        covariance = _Covariance(self.smoothness, theta)
        with torch.no_grad():
            if len(known) > EXACT:
                return _from_nearest(covariance, p, x, known, y)
            rows = torch.from_numpy(known)
            K = covariance(p[rows], x[rows], p[rows], x[rows]) + covariance.noise * torch.eye(len(known))
            return conditional_mean(K, covariance(p, x, p[rows], x[rows]), rows, y)


class _Covariance:
    """k of two sets of rows; its parameters may need gradients."""

    def __init__(self, smoothness: float, theta: Tensor):
        self.smoothness, self.scale = smoothness, theta.exp()
        self.noise = self.scale[0] ** 2 + 1e-6

    def __call__(self, p: Tensor, x: Tensor, q: Tensor, z: Tensor) -> Tensor:
        s = self.scale
        K = s[1] ** 2 * matern(_distance(p, q) / s[2], self.smoothness) + BROAD**2
        if len(s) > 3:
            K = K + s[3] ** 2 * matern(_distance(x / s[5:], z / s[5:]), 2.5)
            K = K + s[4] ** 2 * (x @ z.transpose(-1, -2)) / max(1, x.size(-1))
        return K


def conditional_mean(K: Tensor, cross: Tensor, rows: Tensor, y: Tensor) -> np.ndarray:
    """The mean at every node ``[N, 1]`` given ``y`` at ``rows``; at each of these given the others.

    ``K [n, n]``: covariance of the ``rows`` with noise; ``cross [N, n]``: of all nodes with them.
    """
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(K))
    alpha = inverse @ y
    mean = cross @ alpha
    mean[rows] = y - alpha / inverse.diagonal()  # leave-one-out
    return mean.numpy()[:, None]


def _distance(a: Tensor, b: Tensor) -> Tensor:
    square = (a.unsqueeze(-2) - b.unsqueeze(-3)).square().sum(-1) if a.size(-1) <= 3 else square_distance(a, b)
    return (square + 1e-18).sqrt()


def square_distance(a: Tensor, b: Tensor) -> Tensor:
    """``[..., n, m]`` of rows ``[..., n, F]`` and ``[..., m, F]``."""
    cross = a @ b.transpose(-1, -2)
    return (a.square().sum(-1)[..., None] + b.square().sum(-1)[..., None, :] - 2 * cross).clamp_min(0)


def matern(r: Tensor, smoothness: float) -> Tensor:
    if smoothness == 0.5:
        return torch.exp(-r)
    if smoothness == 1.5:
        return (1 + 3**0.5 * r) * torch.exp(-(3**0.5) * r)
    return (1 + 5**0.5 * r + 5 * r**2 / 3) * torch.exp(-(5**0.5) * r)


def _inputs(problem: Problem, columns: str) -> tuple[Tensor, Tensor]:
    assert problem.position is not None
    x = np.asarray(problem.X) if columns != "none" else np.zeros((problem.num_nodes, 0))
    return torch.from_numpy(problem.position), torch.from_numpy(x)


def _from_nearest(covariance: _Covariance, p: Tensor, x: Tensor, known: np.ndarray, y: Tensor) -> np.ndarray:
    """Each row from its nearest known places other than itself."""
    from scipy.spatial import cKDTree

    _, near = cKDTree(p[known].numpy()).query(p.numpy(), NEAREST + 1)
    own = known[near] == np.arange(len(p))[:, None]
    own[:, -1] |= ~own.any(1)  # without itself among them, the farthest is left out
    near = torch.from_numpy(near[~own].reshape(len(p), NEAREST))
    q, z, mean = p[known], x[known], torch.zeros(len(p), 1, dtype=torch.float64)
    for at in torch.arange(len(p)).split(500):
        a, b, rows = q[near[at]], z[near[at]], near[at]
        K = covariance(a, b, a, b) + covariance.noise * torch.eye(NEAREST)
        to = covariance(p[at, None], x[at, None], a, b)
        mean[at] = (to @ torch.linalg.solve(K, y[rows].unsqueeze(-1)))[:, 0]
    return mean.numpy()


def fit_kriging(problem: Problem, columns: str, deadline: float) -> tuple[np.ndarray, Kriging] | None:
    """Outputs ``[folds, N, 1]`` and the parameters, by their likelihood with weak priors; None if time ran out."""
    found: list[np.ndarray] = []
    smoothness = SMOOTHNESS[0]
    for k, (train, _) in enumerate(problem.folds):
        if clock.now() > deadline:
            return None
        if k == 0:
            tried = [(*_fit(problem, columns, train, each, None), each) for each in SMOOTHNESS]
            _, theta, smoothness = min(tried, key=lambda one: one[0])
            tried += [(*_fit(problem, columns, train, smoothness, None, noisy=True), smoothness)]
            _, theta, smoothness = min(tried, key=lambda one: one[0])
        else:
            _, theta = _fit(problem, columns, train, smoothness, found[0])
        found.append(theta)
    model = Kriging(columns, smoothness, np.stack(found))
    folds = [model._predict(problem, train, k) for k, (train, _) in enumerate(problem.folds)]
    return np.stack(folds), model


def _fit(
    problem: Problem, columns: str, train: np.ndarray, smoothness: float, start: np.ndarray | None, noisy: bool = False
) -> tuple[float, np.ndarray]:
    """Minus the log-posterior of the parameters at its least, and where that is."""
    if len(train) > FITTED:
        train = np.random.default_rng(problem.seed).choice(train, FITTED, replace=False)
    p, x = (each[torch.from_numpy(train)] for each in _inputs(problem, columns))
    y, eye = torch.from_numpy(problem.y[train]), torch.eye(len(train), dtype=torch.float64)
    spread = float(_distance(p, p).median()) or 1.0
    middle = [0.5, 0.7, 0.3 * spread]
    if columns != "none":
        middle += [0.5, 0.7] + [float(_distance(x, x).median()) or 1.0] * (1 if columns == "one" else x.size(1))
    prior = torch.log(torch.tensor(middle, dtype=torch.float64))

    def covariance(theta: Tensor) -> Tensor:
        k = _Covariance(smoothness, theta)
        return k(p, x, p, x) + k.noise * eye

    first = prior.numpy().copy() if start is None else start
    if noisy:
        first[: len(NOISY)] = NOISY
    return most_likely(covariance, y, prior, PRIOR, first)


def most_likely(
    covariance: Callable[[Tensor], Tensor],
    y: Tensor,
    prior: Tensor,
    width: float,
    start: np.ndarray,
    steps: int = STEPS,
    until: float = float("inf"),
) -> tuple[float, np.ndarray]:
    """Minus the log-posterior at its least and where that is; each parameter is a logarithm, ``N(prior, width^2)``.

    What the descent has found ``until`` then is kept.
    """
    from scipy.optimize import minimize

    best = (np.inf, start)

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best
        if clock.now() > until and np.isfinite(best[0]):
            raise TimeoutError
        theta = torch.tensor(values, requires_grad=True)
        L, info = torch.linalg.cholesky_ex(covariance(theta))
        if int(info):
            return 1e10, np.zeros_like(values)
        half = torch.linalg.solve_triangular(L, y[:, None], upper=False)
        value = 0.5 * half.square().sum() + L.diagonal().log().sum()
        value = value + 0.5 * ((theta - prior) / width).square().sum()
        value.backward()
        assert theta.grad is not None
        best = min(best, (float(value.detach()), values.copy()), key=lambda each: each[0])
        return float(value.detach()), theta.grad.numpy()

    bounds = [(m - 7, m + 7) for m in prior.tolist()]
    first = np.clip(start, [low for low, _ in bounds], [high for _, high in bounds])
    with suppress(TimeoutError):
        found = minimize(loss, first, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps})
        best = float(found.fun), found.x
    return best
