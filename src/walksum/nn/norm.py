"""Normalisation by name."""

from __future__ import annotations

from torch import Tensor, nn

from walksum._checks import check_choice


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation of the last axis of ``[N, F]`` or ``[N, H, F]``."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.reshape(-1, x.size(-1))).view(x.shape)


NORMS = {"layer": nn.LayerNorm, "batch": BatchNorm}


def make_norm(norm: str | None, channels: int) -> nn.Module:
    """The normalisation of that name over ``channels`` features; None for none."""
    if norm is None:
        return nn.Identity()
    check_choice("norm", norm, NORMS, "or None")
    return NORMS[norm](channels)
