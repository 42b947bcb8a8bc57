"""How many kernels a training step launches, and how long the device works on each kind: what a step could gain.

    python -m benchmarks.launches [--graphs cora pubmed] [--steps 20] [--out launches.jsonl]

For each model of ``benchmarks/steps.py``, eager: kernels and device seconds per step, and both by kernel name, the
longest first. A captured step takes the device seconds and about two microseconds per kernel; an eager one cannot take
less than the host needs to launch them.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks import problems, records, steps

SHOWN = 25  # kernel names of a record


def launches(name: str, device: str, count: int) -> Iterator[records.Record]:
    """One record per model on this graph."""
    activity = torch.profiler.ProfilerActivity.CUDA if device == "cuda" else torch.profiler.ProfilerActivity.CPU
    for model, step in steps.make_steps(problems.load(name).to(device), device, "torch", steps.EAGER).items():
        with torch.profiler.profile(activities=[activity]) as found:
            for _ in range(count):
                step()
        number: Counter[str] = Counter()
        seconds: Counter[str] = Counter()
        for event in found.key_averages():
            taken = _microseconds(event, device)
            if taken:
                number[event.key] += event.count
                seconds[event.key] += taken / 1e6
        kernels = [[key, number[key] / count, seconds[key] / count] for key, _ in seconds.most_common(SHOWN)]
        totals = {"kernels": number.total() / count, "device_seconds": seconds.total() / count}
        yield {"kind": "launches", "graph": name, "contestant": model, **totals, "longest": kernels}


def _microseconds(event: Any, device: str) -> float:
    return event.self_device_time_total if device == "cuda" else event.self_cpu_time_total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--graphs", nargs="+", default=["cora", "pubmed"])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows: list[records.Record] = [{"commit": records.commit(), **records.machine(args.device)}]
    for name in args.graphs:
        for row in launches(name, args.device, args.steps):
            rows.append(row)
            print(name, row["contestant"], f"{row['kernels']:.0f} kernels, {1e3 * row['device_seconds']:.3f} ms")
            records.write_lines(args.out, rows)


if __name__ == "__main__":
    main()
