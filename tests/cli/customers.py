"""The command in this process, or as one of its own; and a small shop of tables to run it on."""

import contextlib
import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from walksum.cli import app

SRC = str(Path(__file__).parents[2] / "src")
ENVIRONMENT = {**os.environ, "PYTHONPATH": SRC, "OMP_NUM_THREADS": "1"}
QUICK = ("--epochs", "30", "--hidden", "16", "--layers", "1", "--lr", "0.01")


def start(*arguments, cwd, **options):
    command = [sys.executable, "-m", "walksum", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": cwd}
    return subprocess.Popen(command, **{"env": ENVIRONMENT, **pipes, **options})


def run(*arguments, cwd, **options):
    process = start(*arguments, cwd=cwd, **options)
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def inside(*arguments, cwd="."):
    """The command without the seconds a new process takes to import torch."""
    with contextlib.chdir(cwd):
        done = CliRunner().invoke(app, [str(word) for word in arguments])
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def walksum():
    return inside


def write(path, header, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def answers(path):
    """The text of a predictions.csv without the columns that only a training has."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    return frame.drop(columns=["split", "truth"], errors="ignore").to_csv(index=False)


class Shop:
    """Two colours of customers who buy beside their own kind: ids are words, some cells are empty."""

    def __init__(self, count=80, seed=0):
        draw = np.random.default_rng(seed)
        self.colour = np.array(["red", "blue"])[np.arange(count) % 2]
        self.income = draw.normal(size=count) * 100 + 1000 + 80 * (np.arange(count) % 2)
        self.town = draw.choice(["Rome", "Oslo", "Bern"], count)
        self.spent = self.income / 10 + draw.normal(size=count)
        ends = draw.integers(0, count // 2, (3 * count, 2)) * 2 + draw.integers(0, 2, (3 * count, 1))
        self.edges = [(f"c{i}", f"c{j}") for i, j in ends if i != j]
        self.empty = set(range(0, count, 10))

    def rows(self, count=None):
        for k in range(count or len(self.colour)):
            label, spent = ("", "") if k in self.empty else (self.colour[k], f"{self.spent[k]:.3f}")
            income = "" if k % 13 == 1 else f"{self.income[k]:.2f}"
            yield [f"c{k}", income, self.town[k], label, spent]

    def write(self, folder, count=None):
        names = {f"c{k}" for k in range(count or len(self.colour))}
        nodes = write(folder / "nodes.csv", ["id", "income", "town", "colour", "spent"], self.rows(count))
        edges = [pair for pair in self.edges if set(pair) <= names]
        return nodes, write(folder / "edges.csv", ["source", "target"], edges)


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """Nodes and edges of the shop, as CSV files in one folder."""
    folder = tmp_path_factory.mktemp("shop")
    Shop().write(folder)
    return folder


@pytest.fixture(scope="session")
def colour_run(shop, small_trainings, tmp_path_factory):
    """A run that learned colours from 72 of the 80 customers; the last 10 % come later as new nodes."""
    folder = tmp_path_factory.mktemp("colours")
    Shop().write(folder, count=72)
    tables = ("--nodes", "nodes.csv", "--edges", "edges.csv", "--target", "colour")
    with small_trainings():  # a fixture of the session comes before those of a module
        done = inside("train", *tables, "--features", "income,town", "--out", "run", *QUICK, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "run", done
