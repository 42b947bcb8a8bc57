"""``walksum train`` with no option but the tables: its score beside every row of its own comparison.

    python -m benchmarks.tables                          # the seven problems, one split each
    python -m benchmarks.tables --only median_income     # some of them
    python -m benchmarks.tables --coverage 10 --budget 8 # intervals of the county targets over ten splits

Datasets are written as CSV files into a temporary folder, the command is run on them in a process of its own, and what
it says is added to results/tables/train.jsonl: scores of all rows, seconds, calibration, intervals, importance.
Intervals of many splits are measured by ``fit_tables``, which the command calls, in one process: one line per split in
results/tables/coverage.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.records import append_line, commit, read_lines
from walksum.data.cache import data_root
from walksum.data.datasets import load

COUNTIES = ("median_income", "bachelor_rate", "unemployment_rate", "election_margin")
GRAPHS = ("minesweeper", "chameleon", "squirrel")
OPTIONS = {"minesweeper": ("--metric", "roc_auc")}  # accuracy says little where 80 % are of one class
SKLEARN = ("logistic regression", "ridge regression", "gradient boosting", "boosting on neighbour means",
           "boosting on neighbour means and targets")  # fmt: skip
COVERAGE = Path("results/tables/coverage.jsonl")
KEPT = ("metric", "score", "higher_is_better", "test", "parts", "graph", "calibration", "intervals", "importance",
        "transform", "split", "method_seconds", "notes", "device")  # fmt: skip


def export(name: str, folder: Path) -> tuple[Path, Path, str]:
    """Nodes, edges and the target of a problem, as files."""
    if name in COUNTIES:
        source = data_root(None) / "counties"
        return source / "nodes.csv", source / "edges.csv", name
    data = load(name)
    frame = pd.DataFrame(data.x.numpy(), columns=[f"x{k}" for k in range(data.x.size(1))])
    frame.insert(0, "id", [f"n{k}" for k in range(len(frame))])
    frame["label"] = [f"class {k}" for k in data.y.tolist()]
    frame.to_csv(folder / "nodes.csv", index=False)
    ends = pd.DataFrame(data.edge_index.t().numpy(), columns=["source", "target"])
    ("n" + ends.astype(str)).to_csv(folder / "edges.csv", index=False)
    return folder / "nodes.csv", folder / "edges.csv", "label"


def measure(name: str, seed: int, extra: tuple[str, ...]) -> dict[str, Any]:
    """One run of the command, in a new process, with its wall-clock time."""
    with tempfile.TemporaryDirectory() as scratch:
        nodes, edges, target = export(name, Path(scratch))
        command = [sys.executable, "-m", "walksum", "train", "--nodes", str(nodes), "--edges", str(edges)]
        command += ["--target", target, "--seed", str(seed), "--out", f"{scratch}/run", "--json", "--quiet"]
        command += [*OPTIONS.get(name, ()), *extra]
        start, used = time.monotonic(), _processor_seconds()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds, used = time.monotonic() - start, _processor_seconds() - used
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    head = {"problem": name, "seed": seed, "options": [*OPTIONS.get(name, ()), *extra], "seconds": round(seconds, 1)}
    machine = {"processor_seconds": round(used, 1), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    return head | machine | {"commit": commit()} | {key: found[key] for key in KEPT}


def _processor_seconds() -> float:
    """Of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def covered_by(name: str, seed: int, budget: float) -> dict[str, Any]:
    """How many test nodes the intervals of one split cover."""
    from walksum.workflow import fit_tables

    nodes, edges, target = export(name, Path())
    start = time.monotonic()
    metrics = fit_tables(nodes, edges, target=target, seed=seed, budget=budget, device="cpu").metrics
    head = {"problem": name, "seed": seed, "budget": budget, "seconds": round(time.monotonic() - start, 1)}
    found = {"score": metrics["test"]["auto"]["mean"], "intervals": metrics["intervals"], "split": metrics["split"]}
    return head | {"load": round(os.getloadavg()[0], 1), "commit": commit()} | found


def measure_coverage(splits: range, budget: float, path: Path) -> None:
    """One line per county target and split that the file does not have yet."""
    done = {(each["problem"], each["seed"]) for each in read_lines(path)}
    for seed in splits:
        for name in COUNTIES:
            if (name, seed) in done:
                continue
            record = covered_by(name, seed, budget)
            append_line(path, record)
            print(f"{name} {seed}: {100 * record['intervals']['coverage']:.1f} % covered, R^2 {record['score']:.3f}")


def line(record: dict[str, Any]) -> str:
    """One record in words: our score, the best row of scikit-learn, the verdict."""
    sign = 1 if record["higher_is_better"] else -1
    rows = {name: each["mean"] for name, each in record["test"].items()}
    best = max((name for name in rows if name in SKLEARN), key=lambda name: sign * rows[name])
    met = "at or above" if sign * (rows["auto"] - rows[best]) >= 0 else "BELOW"
    graph = record["graph"] or {"verdict": "?"}
    text = (
        f"{record['problem']} {record['seed']}: {record['score']} {rows['auto']:.4f}, {met} {best} {rows[best]:.4f}; "
    )
    text += f"the graph {graph['verdict']}; {record['seconds']} s at load {record['load']}"
    if record["intervals"]:
        text += f"; 95 % intervals cover {100 * record['intervals']['coverage']:.1f} %"
    if record["calibration"]:
        error = record["calibration"]["error"]
        text += f"; calibration error {error['before']:.3f} -> {error['after']:.3f}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[*COUNTIES, *GRAPHS])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--coverage", type=int, default=0, help="so many splits of the county targets, no other")
    parser.add_argument("--budget", type=float, help="seconds; default: the command's")
    parser.add_argument("--out", type=Path, default=Path("results/tables/train.jsonl"))
    args = parser.parse_args()
    if args.coverage:
        measure_coverage(range(args.first, args.first + args.coverage), args.budget or 60.0, COVERAGE)
        return
    extra = () if args.budget is None else ("--budget", str(args.budget))
    for name in args.only:
        for seed in range(args.first, args.first + args.seeds):
            record = measure(name, seed, extra)
            append_line(args.out, record)
            print(line(record), flush=True)


if __name__ == "__main__":
    main()
