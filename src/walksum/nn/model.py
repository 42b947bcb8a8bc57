"""GLT: the paper's model for node classification and regression."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from walksum._checks import check_count
from walksum.designs import Design, Setting
from walksum.graph import EdgeInput, as_graph
from walksum.nn.block import GLTBlock
from walksum.nn.conv import GLTConv
from walksum.nn.dropout import Dropout
from walksum.nn.store import save_model
from walksum.precision import Precision
from walksum.solvers import Solver


class GLT(nn.Module):
    """A stack of :class:`walksum.GLTBlock` between an input and an output projection.

    Args:
        in_channels: size of the input features.
        hidden_channels: width of the embeddings.
        num_layers: number of blocks.
        out_channels: number of classes or targets.
        heads: heads of each layer of a learned design: one number for all layers, one for each, or a pair
            (all layers but the last, the last). A fixed design has one J and runs as one head.
        design, learned, coupling, solver, on_nonconverged, settings: as in :class:`walksum.GLTConv`. A Design object
            is copied for each block.
        dropout: on the input, after each mixing and inside each feed-forward network.
        ffn_channels: inner width of the feed-forward networks, ``hidden_channels`` by default.

    Example:
        >>> import torch, walksum as ws
        >>> model = ws.GLT(16, 64, 2, 3, design="diagonally-dominant", learned=False)
        >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2], [1, 2, 3]])
        >>> model(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        heads: int | Sequence[int] = (8, 1),
        design: str | Design = "laplacian",
        learned: bool = True,
        coupling: str | None = None,
        dropout: float = 0.6,
        solver: Solver | str = "auto",
        on_nonconverged: str = "warn",
        ffn_channels: int | None = None,
        **settings: Setting,
    ):
        super().__init__()
        sizes = {
            "in_channels": check_count("in_channels", in_channels),
            "hidden_channels": check_count("hidden_channels", hidden_channels),
            "num_layers": check_count("num_layers", num_layers),
            "out_channels": check_count("out_channels", out_channels),
        }
        if isinstance(heads, int | Integral):
            heads = check_count("heads", heads)
        else:
            heads = tuple(check_count("heads", each) for each in heads)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout={dropout}; expected a probability in [0, 1)")
        per_layer = _heads_per_layer(heads, num_layers) if learned else (1,) * num_layers
        block: dict[str, Any] = {
            "design": design,
            "learned": learned,
            "coupling": coupling,
            "dropout": dropout,
            "solver": solver,
            "on_nonconverged": on_nonconverged,
            "ffn_channels": ffn_channels,
            **{name: value for name, value in settings.items() if value is not None},
        }
        self.config: dict[str, Any] = {**sizes, "heads": heads if isinstance(heads, int) else list(heads), **block}
        self.dropout = Dropout(dropout)
        self.embed = nn.Linear(in_channels, hidden_channels)
        self.blocks = nn.ModuleList()
        for h in per_layer:  # each block with a design of its own
            self.blocks.append(GLTBlock(hidden_channels, h, **{**block, "design": copy.deepcopy(design)}))
        self.norm = nn.LayerNorm(hidden_channels)
        self.read = nn.Linear(hidden_channels, out_channels)

    def reset_parameters(self) -> None:
        for module in (self.embed, *self.blocks, self.norm, self.read):
            module.reset_parameters()

    @property
    def mixers(self) -> list[GLTConv]:
        """The mixing layers, first to last; each holds the reports of its last solves."""
        return [layer for layer in self.modules() if isinstance(layer, GLTConv)]

    @torch.no_grad()
    def precisions(self, x: Tensor, edge_index: EdgeInput, edge_weight: Tensor | None = None) -> list[Precision]:
        """J of every layer for this input, as the model mixes in evaluation."""
        modes = {module: module.training for module in self.modules()}
        self.eval()
        graph, z = as_graph(edge_index, x.size(0), edge_weight), self.embed(x)
        found = []
        for block in self.blocks:
            assert isinstance(block, GLTBlock)
            found.append(block.mix(block.norm(z), graph, features=x, return_precision=True)[1])
            z = block(z, graph, features=x)
        for module, mode in modes.items():
            module.training = mode
        return found

    def forward(self, x: Tensor, edge_index: EdgeInput, edge_weight: Tensor | None = None) -> Tensor:
        """Logits or predictions ``[N, out_channels]``; ``edge_index`` may be a Graph."""
        # one Graph for all blocks; under an explainer the blocks need the edges themselves to apply its mask
        explained = any(layer.explain for layer in self.mixers)
        where = edge_index if explained else as_graph(edge_index, x.size(0), edge_weight)
        weight = edge_weight if explained else None
        z = self.embed(self.dropout(x))
        for block in self.blocks:
            z = block(z, where, weight, features=x)
        return self.read(self.norm(z))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``config.json`` and ``model.safetensors`` into the folder ``path``; :func:`walksum.load` reads it."""
        save_model(self, path)


def _heads_per_layer(heads: int | Sequence[int], num_layers: int) -> tuple[int, ...]:
    if isinstance(heads, int):
        return (heads,) * num_layers
    if len(heads) == num_layers:
        return tuple(heads)
    if len(heads) == 2:
        return (heads[0],) * (num_layers - 1) + (heads[1],)
    raise ValueError(f"heads={heads!r} for num_layers={num_layers}; expected one number, one per layer, or a pair")
