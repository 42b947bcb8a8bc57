"""Times on the device (events) and on the host (clock), as medians after a warm-up."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

BANDWIDTH = 4.3e12  # bytes a second: a device-to-device copy on an H200, read and written bytes counted


def sync(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def event_ms(body: Callable[[], object], device: str, repeat: int = 7, warm: int = 2) -> float:
    """Milliseconds that the device needs for ``body``."""
    for _ in range(warm):
        body()
    if device != "cuda":
        return wall_ms(body, device, 1, 0)
    times = []
    for _ in range(repeat):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        body()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return statistics.median(times)


def replay_ms(body: Callable[[], object], device: str, inner: int = 20) -> float:
    """Milliseconds of one ``body`` among many in a captured graph: what is left when launching is free."""
    if device != "cuda":
        return wall_ms(body, device, 1, 0)
    body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(inner):
            body()
    return event_ms(graph.replay, device) / inner


def wall_ms(body: Callable[[], object], device: str, repeat: int = 11, warm: int = 4) -> float:
    """Milliseconds until the device is done, the host's work included."""
    for _ in range(warm):
        body()
    times = []
    for _ in range(repeat):
        sync(device)
        start = time.perf_counter()
        body()
        sync(device)
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def floor_ms(num_bytes: float) -> float:
    return 1e3 * num_bytes / BANDWIDTH
