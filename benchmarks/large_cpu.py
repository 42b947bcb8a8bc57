"""Large graphs on two CPU cores: ``python -m benchmarks.large_cpu [--tasks step growth] [--out FILE]``.

step     1M nodes, 10M edges, 64 columns: seconds and peak memory of a training step of a two-layer fixed-DD GLT
growth   50k to 5M edges, ten per node, 64 columns: seconds of a solve forward and backward, and their exponent in E
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import walksum as ws
from benchmarks import graphs, records, scaling, timing

CORES, COLUMNS, SKEW = 2, 64, 0.3
STEP = ((1_000_000, 10_000_000), (3_000, 30_000))  # nodes, edges; of --small
GROWTH = ((50_000, 160_000, 500_000, 1_600_000, 5_000_000), (2_000, 6_000, 20_000))
LONG = 4.0  # seconds of a first call from which fewer samples must do


def step(small: bool) -> Iterator[dict[str, Any]]:
    nodes, edges = STEP[small]
    graph = graphs.power_law(nodes, edges, 0.5)
    x, y = torch.randn(nodes, COLUMNS), torch.randint(10, (nodes,))
    model = ws.GLT(COLUMNS, COLUMNS, 2, 10, design="diagonally-dominant", learned=False, dropout=0.0)
    for model.recompute in (False, True):
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
        take = ws.TrainingStep(lambda: torch.nn.functional.cross_entropy(model(x, graph), y), optimiser)
        timing.clear_peak()
        times = [timing.seconds(take)]
        times += [timing.seconds(take) for _ in range(1 if times[0] > LONG else 3)]
        yield {
            "nodes": nodes,
            "edges": edges,
            "recompute": model.recompute,
            "first_s": times[0],
            "step_s": min(times[1:]),
            "solve_steps": [layer.last_solve.steps for layer in model.mixers if layer.last_solve],
            "peak_gib": timing.peak_resident() / 2**30,
        }


def growth(small: bool) -> Iterator[dict[str, Any]]:
    sizes, points = GROWTH[small], []
    for edges in sizes:
        graph = graphs.power_law(edges // 10, edges, SKEW)
        J = ws.FixedDiagonallyDominant()(graph)
        h, seen = torch.randn(graph.num_nodes, COLUMNS, requires_grad=True), list[Any]()
        run = _both_ways(J, h, seen)
        first = timing.seconds(run)  # derives what belongs to the graph
        steps = sum(solution.steps for solution in seen)
        times = [timing.seconds(run) for _ in range(3 if first > LONG else 7)]
        points.append(statistics.median(times))
        yield {"edges": edges, "seconds": points[-1], "first_s": first, "steps": steps, "solver": seen[0].solver}
    yield {"exponent": scaling.exponent(list(sizes), points), "from": sizes[0], "to": sizes[-1]}


def _both_ways(J: ws.Precision, h: torch.Tensor, seen: list[Any]) -> Callable[[], None]:
    def run() -> None:
        ws.solve(J, h, observe=lambda solution: seen.append(solution.without_value())).sum().backward()

    return run


TASKS = {"step": step, "growth": growth}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--small", action="store_true", help="graphs of a few thousand nodes, to try the script")
    parser.add_argument("--out", type=Path, help="file to which each result is appended as a line")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-CORES:])
    torch.set_num_threads(min(CORES, len(os.sched_getaffinity(0))))
    for task in options.tasks:
        for told in TASKS[task](options.small):
            row = {"task": task, "at": round(time.time()), **told}
            print(json.dumps(row), flush=True)
            records.append_line(options.out, row)


if __name__ == "__main__":
    main()
