"""walksum: graph layers whose mixing is one exact linear operator, mu = J^-1 h."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from walksum.designs import (
    Design,
    FixedDiagonallyDominant,
    FixedLaplacian,
    FixedPairwiseNormal,
    LearnedDiagonallyDominant,
    LearnedLaplacian,
    LearnedPairwiseNormal,
)
from walksum.graph import Graph
from walksum.precision import Precision
from walksum.solvers import (
    CG,
    Chebyshev,
    Dense,
    Direct,
    GaBP,
    Hybrid,
    Inverse,
    Multigrid,
    Solution,
    SolveError,
    Solver,
    SolveWarning,
    Status,
    Unrolled,
)
from walksum.solving import explain_solver, solve

if TYPE_CHECKING:
    from walksum import plot
    from walksum.estimators import GLTClassifier, GLTRegressor, TransductiveKFold
    from walksum.nn import GLT, GLTBlock, GLTConv, load
    from walksum.training.cuda_graph import TrainingStep

__version__ = "0.1.0"

__all__ = ["Graph", "Precision", "solve", "explain_solver"]
__all__ += ["Design", "FixedPairwiseNormal", "LearnedPairwiseNormal", "FixedDiagonallyDominant"]
__all__ += ["LearnedDiagonallyDominant", "FixedLaplacian", "LearnedLaplacian"]
__all__ += ["Solver", "GaBP", "CG", "Dense", "Inverse", "Direct", "Hybrid", "Chebyshev", "Multigrid", "Unrolled"]
__all__ += ["Solution", "Status", "SolveError", "SolveWarning"]
__all__ += ["GLTConv", "GLTBlock", "GLT", "load", "TrainingStep"]
__all__ += ["GLTClassifier", "GLTRegressor", "TransductiveKFold"]
__all__ += ["plot"]


# PyG, scikit-learn and matplotlib take seconds to import: only where they are used
_LATER = dict.fromkeys(("GLT", "GLTBlock", "GLTConv", "load"), "walksum.nn")
_LATER["TrainingStep"] = "walksum.training.cuda_graph"
_LATER |= dict.fromkeys(("GLTClassifier", "GLTRegressor", "TransductiveKFold"), "walksum.estimators")


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    if name in ("nn", "plot"):
        return import_module(f"walksum.{name}")
    raise AttributeError(f"module 'walksum' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "nn"})
