"""Every Python example in the README and the docs runs; every exported name exists."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

import walksum as ws

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_examples_run(page):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)
    blocks = [re.sub(r"budget=\d+", "budget=3", block) for block in blocks]  # of seconds; the point is that they run
    scope: dict = {}
    for block in blocks:
        exec(compile(block, page.name, "exec"), scope)


@pytest.mark.parametrize("name", ["graph.graph", "designs.registry", "nn.conv", "nn.model"])
def test_doctests(name):
    found = doctest.testmod(importlib.import_module(f"walksum.{name}"), optionflags=doctest.ELLIPSIS)
    assert found.failed == 0
    assert found.attempted > 0


def test_exported_names_are_the_contract():
    assert all(hasattr(ws, name) for name in ws.__all__)
    assert set(ws.__all__) <= set(dir(ws))  # which a prompt completes from, before anything is used
    assert set(ws.__all__) >= {
        *("Graph", "Precision", "solve", "explain_solver", "Solution", "Status", "SolveError", "SolveWarning"),
        *("FixedPairwiseNormal", "LearnedPairwiseNormal", "FixedDiagonallyDominant", "LearnedDiagonallyDominant"),
        *("FixedLaplacian", "LearnedLaplacian", "GaBP", "CG", "Dense", "Inverse", "Direct", "Hybrid", "Chebyshev"),
        *("Multigrid", "Unrolled", "GLTConv", "GLTBlock", "GLT", "load"),
    }
