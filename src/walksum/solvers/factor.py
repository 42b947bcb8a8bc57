"""Factor: the numbers of an elimination, complete or partial, and the sweeps through them. Runs on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walksum.kernels import ldl, ldl_group, triangular
from walksum.kernels.elimination import Symbolic
from walksum.kernels.inverse import inverse_diagonal
from walksum.kernels.lanes import WIDTHS, lanes_for
from walksum.kernels.parallel import WORTH_A_THREAD, over_columns
from walksum.precision import Precision
from walksum.solvers.base import Status

WIDEST = max(WIDTHS)
FAILURE = {ldl.INDEFINITE: Status.not_positive_definite, ldl.NONFINITE: Status.nonfinite}


class Factor:
    """``J = L D L^T``, made in float64 and rounded to the dtype of J.

    Attributes:
        failure: None, or the status of every solve with this J.
        factor: L, ``[H, nnz]``, followed by the core's couplings in a partial elimination.
        pivots: D in float64, ``[H, N]``, from position ``eliminated`` on the core's diagonal.
    """

    def __init__(self, J: Precision, symbolic: Symbolic):
        if J.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"J is {J.dtype}; elimination takes float32 or float64, use J.to(torch.float32)")
        self.symbolic, self.plan = symbolic, symbolic.plan
        self.diag, self.off = as_numpy(J.diag), as_numpy(J.off)
        heads, nodes = self.diag.shape
        self.factor = np.empty((heads, len(self.plan[2])), self.diag.dtype)
        self.inverse = np.empty((heads, symbolic.eliminated), self.diag.dtype)
        self.pivots, self.norms = np.empty((heads, nodes)), np.empty(heads)
        self.failure = FAILURE.get(self._factorise())

    def _factorise(self) -> int:
        s, heads = self.symbolic, len(self.diag)
        grouped = heads > 1 and len(self.plan[2]) <= ldl_group.GROUP_LIMIT
        kernel = ldl_group.factorise_groups if grouped else ldl.factorise
        units = -(-heads // ldl_group.GROUP) if grouped else heads
        args = (s.eliminated, s.tail, self.diag, self.off, self.plan)
        results = (self.factor, self.pivots, self.inverse, self.norms)
        return max(in_groups(kernel, units, heads * s.operations, *args, *results), default=ldl.FINE)

    def solve(self, h: np.ndarray) -> tuple[np.ndarray, float]:
        """mu and its worst backward error."""
        mu = np.empty_like(h)
        return mu, self._sweep(triangular.solve, h, mu, self.inverse)

    def eliminate(self, h: np.ndarray) -> np.ndarray:
        """``L^-1 h``: at the nodes of the core, the right-hand side of the core's own system."""
        out, (lanes, units) = np.empty_like(h), _blocks(h)
        in_groups(triangular.eliminate, units, self._work(h), lanes, h, out, self.factor, self.plan)
        return out

    def substitute(self, h: np.ndarray, mu: np.ndarray) -> float:
        """Complete mu, which holds the core's solution and elsewhere ``L^-1 h``; returns its worst backward error."""
        return self._sweep(triangular.substitute, h, mu, self.inverse)

    def measure(self, h: np.ndarray, mu: np.ndarray) -> float:
        """The worst backward error of any mu."""
        return self._sweep(triangular.substitute, h, mu, self.inverse[:, :0])

    def residual(self, h: np.ndarray, mu: np.ndarray) -> np.ndarray:
        """``h - J mu`` for a mu in float64, in float64."""
        out = np.empty_like(mu)
        for head in range(len(h)):
            triangular.residual(head, h, mu, self.diag, self.off, out, self.plan)
        return out

    def inverse_diagonal(self) -> np.ndarray:
        """The diagonal of ``J^-1``, float64 ``[H, N]``; of a factor made in float64."""
        out = np.empty_like(self.pivots)
        for head in range(len(out)):
            inverse_diagonal(self.factor[head], self.pivots[head], self.plan, out[head])
        return out

    def _sweep(self, kernel: Callable[..., Any], h: np.ndarray, mu: np.ndarray, inverse: np.ndarray) -> float:
        lanes, units = _blocks(h)
        args = (lanes, h, mu, self.factor, inverse, self.diag, self.off, self.norms, self.plan)
        errors = in_groups(kernel, units, self._work(h), *args)
        return errors[0] if len(errors) == 1 else float(np.max(errors))

    def _work(self, h: np.ndarray) -> float:
        """Multiply-adds of a solve and its residual."""
        heads, nodes, columns = h.shape
        return heads * columns * (2 * self.symbolic.fill + len(self.plan[8]) + nodes)


def as_numpy(tensor: Tensor) -> np.ndarray:
    """The numbers of a tensor, shared where they lie contiguous on the CPU."""
    return tensor.detach().cpu().contiguous().numpy()


def in_groups(kernel: Callable[..., Any], units: int, work: float, *args: Any) -> list[Any]:
    """``kernel(start, stop, *args)`` over all units, in one call unless threads pay. Units never share a number."""
    if work < WORTH_A_THREAD:
        return [kernel(0, units, *args)]
    threads = torch.get_num_threads()
    return over_columns(kernel, units, work, *args, width=max(1, -(-units // threads)))


def _blocks(h: np.ndarray) -> tuple[Any, int]:
    """The width of the blocks of columns, and how many there are in all heads."""
    heads, _, columns = h.shape
    lanes = lanes_for(min(columns, WIDEST))
    return lanes, heads * -(-columns // (8 * lanes.itemsize))
