"""How long the explorer takes to answer, on the server's side: ``python -m benchmarks.explore``.

A click is everything one asks of the server: the solve, ranking, distances, paths, the drawing's layout, and the JSON
of the reply. A change is the same after another design or scale was chosen, so J is made and prepared anew.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from plotly.io.json import to_json_plotly

import walksum as ws
from benchmarks.problems import load_graph
from benchmarks.records import Record, Store
from walksum.data.encoding import Encoding
from walksum.data.problem import Problem
from walksum.explore.answer import Session
from walksum.explore.callbacks import shown_view
from walksum.explore.view import first_view
from walksum.explore.whatif import Changes, WhatIf
from walksum.workflow.trained_run import TrainedRun

OUT = Path(__file__).parent.parent / "results" / "bench" / "explore.json"
GRAPHS = ("cora", "pubmed", "power-law-100k")
TARGETS = {"cora": {"click": 0.3, "change": 1.0}, "power-law-100k": {"click": 2.0}}  # seconds
CLASSES = 5


def make_trained_run(name: str) -> TrainedRun:
    """The graph with an untrained model: how long a solve takes does not depend on what was learned."""
    graph, x = load_graph(name)
    torch.manual_seed(0)
    model = ws.GLT(x.size(1), 16, 2, CLASSES, design="diagonally-dominant", learned=False).eval()
    problem = Problem(
        name=name,
        ids=np.arange(graph.num_nodes).astype(str).astype(object),
        features=x,
        edge_index=graph.edges,
        y=torch.randint(0, CLASSES, (graph.num_nodes,)),
        classes=list("abcde"),
    )
    return TrainedRun(name, problem, x, Encoding(width=x.size(1)), model)


class Visitor:
    """Someone who asks a session one thing after the other."""

    def __init__(self, trained: TrainedRun):
        self.trained, self.session = trained, Session(trained)
        self.draw = np.random.default_rng(0)
        self.view = first_view(trained)
        self.click()  # compiles kernels, predicts, makes what belongs to the graph

    def show(self) -> None:
        to_json_plotly([part for part in shown_view(self.session, self.view, None) if part is not None])

    def click(self) -> None:
        self.view = replace(self.view, node=str(self.draw.integers(self.trained.num_nodes)))
        self.show()

    def change(self) -> None:
        scale = round(float(self.draw.uniform(0.5, 0.999)), 4)
        self.view = replace(self.view, design="laplacian", scale=scale)
        self.show()

    def whatif(self) -> None:
        edge = tuple(self.trained.graph.edges[:, int(self.draw.integers(self.trained.graph.num_edges))].tolist())
        WhatIf(self.trained).output(Changes(dropped=(edge,)))


def seconds(action: Callable[[], None]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(name: str, rounds: int) -> list[Record]:
    trained = make_trained_run(name)
    visitor = Visitor(trained)
    records = []
    for kind, action in (("click", visitor.click), ("change", visitor.change), ("what-if", visitor.whatif)):
        action()
        taken = [seconds(action) for _ in range(rounds if kind != "what-if" else 3)]
        target = TARGETS.get(name, {}).get(kind)
        records.append(
            {
                "kind": "explore",
                "graph": name,
                "nodes": trained.num_nodes,
                "edges": trained.graph.num_edges,
                "contestant": kind,
                "seconds": statistics.median(taken),
                "worst": max(taken),
                "target": target,
            }
        )
        print(
            f"{name}, {kind}: median {records[-1]['seconds'] * 1e3:.0f} ms, worst {max(taken) * 1e3:.0f} ms", flush=True
        )
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS))
    options = parser.parse_args()
    store = Store(options.out, "cpu", fresh=True)
    for name in options.graphs:
        if not name.startswith("power") and not os.environ.get("WALKSUM_DATA"):
            print(f"{name}: left out, WALKSUM_DATA is not set")
            continue
        store.add(*measure(name, options.rounds))
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
