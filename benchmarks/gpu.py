"""The GPU bench: kernels against their floors, solves against the yardstick, training steps against PyG's.

python -m benchmarks.gpu [--graphs cora wide-2.4m] [--parts steps solves] [--quick] [--fresh] [--device cpu]

What is measured is kept, and the same command goes on from there.
``--device cpu --quick`` walks the same paths without a GPU; its numbers mean nothing.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import walksum as ws
from benchmarks import contestants, floors, graphs, peers, problems, scaling, steps, targets, timing
from benchmarks.measure import QUICK, Effort, measure
from benchmarks.records import BESIDE, Record, Store
from walksum import backends

SOLVED, KERNELS = ("cora", "pubmed"), ("power-law-1m", "wide-2.4m")
COLUMNS, CG_TOL = 64, 1e-5
CONTESTANTS = ("auto", "auto-captured", "cg", "gabp", "chebyshev", *peers.GPU_PEERS, *peers.GPU_CAPTURED)
GPU_EFFORT = Effort(budget=0.15, yardstick=0.7, rounds=5)


def median(run: Callable[[], object], device: str, rounds: int = 9) -> float:
    run()
    run()  # compilation, then autotuning and allocation
    return statistics.median(timing.seconds(run, device) for _ in range(rounds))


def kernel_records(problem: problems.Problem, bandwidth: float, device: str) -> list[Record]:
    """SpMM, a GaBP step and a CG solve on one large graph."""
    floor = floors.spmm_bytes(problem.graph, 1, COLUMNS) / bandwidth
    makes = {
        "spmm": lambda: _spmm(problem, floor, device),
        "gabp-step": lambda: _gabp_step(problem, bandwidth, device),
        "cg": lambda: _cg(problem, floor, device),
        "yardstick-step": lambda: _algorithm_1_step(problem, "yardstick", device),
        "yardstick-tuned-step": lambda: _algorithm_1_step(problem, "yardstick-tuned", device),
    }
    common = {"kind": "kernel", "graph": problem.graph_name, "design": problem.design, "heads": 1, "columns": COLUMNS}
    common |= {"nodes": problem.graph.num_nodes, "edges": problem.graph.num_edges}
    common["max_degree"] = int(problem.graph.degree.max())
    return [common | {"contestant": name} | _attempt(make) for name, make in makes.items()]


def _attempt(make: Callable[[], Record]) -> Record:
    try:
        return make()
    except (RuntimeError, ValueError) as error:  # out of memory is a RuntimeError
        return {"failure": f"{type(error).__name__}: {error}"[:200]}


def _spmm(problem: problems.Problem, floor: float, device: str) -> Record:
    J, x = ws.Precision(problem.graph, problem.diag, problem.off), problem.h
    A = peers.TorchCSR(J.graph).matrix(J.diag, J.off)  # 32-bit indices, as ours
    with torch.no_grad():
        product = _laid_out(J)
        ours, theirs = median(lambda: product(x), device), median(lambda: A @ x[0], device)
        error = float((product(x)[0] - A @ x[0]).abs().max() / x.abs().max())
    found = {"seconds": ours, "cusparse_seconds": theirs, "over_cusparse": theirs / ours}
    return found | {"floor_share": floor / ours, "difference": error}


def _laid_out(J: ws.Precision) -> Callable[[torch.Tensor], torch.Tensor]:
    """The product with values in the order of the rows, as cuSPARSE is given them and as solvers use it."""
    if not backends.uses_triton(J.diag):
        return lambda x: J @ x
    from walksum.backends.cuda.triton.matrix import Matrix

    return Matrix.of(J.graph, J.diag, J.off).product


def _gabp_step(problem: problems.Problem, bandwidth: float, device: str) -> Record:
    """Cost of one undamped step: a long solve less a short one, over the steps between them.

    No tolerance is within reach, so both run to their limit; the precisions settle in ``prepare``, which is untimed
    where a solver has them apart, and cancel in the difference where it has not.
    """
    J = ws.Precision(problem.graph, problem.diag, problem.off)
    times, counts = [], []
    for limit in (4, 24):
        prepared = ws.GaBP(damping=1.0, tol=1e-30, max_steps=limit).prepare(J)
        counts.append(prepared(problem.h).steps)
        times.append(median(lambda prepared=prepared: prepared(problem.h), device, rounds=5))
        del prepared
    found: Record = {"steps": counts}
    if counts[1] <= counts[0]:
        return found | {"failure": f"took {counts} steps where 4 and 24 were asked"}
    step = (times[1] - times[0]) / (counts[1] - counts[0])
    if step <= 0:
        return found | {"failure": f"the clock's noise is larger than the work: {times} seconds for {counts} steps"}
    share = floors.gabp_bytes(problem.graph, 1, COLUMNS) / bandwidth / step
    return found | {"seconds": step, "floor_share": share}


def _cg(problem: problems.Problem, floor: float, device: str) -> Record:
    run = contestants.ours(ws.CG(tol=CG_TOL)).known(problem)
    outcome = run()
    taken, peak = median(run, device, rounds=5), timing.peak_bytes(run, device)
    found = {"seconds": taken, "steps": list(outcome.steps), "status": outcome.status}
    return found | {"over_floor": taken / (floor * sum(outcome.steps)), "peak_bytes": peak}


def _algorithm_1_step(problem: problems.Problem, name: str, device: str) -> Record:
    if 6 * 8 * problem.graph.num_edges * COLUMNS > floors.available_bytes(device):
        return {"failure": "memory for the messages"}
    step, structure = contestants.ALGORITHM_1[name]
    graph, values = structure(problem), (problem.diag, problem.off, problem.h)
    return {"seconds": median(lambda: step(graph, *values, tol=0.0, max_steps=5), device, rounds=3) / 5}


def run_kernels(args: argparse.Namespace, store: Store, progress: Progress) -> None:
    names = [name for name in args.graphs if name not in problems.REAL]
    task = progress.add_task("kernels", total=len(names))
    for name in names:
        if _late(args):
            return
        progress.update(task, description=f"kernels on {name}")
        timing.tidy(args.device)
        if not store.has(kind="kernel", graph=name, design="F-Lap", heads=1, columns=COLUMNS, contestant="cg"):
            problem = _large_problem(name, args.device)
            store.add(*kernel_records(problem, store.header["bandwidth"], args.device))
            del problem
        progress.advance(task)


def _large_problem(name: str, device: str) -> problems.Problem:
    """Drawn on the GPU itself where that is possible: on the host it takes minutes."""
    if device == "cpu" or name not in graphs.LARGE:
        graph, x = problems.load_graph(name)
        return problems.make(name, graph.to(device), x, "F-Lap", 1, COLUMNS)
    J = _laplacian(graphs.large_on(device, name))
    random = torch.Generator(device).manual_seed(2)
    h, grad = (torch.randn(1, J.num_nodes, COLUMNS, device=device, generator=random) for _ in range(2))
    return problems.Problem(name, "F-Lap", J.graph, J.diag, J.off, h, grad)


def _laplacian(graph: ws.Graph) -> ws.Precision:
    """I - 0.99 D^-1/2 A D^-1/2."""
    root = graph.degree.float().clamp_min(1).rsqrt()
    i, j = graph.edges
    return ws.Precision(graph, torch.ones(graph.num_nodes, device=graph.device), -0.99 * root[i] * root[j])


def run_solves(args: argparse.Namespace, store: Store, progress: Progress) -> None:
    names = [name for name in args.graphs if name in problems.REAL]
    layouts = [(design, 1) for design in problems.DESIGNS] + [("L-Lap", 8)]
    task = progress.add_task("solves", total=len(names) * len(layouts))
    for name in names:
        graph, x = problems.load_graph(name)
        graph = graph.to(args.device)
        for design, heads in layouts:
            if _late(args):
                return
            progress.update(task, description=f"{name} {design} {heads}x{COLUMNS // heads}")
            asked = {"kind": "solve", "graph": name, "design": design, "heads": heads, "columns": COLUMNS // heads}
            running = {n: m for n, m in _contestants(heads, args.device).items() if n in args.solvers}
            if any(not store.has(**asked, contestant=n) for n in running):
                problem = problems.make(name, graph, x, design, heads, COLUMNS // heads)
                effort = QUICK if args.quick else GPU_EFFORT
                store.add(*measure(problem, running, effort, store.header["bandwidth"]))
                if not store.has(**_empty(name)):
                    store.add({**_empty(name), "seconds": median(contestants.nothing(problem), args.device)})
            progress.advance(task)


def _contestants(heads: int, device: str) -> dict[str, contestants.Contestant]:
    """Ours and torch's, each called from Python and, on a GPU, each as a CUDA graph."""
    found = contestants.solvers() | (peers.GPU_PEERS if heads == 1 else {})
    if device == "cuda":
        found |= {"auto-captured": contestants.captured(contestants.our_pass)}
        found |= peers.GPU_CAPTURED if heads == 1 else {}
    return found


def _empty(graph: str) -> Record:
    return {"kind": "host", "graph": graph, "contestant": "nothing"}


def _late(args: argparse.Namespace) -> bool:
    return time.monotonic() - args.began > args.seconds


def run_steps(args: argparse.Namespace, store: Store, progress: Progress) -> None:
    steps.run(store, progress, args.device, args.quick, args.step_graphs)


def run_scaling(args: argparse.Namespace, store: Store, progress: Progress) -> None:
    scaling.run(store, progress, args.device, args.quick)


# in this order: what is short and what the targets ask first, should the time end
PARTS = {"steps": run_steps, "solves": run_solves, "kernels": run_kernels, "scaling": run_scaling}


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", nargs="+", help=f"default: {' '.join(SOLVED + KERNELS)}; quick: cora small")
    parser.add_argument("--solvers", nargs="+", default=list(CONTESTANTS))
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--quick", action="store_true", help="small graphs, fewer rounds")
    parser.add_argument("--fresh", action="store_true", help="measure again what the record file already holds")
    parser.add_argument("--beside", action="store_true", help=BESIDE)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="only these")
    parser.add_argument("--seconds", type=float, default=400.0, help="nothing new is begun after so many")
    parser.add_argument("--calling-thread", action="store_true", help="backward on the calling thread, for everybody")
    parser.add_argument("--out", type=Path, default=Path("results/bench/gpu.json"))
    args = parser.parse_args(argv)
    args.began = time.monotonic()
    args.step_graphs = tuple(args.graphs or ())
    default = ("cora", "small") if args.quick else SOLVED + KERNELS
    args.graphs = args.graphs or [name for name in default if name in problems.available()]
    return args


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    threads = torch.autograd.set_multithreading_enabled(not args.calling_thread)
    with threads, Progress(*columns, console=Console(stderr=True)) as progress:
        about = {"bench": "gpu", "quick": args.quick, "bandwidth": timing.bandwidth(args.device)}
        store = Store(args.out, args.device, args.fresh, args.beside, **about)
        try:
            for part, run in PARTS.items():
                if part in args.parts and not _late(args):
                    run(args, store, progress)
        except KeyboardInterrupt:
            progress.console.print(f"interrupted; {len(store.records)} records kept in {args.out}")
            return 130
    print(targets.summary([*store.records.values()], "gpu"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
