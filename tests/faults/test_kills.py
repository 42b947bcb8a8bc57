"""Processes that are killed or asked to end, at moments nobody chose."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src"), "OMP_NUM_THREADS": "1"}
QUICKLY = 5.0  # seconds from the signal to the end, of its own work: other processes may slow the machine down

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")]


def test_a_kill_at_any_moment_leaves_nothing_half_written(tmp_path):
    """As in results/trust/faults.json, but one moment of each command."""
    command = [sys.executable, HERE / "kills.py", "--moments", "4", "--seed", "1", "--out", tmp_path / "record.json"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    record = json.loads((tmp_path / "record.json").read_text())
    assert sum(sum(found.values()) for found in record["found after the kill"].values()) == 4


def cpu_seconds(pid):
    """That a running process has used so far, its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="CPU time of another process is read from /proc")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_training_ends_soon_after_it_is_asked_to(name, tables, tmp_path):
    for frame, file in zip(tables, ("nodes.csv", "edges.csv"), strict=True):
        frame.to_csv(tmp_path / file, index=False)
    arguments = ("--nodes", "nodes.csv", "--edges", "edges.csv", "--target", "colour", "--hidden", "8")
    long = ("--epochs", "1000000", "--patience", "1000000", "--out", "run")
    earlier = resource.getrusage(resource.RUSAGE_CHILDREN)
    children = earlier.ru_utime + earlier.ru_stime
    process = subprocess.Popen(
        [sys.executable, "-m", "walksum", "train", *arguments, *long],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while "epoch" not in process.stderr.readline():
        assert process.poll() is None
    before = cpu_seconds(process.pid)
    process.send_signal(getattr(signal, name))
    process.communicate(timeout=200)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ended.ru_utime + ended.ru_stime - children - before < QUICKLY
    assert process.returncode == (130 if name == "SIGINT" else 143)
    left = {path.name for path in tmp_path.iterdir()} - {"nodes.csv", "edges.csv"}
    assert left == ({"run"} if name == "SIGINT" else set())  # Ctrl-C keeps the best so far, whole
    if left:
        from walksum.workflow import open_run

        assert open_run(tmp_path / "run").interrupted


def test_records_with_other_seeds_make_one():
    import kills

    one, two = (kills._before(seed, None) for seed in (0, 1))
    one["moments"], one["found after the kill"]["train"] = 3, {"whole": 2, "nothing": 1}
    two["moments"], two["found after the kill"]["train"] = 1, {"whole": 1}
    both = kills.merge([one, two])
    assert (both["moments"], both["seed"]) == (4, [0, 1])
    assert both["found after the kill"]["train"] == {"nothing": 1, "whole": 3}
    assert kills.merge([both, kills._before(2, None)])["seed"] == [0, 1, 2]
    with pytest.raises(AssertionError, match="twice"):
        kills.merge([both, one])
