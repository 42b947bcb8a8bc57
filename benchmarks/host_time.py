"""What the host takes around the kernels: eager solves against the yardstick, layers, and GLT's step against GAT's.

    python -m benchmarks.host_time [--device cuda] [--graphs cora pubmed] [--quick] [--out results/pyg/host_time.jsonl]

"solve": forward + backward of ``ws.solve``, called from Python without capturing, in multiples of the paper's
algorithm in torch; beside it an autograd function with nothing in it, the least that any eager pass takes. "layer": the
time until a layer's forward + backward returns to Python, and until the device is done. "step": training steps, eager
against eager and captured against captured. ``--device cpu`` walks the same paths; there a step is measured in CPU
time of one thread, since other programs share the machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import walksum as ws
from benchmarks import contestants, problems, records, steps, timing
from benchmarks.measure import QUICK, Effort, measure

LEARNED = ("L-PN", "L-DD", "L-Lap")
LIMITS = {"solve": 50.0, "step": 1.2}  # at least so many times the yardstick; at most so many times GAT's step


def solves(name: str, device: str, quick: bool) -> Iterator[records.Record]:
    graph, x = problems.load_graph(name)
    graph = graph.to(device)
    rivals = {"auto": contestants.ours("auto"), "nothing": contestants.Contestant(contestants.nothing)}
    effort = QUICK if quick else Effort(budget=0.15, yardstick=0.7, rounds=7)
    for design in problems.DESIGNS:
        for heads, columns in ((1, 64), (8, 8)):
            if heads == 1 or design in LEARNED:
                problem = problems.make(name, graph, x, design, heads, columns)
                for found in measure(problem, rivals, effort, timing.bandwidth(device)):
                    if found["contestant"] in rivals:
                        yield found | {"limit": LIMITS["solve"] if found["contestant"] == "auto" else None}


def layers(name: str, device: str, quick: bool) -> Iterator[records.Record]:
    from torch_geometric.nn import GATConv, GCNConv

    graph, _ = problems.load_graph(name)
    edge_index, graph = torch.cat([graph.edges, graph.edges.flip(0)], 1).to(device), graph.to(device)
    x = torch.randn(graph.num_nodes, 64, device=device, requires_grad=True)
    known: dict[str, tuple[nn.Module, object]] = {
        "gat": (GATConv(64, 8, 8, add_self_loops=False), edge_index),
        "gcn": (GCNConv(64, 64, cached=True), edge_index),
        "glt-fixed": (ws.GLTConv(64, 64, learned=False, on_nonconverged="ignore"), graph),
        "glt-learned": (ws.GLTConv(64, 8, 8, on_nonconverged="ignore"), graph),
        "propagate": (ws.Propagate(on_nonconverged="ignore"), graph),
    }
    for kind, (layer, where) in known.items():
        layer.to(device)
        taken = []
        for k in range(20 if quick else 100):
            _wait(device)
            start = time.perf_counter()
            layer(x, where).sum().backward()
            back = time.perf_counter() - start
            _wait(device)
            if k >= 5:
                taken.append((back, time.perf_counter() - start))
        host, whole = (statistics.median(values) for values in zip(*taken, strict=True))
        yield {"kind": "layer", "graph": name, "contestant": kind, "host_seconds": host, "seconds": whole}


def training(name: str, device: str, quick: bool) -> Iterator[records.Record]:
    data = problems.load(name).to(device)
    if device == "cpu":
        yield from _cpu_training(data, name, quick)
        return
    for mode, dropout in steps.conditions(device):
        key = {"kind": "step", "graph": name, "mode": mode, "dropout": dropout}
        for found in steps._measure(data, device, quick, **key):
            ours = found["contestant"].startswith("glt")
            yield found | {"limit": LIMITS["step"] if ours else None}


def _cpu_training(data: Any, name: str, quick: bool) -> Iterator[records.Record]:
    """Medians of rounds in which every model makes one step after the other, and ratios within a run."""
    runs = []
    for _ in range(steps.RUNS):
        models, taken = steps.make_steps(data, "cpu", "walksum", steps.EAGER), {}  # type: ignore[var-annotated]
        for _ in range(5 if quick else 15):
            for kind, step in models.items():
                start = time.process_time()
                step()
                taken.setdefault(kind, []).append(time.process_time() - start)
        runs.append({kind: statistics.median(values) for kind, values in taken.items()})
    for kind in runs[0]:
        found: records.Record = {"kind": "step", "graph": name, "mode": steps.EAGER, "contestant": kind}
        found["cpu_seconds"] = statistics.median(run[kind] for run in runs)
        for other in ("gcn", "gat", *steps.SKIP):
            ratios = sorted(run[kind] / run[other] for run in runs)
            found |= {f"over_{other}": statistics.median(ratios), f"over_{other}_range": [ratios[0], ratios[-1]]}
        yield found | {"limit": {"glt-fixed": 1.2, "glt-learned": 1.0}.get(kind)}


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--graphs", nargs="+", default=["cora", "pubmed"])
    parser.add_argument("--parts", nargs="+", default=["solves", "layers", "training"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.device == "cpu":
        torch.set_num_threads(1)
    rows: list[records.Record] = [{"commit": records.commit(), **records.machine(args.device)}]
    for name in args.graphs:
        for part in args.parts:
            for row in {"solves": solves, "layers": layers, "training": training}[part](name, args.device, args.quick):
                rows.append(row)
                shown = {k: v for k, v in row.items() if k not in ("runs", "nodes", "edges", "kind")}
                print(row["kind"], {k: f"{v:.3g}" if isinstance(v, float) else v for k, v in shown.items()}, flush=True)
                records.write_lines(args.out, rows)


if __name__ == "__main__":
    main()
