"""Factor: the numbers of a complete elimination, and what can be asked of them. Runs on the CPU."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walksum.backends.cpu.ldl import blas, multifrontal, numeric, selected_inverse, supernodal_sweeps
from walksum.backends.cpu.ldl import symbolic as elimination
from walksum.backends.cpu.ldl.symbolic import Symbolic
from walksum.backends.cpu.pointers import LARGE, ZERO, blank, contiguous_on_cpu
from walksum.backends.cpu.simd import lanes_for
from walksum.backends.cpu.threads import WORTH_A_THREAD, over_columns
from walksum.graph import Graph
from walksum.precision import Precision
from walksum.solvers.base import NotCopied, Status, backward_error, node_sum, norm_inf, worst

WIDEST = {torch.float32: 64, torch.float64: 32}  # columns per block: four of its rows fill the vector registers
FAILURE = {numeric.INDEFINITE: Status.not_positive_definite, numeric.NONFINITE: Status.nonfinite}


class Factor(NotCopied):
    """``P J P^T = L L^T`` with supernodes, made in float64 and rounded to the dtype of J. The first use makes it."""

    def __init__(self, J: Precision, symbolic: Symbolic):
        check_dtype(J)
        self.symbolic, self.plan, self.graph, self.heads = symbolic, symbolic.plan, J.graph, J.heads
        # aliases, which keep this memory even if the tensors are given other memory through .data
        self.diag, self.off = contiguous_on_cpu(J.diag.detach()), contiguous_on_cpu(J.off.detach())
        self.entries = 2 * symbolic.fill + 2 * J.graph.num_edges + symbolic.num_nodes  # multiply-adds per column
        self.outcome: int | None = None

    @classmethod
    def of(cls, J: Precision, max_operations: float = math.inf) -> Factor:
        """Eliminate J completely; a ValueError where that takes more than ``max_operations`` multiply-adds per head."""
        return cls(J, pattern_of(J.graph, max_operations))

    @property
    def failure(self) -> Status | None:
        """None, or the status of every solve with this J."""
        self._made()
        return FAILURE.get(self.outcome)  # type: ignore[arg-type]

    def _made(self) -> None:
        if self.outcome is not None:
            return
        # Threads that come together may all do it, each with memory of its own.
        symbolic, dtype = self.symbolic, self.diag.dtype
        L = self._memory(self.heads * symbolic.size, dtype)
        pivots = self.diag.new_empty(self.heads, symbolic.num_nodes, dtype=torch.float64)
        norms = self.diag.new_empty(self.heads, dtype=torch.float64)
        addresses = [t.data_ptr() for t in (self.diag, self.off, L, norms)]
        where = ZERO[dtype], self.heads, *addresses
        work = self.heads * symbolic.operations
        args = symbolic.plan, symbolic.room, blas.addresses(), where, pivots.data_ptr()
        with blas.threads_for(symbolic.room[1]):
            done = over_threads(multifrontal.factorise, self.heads, work, *args, owners=(self, L, pivots, norms))
        self.L, self.pivots, self.norms, self.where = L, pivots, norms, where
        self.outcome = max(done, default=numeric.OK)

    def _memory(self, count: int, dtype: torch.dtype) -> Tensor:
        """Memory for L. That of a large factor goes to the next one of its graph: touching new pages takes as long as
        half a factorisation."""
        spare = self.symbolic.spare
        try:
            L = spare.pop()  # safe beside other threads
        except IndexError:
            L = None
        if L is None or L.numel() != count or L.dtype != dtype:
            L = torch.from_numpy(np.empty(count, ZERO[dtype].dtype))  # in huge pages, see pointers.py
        if count >= LARGE:
            weakref.finalize(self, _give_back, spare, L).atexit = False
        return L

    def reads(self, h: Tensor) -> bool:
        """Whether :meth:`solve` takes h as it lies."""
        return h.is_contiguous()

    def solve(self, h: Tensor) -> tuple[Tensor, float]:
        """mu and its worst backward error; without meaning after a failure."""
        self._made()
        h = self._checked("h", h)
        mu = blank(h)
        if self.outcome != numeric.OK:
            return mu, torch.nan
        return mu, worst_of(self._sweep(supernodal_sweeps.solve, h, mu))

    def half_solve(self, z: Tensor) -> Tensor:
        """``P^T L^-T P z`` for ``z [H, N, F]``: x of covariance ``J^-1`` for white noise z; NaN after a failure."""
        self._made()
        z = self._checked("z", z)
        if self.outcome != numeric.OK:
            return torch.full_like(z, torch.nan)
        out = blank(z)
        self._sweep(supernodal_sweeps.half_solve, z, out)
        return out

    def logdet(self) -> Tensor:
        """``log det J`` of each head, float64 ``[H]``; NaN after a failure."""
        if self.failure is not None:
            return self.diag.new_full((self.heads,), torch.nan, dtype=torch.float64)
        return node_sum(self.pivots.log()).squeeze(1)

    def selected_inverse(self) -> tuple[Tensor, Tensor]:
        """``J^-1`` on the pattern of J, float64: diag ``[H, N]`` and off ``[H, E]``; NaN after a failure.

        The digits of a J in float32 suffer from the rounding of its factor: factorise ``J.to(torch.float64)``.
        """
        diag = torch.full_like(self.diag, torch.nan, dtype=torch.float64)
        off = torch.full_like(self.off, torch.nan, dtype=torch.float64)
        if self.failure is None:
            L = self.L.view(self.heads, -1).double().numpy()
            args = self.plan, self.symbolic.room, blas.addresses(), L, diag.numpy(), off.numpy()
            work = 3 * self.heads * self.symbolic.operations
            with blas.threads_for(self.symbolic.room[1]):
                over_threads(selected_inverse.selected_inverse, self.heads, work, *args, owners=(self,))
        return diag, off

    def _checked(self, name: str, values: Tensor) -> Tensor:
        """Values whose address may go to a kernel; a ValueError if they are no ``[H, N, F]`` of the dtype of J."""
        if values.dim() != 3 or values.shape[:2] != self.diag.shape or values.dtype != self.diag.dtype:
            heads, nodes = self.diag.shape
            raise ValueError(
                f"{name} is {values.dtype} of shape {tuple(values.shape)}; this factor takes "
                f"{self.diag.dtype} [{heads}, {nodes}, F]"
            )
        return contiguous_on_cpu(values)

    def _sweep(self, kernel: Callable[..., Any], h: Tensor, *others: Tensor) -> list[Any]:
        columns, widest = h.size(2), WIDEST[h.dtype]
        lanes = lanes_for(min(columns, widest))  # no bit of a column depends on its block
        units = self.heads * -(-columns // (8 * lanes.itemsize))
        addresses = [t.data_ptr() for t in (h, *others)]
        work = self.heads * columns * self.entries
        return over_threads(
            kernel, units, work, lanes, self.plan, self.where, columns, *addresses, owners=(self, h, *others)
        )


def pattern_of(graph: Graph, max_operations: float) -> Symbolic:
    """The pattern of a complete elimination; a ValueError where that takes more than ``max_operations`` per head."""
    symbolic = elimination.symbolic(graph, max_operations)
    if symbolic is None:
        raise ValueError(
            f"max_operations={max_operations:g}; eliminating {graph} takes more. "
            "Raise it, or use an iterative solver such as solver='cg'"
        )
    return symbolic


def check_dtype(J: Precision) -> None:
    if J.dtype not in ZERO:
        raise ValueError(f"J is {J.dtype}; elimination takes float32 or float64, use J.to(torch.float32)")


def residual(J: Precision, h: Tensor, mu: Tensor) -> Tensor:
    """``h - J mu`` with all sums in float64."""
    exact = Precision.trusted(J.graph, J.diag.detach().double(), J.off.detach().double())
    return h.double() - exact @ mu.double()


def measure(J: Precision, h: Tensor, mu: Tensor) -> float:
    """The worst backward error of any mu."""
    return worst(backward_error(J.detach(), mu, h, norm_inf(J.detach())))


def _give_back(spare: list[Tensor], L: Tensor) -> None:
    if not spare:
        spare.append(L)


def worst_of(errors: list[float]) -> float:
    if len(errors) == 1:
        return errors[0]
    return float(np.max(errors)) if errors else 0.0  # NaN stays


def over_threads(kernel: Callable[..., Any], units: int, work: float, *args: Any, owners: tuple = ()) -> list[Any]:
    """``kernel(start, stop, *args)`` over all units, in one call unless threads pay. Units never share a number.

    ``owners`` is what owns the memory behind addresses in ``args``.
    """
    threads = torch.get_num_threads()
    if work < WORTH_A_THREAD or threads == 1:
        return [kernel(0, units, *args)]
    return over_columns(kernel, units, work, *args, width=max(1, -(-units // threads)), owners=owners)
