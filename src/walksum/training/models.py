"""Models by name: ours, and the compared ones, which are imported when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from torch import nn

from walksum.solvers.base import check_choice


@dataclass(frozen=True)
class ModelEntry:
    """How to make a model of this name.

    Args:
        where: "module:class". A class of ``walksum.paper`` is named here and imported nowhere above it.
        lr: the learning rate of the paper's setting.
        options: keyword arguments that make this variant of the class.
        per_node: whether it has parameters of its own for each node, so that it must know ``num_nodes``.
    """

    where: str
    lr: float = 1e-2
    options: Mapping[str, Any] = field(default_factory=dict)
    per_node: bool = False

    @property
    def model(self) -> Callable[..., nn.Module]:
        module, name = self.where.split(":")
        return getattr(import_module(module), name)


def _compared(module: str, name: str, **settings: Any) -> ModelEntry:
    return ModelEntry(f"walksum.paper.models.{module}:{name}", **settings)


MODELS: dict[str, ModelEntry] = {
    "glt": ModelEntry("walksum.nn:GLT", lr=1e-3),
    # The paper's rows. It trains Graphormer at 1e-2, which barely trains; report 1e-3 beside it.
    "gcn": _compared("gcn", "GCN"),
    "gat": _compared("gat", "GAT"),
    "sage": _compared("sage", "GraphSAGE"),
    "sat": _compared("sat", "SAT", lr=1e-3),
    "graphormer": _compared("graphormer", "Graphormer"),
    "gde": _compared("gde", "GDE"),
    "cgnn": _compared("cgnn", "CGNN", per_node=True),
    "cgnn-weights": _compared("cgnn", "CGNN", options={"weights": True}, per_node=True),
    # Rows it lacks: the features alone, the truncated fixed Laplacian, and the highest published.
    "mlp": ModelEntry("walksum.nn.mlp:MLP"),
    "appnp": _compared("appnp", "APPNP"),
    "gcnii": _compared("gcnii", "GCNII"),
    "gprgnn": _compared("gprgnn", "GPRGNN"),
    "h2gcn": _compared("h2gcn", "H2GCN"),
    "acm-gcn": _compared("acmgcn", "ACMGCN"),
}


def check_model(name: str) -> None:
    check_choice("model", name, tuple(MODELS))


def make_model(name: str, in_channels: int, out_channels: int, *, num_nodes: int, **options: Any) -> nn.Module:
    """The model of that name for a graph of ``num_nodes`` nodes.

    Args:
        name: a key of ``MODELS``.
        in_channels, out_channels: features per node; classes, or 1 for a number.
        options: keyword arguments of the model, such as ``hidden_channels`` and ``dropout``; of a GLT also
            ``num_layers``.
    """
    check_model(name)
    entry = MODELS[name]
    size = {"num_nodes": num_nodes} if entry.per_node else {}
    options = {**entry.options, **size, **options}
    if name == "glt":
        wide = {"hidden_channels": 64, "num_layers": 2, **options}
        return entry.model(in_channels, wide.pop("hidden_channels"), wide.pop("num_layers"), out_channels, **wide)
    return entry.model(in_channels, out_channels, **options)
