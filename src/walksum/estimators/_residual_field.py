"""A Gaussian field of residuals on a graph, fitted by its evidence; exact, by the sparse factor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize

from walksum.graph import Graph
from walksum.nn.propagate import _build
from walksum.precision import Precision
from walksum.solvers import Direct

LEVEL_95 = 1.959964
SOLVER = Direct(max_operations=2e10)


@dataclass(frozen=True)
class ResidualField:
    r"""Residuals :math:`r = u + e`, :math:`u \sim N(0, (c J)^{-1})`, :math:`J = I - a D^{-1/2} A D^{-1/2}`,
    :math:`e \sim N(0, (c t)^{-1})`, conditioned on those that are known.

    Attributes:
        mean: of u at every node ``[N, C]``.
        std: of a new residual u + e at every node ``[N]``, calibrated by the exact leave-one-out errors.
        held_out: leave-one-out prediction of each known residual ``[n, C]``.
    """

    mean: np.ndarray
    std: np.ndarray
    held_out: np.ndarray
    scale: float
    nugget: float
    precision: float
    calibration: float
    gain: float  # share of the residuals' squares that the field explains, each known node predicted from the others


def fit_residual_field(graph: Graph, nodes: np.ndarray, residuals: np.ndarray) -> ResidualField:
    """Fit a, t and c to residuals ``[n]`` or ``[n, C]`` known at ``nodes``."""
    r = np.asarray(residuals, dtype=np.float64).reshape(len(nodes), -1)
    if len(nodes) < 3 or not np.isfinite(r).all():
        raise ValueError(
            f"residuals: {len(nodes)} known nodes, finite: {np.isfinite(r).all()}; expected 3 or more, finite"
        )
    found = _Evidence(graph.to("cpu"), np.asarray(nodes), r)
    starts = [(2.0, 0.0), (4.0, 2.0)]
    fits = [
        minimize(found.loss, start, method="Nelder-Mead", options={"xatol": 0.02, "fatol": 0.02, "maxfev": 60})
        for start in starts
    ]
    best = min(fits, key=lambda fit: fit.fun)
    return found.condition(*_natural(best.x))


def _natural(knobs: np.ndarray) -> tuple[float, float]:
    a = 1 / (1 + np.exp(-np.clip(knobs[0], -12, 12)))
    return float(min(a, 1 - 1e-5)), float(np.exp(np.clip(knobs[1], -9, 9)))


class _Evidence:
    def __init__(self, graph: Graph, nodes: np.ndarray, r: np.ndarray):
        self.graph, self.nodes, self.r = graph, nodes, r
        self.known = torch.zeros(1, graph.num_nodes, dtype=torch.float64)
        self.known[0, nodes] = 1.0
        self.spread = torch.zeros(1, graph.num_nodes, r.shape[1], dtype=torch.float64)
        self.spread[0, nodes] = torch.from_numpy(r)

    def _posterior(self, a: float, t: float) -> tuple[Precision, Precision]:
        J = _build(self.graph, a, "attractive", False, torch.float64)
        return J, Precision(self.graph, J.diag + t * self.known, J.off)

    def loss(self, knobs: np.ndarray) -> float:
        """-log evidence with c at its best, up to a constant."""
        a, t = _natural(knobs)
        prior, posterior = self._posterior(a, t)
        prepared = SOLVER.prepare(posterior)
        mu = prepared(self.spread).value
        n, columns = self.r.shape
        quadratic = t * float((self.spread**2).sum()) - t**2 * float((self.spread * mu).sum())
        logdet = float(prepared.log_determinant) - float(SOLVER.prepare(prior).log_determinant) - n * np.log(t)
        value = 0.5 * columns * logdet + 0.5 * n * columns * np.log(max(quadratic, 1e-300) / (n * columns))
        return value if np.isfinite(value) else 1e300

    def condition(self, a: float, t: float) -> ResidualField:
        _, posterior = self._posterior(a, t)
        prepared = SOLVER.prepare(posterior)
        mu = prepared(self.spread).value[0].numpy()
        variance = prepared.marginal_variance[0].numpy()
        n, columns = self.r.shape
        r, nodes = self.r, self.nodes
        weighted = t * r - t**2 * mu[nodes]  # K^-1 r, with K = J^-1 + 1/t on the known nodes
        own = t - t**2 * variance[nodes]  # its diagonal
        c = n * columns / max(1e-300, float((r * weighted).sum()))
        error = weighted / own[:, None]  # r_i minus its prediction from all others
        z = np.abs(error) * np.sqrt(c * own)[:, None]
        calibration = float(np.quantile(z, 0.95, method="higher") / LEVEL_95)
        std = calibration * np.sqrt((variance + 1 / t) / c)
        gain = 1 - float((error**2).sum() / max(1e-300, (r**2).sum()))
        return ResidualField(t * mu, std, r - error, a, 1 / t, c, calibration, gain)
