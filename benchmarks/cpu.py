"""The CPU bench: every graph, design and solver on one thread, against the yardstick and the peers.

python -m benchmarks.cpu [--graphs cora texas] [--designs F-DD] [--solvers auto cg] [--quick] [--fresh]

Interrupt it when you like: what is measured is kept, and the same command goes on from there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from threadpoolctl import threadpool_limits

from benchmarks import contestants, floors, graphs, peers, problems, scaling, steps, targets, timing
from benchmarks.measure import QUICK, Effort, identity, measure
from benchmarks.records import BESIDE, Store

PARTS = ("solves", "steps", "scaling")
LEARNED = ("L-PN", "L-DD", "L-Lap")
LAYOUTS = ((1, 64), (8, 8))  # heads x columns; eight heads are for learned designs
DEFAULT_GRAPHS = ("texas", "cora", "citeseer", "pubmed", "grid-300", "power-law-100k", "power-law-1m")
# The yardstick takes minutes per cell on these, so they are asked what their targets ask.
FEW_DESIGNS = {
    "grid-300": ("F-DD", "F-Lap", "L-Lap"),
    "power-law-100k": ("F-DD", "F-Lap", "L-PN"),
    "power-law-1m": ("F-DD", "L-PN"),
}


def plan(args: argparse.Namespace) -> Iterator[tuple[str, str, int, int]]:
    for graph in args.graphs:
        for design in args.designs or FEW_DESIGNS.get(graph, tuple(problems.DESIGNS)):
            for heads, columns in LAYOUTS:
                if heads == 1 or (design in LEARNED and graph in problems.REAL):
                    yield graph, design, heads, columns


def entrants(args: argparse.Namespace, problem: problems.Problem) -> tuple[dict, dict]:
    """Who runs, and the reasons of those who do not."""
    free, columns = floors.available_bytes("cpu"), problem.heads * problem.columns
    known = contestants.solvers("cpu")
    reasons = {name: contestants.why_not(name, problem.graph, columns, free) for name in known}
    if problem.heads == 1:
        known |= peers.installed()
        reasons |= {name: peers.why_not(name, problem.graph) for name in peers.installed()}
    asked = {name: each for name, each in known.items() if not args.solvers or name in args.solvers}
    absent = {name: reasons[name] for name in asked if reasons[name] and name != "auto-forward"}
    return {name: each for name, each in asked.items() if not reasons[name]}, absent


def run_cells(args: argparse.Namespace, store: Store, progress: Progress) -> None:
    effort = QUICK if args.quick else Effort()
    cells = list(plan(args))
    task = progress.add_task("solves", total=len(cells))
    held: tuple = (None,)  # the graph in use: its derived structures are shared by all cells on it
    for graph_name, design, heads, columns in cells:
        where = f"{graph_name} {design} {heads}x{columns}"
        progress.update(task, description=f"{where}: building")
        if held[0] != graph_name:
            held = (graph_name, *problems.load_graph(graph_name))
        problem = problems.make(graph_name, held[1], held[2], design, heads, columns)
        asked = {"kind": "solve", "graph": graph_name, "design": design, "heads": heads, "columns": columns}
        running, absent = entrants(args, problem)
        store.add(*(identity(problem, name) | {"left_out": reason} for name, reason in absent.items()))
        running = {name: each for name, each in running.items() if not store.has(**asked, contestant=name)}
        if running:
            say = lambda text, where=where: progress.update(task, description=f"{where}: {text}")  # noqa: E731
            store.add(*measure(problem, running, effort, store.header["bandwidth"], say))
        progress.advance(task)


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.cpu", description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", help=f"of {', '.join([*problems.REAL, *graphs.SYNTHETIC])}")
    parser.add_argument("--designs", nargs="+", choices=list(problems.DESIGNS))
    parser.add_argument("--solvers", nargs="+", help="contestants to run; default: all that are there")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter yardstick runs")
    parser.add_argument("--fresh", action="store_true", help="measure again what the record file already holds")
    parser.add_argument("--beside", action="store_true", help=BESIDE)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="only these")
    parser.add_argument("--cpu-time", action="store_true", help="processor time of this process: for a busy machine")
    parser.add_argument("--out", type=Path, default=Path("results/bench/cpu.json"))
    args = parser.parse_args(argv)
    args.step_graphs = tuple(args.graphs or ())
    args.graphs = args.graphs or [name for name in DEFAULT_GRAPHS if name in problems.available()]
    return args


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    torch.set_num_threads(1)
    if args.cpu_time:
        timing.clock = time.process_time
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with threadpool_limits(1), Progress(*columns, console=console) as progress:
        about = {"bench": "cpu", "quick": args.quick, "bandwidth": timing.bandwidth()}
        about |= {"clock": "processor time"} if args.cpu_time else {}
        store = Store(args.out, "cpu", args.fresh, args.beside, **about)
        try:
            if "solves" in args.parts:
                run_cells(args, store, progress)
            if "steps" in args.parts:
                steps.run(store, progress, "cpu", args.quick, args.step_graphs)
            if "scaling" in args.parts:
                scaling.run(store, progress, "cpu", args.quick)
        except KeyboardInterrupt:
            progress.console.print(f"interrupted; {len(store.records)} records kept in {args.out}")
            return 130
    print(targets.summary([*store.records.values()], "cpu"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
