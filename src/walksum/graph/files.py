"""A Graph on disk, read by mapping its files into memory: a process touches only what it uses."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walksum._files import whole_folder, write_file

FORMAT, VERSION = "walksum graph", 1
DTYPES = {"int64": torch.int64, "float32": torch.float32, "float64": torch.float64}


def write_arrays(folder: str | os.PathLike[str], num_nodes: int, edges: Tensor, weight: Tensor | None) -> None:
    """Edges and weights as plain little-endian arrays beside a ``graph.json`` that describes them."""
    about: dict[str, Any] = {"format": FORMAT, "version": VERSION, "num_nodes": num_nodes, "num_edges": edges.size(1)}
    with whole_folder(folder) as scratch:
        _write(scratch / "edges", edges)
        if weight is not None:
            about["weight"] = str(weight.dtype).removeprefix("torch.")
            if about["weight"] not in DTYPES:
                raise ValueError(f"edge_weight has dtype {weight.dtype}; a file holds float32 or float64")
            _write(scratch / "weight", weight)
        write_file(scratch / "graph.json", json.dumps(about, indent=1))


def read_arrays(folder: str | os.PathLike[str]) -> tuple[Tensor, int, Tensor | None]:
    """What :func:`write_arrays` wrote, mapped; changes in memory never reach the files."""
    folder = Path(folder)
    about = _about(folder)
    edges = _map(folder / "edges", "int64", 2 * about["num_edges"]).view(2, -1)
    weight = _map(folder / "weight", about["weight"], about["num_edges"]) if "weight" in about else None
    return edges, about["num_nodes"], weight


def _about(folder: Path) -> dict[str, Any]:
    path = folder / "graph.json"
    try:
        about = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"folder={str(folder)!r} holds no graph ({error}); write one with graph.save") from error
    if about.get("format") != FORMAT or about.get("version") != VERSION:
        raise ValueError(
            f"{path} says {about.get('format')!r}, version {about.get('version')!r}; this is version {VERSION} of "
            f"{FORMAT!r}: write it anew with graph.save"
        )
    return about


def _write(path: Path, values: Tensor) -> None:
    array = np.ascontiguousarray(values.detach().cpu().numpy())
    array.astype(array.dtype.newbyteorder("<"), copy=False).tofile(path)


def _map(path: Path, dtype: str, count: int) -> Tensor:
    kind = DTYPES[dtype]
    expected = count * kind.itemsize
    found = path.stat().st_size if path.exists() else -1
    if found != expected:
        raise ValueError(f"{path} has {found} bytes, graph.json tells of {expected}; write the graph anew")
    if not count:
        return torch.empty(0, dtype=kind, device="cpu")
    return torch.from_file(str(path), shared=False, size=count, dtype=kind, device="cpu")
