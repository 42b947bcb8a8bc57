r"""Mean and field together: a network trained while its residuals are one draw of a Gaussian field on the graph.

With the field's covariance C, :math:`K = C_{tt} + \sigma^2 I` at the training rows t and residuals
:math:`r = y_t - f(x_t)`, the loss is :math:`r^T K^{-1} r` and a prediction :math:`f(x) + C_{\cdot t} K^{-1} r`. The
field's three numbers are fitted by evidence to the residuals of a linear model before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from walksum.analysis.inverse import units
from walksum.field.fit import residual_precision
from walksum.portfolio.problem import Fold, Problem
from walksum.portfolio.residual import residual_field
from walksum.solving import solve

LARGEST = 5000  # nodes: the covariance at the training rows is a dense matrix


@dataclass(frozen=True)
class KnownField:
    r"""The field of one fold's residuals.

    Attributes:
        train: rows whose targets are known ``[n]``, and those targets ``y [n]``.
        inverse: :math:`K^{-1}` ``[n, n]``.
        covariance: :math:`C_{\cdot t}` ``[N, n]``.
    """

    train: Tensor
    y: Tensor
    inverse: Tensor
    covariance: Tensor

    @classmethod
    def of(cls, problem: Problem, columns: np.ndarray, fold: Fold) -> KnownField:
        train = fold[0]
        target = problem.y[train]
        field = residual_field(problem.graph, train, target - _linear(columns[train], target))
        J = residual_precision(problem.graph.to("cpu"), field.a, field.precision)
        rows = torch.from_numpy(train)
        with torch.no_grad():
            covariance = solve(J, units(problem.num_nodes, rows))
        noise = max(field.noise, 1e-6) * torch.eye(len(rows), dtype=torch.float64)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(covariance[rows] + noise))
        y = torch.from_numpy(target).float()
        return cls(*(each.to(problem.device) for each in (rows, y, inverse.float(), covariance.float())))

    def loss(self, out: Tensor, place: Tensor) -> Tensor:
        """Of all networks together, as large as a squared error; ``out [M, rows]``, ``place``: where the training rows
        stand in it."""
        r = self.y - out[:, place]
        return ((r @ self.inverse) * r).mean(1).sum() / self.inverse.diagonal().mean()

    def predict(self, out: Tensor, place: Tensor, rows: Tensor) -> Tensor:
        """``[M, rows]``: the networks' values and what the known residuals say about these rows; a training row's
        own residual is left out."""
        found = (self.y - out[:, place]) @ self.inverse
        value = out + found @ self.covariance[rows].T
        value[:, place] = self.y - found / self.inverse.diagonal()
        return value


def _linear(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    from sklearn.linear_model import RidgeCV

    return RidgeCV(np.logspace(0, 4, 9)).fit(X, y).predict(X)
