"""What a model leaves over, as a Gaussian field on the graph: its mean and calibrated deviations at every node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from walksum.backends.cpu.ldl.symbolic import symbolic
from walksum.field import GaussianField, fit_residual_field
from walksum.field.fit import residual_precision
from walksum.graph import Graph

MOST_OPERATIONS = 2e8  # of one elimination: fitting a field takes some hundred of them, about six seconds in all


@dataclass(frozen=True)
class ResidualField:
    r"""Residuals :math:`r = u + e`, :math:`u \sim N(0, (b (I - a D^{-1/2} A D^{-1/2}))^{-1})`, e white noise.

    Attributes:
        a, precision, noise: fitted by the evidence; precision is b, noise the variance of e.
        calibration: factor of the standard deviations with which 95 % intervals cover 95 % of the known residuals,
            each left out in turn.
        gain: share of the residuals' squares that the field explains, each known node predicted from the others.
    """

    a: float
    precision: float
    noise: float
    calibration: float
    gain: float

    def condition(self, graph: Graph, nodes: np.ndarray, residuals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean of u ``[N, C]`` and standard deviation of a new residual ``[N]``, given those at ``nodes``."""
        r = np.require(residuals, np.float64, ["W"]).reshape(len(nodes), -1)
        field = GaussianField(residual_precision(graph.to("cpu"), self.a, self.precision), validate_args=False)
        with torch.no_grad():
            known = field.condition(torch.from_numpy(nodes), torch.from_numpy(r.T.copy()).unsqueeze(1), self.noise)
            mean, variance = known.mean.squeeze(1).numpy().T, known.variance.reshape(-1, graph.num_nodes)[0].numpy()
        return mean, self.calibration * np.sqrt(variance + self.noise)

    def predict(self, graph: Graph, nodes: np.ndarray, residuals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As :meth:`condition` for one column, ``[N]`` each, but at ``nodes`` from all others: no node sees its own."""
        mean, std = self.condition(graph, nodes, residuals)
        field = GaussianField(residual_precision(graph.to("cpu"), self.a, self.precision), validate_args=False)
        with torch.no_grad():
            others = field.leave_one_out(torch.from_numpy(nodes), torch.from_numpy(residuals).unsqueeze(0), self.noise)
        mean = mean[:, 0].copy()
        mean[nodes], std[nodes] = others[0][0].numpy(), self.calibration * np.sqrt(others[1].reshape(-1).numpy())
        return mean, std


def affordable(graph: Graph, max_operations: float = MOST_OPERATIONS) -> bool:
    """Whether a field is fitted within seconds: eliminating a graph without small separators fills in."""
    return symbolic(graph.to("cpu"), max_operations) is not None


def residual_field(graph: Graph, nodes: np.ndarray, residuals: Any) -> ResidualField:
    """Fit one field to residuals ``[n]``, or to all columns of ``[n, C]`` together."""
    r = torch.from_numpy(np.require(residuals, np.float64, ["W"]).reshape(len(nodes), -1))
    graph = graph.to("cpu")
    field, fit = fit_residual_field(graph, torch.from_numpy(nodes), r, signs=False, method="elimination", shared=True)
    noise = float(fit.noise)
    with torch.no_grad():
        mean, _ = field.leave_one_out(torch.from_numpy(nodes), r.t().unsqueeze(1), noise)
    error = r.t().unsqueeze(1) - mean
    gain = 1 - float(error.square().sum() / r.square().sum().clamp_min(1e-300))
    return ResidualField(float(fit.a), float(fit.precision), noise, float(fit.scale), gain)
