"""Published graphs, from the raw files under $WALKSUM_DATA."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any


def load(name: str) -> Any:
    """A PyG ``Data``: by the library's reader where it is there, by PyG's on a copy of the raw files otherwise."""
    try:
        from walksum.data.datasets import load as library_load
    except ImportError:
        return _load_with_pyg(name)
    return library_load(name)


def _load_with_pyg(name: str) -> Any:
    if "WALKSUM_DATA" not in os.environ:
        raise ValueError(f"graph={name!r} needs its raw files; set WALKSUM_DATA to a folder in PyG's layout")
    root = Path(os.environ["WALKSUM_DATA"])
    planetoid = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}
    folder = Path("Planetoid", planetoid[name]) if name in planetoid else Path("WebKB", name)
    with tempfile.TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old pickles, and torch.jit inside PyG
        from torch_geometric.datasets import Planetoid, WebKB

        shutil.copytree(root / folder / "raw", Path(scratch) / folder / "raw")  # PyG writes beside what it reads
        kind = Planetoid if name in planetoid else WebKB
        return kind(str(Path(scratch) / folder.parts[0]), folder.parts[1])[0]
