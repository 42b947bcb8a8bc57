"""Output where nobody reads, and where there is no terminal."""

import json
import os
import re
import tomllib
from pathlib import Path

import pytest
import typer
from customers import run, start
from rich.table import Table

from walksum.cli.console import EXTRAS, Console, run_command, with_flags


def test_a_reader_who_leaves_early_is_no_failure(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    process = start("datasets", cwd=tmp_path, stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")


def test_a_table_in_a_pipe_is_not_cut_to_eighty_columns(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    table = Table()
    for k in range(10):
        table.add_column(f"column {k}", no_wrap=True)
    Console().table(table)
    assert "column 9" in capsys.readouterr().out


def test_arguments_are_told_as_options():
    options = ("lr", "split", "drop_unknown", "device", "epochs")
    told = with_flags("lr=0.1 is wrong; change split=, or pass drop_unknown=True", options)
    assert told == "--lr 0.1 is wrong; change --split, or pass --drop-unknown"
    assert with_flags("device='tpu'; known: 'cpu'. max_epochs=3", options) == "--device tpu; known: 'cpu'. --epochs 3"
    assert with_flags("model='x', k=3", options) == "model='x', k=3"  # not an option of this command


def test_a_missing_package_inside_a_command_names_its_extra(capsys):
    def action():
        raise ModuleNotFoundError("No module named 'ray'", name="ray")

    with pytest.raises(typer.Exit) as ended:
        run_command(Console(), action)
    assert ended.value.exit_code == 2
    assert "this needs the package ray: pip install 'walksum[ray]'" in " ".join(capsys.readouterr().err.split())


def test_every_extra_is_known():
    """Of pyproject.toml; doctor lists them and errors name them."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for extra, packages in project["optional-dependencies"].items():
        if extra in ("test", "dev", "docs"):
            continue
        for package in packages:
            name = re.split(r"[<>=;\[ ]", package)[0].replace("-", "_")
            assert name == "walksum" or EXTRAS.get(name) == extra  # one extra may name another


def test_wrong_use_is_told_as_json_too(tmp_path):
    done = run("train", "--json", "--budget", "abc", cwd=tmp_path)
    assert done.returncode == 2
    assert json.loads(done.stdout)["exit_code"] == 2
    assert "--budget" in json.loads(done.stdout)["error"]
    assert "Usage: walksum train" in done.stderr
