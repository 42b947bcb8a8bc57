"""Files of strangers run nothing, and their words are words on every page."""

import os
import pickle
import shutil
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch

import walksum as ws
from walksum.data import datasets
from walksum.data.cache import cached
from walksum.data.files import read_rhs, read_system
from walksum.data.user_files import Columns, read_graph, read_tables
from walksum.paper.sweep.store import Store
from walksum.workflow import open_run

SCRIPT = "<script>alert('id')</script>"


class Bomb:
    """A pickle that makes a file when it is read."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (str(self.target),)


@pytest.fixture
def fired(tmp_path):
    return tmp_path / "fired"


def refused(fired, read, *arguments):
    with pytest.raises(ValueError, match=r"\w"):
        read(*arguments)
    assert not fired.exists()


def read_all(folder):
    run = open_run(folder)
    return run.model, run.predictions


def bombs(path, target):
    """The same attack in the formats of pickle, torch's zip and numpy."""
    raw = pickle.dumps(Bomb(target), 2)
    yield path, lambda: path.write_bytes(raw)
    yield path, lambda: torch.save(Bomb(target), path)
    yield path, lambda: torch.save({"x": torch.ones(2), "edge_index": Bomb(target)}, path)
    yield path, lambda: torch.save(Bomb(target), path, _use_new_zipfile_serialization=False)


def test_the_bomb_works(fired):
    pickle.loads(pickle.dumps(Bomb(fired), 2))
    assert fired.exists()


def test_a_pt_file_runs_nothing(tmp_path, fired):
    for path, write in bombs(tmp_path / "graph.pt", fired):
        write()
        refused(fired, read_graph, path, Columns())


def test_a_cache_entry_runs_nothing(tmp_path, fired, monkeypatch):
    monkeypatch.setenv("WALKSUM_CACHE", str(tmp_path))
    (tmp_path / "processed").mkdir()
    from torch_geometric.data import Data

    for _, write in bombs(tmp_path / "processed" / "key.pt", fired):
        write()
        assert cached("key", lambda: Data(x=torch.ones(1))).num_nodes == 1  # made again
        assert not fired.exists()


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".txt", ".mtx"])
def test_a_right_hand_side_runs_nothing(tmp_path, fired, suffix):
    path = tmp_path / f"h{suffix}"
    if suffix == ".npy":
        np.save(path, np.array([Bomb(fired)], dtype=object), allow_pickle=True)
    elif suffix == ".npz":
        np.savez(path, h=np.array([Bomb(fired)], dtype=object))
    else:
        path.write_bytes(pickle.dumps(Bomb(fired), 2))
    refused(fired, read_rhs, path)


def test_a_matrix_runs_nothing(tmp_path, fired):
    np.save(tmp_path / "h.npy", np.ones(2))
    objects = {"data": np.array([Bomb(fired)] * 2, dtype=object), "shape": np.array([2, 2]), "format": np.array("csr")}
    np.savez(tmp_path / "J.npz", indices=np.arange(2), indptr=np.arange(3), **objects)
    refused(fired, read_system, tmp_path / "J.npz", tmp_path / "h.npy")


@pytest.mark.parametrize("name", ["nodes.csv", "nodes.parquet", "nodes.csv.gz", "nodes.pkl"])
def test_a_table_runs_nothing(tmp_path, fired, name):
    (tmp_path / name).write_bytes(pickle.dumps(Bomb(fired), 2))
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    refused(fired, read_tables, tmp_path / name, tmp_path / "edges.csv", Columns(target="y"))


def test_a_published_dataset_of_arrays_runs_nothing(tmp_path, fired, monkeypatch):
    """Planetoid's pickles have checksums, see tests/data; the others are read without pickle."""
    monkeypatch.setenv("WALKSUM_CACHE", str(tmp_path / "cache"))
    for name in ("amazon-photo", "roman-empire", "chameleon"):
        (file,) = datasets.SOURCES[name].paths(tmp_path)
        file.parent.mkdir(parents=True)
        keys = ("adj_data", "attr_data", "labels", "node_features", "node_labels", "edges", "train_masks")
        np.savez(file, **{key: np.array([Bomb(fired)], dtype=object) for key in keys})
        with pytest.raises((ValueError, KeyError)):
            datasets.load(name, tmp_path)
        assert not fired.exists()


def test_a_run_folder_runs_nothing(tmp_path, fired, network, portfolio):
    for kind, home in (("network", network), ("portfolio", portfolio)):
        for file in sorted(p.relative_to(home) for p in home.rglob("*") if p.is_file()):
            if file.name in ("report.html", "picture.png", "importance.csv"):
                continue  # shown, never read
            folder = tmp_path / f"{kind}-{file.name}-{file.parent.name}"
            shutil.copytree(home, folder)
            (folder / file).write_bytes(pickle.dumps(Bomb(fired), 2))
            refused(fired, read_all, folder)


def test_a_saved_model_runs_nothing(tmp_path, fired):
    ws.GLT(3, 4, 1, 2).save(tmp_path / "model")
    for name in ("model.safetensors", "config.json"):
        folder = tmp_path / name
        shutil.copytree(tmp_path / "model", folder)
        (folder / name).write_bytes(pickle.dumps(Bomb(fired), 2))
        refused(fired, ws.load, folder)
    with zipfile.ZipFile(tmp_path / "model" / "model.safetensors", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Bomb(fired), 2))
    refused(fired, ws.load, tmp_path / "model")


def test_a_store_runs_nothing(tmp_path, fired):
    (tmp_path / "records.jsonl").write_bytes(pickle.dumps(Bomb(fired), 2) + b"\n")
    refused(fired, Store(tmp_path).refresh)


def test_nothing_in_the_package_unpickles():
    """The only readers of pickles are PyG's, behind checksums, and torch's with weights_only."""
    from pathlib import Path

    for file in Path(ws.__file__).parent.rglob("*.py"):
        text = file.read_text()
        for word in ("pickle.load", "joblib.load", "read_pickle", "allow_pickle=True", "weights_only=False", "eval("):
            found = [
                line for line in text.splitlines() if word in line and "." + word not in line.replace("model.", ".")
            ]
            assert not found, (file, found)
        for line in text.splitlines():
            if "torch.load(" in line:
                assert "weights_only=True" in line, (file, line)


@pytest.fixture(scope="module")
def odd_tables():
    """Every text that a user may choose holds a tag."""
    draw, count = np.random.default_rng(0), 40
    kind = np.arange(count) % 2
    nodes = pd.DataFrame({"id": [f"{SCRIPT}{k}" for k in range(count)], f"income{SCRIPT}": draw.normal(size=count)})
    nodes[f"town{SCRIPT}"] = np.where(draw.random(count) < 0.5, f"Rome{SCRIPT}", "Oslo")
    nodes[f"colour{SCRIPT}"] = np.where(kind, f"red{SCRIPT}", "blue")
    ends = draw.integers(0, count, (2, 3 * count))
    return nodes, pd.DataFrame({"source": nodes["id"].to_numpy()[ends[0]], "target": nodes["id"].to_numpy()[ends[1]]})


@pytest.mark.usefixtures("two_settings")
@pytest.mark.parametrize("settings", [{"max_epochs": 3, "hidden": 4, "layers": 1}, {"budget": 3}])
def test_words_of_the_user_are_escaped_in_the_report(odd_tables, settings):
    page = ws.fit_tables(*odd_tables, f"colour{SCRIPT}", **settings).report()
    assert "alert(" in page  # they are there
    assert "<script>alert" not in page
    assert "alert('id')" not in page  # also inside attributes: quotes are escaped


@pytest.mark.usefixtures("two_settings")
def test_words_of_the_user_are_escaped_in_the_explorer(odd_tables):
    pytest.importorskip("dash_cytoscape")
    from walksum.explore.server import make_app
    from walksum.workflow.trained_run import TrainedRun

    run = ws.fit_tables(*odd_tables, f"colour{SCRIPT}", max_epochs=3, hidden=4, layers=1)
    trained = TrainedRun.of_prepared(run.job, run.result.prepared, run.result.model)
    client = make_app(trained).server.test_client()
    for path in ("/", "/_dash-layout"):
        answer = client.get(path, headers={"Host": "localhost"})
        assert answer.status_code == 200
        if "html" in answer.content_type:
            assert "<script>alert" not in answer.text
    layout = client.get("/_dash-layout", headers={"Host": "localhost"}).text
    assert "dangerously" not in layout  # React escapes every text but that of dangerouslySetInnerHTML
    assert '"DangerouslySetInnerHTML"' not in layout
