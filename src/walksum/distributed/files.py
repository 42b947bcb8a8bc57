"""Parts of a problem on disk: one file per process, so that none of them ever holds the whole."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from walksum._files import to_json, whole_folder, write_file
from walksum.data.splits import Split
from walksum.distributed.fitting import PartData
from walksum.distributed.part import GraphPart, Layout, cut
from walksum.distributed.partition import Partition
from walksum.graph import Graph
from walksum.training import Data

VERSION = 1
PIECES = ("train", "val", "test")


def save_parts(
    folder: str | os.PathLike[str], data: Data, partition: Partition, about: dict[str, Any] | None = None
) -> Path:
    """Write the graph, features, targets and split of every part; :func:`load_part` reads one of them.

    Args:
        folder: must not exist yet.
        data: of the whole graph, with a :class:`walksum.Graph` and one split.
        partition: who owns which node.
        about: what else to remember of where the data came from; :func:`about_parts` reads it.
    """
    graph, split = whole(data)
    with whole_folder(folder) as scratch:
        for part in range(partition.parts):
            layout = cut(graph, partition, part)
            tensors, numbers = _apart(layout)
            tensors |= {"x": data.x[layout.owned], "y": data.y[layout.owned]}
            tensors |= {name: local_nodes(getattr(split, name), layout) for name in PIECES}
            save_file({name: t.cpu().contiguous() for name, t in tensors.items()}, scratch / f"{part}.safetensors")
            write_file(
                scratch / f"{part}.json",
                to_json({"version": VERSION, "task": data.task, "about": about or {}, **numbers}),
            )
    return Path(folder)


def load_part(
    folder: str | os.PathLike[str], part: int, device: str | torch.device = "cpu", group: Any = None
) -> PartData:
    """One part that :func:`save_parts` wrote, as data to train on; all processes call it, each for its rank."""
    folder = Path(folder)
    if not (folder / "0.json").exists():
        raise ValueError(f"folder={str(folder)!r} holds no parts; write them with save_parts")
    parts = json.loads((folder / "0.json").read_text())["parts"]
    if part >= parts:
        raise ValueError(
            f"part={part}, but {folder} holds {parts} parts; start {parts} processes or cut the graph anew"
        )
    numbers = json.loads((folder / f"{part}.json").read_text())
    version, task, _ = (numbers.pop(name) for name in ("version", "task", "about"))
    if version != VERSION:
        raise ValueError(f"{folder} was written in version {version} of the format, this is {VERSION}; write it anew")
    tensors = load_file(folder / f"{part}.safetensors", device=str(device))
    x, y = tensors.pop("x"), tensors.pop("y")
    split = Split(*(tensors.pop(name).cpu() for name in PIECES))
    layout = Layout(**{"weight": None, **numbers, **tensors})
    return PartData(x, GraphPart(layout, group), y, split, task)


def about_parts(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The ``about`` given to :func:`save_parts` for this folder; None if it holds no parts."""
    path = Path(folder) / "0.json"
    return json.loads(path.read_text())["about"] if path.exists() else None


def whole(data: Data) -> tuple[Graph, Split]:
    """The graph and the one split of data that are not cut yet."""
    if not isinstance(data.edges, Graph) or isinstance(data.edges, GraphPart):
        raise ValueError(f"data.edges is {data.edges!r}; expected a walksum.Graph, use Graph.from_edge_index")
    if not isinstance(data.splits, Split):
        raise ValueError("data.splits has one split per seed; give one Split")
    return data.edges, data.splits


def local_nodes(nodes: Tensor, layout: Layout) -> Tensor:
    """Those of ``nodes`` that the part owns, in its own numbers."""
    owned = layout.owned.cpu()
    place = torch.searchsorted(owned, nodes.cpu()).clamp(max=len(owned) - 1)
    return place[owned[place] == nodes.cpu()]


def _apart(layout: Layout) -> tuple[dict[str, Tensor], dict[str, Any]]:
    given = {field.name: getattr(layout, field.name) for field in fields(layout)}
    tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
    return tensors, {name: value for name, value in given.items() if name not in tensors and value is not None}
