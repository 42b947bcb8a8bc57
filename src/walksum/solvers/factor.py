"""Factor: the numbers of an elimination, complete or partial, and the sweeps through them. Runs on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor

from walksum.backends.cpu.ldl import fused_small, numeric, numeric8, simd8x8, sweeps8
from walksum.backends.cpu.ldl import sweeps as triangular
from walksum.backends.cpu.ldl import symbolic as elimination
from walksum.backends.cpu.ldl.selected_inverse import half_solve, selected_inverse
from walksum.backends.cpu.ldl.symbolic import Symbolic
from walksum.backends.cpu.pointers import ZERO, blank, plain
from walksum.backends.cpu.products import prepare_dots
from walksum.backends.cpu.simd import WIDTHS, lanes_for
from walksum.backends.cpu.threads import WORTH_A_THREAD, over_columns
from walksum.precision import Precision
from walksum.solvers.base import Status

WIDEST = 64  # columns a block: the indices of a sweep are read once for all of them
FAILURE = {numeric.INDEFINITE: Status.not_positive_definite, numeric.NONFINITE: Status.nonfinite}


class Factor:
    """``J = L D L^T``, made in float64 and rounded to the dtype of J.

    Attributes:
        where: where the kernels find its numbers, see :func:`walksum.backends.cpu.ldl.numeric.opened`.
    """

    def __init__(self, J: Precision, symbolic: Symbolic):
        diag, off = J.diag, J.off
        if diag.dtype not in ZERO:
            raise ValueError(f"J is {J.dtype}; elimination takes float32 or float64, use J.to(torch.float32)")
        self.symbolic, self.plan, self.heads = symbolic, symbolic.plan, diag.size(0)
        self.graph, self._entries, self.book = J.graph, symbolic.entries, symbolic.book_address
        self.diag, self.off = plain(diag), plain(off)
        self.numbers = symbolic.room(self.heads, diag.dtype)
        addresses = self.diag.data_ptr(), self.off.data_ptr(), self.numbers.data_ptr()
        self.where = (ZERO[diag.dtype], self.heads, symbolic.eliminated, *addresses)
        # groups of heads that are factorised side by side, 0 if one after the other is faster; whether solves are, too
        self.groups, self.side_by_side = 0, False
        if self.heads > 1 and len(self.plan[2]) <= numeric8.GROUP_LIMIT:
            self.groups = -(-self.heads // numeric8.GROUP)
            self.side_by_side = numeric8.side_by_side(self.heads, symbolic.eliminated, symbolic.num_nodes)
        # Not factorised yet: the first solve does it in the same call if it is small. Threads that come together may
        # all do it: every number is written once, when it is final, and to the same bits.
        self.outcome: Any = None

    @classmethod
    def of(cls, J: Precision, max_operations: float = math.inf) -> Factor:
        """Eliminate J completely; a ValueError where that takes more than ``max_operations`` multiply-adds a head."""
        symbolic = elimination.symbolic(J.graph, max_operations)
        if symbolic is None:
            raise ValueError(
                f"max_operations={max_operations:g}; eliminating {J.graph} takes more. "
                "Raise it, or use an iterative solver such as solver='cg'"
            )
        return cls(J, symbolic)

    @property
    def failure(self) -> Status | None:
        """None, or the status of every solve with this J."""
        self._made()
        return FAILURE.get(self.outcome)

    def _factorise(self) -> int:
        work, groups = self.heads * self.symbolic.operations, self.groups
        kernel = numeric8.factorise_groups if groups else numeric.factorise
        done = in_groups(kernel, groups or self.heads, work, self.symbolic.tail, self.plan, self.where)
        return max(done, default=numeric.FINE)

    @property
    def pivots(self) -> Tensor:
        """D in float64, ``[H, N]``; from position ``eliminated`` on the core's diagonal."""
        count = self.heads * self.symbolic.num_nodes
        return self._made()[: 2 * count].view(torch.float64)[:count].view(self.heads, -1)

    @property
    def factor(self) -> Tensor:
        """L, ``[H, nnz]``, followed by the core's couplings in a partial elimination."""
        start, count = 2 * self.heads * (self.symbolic.num_nodes + 1), self.heads * len(self.plan[2])
        numbers = self._made()[start : start + count]
        if self.side_by_side:
            return numbers.view(self.groups, -1, numeric8.GROUP).transpose(1, 2).reshape(self.heads, -1)
        return numbers.view(self.heads, -1)

    def _made(self) -> Tensor:
        if self.outcome is None:
            self.outcome = self._factorise()
        return self.numbers

    def solve(self, h: Tensor) -> tuple[Tensor, float]:
        """mu and its worst backward error; without meaning after a failure."""
        columns = h.size(2)
        if self.side_by_side and columns % simd8x8.COLUMNS:
            mu, error = self.solve(nnf.pad(h, (0, -columns % simd8x8.COLUMNS)))
            return mu[..., :columns].contiguous(), error
        h = plain(h)
        mu = blank(h)
        work = self.heads * (self.symbolic.operations + columns * self._entries)
        if self.outcome is None and work >= WORTH_A_THREAD and torch.get_num_threads() > 1:
            self._made()  # by several threads
        if self.outcome is None:
            return mu, self._at_once(h, mu)
        if self.outcome != numeric.FINE:
            return mu, torch.nan
        return mu, self._sweep(sweeps8.solve_groups if self.side_by_side else triangular.solve, h, mu)

    def _at_once(self, h: Tensor, mu: Tensor) -> float:
        """Factorise and solve in one call."""
        columns, tail, addresses = h.size(2), self.symbolic.tail, (h.data_ptr(), mu.data_ptr())
        if self.side_by_side:
            what: tuple = (
                self.groups,
                tail,
                self.groups * (columns // simd8x8.COLUMNS),
                self.book,
                self.where,
                columns,
            )
            error = fused_small.factorise_and_solve_groups(*what, *addresses)
        else:
            lanes = lanes_for(min(columns, WIDEST))
            units = self.heads * -(-columns // (8 * lanes.itemsize))
            what = (self.heads, self.groups, tail, units, lanes, self.book, self.where, columns)
            error = fused_small.factorise_and_solve(*what, *addresses)
        self.outcome = round(-error) if error < 0 else numeric.FINE
        return error

    def can_dot(self, h: Tensor) -> bool:
        """Whether :meth:`solve_and_dot` takes such an h: one block of columns, too little work for threads."""
        columns = h.size(2)
        small = self.heads * columns * self._entries < WORTH_A_THREAD or torch.get_num_threads() == 1
        return small and self.outcome == numeric.FINE and columns in WIDTHS and not self.side_by_side and h.size(1) > 0

    def solve_and_dot(self, h: Tensor, mu: Tensor) -> tuple[Tensor, float, Tensor, Tensor]:
        """:meth:`solve`, and the gradients of diag and off given the mu of the forward pass."""
        h, mu, columns = plain(h), plain(mu), h.size(2)
        g = blank(h)
        like_diag, like_off, what, _ = self.graph.derived(prepare_dots, self.heads, columns, h.dtype)
        lanes, _, shape, upper = what
        diag, off = torch.empty_like(like_diag), torch.empty_like(like_off)
        solving = (self.heads, lanes, self.book, self.where, columns, h.data_ptr(), g.data_ptr())
        dotting = (shape, upper, mu.data_ptr(), diag.data_ptr(), off.data_ptr())
        return g, fused_small.solve_and_dot(*solving, *dotting), diag, off

    def eliminate(self, h: Tensor) -> Tensor:
        """``L^-1 h`` in elimination order: in the last rows, the right-hand side of the core's own system.

        There must be a core: heads of a complete elimination may lie side by side, which only :meth:`solve` reads.
        """
        h = plain(h)
        out = blank(h)
        self._sweep(triangular.eliminate, h, out)
        return out

    def substitute(self, h: Tensor, eliminated: Tensor, core: Tensor) -> tuple[Tensor, float]:
        """mu from what :meth:`eliminate` gave and the core's solution, and its worst backward error."""
        h, core = plain(h), plain(core)
        mu = blank(h)
        return mu, self._sweep(triangular.substitute, h, eliminated, core, mu)

    def measure(self, h: Tensor, mu: Tensor) -> float:
        """The worst backward error of any mu."""
        return self._sweep(triangular.measure, plain(h), plain(mu))

    def residual(self, h: Tensor, mu: Tensor) -> Tensor:
        """``h - J mu`` for a mu in float64, in float64."""
        h, mu = plain(h), plain(mu)
        out = torch.empty_like(mu)
        addresses = h.data_ptr(), mu.data_ptr(), out.data_ptr()
        triangular.residual(0, self.heads, self.plan, self.where, h.size(2), *addresses)
        return out

    def logdet(self) -> Tensor:
        """``log det J`` of each head, float64 ``[H]``; NaN after a failure."""
        if self.failure is not None:
            return torch.full((self.heads,), torch.nan, dtype=torch.float64)
        return self.pivots.log().sum(1)

    def selected_inverse(self) -> tuple[Tensor, Tensor]:
        """``J^-1`` on the pattern of J, float64: diag ``[H, N]`` and off ``[H, E]``; NaN after a failure.

        The digits of a J in float32 suffer from the rounding of its factor: factorise ``J.to(torch.float64)``.
        """
        diag = torch.full((self.heads, self.graph.num_nodes), torch.nan, dtype=torch.float64)
        off = torch.full((self.heads, self.graph.num_edges), torch.nan, dtype=torch.float64)
        if self.failure is None:
            for factor, pivots, *out in zip(self.factor, self.pivots, diag, off, strict=True):
                selected_inverse(factor.numpy(), pivots.numpy(), self.plan, *(part.numpy() for part in out))
        return diag, off

    def half_solve(self, z: Tensor) -> Tensor:
        """``L^-T D^-1/2 z`` for ``z [H, N, F]``: x of covariance ``J^-1`` for white noise z; NaN after a failure."""
        out = torch.full(z.shape, torch.nan, dtype=z.dtype)
        if self.failure is None:
            z = plain(z)
            for factor, pivots, *ends in zip(self.factor, self.pivots, z, out, strict=True):
                half_solve(factor.numpy(), pivots.numpy(), self.plan, *(part.numpy() for part in ends))
        return out

    def _sweep(self, kernel: Callable[..., Any], h: Tensor, *others: Tensor) -> Any:
        columns = h.size(2)
        work, threads = self.heads * columns * self._entries, torch.get_num_threads()
        addresses = [t.data_ptr() for t in (h, *others)]
        if kernel is sweeps8.solve_groups:
            units, what = self.groups * (columns // simd8x8.COLUMNS), (self.plan, self.where, columns)
        else:
            widest = WIDEST // 2 if work >= WORTH_A_THREAD and threads > 1 else WIDEST
            lanes = lanes_for(min(columns, widest))  # no bit of a column depends on its block
            units = self.heads * -(-columns // (8 * lanes.itemsize))
            what = (lanes, self.plan, self.where, columns)  # type: ignore[assignment]
        if work < WORTH_A_THREAD or threads == 1:
            return kernel(0, units, *what, *addresses)
        errors = in_groups(kernel, units, work, *what, *addresses)
        return errors[0] if len(errors) == 1 or errors[0] is None else float(np.max(errors))


def in_groups(kernel: Callable[..., Any], units: int, work: float, *args: Any) -> list[Any]:
    """``kernel(start, stop, *args)`` over all units, in one call unless threads pay. Units never share a number."""
    threads = torch.get_num_threads()
    if work < WORTH_A_THREAD or threads == 1:
        return [kernel(0, units, *args)]
    return over_columns(kernel, units, work, *args, width=max(1, -(-units // threads)))
