"""How many blocks of threads share a column of columns.cu, and how many threads and how much memory each takes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from walksum.backends.cuda.columns import row_layout
from walksum.backends.cuda.columns.row_layout import CHUNK, WARP, RowLayout, layout_rows, places_of
from walksum.graph import Graph

# None: what suits the graph. Set only by tests, to compare settings on a GPU.
CLUSTER: int | None = None  # blocks per column
THREADS: int | None = None  # threads per block
SPLIT = 8192  # nodes from which two blocks per column are faster, even where all processors are busy
SMALL, LARGE = 1024, 512  # threads of a block; many rows per thread need its registers
REGISTERS = 65536  # of a block
OWN = 34  # of them a thread needs beside its rows
PLACES = 2**16  # what two bytes can number
HOPPER = 9  # the compute capability from which blocks can write to each other


@dataclass(frozen=True)
class Device:
    """What a kernel can have."""

    shared: int  # bytes per block
    clusters: bool

    @staticmethod
    def of(index: int) -> Device:
        about = torch.cuda.get_device_properties(index)
        shared = getattr(about, "shared_memory_per_block_optin", 0)
        return Device(shared, about.major >= HOPPER)


@dataclass(frozen=True)
class Setting:
    """The constants that the kernel is compiled with."""

    cluster: int
    threads: int
    rows: int  # a thread, at most
    levels: int  # see row_layout.py
    lean: bool  # the residual in shared memory
    keep: int = 0  # which slots are copied into shared memory: see columns.cu

    @property
    def defined(self) -> dict[str, int]:
        sizes = {"CLUSTER": self.cluster, "THREADS": self.threads, "ROWS": self.rows}
        return {**sizes, "LEVELS": self.levels, "LEAN": int(self.lean), "KEEP": self.keep}

    @property
    def spills(self) -> bool:
        return (2 if self.lean else 3) * self.rows + OWN > REGISTERS // self.threads

    def layout(self, graph: Graph) -> RowLayout:
        return layout_rows(graph, self.cluster, self.levels)

    def shared_bytes(self, layout: RowLayout) -> int:
        """As solve_columns divides them."""
        residual = layout.places // self.cluster if self.lean else 0
        partials, memory = 2 * 3 * self.cluster * self.threads // WARP, 10
        vectors = 16 * (self.levels + 2) + 4 * (layout.places + residual + layout.tails + partials + memory)
        kept = (0, layout.rest, layout.most)[self.keep]
        return vectors + 12 + 6 * kept if kept else vectors  # which begin at a multiple of 16


def setting_for(graph: Graph, cluster: int) -> Setting:
    """With so many blocks per column; two rows per thread at least, in whole warps."""
    share = places_of(graph.num_nodes, cluster) // cluster
    small = 3 * -(-share // SMALL) + OWN <= REGISTERS // SMALL
    threads = THREADS or min(SMALL if small else LARGE, max(2, -(-share // (2 * WARP))) * WARP)
    rows = -(-share // threads)
    levels = _levels(graph, cluster * threads // WARP)
    return Setting(cluster, threads, rows, levels, 3 * rows + OWN > REGISTERS // threads)


def _levels(graph: Graph, warps: int) -> int:
    """Chunks of a row before its tail, as few as leave each warp one tail at most: a thread takes one chunk after the
    other, so that long rows keep all others waiting."""
    few = (count for count in (4, 8) if int((graph.degree > CHUNK * count).sum()) <= warps)
    return next(few, row_layout.LEVELS)


def choose(graph: Graph, device: Device) -> Setting | None:
    """None where not even four blocks can hold a column."""
    last = None
    for size in sizes(graph.num_nodes, device):
        setting = _able(graph, device, size)
        if setting is not None and not setting.spills:
            return setting
        last = last or setting
    return last


def sizes(num_nodes: int, device: Device) -> list[int]:
    """Numbers of blocks per column, best first."""
    if CLUSTER is not None:
        return [CLUSTER]
    if not device.clusters:
        return [1]
    return [2, 1, 4] if num_nodes >= SPLIT else [1, 2, 4]


def _able(graph: Graph, device: Device, cluster: int) -> Setting | None:
    places = places_of(graph.num_nodes, cluster)
    if places > PLACES or 4 * places > device.shared:
        return None
    setting = setting_for(graph, cluster)
    kept = (replace(setting, keep=keep) for keep in (2, 1, 0))  # as many slots as fit
    return next((able for able in kept if able.shared_bytes(able.layout(graph)) <= device.shared), None)
