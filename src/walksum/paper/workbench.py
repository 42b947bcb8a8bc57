"""What the runs of one cell share: the data on their device, the splits, and how to make a model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from walksum.data.datasets import load
from walksum.data.splits import Split, make_split
from walksum.graph import Graph
from walksum.nn import GLT
from walksum.paper.models import make_baseline
from walksum.paper.rows import HEADED, row_of
from walksum.paper.sparse_input import use_sparse_input
from walksum.paper.sweep.spec import RunSpec


@dataclass(frozen=True)
class Workbench:
    """A dataset on a device, as the models of one kind take it.

    Args:
        x, y: features as published and labels.
        edges: for a GLT the undirected graph without loops; for a baseline the published edges, to which each
            model adds the loops it wants.
        splits: by seed.
    """

    cell: RunSpec
    x: Tensor
    y: Tensor
    edges: Any
    splits: dict[int, Split]

    @property
    def device(self) -> torch.device:
        return self.x.device

    @property
    def num_classes(self) -> int:
        return int(self.y.max()) + 1

    def model(self, seed: int) -> nn.Module:
        """The model with the initial weights of this seed, which are the same on every device."""
        torch.manual_seed(seed)
        model = make_model(self.cell, self.x.size(1), self.num_classes, self.x.size(0)).to(self.x)
        return use_sparse_input(model, self.x)


def workbench(specs: Sequence[RunSpec], device: str | torch.device, root: str | os.PathLike[str] | None) -> Workbench:
    cell, home = specs[0].cell, None if root is None else os.fspath(root)
    where = torch.empty(0, device=device).device  # "cuda" -> "cuda:0"
    x, y, edge_index = _tensors(cell.dataset, home, where)
    edges = edge_index if row_of(cell.model).baseline else _graph(cell.dataset, home, where)
    data = _data(cell.dataset, home)
    splits = {spec.seed: make_split(data, cell.protocol, spec.seed, name=cell.dataset) for spec in specs}
    return Workbench(cell, x, y, edges, splits)


@lru_cache(maxsize=8)
def _data(dataset: str, root: str | None) -> Any:
    return load(dataset, root)


@lru_cache(maxsize=8)
def _tensors(dataset: str, root: str | None, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    data = _data(dataset, root)
    return data.x.to(device), data.y.to(device), data.edge_index.to(device)


@lru_cache(maxsize=8)
def _graph(dataset: str, root: str | None, device: torch.device) -> Graph:
    data = _data(dataset, root)
    return Graph.from_edge_index(data.edge_index.to(device), data.num_nodes)


def make_model(cell: RunSpec, in_channels: int, num_classes: int, num_nodes: int) -> nn.Module:
    row, options = row_of(cell.model), dict(cell.options)
    if row.baseline:
        common = {"hidden_channels": cell.hidden, "dropout": cell.dropout, **_heads(row.baseline, cell.heads)}
        return make_baseline(row.baseline, in_channels, num_classes, num_nodes=num_nodes, **{**common, **options})
    assert row.design is not None
    settings: dict[str, Any] = {
        "heads": cell.heads,
        "design": row.design,
        "learned": row.learned,
        "coupling": row.coupling,
        "dropout": cell.dropout,
        "solver": cell.solver,
        "on_nonconverged": "ignore",  # the record counts how every solve ended
    }
    return GLT(in_channels, cell.hidden, cell.layers, num_classes, **{**settings, **options})


def _heads(baseline: str, heads: tuple[int, int]) -> dict[str, Any]:
    if baseline == "gat":
        return {"heads": heads[0]}
    return {"heads": heads} if baseline in HEADED else {}
