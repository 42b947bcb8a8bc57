"""PartialFactor: the numbers of a partial elimination and the sweeps through them. Runs on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from walksum.backends.cpu.ldl import numeric
from walksum.backends.cpu.ldl import sweeps as triangular
from walksum.backends.cpu.ldl.symbolic import PartialSymbolic
from walksum.backends.cpu.pointers import ZERO, blank, plain
from walksum.backends.cpu.simd import lanes_for
from walksum.backends.cpu.threads import WORTH_A_THREAD
from walksum.precision import Precision
from walksum.solvers.base import NotCopied, Status
from walksum.solvers.factor import FAILURE, check_dtype, in_groups, worst_of

WIDEST = 64  # columns per block: the indices of a sweep are read once for all of them


class PartialFactor(NotCopied):
    """``J = L D L^T`` up to the core, made in float64 and rounded to the dtype of J.

    Attributes:
        where: where the kernels find its numbers, see :func:`walksum.backends.cpu.ldl.numeric.opened`.
        pivots: D in float64, ``[H, N]``; from position ``eliminated`` on the core's diagonal.
        factor: L, ``[H, nnz]``, followed by the core's couplings.
    """

    def __init__(self, J: Precision, symbolic: PartialSymbolic):
        check_dtype(J)
        self.symbolic, self.plan, self.heads = symbolic, symbolic.plan, J.heads
        self.diag, self.off = plain(J.diag.detach()), plain(J.off.detach())  # aliases, as in Factor
        doubles, entries = 2 * self.heads * (symbolic.num_nodes + 1), self.heads * len(self.plan[2])
        numbers = torch.empty(doubles + entries + self.heads * symbolic.eliminated, dtype=J.dtype)
        self.numbers = numbers  # the kernels hold its address only
        addresses = self.diag.data_ptr(), self.off.data_ptr(), numbers.data_ptr()
        self.where = (ZERO[J.dtype], self.heads, symbolic.eliminated, *addresses)
        count = self.heads * symbolic.num_nodes
        self.pivots = numbers[: 2 * count].view(torch.float64)[:count].view(self.heads, -1)
        self.factor = numbers[doubles : doubles + entries].view(self.heads, -1)
        work = self.heads * symbolic.operations
        done = in_groups(numeric.factorise, self.heads, work, self.plan, self.where, owners=(self,))
        self.outcome = max(done, default=numeric.FINE)

    @property
    def failure(self) -> Status | None:
        """None, or the status of every solve with this J."""
        return FAILURE.get(self.outcome)

    def solve(self, h: Tensor) -> tuple[Tensor, float]:
        """mu and its worst backward error, where no core is left; without meaning after a failure."""
        h = plain(h)
        mu = blank(h)
        return mu, worst_of(self._sweep(triangular.solve, h, mu))

    def eliminate(self, h: Tensor) -> Tensor:
        """``L^-1 h`` in elimination order: in the last rows, the right-hand side of the core's own system."""
        h = plain(h)
        out = blank(h)
        self._sweep(triangular.eliminate, h, out)
        return out

    def substitute(self, h: Tensor, eliminated: Tensor, core: Tensor) -> tuple[Tensor, float]:
        """mu from what :meth:`eliminate` gave and the core's solution, and its worst backward error."""
        h, core = plain(h), plain(core)
        mu = blank(h)
        return mu, worst_of(self._sweep(triangular.substitute, h, eliminated, core, mu))

    def _sweep(self, kernel: Callable[..., Any], h: Tensor, *others: Tensor) -> list[Any]:
        columns = h.size(2)
        work, threads = self.heads * columns * self.symbolic.entries, torch.get_num_threads()
        widest = WIDEST // 2 if work >= WORTH_A_THREAD and threads > 1 else WIDEST
        lanes = lanes_for(min(columns, widest))  # no bit of a column depends on its block
        units = self.heads * -(-columns // (8 * lanes.itemsize))
        addresses = [t.data_ptr() for t in (h, *others)]
        return in_groups(
            kernel, units, work, lanes, self.plan, self.where, columns, *addresses, owners=(self, h, *others)
        )
