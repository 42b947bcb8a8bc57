"""Small subjects to explore, and one browser for all tests that need one."""

import os
import shutil

import numpy as np
import pytest
import torch
from towns import opened
from village import Served, trained_on, village

from walksum.data.problem import Problem

CHROMIUM, DRIVER = "chromium", "chromedriver"


@pytest.fixture(scope="session")
def small():
    """Drawn whole; eight heads in the first layer."""
    return trained_on(village())


@pytest.fixture(scope="session")
def large():
    """Too large to be drawn whole."""
    from benchmarks.graphs import power_law

    graph = power_law(2_500, 8_000, 0.5)
    draw = torch.Generator().manual_seed(0)
    problem = Problem(
        name="large",
        ids=np.array([str(k) for k in range(2_500)], dtype=object),
        features=torch.randn(2_500, 4, generator=draw),
        edge_index=graph.edges,
        y=torch.randint(0, 4, (2_500,), generator=draw),
        classes=list("abcd"),
    )
    return trained_on(problem, "diagonally-dominant", learned=False, epochs=2)


@pytest.fixture(scope="session")
def numbers(tmp_path_factory):
    return opened(tmp_path_factory.mktemp("numbers") / "run", "rent")


@pytest.fixture(scope="session")
def class_run(tmp_path_factory):
    return opened(tmp_path_factory.mktemp("classes") / "run", "dear")


@pytest.fixture(scope="session")
def classes(class_run):
    return class_run[1]


@pytest.fixture(scope="module")
def served(small):
    server = Served(small)
    yield server
    server.close()


@pytest.fixture(scope="module")
def served_large(large):
    server = Served(large)
    yield server
    server.close()


def missing_browser():
    return [name for name in (CHROMIUM, DRIVER) if shutil.which(name) is None]


@pytest.fixture(scope="session")
def downloads(tmp_path_factory):
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="session")
def driver(downloads):
    """Headless Chromium; without one the test is skipped, unless WALKSUM_REQUIRE_BROWSER says that it must be there."""
    missing = missing_browser()
    if missing:
        words = (
            f"{' and '.join(missing)} not found: the explorer's page was not tested (apt-get install chromium-driver)"
        )
        if os.environ.get("WALKSUM_REQUIRE_BROWSER") == "1":
            pytest.fail(words)
        pytest.skip(words)
    from browser import start_chromium

    chromium = start_chromium(shutil.which(CHROMIUM), shutil.which(DRIVER), downloads)
    yield chromium
    chromium.quit()
