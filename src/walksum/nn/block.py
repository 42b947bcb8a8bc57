"""GLTBlock: the paper's layer."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch_geometric.nn.inits import reset

from walksum._checks import check_choice, check_count
from walksum.designs import Design, Setting, check_design
from walksum.graph import EdgeInput
from walksum.nn.conv import GLTConv
from walksum.nn.dropout import Dropout
from walksum.nn.inputs import Activation, check_features, make_activation
from walksum.nn.layer_norm import LayerNorm
from walksum.nn.node_linear import NodeLinear, linear_after, takes_more
from walksum.solvers import Solution, Solver

PAPER_SCALE = 0.99  # of a Laplacian; norm and residual keep the block in range


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation of the last axis of ``[N, F]`` or ``[N, H, F]``."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.reshape(-1, x.size(-1))).view(x.shape)


NORMS = {"layer": LayerNorm, "batch": BatchNorm}


def make_norm(norm: str | None, channels: int) -> nn.Module:
    """The normalisation of that name over ``channels`` features; None for none."""
    if norm is None:
        return nn.Identity()
    check_choice("norm", norm, NORMS, "or None")
    return NORMS[norm](channels)


class GLTBlock(nn.Module):
    r"""Graph linear transformation and feed-forward network, each pre-normalised and with a residual.

    .. math::
        x \leftarrow x + W_o \big\Vert_k \phi(\mathrm{LN}(J_k^{-1} h_k)), \qquad
        x \leftarrow x + \mathrm{FFN}(\mathrm{LN}(x)), \qquad h = \mathrm{LeakyReLU}(\mathrm{LN}(x) W_{\mathrm{obs}})

    Args:
        channels: width of the node embeddings.
        heads: number of heads, of ``channels / heads`` features each, rounded up. With ``norm="layer"`` a head needs
            several: the layer norm of one number is constant, and the block then sees no graph.
        design, learned, coupling, solver, on_nonconverged, settings: as in :class:`walksum.GLTConv`.
        dropout: after the mixing and inside the feed-forward network.
        ffn_channels: inner width of the feed-forward network, ``channels`` by default.
        act: the activation :math:`\phi`: a name in torch.nn or a function.
        norm: "layer" (the paper's), "batch", or None for none.
        edge_dim: size of the edge features, see :class:`walksum.GLTConv`.

    Example:
        >>> import torch, walksum as ws
        >>> block = ws.GLTBlock(16, heads=2)
        >>> block(torch.randn(3, 16), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 16])
    """

    def __init__(
        self,
        channels: int,
        heads: int = 1,
        design: str | Design = "laplacian",
        learned: bool = True,
        coupling: str | None = None,
        dropout: float = 0.6,
        solver: Solver | str = "auto",
        on_nonconverged: str = "warn",
        ffn_channels: int | None = None,
        act: str | Activation | None = "leaky_relu",
        norm: str | None = "layer",
        edge_dim: int | None = None,
        **settings: Setting,
    ):
        super().__init__()
        channels, heads = check_count("channels", channels), check_count("heads", heads)
        width = -(-channels // heads)
        inner = channels if ffn_channels is None else check_count("ffn_channels", ffn_channels)
        if isinstance(design, str):
            check_design(design, learned, coupling, **settings)
        rest: dict[str, Any] = dict(settings)
        if design == "laplacian" and settings.get("reach") is None and settings.get("scale") is None:
            rest["scale"] = PAPER_SCALE
        self.norm = make_norm(norm, channels)
        self.mix = GLTConv(
            channels,
            width,
            heads,
            design=design,
            learned=learned,
            coupling=coupling,
            solver=solver,
            on_nonconverged=on_nonconverged,
            concat=True,
            bias=True,
            act=act,
            edge_dim=edge_dim,
            **rest,
        )
        self.mix_norm = make_norm(norm, width)
        self.act = as_module(make_activation(act))
        self.merge = NodeLinear(heads * width, channels)
        self.dropout = Dropout(dropout)
        self.ffn = FeedForward(
            make_norm(norm, channels),
            NodeLinear(channels, inner),
            as_module(make_activation(act)),
            Dropout(dropout),
            NodeLinear(inner, channels),
        )

    def reset_parameters(self) -> None:
        for module in (self.norm, self.mix, self.mix_norm, self.merge, self.ffn):
            reset(module)

    @property
    def last_solve(self) -> Solution | None:
        return self.mix.last_solve

    @property
    def last_backward_solve(self) -> Solution | None:
        return self.mix.last_backward_solve

    def forward(
        self,
        x: Tensor,
        edge_index: EdgeInput,
        edge_weight: Tensor | None = None,
        features: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        check_features(x, self.mix.in_channels, first=self.norm)
        mu = self.mix(self.norm(x), edge_index, edge_weight, features, edge_attr=edge_attr)
        rows = x.reshape(-1, x.size(-1))  # of all samples
        mu = mu.reshape(rows.size(0), self.mix.heads, self.mix.out_channels)
        y = linear_after(self.merge, (self.mix_norm, self.act, self.dropout), mu, rows)
        y = self.ffn(y, residual=y) if takes_more(self.ffn, FeedForward) else y + self.ffn(y)
        return y.view(x.shape)


class FeedForward(nn.Sequential):
    """Norm, linear layer, activation, dropout, linear layer; with the residual added at the end."""

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        if len(self) != 5:  # a slice, or one that someone has added to
            y = super().forward(input)
            return y if residual is None else residual + y
        norm, widen, act, dropout, narrow = self
        return linear_after(narrow, (act, dropout), linear_after(widen, (norm,), input), residual)


def as_module(act: Activation | None) -> nn.Module:
    if act is None:
        return nn.Identity()
    return act if isinstance(act, nn.Module) else Apply(act)


class Apply(nn.Module):
    """A function in the place of a module."""

    def __init__(self, function: Activation):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)
