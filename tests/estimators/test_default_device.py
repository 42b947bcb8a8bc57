"""What runs on the CPU does so whatever torch's default device is; "meta" stands for a GPU, and holds no numbers."""

import numpy as np
import pandas as pd
import pytest
import torch

import walksum as ws

NODES = 40
RANDOM = np.random.default_rng(0)
CLASS = np.arange(NODES) % 2
X = RANDOM.normal(size=(NODES, 3)) + CLASS[:, None]
PAIRS = RANDOM.integers(0, NODES, (2, 100))
SHOWN = np.where(np.arange(NODES) % 3 > 0, CLASS, -1)
SEEN = np.where(SHOWN >= 0, X[:, 0], np.nan)
FEW = ("smooth", "mlp", "linear", "label")


def tables(folder, **options):
    nodes = pd.DataFrame(X).assign(id=range(NODES), t=pd.Series(SHOWN).where(SHOWN >= 0)).rename(columns=str)
    edges = pd.DataFrame(PAIRS.T, columns=["source", "target"])
    ws.fit_tables(nodes, edges, target="t", budget=2, **options).save(folder)
    return ws.open_run(folder).predict(nodes, edges)["prediction"].notna()


FITS = {
    "AutoClassifier": lambda _: ws.AutoClassifier(budget=2, members=FEW).fit(X, SHOWN, PAIRS).predict(X) >= 0,
    "AutoRegressor": lambda _: np.isfinite(ws.AutoRegressor(budget=2, members=FEW).fit(X, SEEN, PAIRS).predict(X)),
    "GLTClassifier": lambda _: ws.GLTClassifier(max_epochs=2).fit(X, SHOWN, PAIRS).predict(X + 0.01) >= 0,
    "GLTRegressor": lambda _: np.isfinite(ws.GLTRegressor(max_epochs=2).fit(X, SEEN, PAIRS).predict(X + 0.01)),
    "portfolio of tables": tables,
    "network of tables": lambda folder: tables(folder, model="glt", max_epochs=3),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FITS)
def test_the_default_device_does_not_matter(name, tmp_path):
    with torch.device("meta"):
        assert np.asarray(FITS[name](tmp_path / "run")).all()
