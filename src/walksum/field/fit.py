"""Fitting a field by evidence: the parameters that make the observations most probable."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walksum._checks import check_count
from walksum.field.distribution import GaussianField
from walksum.field.observations import as_tensor, check_nodes
from walksum.graph import Graph
from walksum.precision import Precision

LARGEST_A = 7.0  # atanh of the largest |a|: 1 - 2e-6, beyond which the field is a constant per component
LEVEL_95 = 1.959964  # deviations to both sides of a Gaussian's mean that hold 95 %
NOISE_RANGE = (-14.0, 9.0)  # logarithms of noise over the field's own variance


@dataclass(frozen=True)
class FieldFit:
    """What :func:`fit_residual_field` found.

    Attributes:
        a: coupling of every column, in (-1, 1).
        precision: b, so that J = b (I - a A_hat).
        noise: variance of the nugget, which observations have beside the field.
        scale: by which standard deviations are to be multiplied so that the 95 % intervals of the observed nodes, each
            left out in turn, cover 95 % of them; near one for Gaussian residuals.
        log_evidence: at the optimum.
        evaluations: of the evidence and its gradient.
        converged: whether the optimiser said so for every column.
        seconds: wall-clock time.
    """

    a: Tensor
    precision: Tensor
    noise: Tensor
    scale: Tensor
    log_evidence: Tensor
    evaluations: int
    converged: bool
    seconds: float


def maximise(evidence: Callable[[Tensor], Tensor], start: Any, bounds: Any = None, max_steps: int = 100) -> Any:
    """Maximise a differentiable function of a few parameters by L-BFGS: ``scipy``'s result, ``fun`` with its own sign.

    Args:
        evidence: parameters ``[p]``, float64 -> one number.
        start: starting values.
        bounds: a pair for each parameter, or None.
        max_steps: most iterations.
    """
    from scipy.optimize import minimize

    def negative(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        p = torch.from_numpy(parameters.copy()).requires_grad_()
        with torch.enable_grad():
            value = -evidence(p)
            (gradient,) = torch.autograd.grad(value, p)
        return float(value.detach()), gradient.numpy()

    options = {"maxiter": check_count("max_steps", max_steps), "ftol": 1e-12, "gtol": 1e-6}
    found = minimize(negative, np.asarray(start, float), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    found.fun = -found.fun
    return found


def normalised_adjacency(graph: Graph, loops: bool = False) -> tuple[Tensor, Tensor]:
    """``D^-1/2 A D^-1/2`` in float64: its diagonal ``[N]`` (zero without loops) and its edges ``[E]``."""
    i, j = graph.edges
    weight = graph.weights().detach()
    degree = torch.zeros(graph.num_nodes, dtype=torch.float64, device=graph.device)
    degree = degree.index_add(0, i, weight.abs()).index_add(0, j, weight.abs()) + float(loops)
    root = torch.where(degree > 0, degree, 1.0).rsqrt()
    return float(loops) * root.square(), weight * root[i] * root[j]


def fit_residual_field(
    graph: Graph,
    nodes: Any,
    residuals: Any,
    loops: bool = False,
    signs: bool = True,
    method: str = "auto",
    shared: bool = False,
) -> tuple[GaussianField, FieldFit]:
    r"""Fit a field and a nugget to values known at some nodes, by their exact evidence.

    .. math::
        x \sim \mathcal{N}(0, J^{-1}), \quad J = b\,(I - a\, D^{-1/2} A D^{-1/2}), \qquad
        r_i = x_i + \varepsilon_i, \quad \varepsilon_i \sim \mathcal{N}(0, \text{noise})

    ``field.condition(nodes, residuals, fit.noise)`` then has the mean to add to the predictions of the other nodes, and
    ``variance + noise`` is the variance of what would be measured there.

    Args:
        graph: the graph; signed edge weights are allowed.
        nodes: where the residuals are known, ``[n]`` or a mask ``[N]``.
        residuals: ``[n]``, or ``[n, T]`` for T columns, each with parameters of its own: T heads.
        loops: add a loop to every node before normalising, which weakens the couplings of nodes of low degree.
        signs: also try a < 0, where neighbours differ.
        method: as for :class:`GaussianField`.
        shared: one set of parameters for all columns, which are then independent draws of one field: one head.

    Returns:
        The field on all nodes, one head per column (``shared``: one), and a :class:`FieldFit`.

    Example:
        >>> import torch, walksum as ws
        >>> chain = ws.Graph.from_edge_index(torch.stack([torch.arange(99), torch.arange(1, 100)]))
        >>> known = torch.arange(0, 100, 2)
        >>> field, fit = ws.fit_residual_field(chain, known, torch.sin(known / 9).double())
        >>> given = field.condition(known, torch.sin(known / 9).double(), fit.noise)
        >>> (given.mean[0] - torch.sin(torch.arange(100) / 9))[:99].abs().max() < 0.05  # node 99 is at the end
        tensor(True)
    """
    start = time.perf_counter()
    nodes = check_nodes(nodes, graph.num_nodes, graph.device)
    r = as_tensor("residuals", residuals, dtype=torch.float64, device=graph.device)
    r = r.unsqueeze(1) if r.dim() == 1 else r
    if r.dim() != 2 or r.size(0) != nodes.numel() or not bool(torch.isfinite(r).all()):
        raise ValueError(
            f"residuals has shape {tuple(r.shape)} for {nodes.numel()} nodes; expected finite [n] or [n, T]"
        )
    if nodes.numel() < 4:
        raise ValueError(f"nodes has {nodes.numel()} entries; three parameters need at least 4 observations")
    family = _Family(graph, loops, method)
    groups = [r.t()] if shared else [column.unsqueeze(0) for column in r.t()]
    columns = [_fit_columns(family, nodes, group, signs) for group in groups]
    parameters = torch.stack([p for p, _, _, _ in columns])  # [T, 3]: a, b, noise
    a, b, noise = parameters.t()
    field = family.field(a, b)
    fit = FieldFit(
        a,
        b,
        noise,
        torch.stack([_calibrated(family, nodes, group, *p) for p, group in zip(parameters, groups, strict=True)]),
        parameters.new_tensor([value for _, value, _, _ in columns]),
        sum(count for _, _, count, _ in columns),
        all(done for _, _, _, done in columns),
        time.perf_counter() - start,
    )
    return field, fit


class _Family:
    """J = b (I - a A_hat) for every a and b."""

    def __init__(self, graph: Graph, loops: bool, method: str):
        self.graph, self.method = graph, method
        self.loop, self.edge = normalised_adjacency(graph, loops)

    def field(self, a: Tensor, b: Tensor) -> GaussianField:
        a, b = (t.reshape(-1, 1).to(self.edge.device) for t in (a, b))
        J = Precision(self.graph, b * (1 - a * self.loop), -b * a * self.edge)
        return GaussianField(J, method=self.method, validate_args=False)


def residual_precision(graph: Graph, a: float, b: float) -> Precision:
    """J = b (I - a D^-1/2 A D^-1/2), as :func:`fit_residual_field` fits it without loops."""
    family = _Family(graph, False, "auto")
    return family.field(*family.edge.new_tensor([a, b])).J


def _fit_columns(family: _Family, nodes: Tensor, r: Tensor, signs: bool) -> tuple[Tensor, float, int, bool]:
    """One set of parameters for columns ``[T, n]``."""
    spread = float(r.square().mean().sqrt())
    if spread == 0:
        return torch.from_numpy(np.array([0.0, 1e12, 1e-12])), float("inf"), 0, True
    unit, n = (r / spread).unsqueeze(1), r.numel()  # [T, 1, n]: draws of a field of one head

    def parameters(p: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.tanh(p[0]), torch.exp(p[1]), torch.exp(p[2] - p[1])

    def evidence(p: Tensor) -> Tensor:
        a, b, noise = parameters(p)
        known = noise.reshape(1, 1).expand(1, nodes.numel())
        return family.field(a, b).log_evidence(nodes, unit, known).sum() / n

    bounds = [(-LARGEST_A if signs else 0.0, LARGEST_A), (-20.0, 20.0), NOISE_RANGE]
    starts = [(1.5, 0.5, -1.0)] + ([(-1.5, 0.5, -1.0)] if signs else [])
    with torch.no_grad():  # one look at each start costs less than half a step
        start = max(starts, key=lambda each: float(evidence(torch.from_numpy(np.array(each)))))
    best = maximise(evidence, start, bounds)
    a, b, noise = parameters(torch.from_numpy(best.x))
    result = torch.stack([a, b / spread**2, noise * spread**2])
    value = n * (float(best.fun) - float(np.log(spread)))
    return result, value, best.nfev, bool(best.success)


def _calibrated(family: _Family, nodes: Tensor, values: Tensor, a: Tensor, b: Tensor, noise: Tensor) -> Tensor:
    """The factor of the deviations with which 95 % intervals cover 95 % of ``values [T, n]``, each left out in turn."""
    values = values.unsqueeze(1)
    with torch.no_grad():
        known = noise.reshape(1, 1).expand(1, nodes.numel())
        mean, variance = family.field(a, b).leave_one_out(nodes, values, known)
    z = (values - mean) / variance.sqrt()
    return torch.tensor(deviation_95(z.cpu().numpy()), dtype=z.dtype)


def deviation_95(errors: np.ndarray) -> float:
    """The standard deviation whose 95 % intervals cover 95 % of such errors, a new one among them."""
    share = min(1.0, 0.95 * (1 + 1 / errors.size))  # of n errors and a new one, each is equally likely the largest
    return float(np.quantile(np.abs(errors), share, method="higher")) / LEVEL_95
