"""Small graphs on a GPU: one launch beside step after step, host time beside device time, training steps.

python -m benchmarks.gpu_small [--graphs cora pubmed] [--tune [--columns 64]] [--no-steps] [--calling-thread]

A diagnosis, under a minute; the records of docs/benchmarks.md come from benchmarks.gpu. ``--tune`` also tries other
numbers of blocks and threads for a column, and other ways to keep. ``--calling-thread`` only measures what remains of
a solve when autograd uses no thread of its own.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

import walksum as ws
from benchmarks import contestants, host, problems, steps, timing
from benchmarks.gpu_timing import replay_ms
from benchmarks.real import load
from benchmarks.truth import Truth
from walksum.backends.cuda.columns import row_layout
from walksum.backends.cuda.columns import settings as column_setting
from walksum.solvers.cg import cuda as cuda_cg
from walksum.solvers.cg import cuda_columns
from walksum.solvers.cg.cuda import PreparedCudaCG

LAYOUTS = [*((design, 1) for design in problems.DESIGNS), ("L-Lap", 8), ("L-PN", 8)]
TRIED = [  # of column_setting
    *({"CLUSTER": cluster, "THREADS": threads}
      for cluster, threads in itertools.product((1, 2, 4), (512, 768, 1024))),
    *({"CLUSTER": cluster, "THREADS": threads, "KEEP": 0}
      for cluster, threads in itertools.product((1, 2, 4), (512, 1024))),
    *({"CLUSTER": cluster, "LEVELS": levels} for cluster, levels in itertools.product((1, 2), (4, 8, 12))),
]  # fmt: skip


@contextmanager
def patched(graph: ws.Graph, place: Any, **values: Any) -> Iterator[None]:
    """Other settings of a module; what the graph has derived is forgotten before and after."""
    before = {name: getattr(place, name) for name in values}
    try:
        for name, value in values.items():
            setattr(place, name, value)
        _forget(graph)
        yield
    finally:
        for name, value in before.items():
            setattr(place, name, value)
        _forget(graph)


DERIVED = (cuda_columns.column_launch, cuda_columns._lay_out, row_layout._layout_rows)


def _forget(graph: ws.Graph) -> None:
    for key in [key for key in graph._derived if key[0] in DERIVED]:
        del graph._derived[key]


def median_us(run: Callable[[], object], rounds: int = 9, calls: int = 20) -> float:
    for _ in range(3):
        run()
    return 1e6 * statistics.median(timing.seconds(run, "cuda", calls) for _ in range(rounds))


def host_us(run: Callable[[], object], calls: int = 50) -> float:
    """What the host is busy for when it never waits."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(calls):
        run()
    taken = 1e6 * (time.perf_counter() - started) / calls
    torch.cuda.synchronize()
    return taken


def device_us(run: Callable[[], object], calls: int = 20) -> float:
    return 1e3 * replay_ms(run, "cuda", calls)


def solves(name: str, graph: ws.Graph, x: torch.Tensor) -> None:
    print(f"\n== {name}: {graph}")
    print("design heads | auto: us, steps, error | by columns: device us, a step, with a look | in steps | yardstick")
    for design, heads in LAYOUTS:
        problem = problems.make(name, graph, x, design, heads, 64 // heads)
        truth = Truth(problem)
        auto, yardstick = contestants.ours("auto")(problem), contestants.yardstick(problem)
        began = time.perf_counter()
        outcome = auto()
        first = time.perf_counter() - began
        if first > 1:
            print(f"(the first solve took {first:.1f} s: compiling)")
        errors = truth.errors(outcome.mu, outcome.g)
        taken = median_us(auto)
        launched = PreparedCudaCG(ws.Precision(graph, problem.diag, problem.off), ws.CG())
        once = (
            device_us(lambda p=launched, h=problem.h: p.run_deferred(h))
            if launched.run_deferred(problem.h)
            else float("nan")
        )
        reading = median_us(lambda p=launched, h=problem.h: p.run(h))
        with patched(graph, cuda_cg, column_launch=lambda *about: None):
            in_steps = median_us(contestants.ours("cg")(problem), rounds=5, calls=5)
        theirs = 1e6 * timing.seconds(yardstick, "cuda")
        theirs = min(theirs, 1e6 * timing.seconds(yardstick, "cuda"))
        print(
            f"{design:6} {heads} | {taken:7.0f} ({outcome.status} {outcome.steps} {max(errors):.1e}) | "
            f"{once:6.0f} {once / max(1, outcome.steps[0]):5.1f} {reading:6.0f} | {in_steps:7.0f} | "
            f"{theirs:8.0f} = {theirs / taken:6.1f}x",
            flush=True,
        )


def hosts(name: str, graph: ws.Graph, x: torch.Tensor) -> None:
    problem = problems.make(name, graph, x, "F-PN", 1, 64)
    run = contestants.ours("auto")(problem)
    J = ws.Precision(graph, problem.diag, problem.off)
    launched = PreparedCudaCG(J, ws.CG())
    g, deferred = torch.randn_like(problem.h), launched.run_deferred(problem.h)
    from walksum.backends.cuda.triton.edges import value_gradients

    parts = {
        "launch of a solve": lambda: launched.run_deferred(problem.h),
        "launch of the gradients": lambda: value_gradients(graph, g, problem.h),
        "ws.solve, no grad": lambda: ws.solve(J, problem.h, on_nonconverged="ignore"),
        "reading the status": deferred.read,
        "empty": lambda: problem.h.new_empty(1000),
    }
    print(f"\n== host us on {name}: " + ", ".join(f"{key} {host_us(part):.1f}" for key, part in parts.items()))
    print(f"forward + backward, host and device: {median_us(run):.0f}; gradients on the device: "
          f"{device_us(lambda: value_gradients(graph, g, problem.h)):.1f}")  # fmt: skip
    profile(run)


def calling_thread(name: str, graph: ws.Graph, x: torch.Tensor) -> None:
    """Without the thread that autograd keeps for a GPU: all contestants run their backward where they were called."""
    print(f"\n== backward on the calling thread, {name}, us")
    with torch.autograd.set_multithreading_enabled(False):
        for design, heads in LAYOUTS:
            problem = problems.make(name, graph, x, design, heads, 64 // heads)
            yardstick, run = contestants.yardstick(problem), contestants.ours("auto")(problem)
            nothing = median_us(host.nothing(problem))
            yardstick()  # kernels compile
            theirs = 1e6 * statistics.median(timing.seconds(yardstick, "cuda") for _ in range(3))
            taken = median_us(run)
            parts = f"yardstick {theirs:.0f} auto {taken:.0f} nothing {nothing:.0f}"
            print(f"{name} {design} {heads} {parts} = {theirs / taken:.1f}x", flush=True)


def profile(run: Callable[[], object]) -> None:
    import cProfile
    import pstats

    watch = cProfile.Profile()
    watch.enable()
    for _ in range(50):
        run()
    watch.disable()
    pstats.Stats(watch).sort_stats("tottime").print_stats(14)


def tune(name: str, graph: ws.Graph, x: torch.Tensor, columns: int) -> None:
    problem = problems.make(name, graph, x, "L-Lap", 1, columns)
    J = ws.Precision(graph, problem.diag, problem.off)
    chosen = cuda_columns._setting(graph)
    print(f"\n== settings on {name}, L-Lap, {columns} columns: device us a solve; chosen: {chosen}")
    for place, tried in [*((column_setting, tried) for tried in TRIED), (row_layout, {"SPREAD": ()})]:
        label = " ".join(f"{key.lower()} {value}" for key, value in tried.items())
        with patched(graph, place, **tried), warnings.catch_warnings():
            warnings.simplefilter("error")  # a kernel that does not compile is replaced by slower ways
            try:
                print(f"{label}: {_tuned(J, problem.h)}", flush=True)
            except Exception as error:  # any: the others are still to be tried
                print(f"{label}: {type(error).__name__} {str(error)[:300]}", flush=True)


def _tuned(J: ws.Precision, h: torch.Tensor) -> str:
    setting, prepared = cuda_columns._setting(J.graph), PreparedCudaCG(J, ws.CG())
    if setting is None or prepared.run_deferred(h) is None:
        return "does not fit"
    solution = prepared(h)
    taken = device_us(lambda: prepared.run_deferred(h), calls=5)
    each = f"{taken:7.1f} us, {solution.steps} steps {taken / solution.steps:5.2f} us each, {solution.status.name}"
    shared = setting.shared_bytes(setting.layout(J.graph))
    return (
        f"{each}, {setting.rows} rows a thread{', lean' * setting.lean}, keeps {setting.keep}, {shared / 1024:.0f} KB"
    )


def trainings(name: str) -> None:
    data = load(name).to("cuda")
    found = steps.steps(data, "cuda")
    print(f"\n== training steps on {name}, us")
    for label, step in found.items():
        state = "" if not isinstance(step, ws.TrainingStep) else f"  captured: {step.captured} {step.reason or ''}"
        print(f"{label:18} {median_us(step, rounds=5, calls=10):8.0f}{state}", flush=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.gpu_small", description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", default=["cora", "pubmed"])
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--columns", nargs="+", type=int, default=[64], help="of the tuning")
    parser.add_argument("--no-steps", action="store_true")
    parser.add_argument("--calling-thread", action="store_true")
    args = parser.parse_args(argv)
    began = time.perf_counter()
    for name in args.graphs:
        graph, x = problems.load_graph(name)
        graph = graph.to("cuda")
        if args.calling_thread:
            calling_thread(name, graph, x)
            continue
        solves(name, graph, x)
        hosts(name, graph, x)
        if args.tune:
            for columns in args.columns:
                tune(name, graph, x, columns)
        if not args.no_steps:
            trainings(name)
    print(f"{time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
