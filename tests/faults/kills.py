"""SIGKILL at random moments of train, sweep, predict and report: nothing lost, doubled, torn or half-written.

A program of its own: it imports once, and each moment is a forked child. A moment is drawn among the processor seconds
that the command takes: other processes that slow it down do not shift the moments to its beginning.
``python tests/faults/kills.py --moments 200`` writes the record; a run that was stopped goes on where it was. See
docs/promise.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from typer.testing import CliRunner

from walksum._files import write_file
from walksum.cli import app
from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.store import Store, read_records
from walksum.paper.sweep.sweep import plan
from walksum.paper.sweep.worker import WorkerSettings
from walksum.workflow import open_run

OLD = "what was there before\n"
ROWS = 60
SWEPT = plan(["mlp"], ["digits"], range(4), max_epochs=2, hidden=8)


def command(*arguments: object) -> int:
    return CliRunner().invoke(app, [str(word) for word in arguments]).exit_code


def make_inputs(folder: Path) -> None:
    """Tables, a trained run and a store to work on."""
    draw = np.random.default_rng(0)
    kind = np.arange(ROWS) % 2
    nodes = pd.DataFrame({"id": [f"c{k}" for k in range(ROWS)], "income": draw.normal(size=ROWS) + kind})
    nodes["colour"] = np.where(kind, "red", "blue")
    ends = draw.integers(0, ROWS, (2, 3 * ROWS))
    nodes.to_csv(folder / "nodes.csv", index=False)
    pd.DataFrame({"source": [f"c{i}" for i in ends[0]], "target": [f"c{j}" for j in ends[1]]}).to_csv(
        folder / "edges.csv", index=False
    )
    assert train(folder, folder / "run") == 0
    store = Store(folder / "store")
    store.make()
    for spec in plan(["mlp", "gcn"], ["texas"], range(3)):
        store.append(RunRecord(spec, "ok", val_accuracy=0.5, test_accuracy=0.5 + spec.seed / 100))


def train(folder: Path, out: Path) -> int:
    tables = ("--nodes", folder / "nodes.csv", "--edges", folder / "edges.csv", "--target", "colour")
    return command("train", *tables, "--epochs", 5, "--hidden", 4, "--layers", 1, "--out", out)


def predict(folder: Path, out: Path) -> int:
    tables = ("--nodes", folder / "nodes.csv", "--edges", folder / "edges.csv")
    return command("predict", folder / "run", *tables, "--out", out)


def report(folder: Path, out: Path) -> int:
    return command("report", folder / "store", "--format", "html", "--out", out)


def sweep(folder: Path, out: Path) -> int:
    store = Store(out)
    store.make()
    store.refresh()
    WorkerSettings(str(out)).train(store.missing(SWEPT), store.append)
    return 0


def check_run(out: Path) -> str:
    """A run folder is whole or not there."""
    if not out.exists():
        return "nothing"
    run = open_run(out)
    assert len(run.predictions) == ROWS
    assert run.model is not None
    assert run.report().rstrip().endswith("</html>")
    return "whole"


def check_file(out: Path, whole: str) -> str:
    """A file is what it was, or all of the new one."""
    text = out.read_text().replace(out.name, "")  # a page names itself
    assert text in (OLD, whole), f"{out} is torn: {len(text)} of {len(whole)} characters"
    return "before" if text == OLD else "whole"


def check_store(out: Path) -> str:
    if not out.exists() or not (out / "records.jsonl").exists():
        return "nothing"
    records = read_records(out)
    keys = [json.loads(line)["key"] for line in (out / "records.jsonl").read_text().splitlines() if line.endswith("}")]
    assert len(keys) == len(set(keys)), "a run is there twice"
    assert all(record.outcome == "ok" for record in records)
    return f"{len(records)} of {len(SWEPT)}"


ACTIONS = {"train": train, "predict": predict, "report": report, "sweep": sweep}


def child(action, *arguments) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            code = action(*arguments)
        finally:
            os._exit(code)
    return pid


def timed(name: str, folder: Path, out: Path) -> float:
    """The processor seconds of a command that is let be."""
    _, status, used = os.wait4(child(ACTIONS[name], folder, out), 0)
    assert status == 0, f"{name} failed by itself"
    return used.ru_utime + used.ru_stime


def wait_until(pid: int, seconds: float) -> None:
    """Until a child has used so many processor seconds, or has ended."""
    clock = ~pid << 3 | 2  # Linux's clock of the processor time of another process
    while time.clock_gettime(clock) < seconds and not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        time.sleep(0.001)


def one_moment(name: str, folder: Path, out: Path, whole: str, wait: float) -> str:
    if name in ("predict", "report"):
        out.write_text(OLD)
    pid = child(ACTIONS[name], folder, out)
    wait_until(pid, wait)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    if name == "train":
        return check_run(out)
    return check_store(out) if name == "sweep" else check_file(out, whole)


def finish(name: str, folder: Path, out: Path, found: str) -> None:
    """The same command goes on where the kill left it."""
    if name == "train" and found == "nothing":
        os.waitpid(child(train, folder, out), 0)
        assert check_run(out) == "whole"
    if name == "sweep":
        os.waitpid(child(sweep, folder, out), 0)
        assert check_store(out) == f"{len(SWEPT)} of {len(SWEPT)}"


def run(moments: int, seed: int, folder: Path, out: Path | None) -> dict:
    """The record: what was found after each kill, per command; raises where something is lost, doubled or torn.

    It is written to ``out`` after every moment; the moments that ``out`` holds already are not tried again.
    """
    torch.set_num_threads(1)
    record = _before(seed, out)
    make_inputs(folder)
    seconds, whole = {}, {}
    record["processor seconds of one command"] = seconds
    for name in ACTIONS:
        timed(name, folder, folder / f"{name}-warm")  # compiles what is not on disk yet
        seconds[name] = round(timed(name, folder, folder / f"{name}-whole"), 2)
        path = folder / f"{name}-whole"
        whole[name] = path.read_text().replace(path.name, "") if path.is_file() else ""
    for moment in range(record["moments"], moments):
        name = list(ACTIONS)[moment % len(ACTIONS)]
        place = folder / f"{name}-{moment}"
        wait = random.Random(f"{seed} {moment}").uniform(0, 1.1 * seconds[name])
        after = one_moment(name, folder, place, whole[name], wait)
        found = record["found after the kill"][name]
        found[after] = found.get(after, 0) + 1
        if moment % 20 < 4:
            finish(name, folder, place, after)
            record["finished afterwards by the same command"] += name in ("train", "sweep")
        scratch = [path for path in folder.iterdir() if path.name.startswith(".")]
        record["hidden scratch folders and files left"] += len(scratch)
        record["moments"] = moment + 1
        print(f"\r{moment + 1} of {moments} moments", end="", file=sys.stderr, flush=True)
        if out is not None:
            write_file(out, json.dumps(record, indent=1) + "\n")
        _clear(place, *scratch)
    return record


def _before(seed: int, out: Path | None) -> dict:
    """The record so far."""
    if out is not None and out.exists():
        record = json.loads(out.read_text())
        assert seed in np.atleast_1d(record["seed"]), f"{out} was begun with seed {record['seed']}"
        return record
    return {
        "moments": 0,
        "seed": seed,
        "processor seconds of one command": {},
        "found after the kill": {name: {} for name in ACTIONS},
        "finished afterwards by the same command": 0,
        "hidden scratch folders and files left": 0,
        "lost, doubled, torn or half-written": 0,
    }


def merge(records: list[dict]) -> dict:
    """One record of runs with other seeds; a record may be such a one itself."""
    seeds = [seed for record in records for seed in np.atleast_1d(record["seed"]).tolist()]
    assert len(set(seeds)) == len(seeds), f"the same kills twice: seeds {seeds}"
    record = {**records[0], "seed": seeds}
    for name in record:
        if isinstance(record[name], int):
            record[name] = sum(each[name] for each in records)
    found = "found after the kill"
    record[found] = {
        name: dict(sorted(sum((Counter(each[found][name]) for each in records), Counter()).items())) for name in ACTIONS
    }
    return record


def _clear(*paths: Path) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--merge", type=Path, nargs="+", metavar="RECORD", help="write one record of these to --out")
    chosen = parser.parse_args()
    out = None if chosen.out is None else chosen.out.absolute()
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
    if chosen.merge:
        write_file(out, json.dumps(merge([json.loads(path.read_text()) for path in chosen.merge]), indent=1) + "\n")
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        record = run(chosen.moments, chosen.seed, Path(folder), out)
    if out is None:
        print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
