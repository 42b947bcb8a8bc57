"""Conjugate gradients with one block of threads a column: the quickest way on a GPU where a column fits into one."""

from __future__ import annotations

import warnings
import weakref

import torch
from torch import Tensor

from walksum.graph import Graph
from walksum.kernels.column_deal import LEVELS, WARP, ColumnDeal, column_deal
from walksum.kernels.cuda_source import CudaError, Kernel, compiled
from walksum.kernels.gpu_launch import on_device
from walksum.precision import Precision
from walksum.solvers.late import capturing
from walksum.solvers.verdict import REPORT, Verdict, current_stream

FILE = "columns.cu"
SMALL, LARGE = 1024, 512  # threads of a block; many rows a thread need its registers
MANY = 8192  # nodes from which they do
TABLES = 4 * (2 * 3 * 32 + 2 * LEVELS)  # bytes of a block beside its vectors
COPIED = 256  # values a block of threads copies
PLACES = 2**16  # what two bytes can number


def threads_for(num_nodes: int) -> int:
    """In whole warps; two rows a thread at least."""
    return min(SMALL if num_nodes <= MANY else LARGE, max(2, -(-num_nodes // (2 * WARP))) * WARP)


def shared_bytes(deal: ColumnDeal) -> int:
    return 4 * (2 * deal.places + deal.tails) + TABLES


def columns_fit(graph: Graph) -> bool:
    """Whether a column of this graph fits into one block, and torch can compile for it."""
    return graph.derived(_kernels) is not None


def _kernels(graph: Graph) -> tuple[Kernel, Kernel] | None:
    """solve_columns and lay_out for graphs of this size; None where they are too large, or cannot be compiled."""
    if graph.device.type != "cuda" or torch.version.hip or not 0 < graph.num_nodes <= PLACES - WARP:
        return None
    deal, device = column_deal(graph), graph.device.index or 0
    shared = shared_bytes(deal)
    if shared > getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0):
        return None
    threads = threads_for(graph.num_nodes)
    try:
        found = compiled(FILE, "solve_columns", device, THREADS=threads, ROWS=-(-deal.places // threads))
        found.allow_shared_memory(shared)
        return found, compiled(FILE, "lay_out", device, THREADS=WARP, ROWS=1)
    except CudaError as error:
        warnings.warn(f"conjugate gradients take a slower way: {error}", RuntimeWarning, stacklevel=2)
        return None


class ColumnLaunch:
    """Solves of one shape on one graph."""

    def __init__(self, graph: Graph, heads: int, columns: int, max_steps: int, tol: float, aim: float):
        kernels = graph.derived(_kernels)
        assert kernels is not None
        self.deal = deal = column_deal(graph)
        self.heads, self.tol = heads, tol
        tables = (deal.order, deal.index, deal.tail_start, deal.levels)
        sizes = (graph.num_nodes, deal.places, columns, deal.tails, deal.num_slots)
        numbers = (*sizes, max_steps, float(tol), float(aim))
        threads, shared = threads_for(graph.num_nodes), shared_bytes(deal)
        self.solve = kernels[0].bound((columns, heads), threads, shared, 5, *tables, *numbers)
        copies = (-(-max(deal.num_slots, deal.places) // COPIED), heads)
        lengths = (graph.num_nodes, graph.num_edges, deal.places, deal.num_slots)
        self.lay_out = kernels[1].bound(copies, COPIED, 0, 4, deal.order, deal.edge, deal.ends, *lengths)
        self.last: tuple[weakref.ref[Precision], int, tuple[Tensor, Tensor]] | None = None

    def start(self, J: Precision, h: Tensor) -> tuple[Tensor, Verdict]:
        """Launch; nothing is waited for."""
        h = h.contiguous()
        mu, report = torch.empty_like(h), h.new_empty(REPORT, h.size(0), h.size(2))
        stream = current_stream(h)
        with on_device(h.device):
            self.solve(stream, *self._values(J, stream), h, mu, report)
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
        diag = J.diag.contiguous()
        values, root = diag.new_empty(self.heads, self.deal.num_slots), diag.new_empty(self.heads, self.deal.places)
        self.lay_out(stream, diag, J.off.contiguous(), values, root)
        return values, root


def column_launch(graph: Graph, heads: int, columns: int, *knobs: object) -> ColumnLaunch | None:
    """For :meth:`Graph.derived`; None where a column does not fit."""
    return ColumnLaunch(graph, heads, columns, *knobs) if columns_fit(graph) else None  # type: ignore[arg-type]
