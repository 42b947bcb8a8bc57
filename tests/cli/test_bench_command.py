"""walksum bench as a process of its own, on digits, which need no files."""

import json
import os
import pty
import signal
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
from customers import start
from typer.testing import CliRunner

from walksum.cli import app
from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.store import RunLocks, Store, read_records
from walksum.paper.sweep.sweep import plan

QUICK = ("bench", "table1", "--datasets", "digits", "--max-epochs", "2", "--workers", "1", "--store", "store")


def inside(*arguments):
    """The command in this process: for what trains nothing."""
    done = CliRunner().invoke(app, ["bench", "table1", *map(str, arguments)])
    return done.exit_code, done.stdout, " ".join(done.stderr.split())


def specs(models, runs, **changes):
    return plan(models, ["digits"], range(runs), **{"max_epochs": 2, **changes})


def lines(folder):
    path = Path(folder) / "records.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def wait_for(condition, process, seconds=200):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


@pytest.mark.slow
def test_two_sweeps_share_one_store(tmp_path):
    arguments = (*QUICK, "--models", "mlp,gcn", "--runs", "4", "--json", "--quiet")
    both = [start(*arguments, cwd=tmp_path) for _ in range(2)]
    ends = [(process.communicate(timeout=300), process.returncode) for process in both]
    assert [code for _, code in ends] == [0, 0], ends
    reports = [json.loads(out) for (out, _), _ in ends]
    assert sum(report["trained"] for report in reports) == 8
    assert all(report["left"] == 0 for report in reports)
    assert reports[0]["cells"] == reports[1]["cells"]
    assert {cell["outcomes"]["ok"] for cell in reports[0]["cells"]} == {4}
    assert (
        len({RunRecord.from_line(line).key for line in lines(tmp_path / "store")})
        == 8
        == len(lines(tmp_path / "store"))
    )
    assert len(list((tmp_path / "store").iterdir())) <= 4


@pytest.mark.slow
def test_another_sweeps_runs_are_left_alone_and_an_interrupt_leaves_a_store_that_goes_on(tmp_path):
    store, arguments = Store(tmp_path / "store"), (*QUICK, "--models", "gcn,mlp", "--runs", "3")
    store.make()
    locks = RunLocks(store.folder / "run-locks")
    locks.take(spec.key for spec in specs(["mlp"], 3))  # this test works on them, as the sweep is to believe
    process = start(*arguments, cwd=tmp_path)
    wait_for(lambda: len(lines(store.folder)) == 3, process)
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=60)[1]
    assert process.returncode == 130, err
    assert "interrupted: 3 of 6 runs are in store/records.jsonl; the same command goes on from there" in err
    assert "Traceback" not in err
    assert {record.spec.model for record in read_records(store.folder)} == {"gcn"}
    locks.close()

    code, out, shown = in_a_terminal(*arguments, cwd=tmp_path)
    assert code == 0, shown
    assert len(lines(store.folder)) == 6
    assert "3 of 6 runs" in shown
    assert "MLP" in shown  # the table as it fills
    assert "(3)" in out
    assert "records: store/records.jsonl" in out


def in_a_terminal(*arguments, cwd):
    ours, theirs = pty.openpty()
    process = start(*arguments, cwd=cwd, stderr=theirs)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the other end is closed
        while piece := os.read(ours, 4096):
            shown += piece
    os.close(ours)
    out, _ = process.communicate(timeout=60)
    return process.returncode, out, shown.decode()


@pytest.fixture
def three(tmp_path):
    """A store with one run of each of three outcomes."""
    store = Store(tmp_path / "store")
    store.make()
    for spec, outcome in zip(specs(["mlp"], 3), ("ok", "oom", "failed"), strict=True):
        store.append(RunRecord(spec, outcome, test_accuracy=0.5, message="too bad" * (outcome != "ok")))
    return store.folder


def test_what_is_there_is_not_trained_again(three):
    before = lines(three)
    arguments = ("--datasets", "digits", "--models", "mlp", "--runs", 3, "--max-epochs", 2, "--store", three)
    code, out, _ = inside(*arguments)
    assert code == 1  # something failed
    assert "50.0 (1)*" in out
    assert "mlp on digits: 1 oom, 1 failed (too bad)" in out
    report = json.loads(inside(*arguments, "--json")[1])
    assert (report["trained"], report["left"], report["cells"][0]["outcomes"]) == (
        0,
        0,
        {"ok": 1, "oom": 1, "failed": 1},
    )
    assert lines(three) == before


def test_a_dry_run_says_what_would_be_trained(three, tmp_path):
    arguments = ("--datasets", "digits", "--models", "mlp", "--runs", 5, "--max-epochs", 2, "--dry-run")
    code, out, _ = inside(*arguments, "--store", three)
    assert code == 0
    assert "mlp on digits: 2 runs, seeds 3 to 4" in out
    assert "2 of 5 runs are not in" in out
    assert "mlp on digits: 4 runs, seeds 1 to 4" in inside(*arguments, "--store", three, "--retry")[1]
    assert json.loads(inside(*arguments, "--store", tmp_path / "new", "--json")[1])["left"] == 5
    assert not (tmp_path / "new").exists()


def planned(*arguments):
    return json.loads(inside("--dry-run", "--json", "--store", "nowhere", *arguments)[1])["cells"]


def test_lists_groups_and_repeated_options():
    assert len(planned()) == 13 * 6
    assert {
        cell["model"] for cell in planned("--models", "sign", "--models", "mlp,gcn", "--datasets", "texas,digits")
    } == {
        *("glt-pairwise-normal-learned-attractive", "glt-diagonally-dominant-learned-attractive", "mlp", "gcn"),
        *("glt-pairwise-normal-fixed-attractive", "glt-diagonally-dominant-fixed-repulsive"),
    }
    assert len(planned("--models", "all", "--datasets", "cora")) == len(planned("--models", "paper,sign,extra")) / 6


def test_settings_decide_which_runs_are_meant(tmp_path):
    store = Store(tmp_path)
    changes = {"lr": 0.5, "heads": (4, 2), "options": (("k", 2), ("name", "word"))}
    for spec in specs(["gat"], 2, **changes):
        store.append(RunRecord(spec, "ok"))
    arguments = ("--datasets", "digits", "--models", "gat", "--runs", 2, "--max-epochs", 2, "--store", tmp_path)
    settings = ("--set", "lr=0.5", "--set", "heads=4,2", "--set", "options.name=word", "--set", "options.k=2")
    assert "0 of 2 runs" in inside(*arguments, *settings, "--dry-run")[1]
    assert "2 of 2 runs" in inside(*arguments, *settings[2:], "--dry-run")[1]


BAD = {
    "model": (("--models", "gcn,gnc"), "--models 'gnc' is unknown; choose of the groups paper, glt, baselines"),
    "dataset": (("--datasets", "digit"), "--datasets 'digit' is unknown; choose of cora, citeseer"),
    "setting": (("--set", "learning=1"), "--set learning: no such setting; choose of hidden, layers"),
    "value": (("--set", "lr=fast"), "--set lr=fast; expected float"),
    "heads": (("--set", "heads=8"), "--set heads=8; expected 8,1"),
    "depth": (("--set", "layers=3"), "--set layers means nothing to mlp; leave out the setting or these rows"),
    "form": (("--set", "lr"), "--set 'lr'; write NAME=VALUE"),
    "select": (("--set", "select=f1"), "select='f1'; known: 'accuracy', 'loss'"),
    "engine": (("--engine", "slurm"), "--engine slurm"),
    "device": (("--device", "tpu"), "--device tpu"),
    "protocol": (("--protocol", "fair"), "--protocol fair"),
    "store": (("--store", __file__), "is a file; name a folder"),
}


@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=("run", "dry-run"))
@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named_and_nothing_is_left_behind(name, dry, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments, message = BAD[name]
    code, out, err = inside("--datasets", "digits", "--models", "mlp", "--runs", 1, *arguments, *dry)
    assert code == 2
    assert message in err
    assert not out
    assert not list(tmp_path.iterdir())


def test_data_that_are_not_there_are_named_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.setattr("walksum.data.datasets._quiet_read", refuse)
    monkeypatch.setenv("WALKSUM_CACHE", str(tmp_path / "cache"))
    code, _, err = inside("--datasets", "texas", "--root", tmp_path, "--store", tmp_path / "store")
    assert code == 2
    assert "dataset 'texas' is not under" in err
    assert "WebKB/texas/raw/out1_graph_edges.txt" in err


def refuse(*_):
    raise OSError("no network")


@pytest.mark.skipif(find_spec("ray") is not None, reason="ray is installed")
def test_ray_that_is_not_there(tmp_path):
    code, _, err = inside("--datasets", "digits", "--models", "mlp", "--engine", "ray", "--store", tmp_path / "store")
    assert code == 2
    assert "--engine ray needs the package ray: pip install 'walksum[ray]'" in err
