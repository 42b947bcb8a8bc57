"""How the CPU kernels see a graph (numpy views) and its columns (blocks that fill vector registers)."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from walksum.backends.cpu.simd import lanes_for
from walksum.backends.cpu.threads import WIDTH, over_columns
from walksum.graph import Graph

AHEAD = 32  # edges between asking for a row and using it: memory answers later than a cache, which loses little by it
KEPT = 1 << 24  # bytes of scratch that a thread keeps
CACHE = 12e6  # bytes an iteration may go over again and again and still find in a core's share of the cache

_mine = threading.local()


@dataclass(frozen=True)
class Rows:
    """The neighbour lists of a graph as numpy views."""

    indptr: np.ndarray
    indices: np.ndarray
    edge: np.ndarray
    reverse: np.ndarray


def rows(graph: Graph) -> Rows:
    return graph.derived(_build_rows)


def _build_rows(graph: Graph) -> Rows:
    csr = graph.csr
    return Rows(*(t.numpy() for t in (csr.indptr, csr.indices, csr.edge, csr.reverse)))


def view(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy()


def fitting(bytes_per_column: float) -> int:
    """Half a block where that keeps an iteration's working set in the cache and a whole block does not."""
    return WIDTH // 2 if CACHE / WIDTH < bytes_per_column <= 2 * CACHE / WIDTH else WIDTH


def for_blocks(kernel: Callable[..., Any], heads: int, columns: int, work: float, width: int = WIDTH) -> list[Any]:
    """``kernel(head, start, stop)`` for each block of columns of each head, in threads where it pays."""
    blocks = [(k, c, min(c + width, columns)) for k in range(heads) for c in range(0, columns, width)]
    return over_columns(lambda b, _: kernel(*blocks[b]), len(blocks), work * heads * columns, width=1)


def aligned(*shape: int, dtype: Any) -> np.ndarray:
    """Zeros that start at a cache line, so that a row of 16 or 32 columns never straddles one more than it must."""
    return _from_a_line(np.zeros(_size(shape, dtype) + 64, np.uint8), shape, dtype)


class Workspace:
    """Scratch of each thread of a solve, not filled, good until the thread asks again.

    Memory that is new to a process costs a page fault every 4 KB, which for a few steps is as much as the steps. So
    blocks of columns share it, and what is small outlives the solve. From 4 MB on numpy asks for huge pages.
    """

    def __init__(self) -> None:
        self.large: dict[int, np.ndarray] = {}

    def array(self, *shape: int, dtype: Any) -> np.ndarray:
        size, thread = _size(shape, dtype) + 64, threading.get_ident()
        raw = getattr(_mine, "raw", None) if size <= KEPT else self.large.get(thread)
        if raw is None or raw.size < size:
            raw = np.empty(size, np.uint8)
            if size <= KEPT:
                _mine.raw = raw
            else:
                self.large[thread] = raw
        return _from_a_line(raw, shape, dtype)


def _size(shape: tuple[int, ...], dtype: Any) -> int:
    return math.prod(shape) * np.dtype(dtype).itemsize


def _from_a_line(raw: np.ndarray, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    start = -raw.ctypes.data % 64
    return raw[start : start + _size(shape, dtype)].view(dtype).reshape(shape)


def padded(x: np.ndarray) -> np.ndarray:
    """A block of columns as it is if it fills its lanes, otherwise a copy filled up with zeros."""
    lanes = lanes_for(x.shape[1])
    full = lanes.itemsize * 8
    if x.shape[1] == full:
        return x
    copy = np.zeros((x.shape[0], full), x.dtype)
    copy[:, : x.shape[1]] = x
    return copy
