"""Clocks, interleaved medians, peak memory, bandwidth: how everything here is measured."""

from __future__ import annotations

import ctypes
import gc
import random
import re
import statistics
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch

Sample = Callable[[], float]  # one measurement, in seconds
Key = TypeVar("Key", bound=Hashable)
clock = time.perf_counter  # of a CPU; time.process_time counts what this process was given of a machine that others use


def seconds(run: Callable[[], object], device: str = "cpu", calls: int = 1) -> float:
    """Mean seconds of one call; on CUDA between two events, after all work before has ended."""
    if device == "cpu":
        start = clock()
        for _ in range(calls):
            run()
        return (clock() - start) / calls
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(calls):
        run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1e3 / calls


def tidy(device: str) -> None:
    """Let go of what the last problem left in cycles: the collector does not know that a GPU is full."""
    gc.collect()
    if device != "cpu":
        torch.cuda.empty_cache()


def sampler(run: Callable[[], object], device: str, at_least: float = 0.01, taken: float | None = None) -> Sample:
    """Repeat calls within a sample until it lasts ``at_least`` seconds; ``taken`` is what one takes when warm."""
    taken = seconds(run, device) if taken is None else taken
    calls = max(1, round(at_least / max(taken, 1e-7)))
    return lambda: seconds(run, device, calls)


def interleaved(samples: dict[Key, Sample], budget: dict[Key, float], rounds: int) -> dict[Key, list[float]]:
    """Each in turn, round after round, so that a noisy minute hits all alike; one whose seconds are spent drops out.

    The turns change from round to round: nobody is always the one after the yardstick, which leaves cold caches.
    """
    taken: dict[Key, list[float]] = {name: [] for name in samples}
    spent = dict.fromkeys(samples, 0.0)
    with no_collections():
        turns, shuffle = list(samples), random.Random(0).shuffle
        for _ in range(rounds):
            for name in turns:
                if not taken[name] or spent[name] * (1 + 1 / len(taken[name])) <= budget[name]:
                    start = time.perf_counter()
                    taken[name].append(samples[name]())
                    spent[name] += time.perf_counter() - start
            shuffle(turns)
    return taken


@contextmanager
def no_collections() -> Iterator[None]:
    """As in timeit: what the collector takes depends on everything else in the process."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def peak_bytes(run: Callable[[], object], device: str = "cpu") -> int | None:
    """Memory beyond what is held before the call.

    CUDA: the allocator's high-water mark. CPU: the high-water mark of the resident set, which counts whatever
    library allocates; the kernel's mark is reset first and freed heap is given back, so that reused pages count
    too. None where the kernel cannot do that (anything but Linux).
    """
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    try:
        clear_peak()
    except OSError:
        return None
    before = _status("VmRSS")
    run()
    return max(0, peak_resident() - before)


def clear_peak() -> None:
    """Let the high-water mark of the resident set begin anew, after freed heap is given back."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def peak_resident() -> int:
    """Bytes of the resident set at their highest."""
    return _status("VmHWM")


def _status(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def bandwidth(device: str = "cpu") -> float:
    """Bytes per second, read and written, of copying a tensor far larger than the caches."""
    source = torch.ones((1 << 26) if device == "cpu" else (1 << 30), device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    return 2 * source.nbytes / statistics.median(seconds(lambda: target.copy_(source), device) for _ in range(5))
