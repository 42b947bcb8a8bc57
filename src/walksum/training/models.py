"""Every model by name: where its class is, and the learning rate that the paper trains it with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from torch import nn


@dataclass(frozen=True)
class NamedModel:
    """A class that is imported where it is used, for some need packages of an extra."""

    module: str
    name: str
    lr: float = 1e-2
    options: Mapping[str, Any] = field(default_factory=dict)
    per_node: bool = False  # has parameters of its own for each node, so it must know num_nodes

    def make(self, in_channels: int, out_channels: int, *, num_nodes: int, **options: Any) -> nn.Module:
        """The model for a graph of ``num_nodes`` nodes; ``options`` are its keyword arguments."""
        try:
            model = getattr(import_module(self.module), self.name)
        except ModuleNotFoundError as error:
            raise ValueError(
                f"model {self.name} needs the package {error.name}: pip install 'walksum[paper]'"
            ) from error
        size = {"num_nodes": num_nodes} if self.per_node else {}
        return model(in_channels, out_channels, **{**self.options, **size, **options})


_PAPER = "walksum.paper.models"
MODELS: dict[str, NamedModel] = {
    "glt": NamedModel("walksum.nn", "GLT", lr=1e-3),
    "mlp": NamedModel(f"{_PAPER}.mlp", "MLP"),
    "gcn": NamedModel(f"{_PAPER}.gcn", "GCN"),
    "gat": NamedModel(f"{_PAPER}.gat", "GAT"),
    "sage": NamedModel(f"{_PAPER}.sage", "GraphSAGE"),
    "sat": NamedModel(f"{_PAPER}.sat", "SAT", lr=1e-3),
    "graphormer": NamedModel(f"{_PAPER}.graphormer", "Graphormer"),
    "gde": NamedModel(f"{_PAPER}.gde", "GDE"),
    "cgnn": NamedModel(f"{_PAPER}.cgnn", "CGNN", per_node=True),
    "cgnn-weights": NamedModel(f"{_PAPER}.cgnn", "CGNN", options={"weights": True}, per_node=True),
    "appnp": NamedModel(f"{_PAPER}.appnp", "APPNP"),
    "gcnii": NamedModel(f"{_PAPER}.gcnii", "GCNII"),
    "gprgnn": NamedModel(f"{_PAPER}.gprgnn", "GPRGNN"),
    "h2gcn": NamedModel(f"{_PAPER}.h2gcn", "H2GCN"),
    "acm-gcn": NamedModel(f"{_PAPER}.acmgcn", "ACMGCN"),
}


def model_by_name(name: str) -> NamedModel:
    """One of MODELS."""
    if name not in MODELS:
        raise ValueError(f"model={name!r}; known: {', '.join(MODELS)}")
    return MODELS[name]
