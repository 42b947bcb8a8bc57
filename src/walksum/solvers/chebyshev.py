"""Chebyshev iteration: no dot products, so no synchronisation; needs bounds of the spectrum."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from walksum import backends
from walksum._checks import check_limits
from walksum.precision import Precision
from walksum.solvers.base import Measured, Outcome, Prepared, Solver, Status, default_tol

BLOW_UP = 1e6  # a backward error is at most about one while the bounds hold
SMOOTHINGS = 4


@dataclass(frozen=True)
class Chebyshev(Solver):
    r"""Chebyshev iteration on :math:`D^{-1} J`, whose spectrum is that of :math:`D^{-1/2} J D^{-1/2}`.

    Args:
        bounds: ``(lowest, highest)`` eigenvalue of :math:`D^{-1/2} J D^{-1/2}`, both positive. By default
            :math:`[1 - r, 1 + r]` with a certified :math:`r \ge \rho(|I - D^{-1/2} J D^{-1/2}|)`. Bounds that do
            not hold cost convergence, never truth: the status comes from the residual.
        tol: backward error to reach; by default 16 machine epsilons of the dtype, 2 for float32 on a CPU.
        max_steps: give up after this many steps.

    Example:
        >>> import torch, walksum as ws
        >>> path = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]))
        >>> J = ws.Precision(path, torch.full((3,), 2.0), torch.full((2,), -1.0))
        >>> ws.solve(J, torch.tensor([[0.0], [1.0], [0.0]]), solver=ws.Chebyshev()).flatten()
        tensor([0.5000, 1.0000, 0.5000])
    """

    bounds: tuple[float, float] | None = None
    tol: float | None = None
    max_steps: int = 1000

    def __post_init__(self) -> None:
        check_limits(self.max_steps, self.tol)
        if self.bounds is not None:
            low, high = self.bounds
            if not 0 < low <= high < math.inf:
                raise ValueError(f"bounds={self.bounds!r}; expected (lowest, highest) with 0 < lowest <= highest")

    def prepare(self, J: Precision) -> Prepared:
        return PreparedChebyshev(J, self)


def coupling_bound(J: Precision) -> float:
    """An upper bound for rho(|I - D^-1/2 J D^-1/2|), certified and cheap; exact for fixed Laplacians.

    For any positive v it is at most max_i (|R| v)_i / v_i. Tried: what makes diagonal dominance and degree
    normalisation exact, smoothed a little; the eigensolver only where these do not prove walk-summability.
    """
    if not J.num_nodes:
        return 0.0
    nothing, off = torch.zeros_like(J.diag), J.off.abs()
    degree = J.graph.degree.clamp(min=1).to(J.dtype)
    v = torch.stack([torch.ones_like(degree), degree.sqrt()], -1).expand(J.heads, -1, -1).contiguous()
    best = math.inf
    for _ in range(SMOOTHINGS):
        Rv = backends.backend(v).spmm(J.graph, nothing, off, v) / J.diag.unsqueeze(-1)
        best = min(best, float((Rv / v).amax(1).amin(1).max()))
        v = 0.5 * (v + Rv)
    rounding = 1 + 4 * torch.finfo(J.dtype).eps
    return best * rounding if best * rounding < 1 else J.walk_summability()[1]


class PreparedChebyshev(Measured):
    solver: Chebyshev

    def __init__(self, J: Precision, solver: Chebyshev):
        super().__init__(J, solver)
        self.tol = default_tol(solver.tol, J.dtype)
        if solver.tol is None and J.dtype == torch.float32 and J.device.type == "cpu":
            self.tol = 2 * torch.finfo(J.dtype).eps  # residuals are summed in float64 there
        low, high = self._bounds() if self.positive else (1.0, 1.0)
        self.gain, self.radius = 2 / (high + low), (high - low) / (high + low)
        self.inverse = (1 / J.diag).unsqueeze(-1)

    def _bounds(self) -> tuple[float, float]:
        if self.solver.bounds is not None:
            return self.solver.bounds
        # not provably walk-summable: an interval that is at least wide; the residual tells whether it holds
        r = min(coupling_bound(self.J), 0.9999)
        return 1 - r, 1 + r

    def run(self, h: Tensor) -> Outcome:
        if (refused := self.refusal(h)) is not None:
            return refused
        scale = self._unit(h)
        mu, outcome, steps = self._iterate(h / scale)
        found = self.judged(mu * scale, h, steps, outcome)  # what is returned: scaling back may overflow
        return found._replace(status=outcome) if outcome is Status.diverged else found

    def _iterate(self, h: Tensor) -> tuple[Tensor, Status, int]:
        steps, omega, best, strikes = 0, 1.0, math.inf, 0
        x, old = torch.zeros_like(h), torch.zeros_like(h)
        stride = expected = self._expected_steps()
        while True:
            count = min(stride, self.solver.max_steps - steps)
            weights = []
            for _ in range(count):
                weights.append(omega)
                omega = 1 / (1 - self.radius**2 * omega / (2 if steps + len(weights) == 1 else 4))
            x, old = self._advance(x, old, h, weights)
            steps, stride = steps + count, max(2, expected // 6)
            residual = self._error(x, h)
            strikes = strikes + 1 if residual > 0.5 * best else 0
            best = min(best, residual)
            if residual <= self.tol:
                return x, Status.converged, steps
            if not residual < BLOW_UP or (strikes > 5 and residual > 100 * best):
                return x, Status.diverged, steps
            if strikes > 5 and best < 100 * self.tol:
                return x, Status.stalled, steps
            if steps == self.solver.max_steps:
                return x, Status.max_steps_reached, steps

    def _expected_steps(self) -> int:
        """From the bound of Chebyshev's polynomials, and a little fewer."""
        rate = self.radius / (1 + math.sqrt(1 - self.radius**2))
        return max(1, int(0.6 * math.log(self.tol / 2) / math.log(rate))) if rate > 0 else 1

    def _advance(self, x: Tensor, old: Tensor, h: Tensor, weights: list[float]) -> tuple[Tensor, Tensor]:
        J, fused = self.J, backends.find(x, "chebyshev")
        if fused is not None:
            return fused(J.graph, J.off, self.inverse, x, old, h, self.gain, weights)
        for omega in weights:
            r = h - backends.backend(x).spmm(J.graph, J.diag, J.off, x)
            x, old = old + omega * (x + self.gain * self.inverse * r - old), x
        return x, old
