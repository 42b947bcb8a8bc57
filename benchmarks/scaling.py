"""How cost and memory grow with E and with F: exponents fitted over a decade, `auto`, forward and backward.

On a CPU each size has its memory measured in a process of its own, and there in a thread that solves for the first
time: what a thread keeps from solve to solve, and pages that earlier sizes left resident, would not count otherwise.
"""

from __future__ import annotations

import multiprocessing
import statistics
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from rich.progress import Progress

import walksum as ws
from benchmarks import contestants, graphs, problems, timing
from benchmarks.records import Record, Store

# device and effort: (edges of the E sweep, edges of the F sweep), ten edges per node
SIZES = {
    ("cpu", False): ((50_000, 100_000, 200_000, 500_000), 100_000),
    ("cpu", True): ((2_000, 6_000, 20_000), 5_000),
    ("cuda", False): ((2_000_000, 5_000_000, 10_000_000, 20_000_000), 5_000_000),
    ("cuda", True): ((200_000, 600_000, 2_000_000), 500_000),
}
BEYOND = "E, larger graphs"  # than a CPU's cache holds vectors of: reported beside the decade that the target asks for
LARGER = (200_000, 500_000, 1_000_000, 2_000_000)
WIDTHS = (16, 32, 64, 128, 160)
SKEW = 0.3


def sweep(variable: str, device: str, quick: bool) -> Iterator[tuple[int, problems.Problem]]:
    for size in {"E": SIZES[device, quick][0], BEYOND: LARGER, "F": WIDTHS}[variable]:
        yield size, _problem(variable, size, device, quick)


def _problem(variable: str, size: int, device: str, quick: bool) -> problems.Problem:
    edges, columns = (SIZES[device, quick][1], size) if variable == "F" else (size, 64)
    graph = _graph(edges, device)
    x = graph.degree.unsqueeze(1)  # the design below does not look at features
    return problems.make("scaling", graph, x, "F-DD", 1, columns)


def _graph(edges: int, device: str) -> ws.Graph:
    if device == "cuda":  # drawn there: seconds instead of minutes
        return graphs.power_law_on(device, edges // 10, edges, exponent=SKEW)
    return graphs.power_law(edges // 10, edges, SKEW)


def exponent(sizes: list[int], values: list[float]) -> float:
    """The slope in the log-log plane."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def run(store: Store, progress: Progress, device: str, quick: bool) -> None:
    variables = ("E", BEYOND, "F") if device == "cpu" and not quick else ("E", "F")
    task = progress.add_task("scaling", total=len(variables))
    for variable in variables:
        progress.update(task, description=f"scaling in {variable}")
        if not store.has(kind="scaling", design=variable, contestant="auto"):
            store.add(_fit(variable, device, quick))
        progress.advance(task)


def _peak(variable: str, size: int, quick: bool) -> int | None:
    """Bytes beyond the inputs on a CPU; for a process of its own."""
    torch.set_num_threads(1)
    run = contestants.ours("auto").known(_problem(variable, size, "cpu", quick))
    run()  # load what is compiled, derive what belongs to the graph
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(timing.peak_bytes, run).result()


def _peak_elsewhere(*what: Any) -> int | None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_peak, *what).result()


def _fit(variable: str, device: str, quick: bool) -> Record:
    points = []
    for size, problem in sweep(variable, device, quick):
        timing.tidy(device)
        run_once = contestants.ours("auto").known(problem)
        outcome = run_once()
        peak = _peak_elsewhere(variable, size, quick) if device == "cpu" else timing.peak_bytes(run_once, device)
        sample = timing.sampler(run_once, device)
        seconds = statistics.median(sample() for _ in range(3 if quick else 7))
        points.append({"size": size, "seconds": seconds, "steps": sum(outcome.steps), "peak_bytes": peak})
    sizes, peaks = [p["size"] for p in points], [p["peak_bytes"] for p in points]
    return {
        "kind": "scaling",
        "design": variable,
        "contestant": "auto",
        "exponent": exponent(sizes, [p["seconds"] for p in points]),
        "memory_exponent": exponent(sizes, peaks) if all(peaks) else None,
        "points": points,
    }
