"""Blocks of columns in threads: the only parallelism of the CPU kernels.

Kernels are compiled with ``nogil=True`` and get a range of columns each. Blocks have a fixed width, so results
are bit-identical for every number of threads. A plain thread pool is safe beside other threads and after fork,
which numba's own threading layers are not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import torch

WIDTH = 32  # columns per block: two cache lines of float32
WORTH_A_THREAD = 2e6  # multiply-adds; below about 2 ms of work, handing it over costs more than it saves

_pool: ThreadPoolExecutor | None = None


def over_columns(
    kernel: Callable[..., Any], columns: int, work: float, *args: Any, width: int = WIDTH, owners: tuple = ()
) -> list[Any]:
    """``[kernel(start, stop, *args) for each block of columns]``, in threads where it pays.

    No thread of this call runs any more when it returns or raises: whatever the kernels write to may be freed then.

    Args:
        kernel: compiled without the GIL; blocks never write to the same number.
        columns: how many there are.
        work: the multiply-adds of all blocks together.
        args: passed on to every block.
        width: columns per block.
        owners: what owns the memory behind addresses in ``args``; kept alive as long as a thread runs.
    """
    if columns <= width:
        return [kernel(0, columns, *args)] if columns else []
    blocks = [(start, min(start + width, columns)) for start in range(0, columns, width)]
    if work < WORTH_A_THREAD or torch.get_num_threads() == 1:
        return [kernel(start, stop, *args) for start, stop in blocks]
    threads = min(torch.get_num_threads(), len(blocks))
    stopped: list[bool] = []

    def share(k: int, _owners: tuple = owners) -> list[Any]:
        return [kernel(start, stop, *args) for start, stop in blocks[k::threads] if not stopped]

    futures: list[Future] = []
    try:
        futures.extend(_executor().submit(share, k) for k in range(threads))
        done = [future.result() for future in futures]
    except BaseException:
        stopped.append(True)  # blocks that have not begun
        _wait_for_all(futures)
        raise
    return [done[b % threads][b // threads] for b in range(len(blocks))]


def _wait_for_all(futures: list[Future]) -> None:
    """Until no thread runs, through further interrupts: a kernel cannot be stopped, and ends soon by itself."""
    waiting = True
    while waiting:
        try:
            for future in futures:
                future.cancel()
            wait(futures)
            waiting = False
        except BaseException:  # of a signal handler; the first one is on its way to the caller
            continue


def _executor() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="walksum")
    return _pool


def _forget() -> None:
    global _pool
    _pool = None  # a forked child has the object but none of its threads


os.register_at_fork(after_in_child=_forget)
