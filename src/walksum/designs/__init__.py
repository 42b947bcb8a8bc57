"""Precision designs: graph and node features -> Precision."""

from __future__ import annotations

from typing import Any

from walksum.designs.base import Design
from walksum.designs.dominant import FixedDiagonallyDominant, LearnedDiagonallyDominant
from walksum.designs.laplacian import FixedLaplacian, LearnedLaplacian
from walksum.designs.pairwise import FixedPairwiseNormal, LearnedPairwiseNormal

FIXED: dict[str, type[Design]] = {
    "pairwise-normal": FixedPairwiseNormal,
    "diagonally-dominant": FixedDiagonallyDominant,
    "laplacian": FixedLaplacian,
}
NAMES = tuple(FIXED)


def make_design(
    name: str, learned: bool, in_channels: int, channels: int, heads: int, coupling: str | None = None
) -> Design:
    """The design of that name for a layer that reads ``in_channels`` and observes ``channels`` a head."""
    if name not in NAMES:
        raise ValueError(f"design={name!r}; known: {', '.join(map(repr, NAMES))}, or a Design object")
    sign: Any = {} if coupling is None else {"coupling": coupling}
    if not learned:
        return FIXED[name](**sign)
    if name == "pairwise-normal":
        return LearnedPairwiseNormal(channels, heads, **sign)
    if name == "diagonally-dominant":
        return LearnedDiagonallyDominant(in_channels, heads, **sign)
    return LearnedLaplacian(in_channels, heads, **sign)


__all__ = ["Design", "FixedPairwiseNormal", "LearnedPairwiseNormal", "FixedDiagonallyDominant"]
__all__ += ["LearnedDiagonallyDominant", "FixedLaplacian", "LearnedLaplacian", "NAMES", "make_design"]
