"""Conjugate gradients with one cluster of thread blocks per column: the quickest way on a GPU where a column fits."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from walksum._torch import raw_stream
from walksum.backends.cuda import STATES
from walksum.backends.cuda.columns.compile import CudaError, Kernel, compiled
from walksum.backends.cuda.columns.row_layout import WARP
from walksum.backends.cuda.columns.settings import PLACES, Device, Setting, choose
from walksum.backends.cuda.triton.launch import on_device
from walksum.graph import Graph
from walksum.precision import Precision
from walksum.solvers.deferred import REPORT, DeferredOutcome

FILES = ("columns_cluster.cu", "columns_reduce.cu", "columns_rows.cu", "columns.cu")
COPIED = 256  # values per block of threads that copies


def columns_fit(graph: Graph) -> bool:
    """Whether a column of this graph fits into the blocks of a cluster, and torch can compile for it."""
    return graph.derived(_lay_out) is not None


def _setting(graph: Graph) -> Setting | None:
    if graph.device.type != "cuda" or torch.version.hip or not 0 < graph.num_nodes <= PLACES - WARP:
        return None
    return choose(graph, Device.of(graph.device.index or 0))


def _lay_out(graph: Graph) -> Kernel | None:
    if _setting(graph) is None:
        return None
    return _compiled(graph, "lay_out", Setting(cluster=1, threads=WARP, rows=1, levels=1, lean=False))


def _compiled(graph: Graph, name: str, setting: Setting) -> Kernel | None:
    try:
        return compiled(FILES, name, graph.device.index or 0, **STATES, **setting.defined)
    except CudaError as error:
        warnings.warn(f"conjugate gradients take a slower way: {error}", RuntimeWarning, stacklevel=2)
        return None


class ColumnLaunch:
    """Solves of one shape on one graph."""

    def __init__(
        self,
        graph: Graph,
        setting: Setting,
        kernels: tuple[Kernel, Kernel],
        shape: tuple[int, int],
        max_steps: int,
        tol: float,
        aim: float,
    ):
        self.layout = layout = setting.layout(graph)
        heads, columns = shape
        self.heads, self.tol = heads, tol
        tables = (layout.order, layout.index, layout.tail_start, layout.levels)
        sizes = (graph.num_nodes, layout.places, columns, layout.tails, layout.num_slots)
        numbers = (*sizes, max_steps, float(tol), float(aim))
        blocks, shared = (columns * setting.cluster, heads), setting.shared_bytes(layout)
        kernels[0].allow_shared_memory(shared)
        self.solve = kernels[0].bound(blocks, setting.threads, shared, 5, *tables, *numbers)
        copies = (-(-max(layout.num_slots, layout.places) // COPIED), heads)
        lengths = (graph.num_nodes, graph.num_edges, layout.places, layout.num_slots)
        self.lay_out = kernels[1].bound(copies, COPIED, 0, 4, layout.order, layout.edge, layout.ends, *lengths)

    def start(self, J: Precision, h: Tensor) -> DeferredOutcome:
        """Launch; nothing is waited for. J's values are laid out anew each time, so they are always the live ones."""
        h, diag = h.contiguous(), J.diag.contiguous()
        mu, report = torch.empty_like(h), h.new_empty(REPORT, h.size(0), h.size(2))
        values, root = diag.new_empty(self.heads, self.layout.num_slots), diag.new_empty(self.heads, self.layout.places)
        with on_device(h.device):
            stream = raw_stream(h.device.index)
            self.lay_out(stream, diag, J.off.contiguous(), values, root)
            self.solve(stream, values, root, h, mu, report)
        return DeferredOutcome(mu, report, self.tol)


def column_launch(graph: Graph, heads: int, columns: int, *knobs: object) -> ColumnLaunch | None:
    """For :meth:`Graph.derived`; None where a column does not fit."""
    lay_out, setting = graph.derived(_lay_out), _setting(graph)
    solve = _compiled(graph, "solve_columns", setting) if lay_out is not None and setting is not None else None
    if lay_out is None or setting is None or solve is None:
        return None
    return ColumnLaunch(graph, setting, (solve, lay_out), (heads, columns), *knobs)  # type: ignore[arg-type]
