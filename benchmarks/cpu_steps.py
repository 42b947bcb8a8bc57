"""Training steps on one CPU thread: the models of ``benchmarks/steps.py``, in multiples of GCN's and GAT's step.

    python -m benchmarks.cpu_steps [--graphs cora pubmed] [--quick] [--out results/pyg/steps_cpu.jsonl]

In CPU time of one thread, since other programs share the machine. In each round every model makes one step after the
other; a run takes medians over its rounds, and a ratio is one of times of the same run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks import problems, records, steps

LIMITS = {"glt-fixed": 1.2, "glt-learned": 1.0}  # times GCN's step, times GAT's


def training(name: str, quick: bool) -> Iterator[records.Record]:
    """One record per model."""
    data, runs = problems.load(name), []
    for _ in range(steps.RUNS):
        models = steps.make_steps(data, "cpu", "walksum", steps.EAGER)
        taken: dict[str, list[float]] = {kind: [] for kind in models}
        for _ in range(5 if quick else 15):
            for kind, step in models.items():
                start = time.process_time()
                step()
                taken[kind].append(time.process_time() - start)
        runs.append({kind: statistics.median(values) for kind, values in taken.items()})
    for kind in runs[0]:
        found: records.Record = {"kind": "step", "graph": name, "mode": steps.EAGER, "contestant": kind}
        found["cpu_seconds"] = statistics.median(run[kind] for run in runs)
        for other in ("gcn", "gat", *steps.SKIP):
            ratios = sorted(run[kind] / run[other] for run in runs)
            found |= {f"over_{other}": statistics.median(ratios), f"over_{other}_range": [ratios[0], ratios[-1]]}
        yield found | {"limit": LIMITS.get(kind)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", nargs="+", default=["cora", "pubmed"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[records.Record] = [{"commit": records.commit(), **records.machine("cpu")}]
    for name in args.graphs:
        for row in training(name, args.quick):
            rows.append(row)
            print({k: f"{v:.3g}" if isinstance(v, float) else v for k, v in row.items()}, flush=True)
            records.write_lines(args.out, rows)


if __name__ == "__main__":
    main()
