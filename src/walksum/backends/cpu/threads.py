"""Column blocks over threads: the only parallelism of the CPU kernels.

Kernels are compiled with ``nogil=True`` and get a range of columns each. Blocks have a fixed width, so results
are bit-identical for every number of threads. A plain thread pool is safe beside other threads and after fork,
which numba's own threading layers are not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

WIDTH = 32  # columns a block: two cache lines of float32
WORTH_A_THREAD = 2e6  # multiply-adds; below about 2 ms of work, handing it over costs more than it saves

_pool: ThreadPoolExecutor | None = None


def over_columns(kernel: Callable[..., Any], columns: int, work: float, *args: Any, width: int = WIDTH) -> list[Any]:
    """``[kernel(start, stop, *args) for each block of columns]``; ``work`` is the total of multiply-adds."""
    if columns <= width:
        return [kernel(0, columns, *args)] if columns else []
    blocks = [(start, min(start + width, columns)) for start in range(0, columns, width)]
    if work < WORTH_A_THREAD or torch.get_num_threads() == 1:
        return [kernel(start, stop, *args) for start, stop in blocks]
    lanes = min(torch.get_num_threads(), len(blocks))

    def lane(k: int) -> list[Any]:
        return [kernel(start, stop, *args) for start, stop in blocks[k::lanes]]

    done = list(_executor().map(lane, range(lanes)))
    return [done[b % lanes][b // lanes] for b in range(len(blocks))]


def _executor() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="walksum")
    return _pool


def _forget() -> None:
    global _pool
    _pool = None  # a forked child has the object but none of its threads


os.register_at_fork(after_in_child=_forget)
