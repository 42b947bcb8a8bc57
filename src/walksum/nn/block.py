"""GLTBlock: the paper's layer."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from walksum._checks import check_count
from walksum.designs import Design, Setting, check_design
from walksum.graph import EdgeInput
from walksum.nn.conv import GLTConv
from walksum.nn.dropout import Dropout
from walksum.solvers import Solution, Solver


class GLTBlock(nn.Module):
    r"""Graph linear transformation and feed-forward network, each pre-normalised and with a residual.

    .. math::
        x \leftarrow x + W_o \big\Vert_k \phi(\mathrm{LN}(J_k^{-1} h_k)), \qquad
        x \leftarrow x + \mathrm{FFN}(\mathrm{LN}(x)), \qquad h = \mathrm{LeakyReLU}(\mathrm{LN}(x) W_{\mathrm{obs}})

    Args:
        channels: width of the node embeddings.
        heads: number of heads, of ``channels / heads`` features each.
        design, learned, coupling, solver, on_nonconverged, settings: as in :class:`walksum.GLTConv`.
        dropout: after the mixing and inside the feed-forward network.
        ffn_channels: inner width of the feed-forward network, ``channels`` by default.
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
        **settings: Setting,
    ):
        super().__init__()
        channels, heads = check_count("channels", channels), check_count("heads", heads)
        if channels % heads:
            raise ValueError(f"heads={heads} does not divide channels={channels}; each head gets channels / heads")
        width = channels // heads
        inner = channels if ffn_channels is None else check_count("ffn_channels", ffn_channels)
        if isinstance(design, str):
            check_design(design, learned, coupling, **settings)
        self.norm = nn.LayerNorm(channels)
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
            **settings,
        )
        self.mix_norm = nn.LayerNorm(width)
        self.merge = nn.Linear(channels, channels)
        self.dropout = Dropout(dropout)
        self.ffn = nn.Sequential(
            nn.LayerNorm(channels),
            nn.Linear(channels, inner),
            nn.LeakyReLU(),
            Dropout(dropout),
            nn.Linear(inner, channels),
        )

    def reset_parameters(self) -> None:
        for module in (self.norm, self.mix, self.mix_norm, self.merge, *self.ffn):
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()

    @property
    def last_solve(self) -> Solution | None:
        return self.mix.last_solve

    @property
    def last_backward_solve(self) -> Solution | None:
        return self.mix.last_backward_solve

    def forward(
        self, x: Tensor, edge_index: EdgeInput, edge_weight: Tensor | None = None, features: Tensor | None = None
    ) -> Tensor:
        mu = self.mix(self.norm(x), edge_index, edge_weight, features)
        mu = mu.view(-1, self.mix.heads, self.mix.out_channels)
        x = x + self.merge(self.dropout(leaky_relu(self.mix_norm(mu)).flatten(1)))
        return x + self.ffn(x)
