"""Problem: a graph, its features as they came, and a target some nodes have; whatever file it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from walksum.data.places import Places
from walksum.graph import Graph

CLASSIFICATION, REGRESSION = "classification", "regression"


@dataclass(frozen=True)
class Problem:
    """What is to be learned.

    Attributes:
        name: for the run folder and the titles.
        ids: one text per node.
        features: a frame of numbers and texts that :mod:`walksum.data.encoding` turns into features, or a tensor
            that is taken as it is.
        edge_index, edge_weight: the edges as they came.
        y: class numbers, -1 for nodes without one; or numbers, NaN for nodes without one.
        task: "classification" or "regression".
        classes: the names of the classes.
        target: the name of the predicted column.
        columns: which columns of the tables held what, for predictions later.
        given_split: the user's own split, one of "train", "val", "test" or None per node.
        names: for people to read, one per node; never learned from.
        time, groups: what a split goes by: a number per node, the number of its group.
        places, position: where nodes lie, and how that was read.
        data: the published dataset this is, with its masks.
        notes: what was noticed while reading.
    """

    name: str
    ids: np.ndarray
    features: Any
    edge_index: Tensor
    y: Tensor
    task: str = CLASSIFICATION
    classes: list[str] = field(default_factory=list)
    target: str = "y"
    edge_weight: Tensor | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    given_split: np.ndarray | None = None
    names: np.ndarray | None = None
    time: np.ndarray | None = None
    groups: np.ndarray | None = None
    places: Places | None = None
    position: np.ndarray | None = None
    data: Data | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def num_nodes(self) -> int:
        return len(self.ids)

    @property
    def regression(self) -> bool:
        return self.task == REGRESSION

    @cached_property
    def graph(self) -> Graph:
        return Graph.from_edge_index(self.edge_index, self.num_nodes, self.edge_weight)

    @cached_property
    def both_directions(self) -> Tensor:
        """The edges, each in both directions; one tensor, by which models keep what they make of edges."""
        return to_undirected(self.edge_index, num_nodes=self.num_nodes)

    @cached_property
    def labelled(self) -> Tensor:
        """The nodes with a target, ascending."""
        known = ~self.y.isnan() if self.regression else self.y >= 0
        return known.nonzero().view(-1)

    @property
    def outputs(self) -> int:
        return 1 if self.regression else len(self.classes)

    def summary(self) -> dict[str, Any]:
        """Sizes, components, homophily and classes, for reports."""
        graph = self.graph
        found = {
            "name": self.name,
            "task": self.task,
            "target": self.target,
            "nodes": self.num_nodes,
            "edges": graph.num_edges,
            "weighted": graph.edge_weight is not None,
            "components": graph.components().unique().numel(),
            "isolated_nodes": int((graph.degree == 0).sum()),
            "labelled_nodes": self.labelled.numel(),
        }
        if self.regression:
            known = self.y[self.labelled].double()
            return found | {"target_mean": float(known.mean()), "target_spread": float(known.std())}
        counts = torch.bincount(self.y[self.labelled], minlength=len(self.classes)).tolist()
        return found | {"homophily": homophily(graph, self.y), "classes": dict(zip(self.classes, counts, strict=True))}


def from_data(name: str, data: Data) -> Problem:
    """Make a Problem of a PyG graph with x and edge_index; without y no node has a target."""
    for key in ("x", "edge_index"):
        if not isinstance(data.get(key), Tensor):
            raise ValueError(f"{name} holds no tensor {key!r}; a graph to learn from needs x, edge_index and y")
    ids = np.array([str(k) for k in range(data.num_nodes)], dtype=object)
    y = data.y if isinstance(data.get("y"), Tensor) else torch.full((data.num_nodes,), -1)
    given = tuple(y.shape)
    if y.dim() == 2 and y.size(1) == 1:
        y = y.squeeze(-1)
    if y.dim() != 1 or y.numel() != data.num_nodes or data.x.dim() != 2:
        raise ValueError(
            f"{name} has x of shape {tuple(data.x.shape)} and y of shape {given}; expected one row of x "
            "and one value of y for each node"
        )
    if not bool(torch.isfinite(data.x).all()):
        raise ValueError(f"{name}: x holds NaN or infinity; fill in the missing values first")
    weight = data.get("edge_weight")
    common: dict[str, Any] = {
        "features": data.x.float(),
        "edge_index": data.edge_index,
        "edge_weight": None if weight is None else weight.float(),
        "data": data,
    }
    if y.is_floating_point():
        return Problem(name, ids, y=y.float(), task=REGRESSION, **common)
    return Problem(name, ids, y=y.long(), classes=[str(k) for k in range(int(y.max()) + 1)], **common)


def homophily(graph: Graph, y: Tensor) -> float | None:
    """The share of edges between labelled nodes that join equal classes; None without such edges."""
    i, j = graph.edges
    known = (y[i] >= 0) & (y[j] >= 0)
    return float((y[i] == y[j])[known].double().mean()) if bool(known.any()) else None
