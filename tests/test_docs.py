"""Every Python example in the README and the docs runs; every exported name exists."""

import doctest
import importlib
import inspect
import io
import re
from pathlib import Path

import pytest

import walksum as ws

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.usefixtures("two_settings")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_examples_run(page):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    blocks = [re.sub(r"budget=\d+", "budget=3", block) for block in blocks]  # of seconds; the point is that they run
    scope: dict = {}
    for block in blocks:
        exec(compile(block, page.name, "exec"), scope)


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
