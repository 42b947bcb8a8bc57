"""Sweeps on Ray: the records of a local sweep, a worker that is killed, a sweep that is killed; no process is left."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from walksum.paper.sweep.store import RECORDS, read_records

pytest.importorskip("ray", reason="ray is optional: pip install 'walksum[ray]'")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("killed")]

HERE = Path(__file__).parent
PATH = os.pathsep.join([str(HERE.parents[1] / "src"), str(HERE)])
DRIVER = """
import sys, stubs
from walksum.paper.sweep.ray_engine import RayEngine
from walksum.paper.sweep.store import Store
from walksum.paper.sweep.sweep import Sweep, plan
from walksum.paper.sweep.worker import WorkerSettings

if __name__ == "__main__":
    folder, trainer, runs = sys.argv[1:]
    store = Store(folder)
    store.make()
    engine = RayEngine(WorkerSettings(folder, trainer=getattr(stubs, trainer), root=folder), 1, store)
    Sweep(plan(["gcn", "mlp"], ["texas"], range(int(runs))), store, engine, on_note=print).run()
"""


def new_environment():
    """Of a program whose processes can be told by it: they inherit it."""
    # workers of Ray are nice to others, who on a busy machine leave them nothing
    ours = {"RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0", "WALKSUM_TEST": uuid.uuid4().hex}
    return {**os.environ, "PYTHONPATH": PATH, **ours}


@pytest.fixture
def environment():
    return new_environment()


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Environment of a sweep that was killed before the other tests: what it leaves may take a minute to go."""
    folder, environment = tmp_path_factory.mktemp("killed"), new_environment()
    driver, path = start(folder, environment, "slow", "5000"), folder / "store" / RECORDS
    end = time.monotonic() + 300
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)
    assert len(left(environment)) > 3  # Ray's own, and the task's
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    return environment


def left(environment):
    """The processes of that program which are still there."""
    mark, found = f"WALKSUM_TEST={environment['WALKSUM_TEST']}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ")[:80])
        except OSError:
            continue
    return found


def wait_until_gone(environment, seconds=300):
    """Ray's agents notice after ten seconds that theirs is gone, and try for sixty more to tell its server so."""
    end = time.monotonic() + seconds
    while left(environment) and time.monotonic() < end:
        time.sleep(0.2)
    assert left(environment) == []


def records(folder):
    """What the runs found, by their keys; not when, how fast and in how much memory."""
    varying: dict[str, Any] = {"seconds": 0.0, "finished": "", "peak_memory": None, "commit": None}
    return {record.key: replace(record, **varying) for record in read_records(folder)}


def test_a_sweep_on_ray_has_the_records_of_a_local_one(environment, tmp_path):
    found = {}
    for engine in ("local", "ray"):
        words = ["bench", "table1", "--datasets", "digits", "--models", "mlp,gcn", "--runs", "2"]
        words += ["--max-epochs", "2", "--engine", engine, "--workers", "1", "--store", str(tmp_path / engine)]
        command = [sys.executable, "-m", "walksum", *words, "--json", "--quiet"]
        done = subprocess.run(command, env=environment, check=True, timeout=600, stdout=subprocess.PIPE)
        assert json.loads(done.stdout)["trained"] == 4
        found[engine] = records(tmp_path / engine)
    assert len(found["local"]) == 4
    assert found["ray"] == found["local"]
    wait_until_gone(environment)


@pytest.mark.data
def test_a_search_on_ray_has_the_trials_of_a_local_one(environment, tmp_path):
    found = {}
    for engine in ("local", "ray"):
        words = ["train", "--dataset", "texas", "--search", "4", "--workers", "2", "--engine", engine, "--epochs", "3"]
        words += ["--out", str(tmp_path / engine), "--quiet"]
        subprocess.run([sys.executable, "-m", "walksum", *words], env=environment, check=True, timeout=600)
        metrics = json.loads((tmp_path / engine / "metrics.json").read_text())
        found[engine] = [{**trial, "seconds": 0} for trial in metrics["search"]["trials"]], metrics["best_epoch"]
    assert len(found["local"][0]) == 4
    assert found["ray"] == found["local"]
    wait_until_gone(environment)


def start(tmp_path, environment, *words):
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    command = [sys.executable, str(script), str(tmp_path / "store"), *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_a_killed_worker_is_replaced(environment, tmp_path):
    told = start(tmp_path, environment, "dying_once_or_always", "3").communicate(timeout=600)[0]
    outcomes = [(record.spec.model, record.outcome) for record in records(tmp_path / "store").values()]
    assert sorted(outcomes) == [("gcn", "ok")] * 3 + [("mlp", "failed")] * 3
    assert "the worker on gcn on texas died (WorkerCrashedError); what it had not finished is tried once more" in told
    wait_until_gone(environment)


def test_a_sweep_that_is_killed_leaves_no_process(killed):
    wait_until_gone(killed)
