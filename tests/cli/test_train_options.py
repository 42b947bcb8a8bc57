"""Every option of 'walksum train' is given to the command by some test of this folder."""

import ast
import json
from pathlib import Path

import pandas as pd
import typer.main
from customers import QUICK

from walksum.cli import app


def options(command):
    """The long names of a command's options, and the negative ones of its switches."""
    parameters = typer.main.get_command(app).commands[command].params
    return {name for each in parameters for name in (*each.opts, *each.secondary_opts) if name.startswith("--")}


def given():
    """Words that tests of this folder hand over as arguments: text constants by themselves, not parts of messages."""
    found = set()
    for file in Path(__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return found


def test_every_option_is_run_by_a_test():
    missing = options("train") - given()
    assert not missing, f"no test runs 'walksum train' with {', '.join(sorted(missing))}"


def test_ids_ends_encoding_and_a_fixed_operator(walksum, tmp_path):
    """Tables of another country: every column is named by an option, and the text is not UTF-8."""
    rows = [f"{k},n{k},{k % 7},{'grün' if k % 2 else 'weiß'}" for k in range(40)]
    (tmp_path / "orte.csv").write_bytes("\n".join(["id,nummer,zahl,farbe", *rows]).encode("latin-1"))
    ends = [f"n{k},n{(k + 2) % 40},n0" for k in range(40)]
    (tmp_path / "wege.csv").write_text("\n".join(["von,nach,source", *ends]))
    tables = ("--nodes", "orte.csv", "--edges", "wege.csv", "--target", "farbe", "--out", "run", *QUICK)
    done = walksum("train", *tables, cwd=tmp_path)
    assert done.returncode == 2
    assert "--encoding" in done.stderr
    named = ("--id", "nummer", "--source", "von", "--destination", "nach", "--encoding", "latin-1")
    done = walksum("train", *tables, *named, "--design", "laplacian", "--fixed", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["job"]["design"] == "laplacian"
    assert config["job"]["learned"] is False
    table = pd.read_csv(tmp_path / "run" / "predictions.csv")
    assert table["id"].tolist() == [f"n{k}" for k in range(40)]
    assert set(table["truth"]) == {"grün", "weiß"}
    assert "40 edges" in done.stdout  # those of von and nach, not of the column called source
