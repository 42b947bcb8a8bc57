"""Reading datasets: from read-only folders, through the cache, and never an unverified pickle."""

import multiprocessing
import os
import pickle
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
from torch_geometric.datasets import Planetoid, WebKB
from torch_geometric.utils import contains_self_loops, is_undirected

from walksum.data import digits, load, names
from walksum.data.cache import SHA256
from walksum.data.sources import SIZES, SOURCES

needs_data = pytest.mark.skipif("WALKSUM_DATA" not in os.environ, reason="WALKSUM_DATA is not set")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("WALKSUM_CACHE", str(folder))
    return folder


def write_texas(root: Path, labels=(0, 1, 1)) -> Path:
    """Three pages, two links, ten identical folds, in the published file format."""
    raw = root / "WebKB" / "texas" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    rows = "".join(f"{node}\t{node % 2},1,0\t{label}\n" for node, label in enumerate(labels))
    (raw / "out1_node_feature_label.txt").write_text("node_id\tfeature\tlabel\n" + rows)
    (raw / "out1_graph_edges.txt").write_text("node_id\tnode_id\n0\t1\n2\t1\n")
    masks = {f"{part}_mask": np.eye(3)[i] for i, part in enumerate(("train", "val", "test"))}
    for fold in range(10):
        np.savez(raw / f"texas_split_0.6_0.2_{fold}.npz", **masks)
    return root


def contents(root: Path) -> list[Path]:
    return sorted(root.rglob("*"))


def test_reads_a_read_only_folder_and_writes_nothing_there(tmp_path):
    root = write_texas(tmp_path / "data")
    before = contents(root)
    for path in before:
        path.chmod(0o555 if path.is_dir() else 0o444)
    data = load("texas", root)
    assert contents(root) == before
    assert data.edge_index.tolist() == [[0, 2], [1, 1]]
    assert data.y.tolist() == [0, 1, 1]
    # As published: no row normalisation, no reversed edges.
    assert data.x.tolist() == [[0, 1, 0], [1, 1, 0], [0, 1, 0]]


def test_root_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("WALKSUM_DATA", str(write_texas(tmp_path / "data")))
    assert load("texas").num_nodes == 3


def test_second_load_does_not_read_again(tmp_path, monkeypatch):
    root = write_texas(tmp_path / "data")
    first = load("texas", root)
    monkeypatch.setattr(WebKB, "process", lambda self: pytest.fail("processed twice"))
    second = load("texas", root)
    assert all(torch.equal(first[key], second[key]) for key in first.keys())  # noqa: SIM118


def test_changed_raw_files_are_not_served_from_the_cache(tmp_path):
    root = write_texas(tmp_path / "data")
    assert load("texas", root).y.tolist() == [0, 1, 1]
    write_texas(root, labels=(1, 1, 0))
    assert load("texas", root).y.tolist() == [1, 1, 0]


def test_a_damaged_cache_entry_is_made_again(tmp_path, cache):
    root = write_texas(tmp_path / "data")
    load("texas", root)
    (entry,) = (cache / "processed").iterdir()
    entry.write_bytes(entry.read_bytes()[:100])
    assert load("texas", root).y.tolist() == [0, 1, 1]


def _load_texas(root):
    torch.set_num_threads(1)
    return load("texas", root).y.tolist()


@pytest.mark.slow
def test_processes_that_start_together_all_read_whole_data(tmp_path, cache):
    root = write_texas(tmp_path / "data")
    with multiprocessing.get_context("forkserver").Pool(3) as pool:
        assert pool.map(_load_texas, [root] * 6) == [[0, 1, 1]] * 6
    assert [path.name for path in cache.iterdir()] == ["processed"], "scratch folders were left behind"
    assert len(list((cache / "processed").iterdir())) == 1


def test_a_download_lands_in_the_cache_and_is_kept(tmp_path, cache, monkeypatch):
    published = write_texas(tmp_path / "server")

    def download(self):
        for path in published.rglob("*.*"):
            Path(self.raw_dir, path.name).write_bytes(path.read_bytes())

    monkeypatch.setattr(WebKB, "download", download)
    assert load("texas", tmp_path / "empty").num_nodes == 3
    assert not (tmp_path / "empty").exists()
    assert SOURCES["texas"].present(cache / "raw")
    monkeypatch.setattr(WebKB, "download", lambda self: pytest.fail("downloaded twice"))
    assert load("texas", tmp_path / "empty").num_nodes == 3


def test_without_network_the_error_lists_every_file(tmp_path, monkeypatch):
    def download(self):
        raise URLError("no route")

    monkeypatch.setattr(WebKB, "download", download)
    with pytest.raises(FileNotFoundError, match="could not be downloaded") as caught:
        load("texas", tmp_path)
    for path in SOURCES["texas"].paths(tmp_path):
        assert str(path) in str(caught.value)
    assert "WALKSUM_DATA" in str(caught.value)


class Bomb:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


def write_bombs(raw: Path, target: Path) -> None:
    raw.mkdir(parents=True, exist_ok=True)
    for name in SHA256:
        if ".cora." in name:
            (raw / name).write_bytes(pickle.dumps(Bomb(target)))


def test_an_altered_pickle_is_refused_unopened(tmp_path):
    fired = tmp_path / "fired"
    write_bombs(tmp_path / "Planetoid/Cora/raw", fired)
    with pytest.raises(ValueError, match=r"ind\.cora\.x has SHA-256 .* was not opened"):
        load("cora", tmp_path)
    assert not fired.exists()


def test_an_altered_pickle_is_refused_after_download_too(tmp_path, monkeypatch):
    fired = tmp_path / "fired"
    monkeypatch.setattr(Planetoid, "download", lambda self: write_bombs(Path(self.raw_dir), fired))
    with pytest.raises(ValueError, match="was not opened"):
        load("cora", tmp_path)
    assert not fired.exists()


def test_every_pickle_has_a_checksum():
    planetoid = [source for source in SOURCES.values() if source.folder.startswith("Planetoid")]
    assert {Path(file).name for source in planetoid for file in source.files} == set(SHA256)


def test_unknown_name_lists_the_known():
    with pytest.raises(ValueError, match="name='Cora' is not a dataset; choose one of cora, "):
        load("Cora")
    assert all(name == name.lower() for name in names())


def test_arxiv_names_the_package_it_needs(tmp_path):
    try:
        import ogb  # noqa: F401
    except ImportError:
        with pytest.raises(ValueError, match="pip install ogb"):
            load("ogbn-arxiv", tmp_path)
    else:
        pytest.skip("ogb is installed")


def test_an_unwritable_cache_says_which_variable_to_set(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("WALKSUM_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(ValueError, match="set WALKSUM_CACHE"):
        load("texas", tmp_path)


def test_digits_is_a_symmetric_knn_graph():
    data = load("digits")
    assert data.x.shape == (1797, 64)
    assert data.x.max() == 1
    assert is_undirected(data.edge_index)
    assert not contains_self_loops(data.edge_index)
    assert data.edge_index.unique(dim=1).size(1) == data.edge_index.size(1)
    assert torch.bincount(data.edge_index[0]).min() >= 6


def test_digits_joins_the_first_of_equally_near_images():
    """Nearest up to a shift by one pixel; the graph may not hang on threads or on the order of a search."""
    images = (load("digits").x * 16).to(torch.int32)
    joined = torch.zeros(len(images), len(images), dtype=torch.bool)
    joined[tuple(load("digits").edge_index)] = True
    padded = torch.nn.functional.pad(images.view(-1, 8, 8), (1, 1, 1, 1))
    moved = torch.stack([padded[:, a : a + 8, b : b + 8].flatten(1) for a in range(3) for b in range(3)])
    for i in range(0, len(images), 20):
        there = ((moved - images[i]) ** 2).sum(-1).amin(0)  # the others moved
        back = ((moved[:, i, None] - images) ** 2).sum(-1).amin(0)  # this one moved
        distance = torch.minimum(there, back)
        distance[i] = distance.max() + 1
        assert joined[i, distance.sort(stable=True).indices[:6]].all()


def test_digits_refuses_impossible_k():
    with pytest.raises(ValueError, match="k=0"):
        digits(k=0)


REAL = {  # nodes, directed edges, features, classes, ones or the sum of x
    "cora": (2708, 10556, 1433, 7),
    "citeseer": (3327, 9104, 3703, 6),
    "pubmed": (19717, 88648, 500, 3),
    "texas": (183, 325, 1703, 5),
    "wisconsin": (251, 515, 1703, 5),
    "cornell": (183, 298, 1703, 5),
}


@needs_data
@pytest.mark.data
@pytest.mark.parametrize("name", REAL)
def test_real_data_have_their_published_sizes(name):
    data = load(name)
    sizes = (data.num_nodes, data.num_edges, data.num_features, int(data.y.max()) + 1)
    assert sizes == REAL[name]
    assert SIZES[name] == (sizes[0], *sizes[2:])
    if name != "pubmed":  # bags of words: 0 and 1 unless something normalised them
        assert set(data.x.unique().tolist()) == {0, 1}


@needs_data
@pytest.mark.data
def test_texas_and_cornell_differ_in_edges_only():
    texas, cornell = load("texas"), load("cornell")
    assert torch.equal(texas.x, cornell.x)
    assert torch.equal(texas.y, cornell.y)
    assert texas.num_edges != cornell.num_edges


def test_chameleon_is_the_filtered_one(tmp_path):
    raw = tmp_path / "HeterophilousGraphDataset" / "chameleon_filtered" / "raw"
    raw.mkdir(parents=True)
    masks = {f"{part}_masks": np.eye(3, dtype=bool)[[i] * 10] for i, part in enumerate(("train", "val", "test"))}
    np.savez(
        raw / "chameleon_filtered.npz",
        node_features=np.eye(3, dtype=np.float32),
        node_labels=np.array([0, 1, 1]),
        edges=np.array([[0, 1], [1, 2]]),
        **masks,
    )
    data = load("chameleon", tmp_path)
    assert (data.num_nodes, data.num_edges) == (3, 4)
    assert data.train_mask.shape == (3, 10)


def test_every_dataset_has_a_size():
    assert list(SIZES) == names()
