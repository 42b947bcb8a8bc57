"""The explorer's command as a stranger runs it."""

import csv
import json
import shutil
import signal
import socket
import sys
import urllib.request
from dataclasses import replace

import pandas as pd
import pytest
import torch
from customers import start
from torch_geometric.data import Data

from walksum.data.cache import cache_root

pytest.importorskip("dash_cytoscape")


def invoke(*arguments):
    from typer.testing import CliRunner

    from walksum.cli import app

    done = CliRunner().invoke(app, ["explore", *map(str, arguments), "--no-browser"])
    return done.exit_code, " ".join(done.output.split())


@pytest.fixture
def opened(monkeypatch):
    """The command up to the moment at which the server would wait: what it would serve."""
    from walksum.explore import server

    kept = []

    def make(subject, port):
        kept.append(subject)
        raise ValueError("stop here")

    monkeypatch.setattr(server, "open_server", make)
    return kept


def wait_for_url(process):
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return json.loads(line)["url"]


def test_it_serves_until_ctrl_c_and_ends_cleanly(colour_run):
    run, _ = colour_run
    tables = ("--nodes", run.parent / "nodes.csv", "--edges", run.parent / "edges.csv")
    process = start("explore", run, *tables, "--port", "0", "--no-browser", "--json", cwd=run.parent)
    try:
        url = wait_for_url(process)
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert b"dash-renderer" in answer.read()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "Traceback" not in errors
    with socket.socket() as probe:  # the port is free again
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", int(url.rsplit(":")[-1].strip("/"))))


def test_a_run_on_tables_brings_its_own_labels(colour_run, opened):
    run, _ = colour_run
    tables = ("--nodes", run.parent / "nodes.csv", "--edges", run.parent / "edges.csv")
    assert invoke(run, *tables) == (2, "error: stop here")
    (subject,) = opened
    assert subject.name(3) == "c3"
    assert subject.label(3) == "blue"
    assert subject.label(0) == "?"
    written = {row["id"]: row for row in csv.DictReader((run / "predictions.csv").open())}
    assert subject.predicted(3) == written["c3"]["prediction"]


def test_tables_without_the_target_column_are_explored_too(colour_run, opened, tmp_path):
    run, _ = colour_run
    pd.read_csv(run.parent / "nodes.csv").drop(columns="colour").to_csv(tmp_path / "nodes.csv", index=False)
    tables = ("--nodes", tmp_path / "nodes.csv", "--edges", run.parent / "edges.csv")
    assert invoke(run, *tables) == (2, "error: stop here")
    assert {opened[0].label(node) for node in range(72)} == {"?"}


def test_a_dataset_without_a_run_is_learned_once(opened, monkeypatch, tmp_path):
    from walksum.explore import small_model

    monkeypatch.setenv("WALKSUM_CACHE", str(tmp_path))
    jobs = []
    monkeypatch.setattr(small_model, "fit_model", _counted(small_model.fit_model, jobs))
    monkeypatch.setattr(small_model, "small_job", lambda *given: _short(_small_job(*given)))
    code, output = invoke("--dataset", "digits")
    assert (code, len(jobs)) == (2, 1)
    assert "training a small model of digits, once" in output
    code, output = invoke("--dataset", "digits")
    assert (code, len(jobs)) == (2, 1)
    assert "training" not in output
    assert opened[0].prediction.tolist() == opened[1].prediction.tolist()
    assert opened[0].training == opened[1].training
    assert len(opened[0].training) == 100
    (folder,) = (cache_root() / "explore").iterdir()
    (folder / "model" / "model.safetensors").write_bytes(b"broken")
    assert invoke("--dataset", "digits")[0] == 2
    assert len(jobs) == 2  # a damaged run is made again


def _small_job(*given):
    from walksum.workflow.fit import Job

    return Job(design=given[0], learned=given[1], coupling=given[2], hidden=8, layers=1, lr=1e-2)


def _short(job):
    return replace(job, max_epochs=2)


def _counted(function, calls):
    def wrapped(*args, **kwargs):
        calls.append(args)
        return function(*args, **kwargs)

    return wrapped


def test_what_is_no_run_is_refused(tmp_path, colour_run):
    run, _ = colour_run
    code, output = invoke(tmp_path / "nothing")
    assert code == 2
    assert "nothing does not exist; train a run first: walksum train --out" in output
    (tmp_path / "empty").mkdir()
    assert "it holds no config.json" in invoke(tmp_path / "empty")[1]
    broken = tmp_path / "broken"
    shutil.copytree(run, broken)
    (broken / "config.json").write_text("{")
    assert "config.json is damaged" in invoke(broken)[1]
    shutil.copy(run / "config.json", broken)
    (broken / "model" / "model.safetensors").write_bytes(b"no")
    tables = ("--nodes", run.parent / "nodes.csv", "--edges", run.parent / "edges.csv")
    code, output = invoke(broken, *tables)
    assert code == 2
    assert "does not hold a complete walksum model" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a run folder, for example runs/digits, or --dataset digits"),
        (("run", "--dataset", "digits"), "name a run or a dataset, not both"),
        (("--nodes", "n.csv", "--edges", "e.csv"), "tables need a run; train one first"),
        (("--dataset", "atlantis"), "'atlantis' is not a dataset"),
        (("--dataset", "digits", "--design", "magic"), "--design magic; known:"),
    ],
)
def test_wrong_use_says_what_to_do(arguments, message):
    code, output = invoke(*arguments)
    assert code == 2
    assert message in output


def test_a_run_on_tables_needs_them(colour_run):
    code, output = invoke(colour_run[0])
    assert code == 2
    assert "--nodes and --edges are missing" in output


def test_a_port_in_use_is_told(colour_run):
    run, _ = colour_run
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        tables = ("--nodes", run.parent / "nodes.csv", "--edges", run.parent / "edges.csv")
        code, output = invoke(run, *tables, "--port", port)
    assert code == 2
    assert f"--port {port} is in use; name another one, or --port 0 for any free one" in output


def test_without_the_extra_it_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "dash_cytoscape", None)
    code, output = invoke("--dataset", "digits")
    assert code == 2
    assert "pip install 'walksum[explore]'" in output


def test_a_file_without_labels_says_nothing_of_training(opened, tmp_path):
    from typer.testing import CliRunner

    from walksum.cli import app

    x, ring = torch.randn(40, 3), torch.stack([torch.arange(40), (torch.arange(40) + 1) % 40])
    torch.save(Data(x=x, edge_index=ring, y=torch.arange(40) % 2), tmp_path / "mine.pt")
    torch.save(Data(x=x, edge_index=ring), tmp_path / "new.pt")
    train = ("train", "--graph", tmp_path / "mine.pt", "--out", tmp_path / "run", "--epochs", "5")
    assert CliRunner().invoke(app, [str(word) for word in train]).exit_code == 0
    for name in ("mine.pt", "new.pt"):
        _, output = invoke(tmp_path / "run", "--graph", tmp_path / name)
        assert "stop here" in output
    assert len(opened[0].training) == 24
    assert opened[1].training is None
