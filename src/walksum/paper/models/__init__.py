"""The models this library is compared with, on PyG's layers; :mod:`walksum.training.models` has their names."""

from typing import Any

from torch import nn

from walksum.training.models import MODELS, NamedModel

__all__ = ["BASELINES", "make_baseline"]

BASELINES: dict[str, NamedModel] = {name: entry for name, entry in MODELS.items() if name != "glt"}


def make_baseline(name: str, in_channels: int, out_channels: int, *, num_nodes: int, **options: Any) -> nn.Module:
    """One of BASELINES for a graph of num_nodes nodes; options are the model's keyword arguments."""
    if name not in BASELINES:
        raise ValueError(f"name={name!r} is not a baseline; choose one of {', '.join(BASELINES)}")
    return BASELINES[name].make(in_channels, out_channels, num_nodes=num_nodes, **options)
