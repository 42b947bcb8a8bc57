"""Random systems against the promise that no wrong answer is silent: ``python tests/fuzz/run.py --systems 100000``.

The record is written after every chunk, and a run that was stopped goes on where it was. A worker that crashes leaves
the number of its system in the record. ``--merge A.json B.json`` adds records of other machines to that of ``--out``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

CHUNK = 100
SCRATCH = "at-{}"  # the system a worker is at, one file per process


def work(first: int, count: int, folder: str, device: str = "cpu") -> dict:
    """The ledger of ``count`` systems from number ``first`` on."""
    import properties

    ledger, begun = properties.Ledger(), time.process_time()
    at = Path(folder) / SCRATCH.format(os.getpid())
    for seed in range(first, first + count):
        at.write_text(str(seed))
        properties.try_system(seed, ledger, device)
    at.unlink()
    counts = {name: value if isinstance(value, list) else dict(value) for name, value in vars(ledger).items()}
    return {**counts, "processor seconds": time.process_time() - begun}


def _empty(seed: int) -> dict:
    counts: dict = {"systems": {}, "checks": {}, "outcomes": {}}
    times = {"seconds": 0.0, "processor seconds": 0.0}
    return {"first seed": seed, "chunk": CHUNK, "done": [], **times, **counts, "violations": [], "mended": []}


def read(out: Path, seed: int) -> dict:
    """The record so far; its chunks must be those of today, or systems would be counted twice."""
    record = json.loads(out.read_text()) if out.exists() else _empty(seed)
    if record.get("chunk") != CHUNK:
        raise ValueError(f"{out} counts in chunks of {record.get('chunk')}, not {CHUNK}: move it away")
    return record


def merge(out: Path, others: list[Path]) -> dict:
    """Add the records of other machines to ``out``."""
    record = read(out, 0)
    for path in others:
        other = read(path, 0)
        if twice := set(record["done"]) & set(other["done"]):
            raise ValueError(f"{path} and {out} both hold the chunk of system {min(twice)}")
        for name in ("done", "violations", "mended"):
            record[name] = record[name] + other[name]
        for name in ("seconds", "processor seconds"):
            record[name] = round(record[name] + other[name], 1)
        _add_counts(record, other)
        record["also on"] = [*record.get("also on", []), {**other["versions"], "systems": other["systems"]["all"]}]
    record["done"] = sorted(record["done"])
    record["first seed"] = min(record["done"], default=0)
    return record


def _try_again(record: dict, device: str) -> None:
    """Violations of an earlier run that hold no more are listed as mended."""
    before, record["violations"] = record["violations"], []
    for violation in before:
        seeds = violation["seed"] if isinstance(violation["seed"], list) else [violation["seed"]]
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            try:
                found = [
                    v
                    for seed in seeds
                    for v in pool.submit(work, seed, 1, tempfile.gettempdir(), device).result()["violations"]
                ]
            except BrokenProcessPool:
                found = [violation]
        record["violations" if found else "mended"] += found[:1] or [violation]


def _add(record: dict, first: int, ledger: dict, seconds: float) -> None:
    _add_counts(record, ledger)
    record["violations"] += ledger["violations"]
    record["done"] = sorted({*record["done"], first})
    record["seconds"] = round(record["seconds"] + seconds, 1)
    record["processor seconds"] = round(record["processor seconds"] + ledger["processor seconds"], 1)


def _add_counts(record: dict, other: dict) -> None:
    for part in ("systems", "checks", "outcomes"):
        record[part] = dict(sorted((Counter(record[part]) + Counter(other[part])).items()))


def _versions() -> dict[str, str]:
    import numba
    import numpy
    import torch

    import walksum

    found = {m.__name__: str(m.__version__) for m in (walksum, torch, numpy, numba)}
    return {**found, "python": platform.python_version(), "machine": platform.machine()}


def run(seed: int, systems: int, seconds: float, processes: int, out: Path, device: str = "cpu") -> dict:
    """Try systems until all are done or the time is over; returns the record."""
    record = read(out, seed)
    record["versions"] = _versions()
    _try_again(record, device)
    todo = [f for f in range(seed, seed + systems, CHUNK) if f not in record["done"]]
    counts = {first: min(CHUNK, seed + systems - first) for first in todo}
    start, folder = time.monotonic(), tempfile.mkdtemp(prefix="walksum-fuzz-")
    out.parent.mkdir(parents=True, exist_ok=True)
    _write(record, out)  # what is mended, also where nothing is left to try
    while todo and time.monotonic() - start < seconds:
        todo = _in_pool(record, todo, counts, start, seconds, processes, out, folder, device)
    shutil.rmtree(folder)
    return record


def _in_pool(
    record: dict,
    todo: list,
    counts: dict,
    start: float,
    seconds: float,
    processes: int,
    out: Path,
    folder: str,
    device: str,
):
    context, left = multiprocessing.get_context("spawn"), list(todo)
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        running: dict = {}
        try:
            while (left or running) and (running or time.monotonic() - start < seconds):
                while left and len(running) < processes and time.monotonic() - start < seconds:
                    first = left.pop(0)
                    running[pool.submit(work, first, counts[first], folder, device)] = (first, time.monotonic())
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    first, begun = running.pop(future)
                    _add(record, first, future.result(), time.monotonic() - begun)
                    _write(record, out)
                    _say(record, start)
        except BrokenProcessPool:
            crashed = [int(f.read_text()) for f in Path(folder).glob(SCRATCH.format("*"))]
            for f in Path(folder).glob(SCRATCH.format("*")):
                f.unlink()
            record["violations"].append({"seed": crashed, "where": "worker", "why": "the process died"})
            given = [f for f in todo if f not in left and f not in record["done"]]
            died = [f for f in given if any(f <= seed < f + counts[f] for seed in crashed)]
            record["done"] = sorted({*record["done"], *died})
            _write(record, out)
            return [f for f in todo if f not in record["done"]]
    return left


def _write(record: dict, out: Path) -> None:
    scratch = out.with_suffix(".part")
    scratch.write_text(json.dumps(record, indent=1))
    os.replace(scratch, out)


def _say(record: dict, start: float) -> None:
    count, passed = record["systems"].get("all", 0), time.monotonic() - start
    print(f"{count:,} systems, {len(record['violations'])} violations, {passed:.0f} s", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--systems", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0, help="number of the first system")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no chunk after so many")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("results/trust/fuzz.json"))
    parser.add_argument("--device", default="cpu", help="where J and h are; a record of its own for each")
    parser.add_argument(
        "--merge", type=Path, nargs="+", metavar="RECORD", help="add these records to --out, try nothing"
    )
    chosen = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait in a loop slow the other processes down
    if chosen.merge:
        record = merge(chosen.out, chosen.merge)
        _write(record, chosen.out)
    else:
        record = run(chosen.seed, chosen.systems, chosen.seconds, chosen.processes, chosen.out, chosen.device)
    for violation in record["violations"][:20]:
        print(violation)
    return 1 if record["violations"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
