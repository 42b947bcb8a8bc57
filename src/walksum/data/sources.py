"""The published datasets: where each one's raw files lie, and which PyG class reads them.

Chameleon and Squirrel are the filtered ones of Platonov et al. (2023); Geom-GCN's, named "-unfiltered" here, hold
duplicate nodes that leak labels from train to test. Texas and Cornell have the same features and labels and differ
in edges and splits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.datasets import (
    Actor,
    Amazon,
    Coauthor,
    HeterophilousGraphDataset,
    Planetoid,
    WebKB,
    WikipediaNetwork,
)

from walksum.data.cache import verified_digest


@dataclass(frozen=True)
class Source:
    """A dataset's raw files, `root/folder/file` in PyG's own layout, and its reader of such a root."""

    folder: str
    files: tuple[str, ...]
    read: Callable[[Path], Data]

    def paths(self, root: Path) -> list[Path]:
        return [root / self.folder / file for file in self.files]

    def present(self, root: Path) -> bool:
        return all(path.is_file() for path in self.paths(root))


class _CheckedPlanetoid(Planetoid):
    """PyG downloads and unpickles in one call; this is the only place between the two."""

    def process(self) -> None:
        for path in self.raw_paths:
            verified_digest(Path(path))
        super().process()


def _source(dataset: type, name: str, files: tuple[str, ...], folder: str = "", family: str = "") -> Source:
    """A dataset that PyG's class reads by its name; ``folder`` and ``family`` where they are called otherwise."""
    family = family or dataset.__name__
    return Source(f"{family}/{folder or name}", files, lambda root: dataset(str(root / family), name)[0])


def _planetoid(name: str) -> Source:
    parts = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    files = tuple(f"raw/ind.{name.lower()}.{part}" for part in parts)
    return _source(_CheckedPlanetoid, name, files, family="Planetoid")


def _geom_gcn_files(raw: str, name: str) -> tuple[str, ...]:
    tables = ("out1_node_feature_label.txt", "out1_graph_edges.txt")
    folds = tuple(f"{name}_split_0.6_0.2_{fold}.npz" for fold in range(10))
    return tuple(f"{raw}/{file}" for file in tables + folds)


def _webkb(name: str) -> Source:
    return _source(WebKB, name, _geom_gcn_files("raw", name))


def _wikipedia(name: str) -> Source:
    return _source(WikipediaNetwork, name, _geom_gcn_files("geom_gcn/raw", name))


def _npz(dataset: type, folder: str, name: str, file: str) -> Source:
    return _source(dataset, name, (f"raw/{file}.npz",), folder)


def _heterophilous(name: str) -> Source:
    file = name.replace("-", "_")
    return _npz(HeterophilousGraphDataset, file, name, file)


class _Filtered(HeterophilousGraphDataset):
    """Same publisher and format as the class's own five, whose names are all it takes."""

    def __init__(self, root: str, name: str):
        self.name = name
        InMemoryDataset.__init__(self, root)
        self.load(self.processed_paths[0])


def _filtered(name: str) -> Source:
    return _source(_Filtered, name, (f"raw/{name}.npz",), family=HeterophilousGraphDataset.__name__)


def _read_arxiv(root: Path) -> Data:
    try:
        from ogb.nodeproppred import NodePropPredDataset  # type: ignore[import-not-found]
    except ImportError as error:
        raise ValueError("name='ogbn-arxiv' needs the package ogb: pip install ogb") from error
    # ogb writes into this folder but does not make it when the raw files are already there.
    if (root / "ogbn_arxiv").is_dir():
        (root / "ogbn_arxiv" / "processed").mkdir(exist_ok=True)
    # ogb's PyG class reads its own cache with torch.load defaults that newer torch refuses; the plain
    # class hands over arrays and, on a fresh folder, reads nothing back.
    dataset = NodePropPredDataset("ogbn-arxiv", root=str(root))
    graph, labels = dataset[0]
    data = Data(
        x=torch.from_numpy(graph["node_feat"]).float(),
        edge_index=torch.from_numpy(graph["edge_index"]).long(),
        y=torch.from_numpy(labels).long().view(-1),
    )
    for part, ours in (("train", "train"), ("valid", "val"), ("test", "test")):
        mask = torch.zeros(data.num_nodes, dtype=torch.bool)
        mask[torch.from_numpy(dataset.get_idx_split()[part])] = True
        data[f"{ours}_mask"] = mask
    return data


_ARXIV_FILES = (
    "RELEASE_v1.txt",
    *(f"raw/{part}.csv.gz" for part in ("edge", "node-feat", "node-label", "node_year")),
    *(f"raw/num-{part}-list.csv.gz" for part in ("node", "edge")),
    *(f"split/time/{part}.csv.gz" for part in ("train", "valid", "test")),
)

SOURCES: dict[str, Source] = {
    "cora": _planetoid("Cora"),
    "citeseer": _planetoid("CiteSeer"),
    "pubmed": _planetoid("PubMed"),
    "texas": _webkb("texas"),
    "wisconsin": _webkb("wisconsin"),
    "cornell": _webkb("cornell"),
    "actor": Source("Actor", _geom_gcn_files("raw", "film"), lambda root: Actor(str(root / "Actor"))[0]),
    "chameleon": _filtered("chameleon_filtered"),
    "squirrel": _filtered("squirrel_filtered"),
    "chameleon-unfiltered": _wikipedia("chameleon"),
    "squirrel-unfiltered": _wikipedia("squirrel"),
    "roman-empire": _heterophilous("roman-empire"),
    "amazon-ratings": _heterophilous("amazon-ratings"),
    "minesweeper": _heterophilous("minesweeper"),
    "tolokers": _heterophilous("tolokers"),
    "questions": _heterophilous("questions"),
    "amazon-computers": _npz(Amazon, "Computers", "computers", "amazon_electronics_computers"),
    "amazon-photo": _npz(Amazon, "Photo", "photo", "amazon_electronics_photo"),
    "coauthor-cs": _npz(Coauthor, "CS", "cs", "ms_academic_cs"),
    "coauthor-physics": _npz(Coauthor, "Physics", "physics", "ms_academic_phy"),
    "ogbn-arxiv": Source("ogbn_arxiv", _ARXIV_FILES, _read_arxiv),
}

SIZES = {  # nodes, columns, classes
    "cora": (2_708, 1_433, 7),
    "citeseer": (3_327, 3_703, 6),
    "pubmed": (19_717, 500, 3),
    "texas": (183, 1_703, 5),
    "wisconsin": (251, 1_703, 5),
    "cornell": (183, 1_703, 5),
    "actor": (7_600, 932, 5),
    "chameleon": (890, 2_325, 5),
    "squirrel": (2_223, 2_089, 5),
    "chameleon-unfiltered": (2_277, 2_325, 5),
    "squirrel-unfiltered": (5_201, 2_089, 5),
    "roman-empire": (22_662, 300, 18),
    "amazon-ratings": (24_492, 300, 5),
    "minesweeper": (10_000, 7, 2),
    "tolokers": (11_758, 10, 2),
    "questions": (48_921, 301, 2),
    "amazon-computers": (13_752, 767, 10),
    "amazon-photo": (7_650, 745, 8),
    "coauthor-cs": (18_333, 6_805, 15),
    "coauthor-physics": (34_493, 8_415, 5),
    "ogbn-arxiv": (169_343, 128, 40),
    "digits": (1_797, 64, 10),
}
