"""Solving dH/dt = f(t, H) for the continuous-depth baselines."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Field = Callable[[Tensor, Tensor], Tensor]

# torchdiffeq's defaults (1e-7, 1e-9) ask for far more digits than a classifier can use.
RTOL, ATOL = 1e-3, 1e-4


def integrate(field: Field, state: Tensor, time: float, method: str = "rk4", step: float = 1.0) -> Tensor:
    """The state at `time`, started at 0.

    Any method of torchdiffeq works. rk4, the fourth-order 3/8 rule with equal steps of at most `step`, is
    written out: torchdiffeq's own copies states into a preallocated tensor, which torch.func.vmap forbids,
    and 30 seeds as one batch are worth eight lines.
    """
    if time <= 0:
        raise ValueError(f"time={time} must be positive")
    if method != "rk4":
        times = torch.tensor([0.0, time], dtype=state.dtype, device=state.device)
        return _odeint()(field, state, times, rtol=RTOL, atol=ATOL, method=method)[-1]
    steps = math.ceil(time / step)
    clock = torch.arange(steps, dtype=state.dtype, device=state.device) * (time / steps)
    for now in clock:
        state = state + _three_eighths(field, now, time / steps, state)
    return state


def _odeint() -> Callable[..., Tensor]:
    try:
        from torchdiffeq import odeint
    except ImportError as error:
        raise ImportError("methods other than rk4 need torchdiffeq: pip install 'walksum[paper]'") from error
    return odeint


def _three_eighths(f: Field, t: Tensor, dt: float, y: Tensor) -> Tensor:
    k1 = f(t, y)
    k2 = f(t + dt / 3, y + dt * k1 / 3)
    k3 = f(t + dt * 2 / 3, y + dt * (k2 - k1 / 3))
    k4 = f(t + dt, y + dt * (k1 - k2 + k3))
    return dt * (k1 + 3 * (k2 + k3) + k4) / 8
