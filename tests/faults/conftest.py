"""Two small runs in folders, trained once: a network and a portfolio."""

import numpy as np
import pandas as pd
import pytest

from walksum.workflow import fit_tables


@pytest.fixture(scope="session")
def tables():
    draw, count = np.random.default_rng(0), 60
    kind = np.arange(count) % 2
    nodes = pd.DataFrame(
        {
            "id": [f"c{k}" for k in range(count)],
            "income": draw.normal(size=count) + kind,
            "colour": np.where(kind, "red", "blue"),
        }
    )
    ends = draw.integers(0, count // 2, (3 * count, 2)) * 2 + draw.integers(0, 2, (3 * count, 1))
    return nodes, pd.DataFrame({"source": [f"c{i}" for i, _ in ends], "target": [f"c{j}" for _, j in ends]})


@pytest.fixture(scope="session")
def network(tables, small_trainings, tmp_path_factory):
    """The folder of a trained GLT."""
    with small_trainings():
        run = fit_tables(*tables, "colour", features=["income"], max_epochs=5, hidden=4, layers=1)
        return run.save(tmp_path_factory.mktemp("runs") / "network").folder


@pytest.fixture(scope="session")
def portfolio(tables, small_trainings, tmp_path_factory):
    """The folder of a portfolio."""
    with small_trainings():
        return fit_tables(*tables, "colour", budget=3).save(tmp_path_factory.mktemp("runs") / "portfolio").folder
