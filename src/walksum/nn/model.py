"""GLT: the paper's model for node classification and regression."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import JumpingKnowledge
from torch_geometric.nn.inits import reset

from walksum._checks import check_choice, check_count
from walksum.designs import Design, Setting
from walksum.designs.base import check_width, linear
from walksum.graph import EdgeInput, Graph, as_graph
from walksum.nn.block import GLTBlock, make_norm
from walksum.nn.conv import GLTConv
from walksum.nn.dropout import Dropout
from walksum.nn.explained import is_explained
from walksum.nn.input_linear import InputLinear, LazyInputLinear
from walksum.nn.inputs import check_edge_attr, check_features, mean_per_edge, one_column
from walksum.nn.node_linear import NodeLinear
from walksum.nn.store import save_model
from walksum.precision import Precision
from walksum.solvers import Solver

JUMPS = ("cat", "max", "lstm")


class GLT(nn.Module):
    """A stack of :class:`walksum.GLTBlock` between an input and an output projection.

    Args:
        in_channels: size of the input features; -1 takes that of the first input.
        hidden_channels: width of the embeddings.
        num_layers: number of blocks.
        out_channels: number of classes or targets.
        heads: heads of each layer of a learned design: one number for all layers, one for each, or a pair
            (all layers but the last, the last). A fixed design has one J and runs as one head. A head
            needs several features, see :class:`walksum.GLTBlock`.
        design, learned, coupling, solver, on_nonconverged, settings: as in :class:`walksum.GLTConv`. A Design object
            is copied for each block.
        dropout: on the input, after each mixing and inside each feed-forward network.
        ffn_channels: inner width of the feed-forward networks, ``hidden_channels`` by default.
        act, norm, edge_dim: as in :class:`walksum.GLTBlock`.
        jk: jumping knowledge, what the output projection reads: None (the last block), "cat", "max" or "lstm" of all.
        recompute: hold what one block at a time needs for its backward pass and compute it again there: half of the
            memory, for one solve more per block. An attribute too, which files of a model do not keep.

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
        act: str = "leaky_relu",
        norm: str | None = "layer",
        jk: str | None = None,
        edge_dim: int | None = None,
        recompute: bool = False,
        **settings: Setting,
    ):
        super().__init__()
        self.recompute = recompute
        sizes = {
            "in_channels": check_width("in_channels", in_channels),
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
        usual = {"act": "leaky_relu", "norm": "layer", "edge_dim": None}  # not written: older files have none of them
        chosen = {"act": act, "norm": norm, "edge_dim": edge_dim}
        block |= {name: value for name, value in chosen.items() if value != usual[name]}
        self.config: dict[str, Any] = {**sizes, "heads": heads if isinstance(heads, int) else list(heads), **block}
        if jk is not None:
            check_choice("jk", jk, JUMPS, "or None")
            self.config["jk"] = jk
        self.dropout = Dropout(dropout)
        self.embed = linear(sizes["in_channels"], hidden_channels, kind=InputLinear, lazy=LazyInputLinear)
        self.blocks = nn.ModuleList()
        for h in per_layer:  # each block with a design of its own
            self.blocks.append(GLTBlock(hidden_channels, h, **{**block, "design": copy.deepcopy(design)}))
        self.jump = None if jk is None else JumpingKnowledge(jk, hidden_channels, num_layers)
        width = hidden_channels * (num_layers if jk == "cat" else 1)
        self.norm = make_norm(norm, width)
        self.read = NodeLinear(width, out_channels)

    def reset_parameters(self) -> None:
        for module in (self.embed, self.blocks, self.jump, self.norm, self.read):
            reset(module)

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

    def forward(
        self,
        x: Tensor,
        edge_index: EdgeInput,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Logits or predictions ``[N, out_channels]``; ``edge_index`` may be a Graph."""
        check_features(x, self.config["in_channels"], first=self.embed)
        where, weight, attr = self._one_graph(x, edge_index, edge_weight, edge_attr)
        fused = isinstance(self.embed, InputLinear)
        z = self.embed(x, self.dropout) if fused else self.embed(self.dropout(x))
        if self.config["in_channels"] == -1:
            self.config["in_channels"] = x.size(-1)
        states = []
        for block in self.blocks:
            if self.recompute and torch.is_grad_enabled():
                z = checkpoint(block, z, where, weight, features=x, edge_attr=attr, use_reentrant=False)
            else:
                z = block(z, where, weight, features=x, edge_attr=attr)
            states.append(z)
        if self.jump is not None:
            z = self.jump([z.reshape(-1, z.size(-1)) for z in states])
            z = z.view(*x.shape[:-1], z.size(-1))
        return self.read(self.norm(z))

    def _one_graph(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None, edge_attr: Tensor | None) -> tuple:
        """One Graph for all blocks, and what is left to be given beside it.

        Under an explainer the blocks need the edges themselves to apply its mask, and compiled code makes no Graph.
        """
        if any(map(is_explained, self.mixers)) or torch.compiler.is_compiling():
            return edge_index, edge_weight, edge_attr
        graph = as_graph(edge_index, x.size(-2), one_column(edge_weight))
        if edge_attr is not None and not isinstance(edge_index, Graph | list):
            edge_attr = check_edge_attr(edge_attr, self.config.get("edge_dim"), edge_attr.size(0))
            edge_attr = mean_per_edge(edge_index, graph, edge_attr)
        return graph, None, edge_attr

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
