"""Every example in the README and the docs runs, every command is understood; every exported name exists."""

import ast
import doctest
import importlib
import inspect
import io
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp
import typer
from typer.testing import CliRunner

import walksum as ws
from walksum.cli import app

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.usefixtures("in_small_trainings")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


# a note of predict; which members have weight after a second of training is a matter of the machine
@pytest.mark.filterwarnings("ignore:members that know the training graph alone:UserWarning")
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_examples_run(page):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    blocks = [re.sub(r"budget=\d+", "budget=1", block) for block in blocks]  # of seconds; the point is that they run
    scope: dict = {}
    for block in blocks:
        exec(compile(block, page.name, "exec"), scope)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_what_runs_only_on_several_processes_can_be_imported(page):
    """Blocks that are shown and not run, ```py: they compile, and whatever they import is there."""
    for block in re.findall(r"```py\n(.*?)```", page.read_text(), flags=re.DOTALL):
        tree = ast.parse(block)
        for line in tree.body:
            if isinstance(line, ast.ImportFrom):
                module = importlib.import_module(line.module)
                assert [each.name for each in line.names if not hasattr(module, each.name)] == []


def commands(page):
    """The lines of a page that call walksum: in blocks of a shell, or indented."""
    text = page.read_text()
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL) for line in block.splitlines()]
    lines += re.findall(r"^    (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE)
    found = [shlex.split(line, comments=True) for line in lines if re.match(r"(\.venv/bin/)?walksum ", line)]
    return [words[1:] for words in found]


COMMANDS = [words for page in PAGES for words in commands(page)]


def understood(words):
    """Parse a command's words, and run nothing."""
    command, context = typer.main.get_command(app), None
    while hasattr(command, "commands"):
        name, *words = words
        command, context = command.commands[name], command.make_context(name, [], resilient_parsing=True)
    command.make_context(name, list(words), parent=context)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_is_understood(words):
    understood(words)


def test_a_command_that_is_not_there_is_found():
    assert len(COMMANDS) >= 20
    with pytest.raises(Exception, match="No such option"):
        understood(["train", "--nodes", "nodes.csv", "--colour", "red"])


@pytest.mark.slow
def test_the_first_commands_run_as_they_are_written(monkeypatch, tmp_path):
    """Of README.md and docs/command.md, on tables of the names they use; only the budget is smaller."""
    monkeypatch.chdir(tmp_path)
    draw, ids = np.random.default_rng(0), [f"c{k}" for k in range(60)]
    nodes = pd.DataFrame({"id": ids, "age": draw.normal(size=60), "income": draw.normal(size=60)})
    nodes["label"] = np.where(np.arange(60) % 2, "red", "blue")
    edges = pd.DataFrame({"source": ids[:-2], "target": ids[2:]})
    for kind in ("", "new-"):
        nodes.to_csv(f"{kind}nodes.csv", index=False)
        edges.to_csv(f"{kind}edges.csv", index=False)
    scipy.io.mmwrite("A.mtx", sp.eye(5) * 2)
    np.save("b.npy", np.ones(5))
    for page in (ROOT / "README.md", ROOT / "docs" / "command.md"):
        ran = [words for words in commands(page) if words[0] in ("train", "predict", "info", "solve")]
        assert [words[0] for words in ran][:2] == ["train", "predict"]
        for words in ran:
            quick = ["--budget", "2", "--force"] if words[0] == "train" else []
            done = CliRunner().invoke(app, [*words, *quick])
            assert done.exit_code == 0, done.output
        assert len(pd.read_csv("predictions.csv")) == 60
        Path("predictions.csv").unlink()
    assert np.allclose(np.load("mu.npy"), 0.5)


@pytest.mark.parametrize("name", [name for name in ws.__all__ if name not in ws._MODULES])
def test_every_public_name_has_an_example_that_runs(name, monkeypatch, tmp_path):
    """Also those of its methods."""
    if name == "Multigrid":
        pytest.importorskip("pyamg")
    monkeypatch.chdir(tmp_path)
    thing = getattr(ws, name)
    methods = vars(thing).values() if inspect.isclass(thing) else ()
    texts = [inspect.getdoc(thing), *(each.__doc__ for each in methods if inspect.isroutine(each))]
    assert ">>> " in texts[0]
    for text in filter(None, texts):
        example = doctest.DocTestParser().get_doctest(inspect.cleandoc(text), {}, name, None, 0)
        said = io.StringIO()
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        assert runner.run(example, out=said.write).failed == 0, said.getvalue()


def test_the_example_of_make_design():
    found = doctest.testmod(importlib.import_module("walksum.designs.registry"), optionflags=doctest.ELLIPSIS)
    assert (found.failed, found.attempted) == (0, 2)


def test_exported_names_are_the_contract():
    assert all(hasattr(ws, name) for name in ws.__all__)
    assert set(ws.__all__) <= set(dir(ws))  # which a prompt completes from, before anything is used
    assert set(ws.__all__) >= {
        *("Graph", "Precision", "solve", "explain_solver", "Solution", "Status", "SolveError", "SolveWarning"),
        *("FixedPairwiseNormal", "LearnedPairwiseNormal", "FixedDiagonallyDominant", "LearnedDiagonallyDominant"),
        *("FixedLaplacian", "LearnedLaplacian", "GaBP", "CG", "Dense", "Inverse", "Direct", "Hybrid", "Chebyshev"),
        *("Multigrid", "Unrolled", "GLTConv", "GLTBlock", "GLT", "load"),
    }
