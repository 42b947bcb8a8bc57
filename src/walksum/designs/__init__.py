"""Precision designs: graph and node features -> Precision."""

from walksum.designs.base import Design
from walksum.designs.dominant import FixedDiagonallyDominant, LearnedDiagonallyDominant
from walksum.designs.fields import CAR, SAR, Intrinsic, Leroux, Matern, RandomWalk, Squared
from walksum.designs.laplacian import FixedLaplacian, LearnedLaplacian
from walksum.designs.pairwise import FixedPairwiseNormal, LearnedPairwiseNormal
from walksum.designs.registry import (
    COUPLINGS,
    DESIGNS,
    NAMES,
    DesignEntry,
    Setting,
    check_design,
    make_design,
    scale_for_reach,
)

__all__ = ["Design", "FixedPairwiseNormal", "LearnedPairwiseNormal", "FixedDiagonallyDominant"]
__all__ += ["LearnedDiagonallyDominant", "FixedLaplacian", "LearnedLaplacian"]
__all__ += ["CAR", "SAR", "Leroux", "Intrinsic", "Matern", "RandomWalk", "Squared"]
__all__ += ["COUPLINGS", "DESIGNS", "NAMES", "DesignEntry", "Setting", "check_design", "make_design", "scale_for_reach"]
