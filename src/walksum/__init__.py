"""walksum: graph layers whose mixing is one exact linear operator, mu = J^-1 h."""

import importlib
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
from walksum.nn import GLT, GLTBlock, GLTConv, load
from walksum.precision import Precision
from walksum.solve import explain_solver, solve
from walksum.solvers import (
    CG,
    Chebyshev,
    Dense,
    Direct,
    GaBP,
    Hybrid,
    Multigrid,
    Solution,
    SolveError,
    Solver,
    SolveWarning,
    Status,
    Unrolled,
)

if TYPE_CHECKING:
    from walksum import plot
    from walksum.estimators import GLTClassifier, GLTRegressor, TransductiveKFold

__version__ = "0.1.0"

__all__ = ["Graph", "Precision", "solve", "explain_solver"]
__all__ += ["Design", "FixedPairwiseNormal", "LearnedPairwiseNormal", "FixedDiagonallyDominant"]
__all__ += ["LearnedDiagonallyDominant", "FixedLaplacian", "LearnedLaplacian"]
__all__ += ["Solver", "GaBP", "CG", "Dense", "Direct", "Hybrid", "Chebyshev", "Multigrid", "Unrolled"]
__all__ += ["Solution", "Status", "SolveError", "SolveWarning"]
__all__ += ["GLTConv", "GLTBlock", "GLT", "load"]
__all__ += ["GLTClassifier", "GLTRegressor", "TransductiveKFold"]
__all__ += ["plot"]


def __getattr__(name: str) -> Any:
    if name in ("GLTClassifier", "GLTRegressor", "TransductiveKFold"):
        from walksum import estimators  # scikit-learn takes a second to import: only where it is used

        return getattr(estimators, name)
    if name == "plot":
        return importlib.import_module("walksum.plot")  # matplotlib, likewise
    raise AttributeError(f"module 'walksum' has no attribute {name!r}")
