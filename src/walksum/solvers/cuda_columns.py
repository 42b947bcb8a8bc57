"""Conjugate gradients with one block of threads a column: the quickest way on a GPU where a column fits into one."""

from __future__ import annotations

import warnings
import weakref

import torch
from torch import Tensor

from walksum.graph import Graph
from walksum.kernels.column_deal import SLICE, ColumnDeal, column_deal
from walksum.kernels.cuda_source import CudaError, Kernel, compiled
from walksum.precision import Precision
from walksum.solvers.late import capturing
from walksum.solvers.verdict import REPORT, Verdict, current_stream

FILE = "columns.cu"
MOST_THREADS = 1024
DESK = 4 * 2 * 3 * 32  # bytes a block adds up its sums in
COPIED = 256  # values a block of threads copies
PLACES = 2**16  # what two bytes can number


def shared_bytes(deal: ColumnDeal) -> int:
    return 4 * (2 * deal.places + deal.num_long) + DESK


def threads_for(num_nodes: int) -> int:
    """Two rows a thread at least, in whole warps."""
    return min(MOST_THREADS, max(2, -(-num_nodes // (2 * SLICE))) * SLICE)


def columns_fit(graph: Graph) -> bool:
    """Whether a column of this graph fits into one block, and torch can compile for it."""
    return graph.derived(_kernels) is not None


def _kernels(graph: Graph) -> tuple[Kernel, Kernel] | None:
    """solve_columns and lay_out for graphs of this size; None where they are too large, or cannot be compiled."""
    if graph.device.type != "cuda" or torch.version.hip or not 0 < graph.num_nodes <= PLACES - SLICE:
        return None
    deal, device = _deal_of(graph), graph.device.index or 0
    shared = shared_bytes(deal)
    if shared > getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0):
        return None
    threads = threads_for(graph.num_nodes)
    try:
        found = compiled(FILE, "solve_columns", device, THREADS=threads, ROWS=-(-deal.places // threads))
        found.allow_shared_memory(shared)
        return found, compiled(FILE, "lay_out", device, THREADS=32, ROWS=1)
    except CudaError as error:
        warnings.warn(f"conjugate gradients take a slower way: {error}", RuntimeWarning, stacklevel=2)
        return None


def _deal_of(graph: Graph) -> ColumnDeal:
    return column_deal(graph, threads_for(graph.num_nodes) // SLICE)


class ColumnLaunch:
    """Solves of one shape on one graph."""

    def __init__(self, graph: Graph, heads: int, columns: int, jacobi: bool, max_steps: int, tol: float, aim: float):
        kernels = graph.derived(_kernels)
        assert kernels is not None
        self.solve_columns, self.lay_out = kernels
        self.deal, self.tol = _deal_of(graph), tol
        self.shared, self.threads = shared_bytes(self.deal), threads_for(graph.num_nodes)
        self.grid, self.heads, self.sizes = (columns, heads), heads, (graph.num_nodes, graph.num_edges)
        deal = self.deal
        self.tables = (deal.order, deal.index, deal.long_start, deal.slice_start)
        self.numbers = (graph.num_nodes, deal.places, columns, deal.num_long, deal.num_slots, int(jacobi), max_steps)
        self.limits = (float(tol), float(aim))
        self.last: tuple[weakref.ref[Precision], int, tuple[Tensor, Tensor]] | None = None

    def start(self, J: Precision, h: Tensor) -> tuple[Tensor, Verdict]:
        """Launch; nothing is waited for."""
        h = h.contiguous()
        mu, report = torch.empty_like(h), h.new_empty(REPORT, h.size(0), h.size(2))
        stream = current_stream(h)
        tensors = (*self._values(J, stream), h, mu, report, *self.tables)
        self.solve_columns(self.grid, self.threads, self.shared, stream, *tensors, *self.numbers, *self.limits)
        return mu, Verdict(report, self.tol)

    def _values(self, J: Precision, stream: int) -> tuple[Tensor, Tensor]:
        """The values of J as the kernel wants them; those of the last J, which the backward pass asks for again, are
        kept, but not into or out of a CUDA graph, whose memory is its own."""
        if capturing(J.diag):
            return self._laid_out(J, stream)
        last = self.last
        if last is not None and last[0]() is J and last[1] == stream:
            return last[2]
        found = self._laid_out(J, stream)
        self.last = (weakref.ref(J), stream, found)
        return found

    def _laid_out(self, J: Precision, stream: int) -> tuple[Tensor, Tensor]:
        deal, diag = self.deal, J.diag.contiguous()
        values, pivot = diag.new_empty(self.heads, deal.num_slots), diag.new_empty(self.heads, deal.places)
        grid = (-(-max(deal.num_slots, deal.places) // COPIED), self.heads)
        tensors = (diag, J.off.contiguous(), deal.order, deal.edge, values, pivot)
        self.lay_out(grid, COPIED, 0, stream, *tensors, *self.sizes, deal.places, deal.num_slots)
        return values, pivot
