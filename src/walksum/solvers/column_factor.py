"""ColumnFactor: the numbers of an elimination column by column, and the sweeps through them. Runs on the CPU.

For partial eliminations, and for complete ones whose supernodes would be too small to pay.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as nnf
from torch import Tensor

from walksum.backends.cpu.ldl import blas, numeric, numeric_groups, sweeps_groups
from walksum.backends.cpu.ldl import sweeps as triangular
from walksum.backends.cpu.ldl.symbolic import PartialSymbolic
from walksum.backends.cpu.pointers import ZERO, blank, contiguous_on_cpu, node_major
from walksum.backends.cpu.products import prepare_dots
from walksum.backends.cpu.simd import WIDTHS, lanes_for
from walksum.backends.cpu.threads import WORTH_A_THREAD
from walksum.precision import Precision
from walksum.solvers.base import NotCopied, Status, node_sum
from walksum.solvers.factor import FAILURE, check_dtype, over_threads, worst_of

WIDEST = 64  # columns per block: the indices of a sweep are read once for all of them


class ColumnFactor(NotCopied):
    """``J = L D L^T`` up to the core, made in float64 and rounded to the dtype of J.

    Attributes:
        where: where the kernels find its numbers, see :func:`walksum.backends.cpu.ldl.numeric.opened`.
    """

    def __init__(self, J: Precision, symbolic: PartialSymbolic):
        check_dtype(J)
        self.symbolic, self.plan, self.graph, self.heads = symbolic, symbolic.plan, J.graph, J.heads
        diag, off = (J.diag.detach(), J.off.detach()) if torch.is_grad_enabled() else (J.diag, J.off)
        self.diag, self.off = contiguous_on_cpu(diag), contiguous_on_cpu(off)  # aliases, as in Factor
        entries, nodes = len(self.plan[2]), symbolic.num_nodes
        self.in_eights = self.heads > 1 and entries <= numeric_groups.GROUP_LIMIT
        # as numeric_groups.interleaved, which kernels call
        self.interleaved = self.in_eights and self.heads % numeric_groups.GROUP == 0 and symbolic.eliminated == nodes
        each = 2 * (nodes + 1) + entries + symbolic.eliminated
        if self.interleaved:
            each += nodes + J.graph.num_edges  # the values of J, too
        numbers = self.diag.new_empty(self.heads * each)
        self.numbers = numbers  # the kernels hold its address only
        addresses = self.diag.data_ptr(), self.off.data_ptr(), numbers.data_ptr()
        self.where = (ZERO[J.dtype], self.heads, symbolic.eliminated, *addresses)
        # Not made yet: the first solve does it in the same call if it is small. Threads that come together may all do
        # it: every number is written once, when it is final, and to the same bits.
        self.outcome: int | None = None

    def _made(self) -> Tensor:
        """The numbers, made if they are not."""
        if self.outcome is None:
            self.outcome = max(self._factorise(), default=numeric.OK)
        return self.numbers

    def _factorise(self) -> list[Any]:
        work, args = self.heads * self.symbolic.operations, (self.plan, self.where)
        if self.in_eights:
            return over_threads(numeric_groups.factorise, -(-self.heads // 8), work, *args, owners=(self,))
        tail, size = self.symbolic.tail, self.symbolic.num_nodes
        everything = numeric.factorise, self.heads, work, *args, tail, blas.addresses()
        if tail == size:
            return over_threads(*everything, owners=(self,))
        with blas.threads_for(size - tail):
            return over_threads(*everything, owners=(self,))

    @property
    def pivots(self) -> Tensor:
        """D in float64, ``[H, N]``; from position ``eliminated`` on the core's diagonal."""
        count = self.heads * self.symbolic.num_nodes
        return self._made()[: 2 * count].view(torch.float64)[:count].view(self.heads, -1)

    @property
    def factor(self) -> Tensor:
        """L of a partial elimination, ``[H, nnz]``, followed by the core's couplings."""
        start = 2 * self.heads * (self.symbolic.num_nodes + 1)
        return self._made()[start : start + self.heads * len(self.plan[2])].view(self.heads, -1)

    @property
    def failure(self) -> Status | None:
        """None, or the status of every solve with this J."""
        self._made()
        return FAILURE.get(self.outcome)  # type: ignore[arg-type]

    def reads(self, h: Tensor) -> bool:
        """Whether :meth:`solve` takes h as it lies: head after head, or node after node."""
        return h.is_contiguous() or (self.interleaved and node_major(h) and not h.size(2) % sweeps_groups.COLUMNS)

    def solve(self, h: Tensor) -> tuple[Tensor, float]:
        """mu and its worst backward error, where no core is left; without meaning after a failure."""
        columns = h.size(2)
        if self.interleaved and columns % sweeps_groups.COLUMNS:
            mu, error = self.solve(nnf.pad(h, (0, -columns % sweeps_groups.COLUMNS)))
            return mu[..., :columns].contiguous(), error
        if self.interleaved and not h.is_contiguous() and node_major(h):
            mu = blank(h.transpose(0, 1)).transpose(0, 1)
        else:
            h = contiguous_on_cpu(h)
            mu = blank(h)
        if self.outcome is None and not self.in_eights and self._alone(columns, self.symbolic.operations):
            return mu, self._factorise_and_solve(h, mu)
        self._made()
        if self.outcome != numeric.OK:
            return mu, torch.nan
        return mu, worst_of(self._sweep_groups(h, mu) if self.interleaved else self._sweep(triangular.solve, h, mu))

    def _alone(self, columns: int, more: float = 0.0) -> bool:
        """Whether a solve, and ``more`` multiply-adds per head, are too little for several threads."""
        work = self.heads * (columns * self.symbolic.entries + more)
        return work < WORTH_A_THREAD or torch.get_num_threads() == 1

    def _factorise_and_solve(self, h: Tensor, mu: Tensor) -> float:
        """Factorise and solve in one call: mu's worst backward error."""
        columns, tail, size = h.size(2), self.symbolic.tail, self.symbolic.num_nodes
        lanes = lanes_for(min(columns, WIDEST))
        units, addresses = self.heads * -(-columns // (8 * lanes.itemsize)), (h.data_ptr(), mu.data_ptr())
        args = units, lanes, self.plan, self.where, tail, blas.addresses(), columns, *addresses
        with blas.threads_for(size - tail) if tail < size else nullcontext():
            error = triangular.factorise_and_solve(*args)
        self.outcome = round(-error) if error < 0 else numeric.OK
        return error

    def solve_and_dot(self, h: Tensor, mu: Tensor) -> tuple[Tensor, float, Tensor, Tensor] | None:
        """:meth:`solve`, and the gradients of diag and off given the mu of the forward pass; None where one call cannot
        do both: several blocks of columns, work for threads, or no factor."""
        columns = h.size(2)
        if self.outcome != numeric.OK or self.interleaved or columns not in WIDTHS or not self._alone(columns):
            return None
        if not (h.is_cpu and h.is_contiguous() and mu.is_contiguous()):
            return None
        like_diag, like_off, (lanes, _, shape, upper), _ = self.graph.derived(
            prepare_dots, self.heads, columns, h.dtype
        )
        g, diag, off = blank(h), torch.empty_like(like_diag), torch.empty_like(like_off)
        solving = self.heads, lanes, self.plan, self.where, columns, h.data_ptr(), g.data_ptr()
        dotting = shape, upper, h.stride()[:2], mu.data_ptr(), diag.data_ptr(), off.data_ptr()
        return g, triangular.solve_and_dot(*solving, *dotting), diag, off

    def logdet(self) -> Tensor:
        """``log det J`` of each head, float64 ``[H]``, where no core is left; NaN after a failure."""
        if self.failure is not None:
            return self.diag.new_full((self.heads,), torch.nan, dtype=torch.float64)
        return node_sum(self.pivots.log()).squeeze(1)

    def eliminate(self, h: Tensor) -> Tensor:
        """``L^-1 h`` in elimination order: in the last rows, the right-hand side of the core's own system."""
        self._made()
        h = contiguous_on_cpu(h)
        out = blank(h)
        self._sweep(triangular.eliminate, h, out)
        return out

    def substitute(self, h: Tensor, eliminated: Tensor, core: Tensor) -> tuple[Tensor, float]:
        """mu from what :meth:`eliminate` gave and the core's solution, and its worst backward error."""
        h, core = contiguous_on_cpu(h), contiguous_on_cpu(core)
        mu = blank(h)
        return mu, worst_of(self._sweep(triangular.substitute, h, eliminated, core, mu))

    def _sweep_groups(self, h: Tensor, mu: Tensor) -> list[Any]:
        columns = h.size(2)
        units, work = self.heads * columns // sweeps_groups.WIDTH, self.heads * columns * self.symbolic.entries
        where = self.plan, self.where, columns, h.stride()[:2], h.data_ptr(), mu.data_ptr()
        return over_threads(sweeps_groups.solve, units, work, *where, owners=(self, h, mu))

    def _sweep(self, kernel: Callable[..., Any], h: Tensor, *others: Tensor) -> list[Any]:
        columns = h.size(2)
        alone, addresses = self._alone(columns), [t.data_ptr() for t in others]
        lanes = lanes_for(min(columns, WIDEST if alone else WIDEST // 2))  # no bit of a column depends on its block
        units = self.heads * -(-columns // (8 * lanes.itemsize))
        if alone:
            return [kernel(0, units, lanes, self.plan, self.where, columns, h.data_ptr(), *addresses)]
        work = self.heads * columns * self.symbolic.entries
        return over_threads(
            kernel, units, work, lanes, self.plan, self.where, columns, h.data_ptr(), *addresses,
            owners=(self, h, *others),
        )  # fmt: skip
