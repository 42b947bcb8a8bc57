"""The same public calls in two source trees: is anything slower than before?

``python -m benchmarks.before_after OLD/src NEW/src``. Each tree has a process of its own, and both are kept alive and
asked in turn, so that a noisy minute hits both alike. Times are CPU seconds of one thread; a ratio is new / old, the
median over all pairs of samples, with the quartiles of those pairs; further rounds start both processes anew.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COLUMNS, GRAPHS, LARGE = 64, ("texas", "cora", "pubmed"), "power-law-100k"
STEPS = ("glt-fixed", "glt-learned", "conv-fixed", "conv-learned")
SAMPLE = 0.05  # CPU seconds that one sample lasts at least


def cases() -> list[tuple[str, ...]]:
    """Graph, what is done, solver, heads."""
    found = [
        (graph, what, solver, heads)
        for graph in (*GRAPHS, LARGE)
        for solver in (("auto", "cg") if graph == LARGE else ("auto", "cg", "direct"))
        for heads in ("1", "8")
        for what in ("forward", "kept", "new")
    ]
    return found + [(graph, step, "auto", "8") for graph in GRAPHS[:2] for step in STEPS]


# ---- in the process of one tree ----


def serve() -> None:
    """Answer each case read from stdin with the CPU seconds of one call."""
    import torch

    torch.set_num_threads(1)
    ready: dict[tuple, tuple[Callable[[], object], int]] = {}
    for line in sys.stdin:
        case = tuple(json.loads(line))
        if case not in ready:
            ready.clear()  # one problem in memory at a time
            call = _call(*case)
            for _ in range(3):  # compiling, and what is kept with the graph or with J
                call()
            ready[case] = call, max(1, round(SAMPLE / max(_seconds(call, 1), 1e-6)))
        print(json.dumps(_seconds(*ready[case])), flush=True)


def _seconds(call: Callable[[], object], calls: int) -> float:
    start = time.process_time()
    for _ in range(calls):
        call()
    return (time.process_time() - start) / calls


def _call(graph_name: str, what: str, solver: str, heads: str) -> Callable[[], object]:
    return _step(graph_name, what) if what in STEPS else _solve(graph_name, what, solver, int(heads))


def _solve(graph_name: str, what: str, solver: str, heads: int) -> Callable[[], object]:
    import torch

    import walksum as ws
    from benchmarks import problems

    problem = problems.make(graph_name, *problems.load_graph(graph_name), "L-Lap", heads, COLUMNS // heads)
    kept, h = ws.Precision(problem.graph, problem.diag, problem.off), problem.h.clone().requires_grad_()
    factor = 1.0

    def forward() -> None:
        with torch.no_grad():
            ws.solve(kept, problem.h, solver)

    def kept_values() -> None:
        h.grad = None
        ws.solve(kept, h, solver).backward(problem.grad)

    def new_values() -> None:
        nonlocal factor
        factor, h.grad = 1.0 if factor > 1 else 1.01, None
        diag, off = (problem.diag * factor).requires_grad_(), (problem.off * 1.0).requires_grad_()
        ws.solve(ws.Precision(problem.graph, diag, off), h, solver).backward(problem.grad)

    return {"forward": forward, "kept": kept_values, "new": new_values}[what]


def _step(graph_name: str, what: str) -> Callable[[], object]:
    """A step of Adam: a two-layer GLT, or a single GLTConv that learns to give zeros."""
    import torch
    from torch.nn import functional as nnf

    import walksum as ws
    from benchmarks import problems

    torch.manual_seed(0)
    data = problems.load(graph_name)
    graph, classes = ws.Graph.from_edge_index(data.edge_index, data.num_nodes), int(data.y.max()) + 1
    kind, learned = what.split("-")[0], what.endswith("learned")
    if kind == "glt":
        model: Any = ws.GLT(
            data.num_features, 64, 2, classes, heads=(8, 1) if learned else 1,
            design="laplacian" if learned else "diagonally-dominant", learned=learned, dropout=0.6,
        )  # fmt: skip
        inputs, edges = data.x.float(), graph
    else:  # as PyG's users call it
        model = ws.GLTConv(64, 8, heads=8, design="laplacian", learned=learned)
        inputs, edges = torch.randn(data.num_nodes, 64), data.edge_index
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)

    def step() -> None:
        optimiser.zero_grad()
        found = model(inputs, edges)
        loss = nnf.cross_entropy(found, data.y) if kind == "glt" else found.square().mean()
        loss.backward()
        optimiser.step()

    return step


# ---- the one that asks both ----


class Tree:
    """The process of one source tree."""

    def __init__(self, source: Path):
        where = os.pathsep.join([str(source.resolve()), str(ROOT)])
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "benchmarks.before_after", "--serve"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": where, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    def seconds(self, case: tuple[str, ...]) -> float:
        asked, answered = self.process.stdin, self.process.stdout
        assert asked is not None
        assert answered is not None
        asked.write(json.dumps(case) + "\n")
        asked.flush()
        return float(json.loads(answered.readline()))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def compare(old: Path, new: Path, asked: list[tuple[str, ...]], rounds: int, samples: int) -> list[dict]:
    taken: dict[tuple[str, ...], list[tuple[float, float]]] = {case: [] for case in asked}
    for turn in range(rounds):
        before, after = Tree(old), Tree(new)
        for case in asked:
            for each in range(samples + 1):
                if (turn + each) % 2:
                    b = after.seconds(case)
                    a = before.seconds(case)
                else:
                    a = before.seconds(case)
                    b = after.seconds(case)
                if each:  # the first finds cold caches
                    taken[case].append((a, b))
            print(json.dumps(_record(case, taken[case])), flush=True)
        before.close(), after.close()
    return [_record(case, taken[case]) for case in asked]


def _record(case: tuple[str, ...], pairs: list[tuple[float, float]]) -> dict:
    import numpy as np

    olds, news = np.array(pairs).T
    low, middle, high = np.quantile(news / olds, [0.25, 0.5, 0.75])
    times = {"old_ms": 1e3 * float(np.median(olds)), "new_ms": 1e3 * float(np.median(news))}
    found = {**times, "ratio": float(middle), "low": float(low), "high": float(high)}
    named = dict(zip(("graph", "what", "solver", "heads"), case, strict=True))
    return named | {name: float(f"{value:.4g}") for name, value in found.items()} | {"pairs": len(pairs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trees", nargs="*", type=Path, metavar="SRC", help="the old source folder and the new one")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", help="cases whose name, such as 'cora kept auto 8', contains this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--out", type=Path, help="a JSON file, such as results/bench/before-after.json")
    args = parser.parse_args()
    if args.serve:
        return serve()
    if len(args.trees) != 2:
        parser.error(f"{len(args.trees)} source folder(s); expected the old one and the new one")
    asked = [case for case in cases() if args.only in " ".join(case)]
    records = compare(*args.trees, asked, args.rounds, args.samples)
    if args.out:
        args.out.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
