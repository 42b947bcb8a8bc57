"""walksum: one exact linear operator on a graph, mu = J^-1 h, as layer, estimator and Gaussian field."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what follows is imported when it is used: torch, PyG and scikit-learn take seconds
    from walksum import analysis, data, designs, estimators, field, nn, plot, solvers, training, workflow
    from walksum.designs import (
        CAR,
        SAR,
        Design,
        FixedDiagonallyDominant,
        FixedLaplacian,
        FixedPairwiseNormal,
        Intrinsic,
        LearnedDiagonallyDominant,
        LearnedLaplacian,
        LearnedPairwiseNormal,
        Leroux,
        Matern,
        RandomWalk,
        Squared,
    )
    from walksum.estimators import (
        AutoClassifier,
        AutoRegressor,
        FieldClassifier,
        FieldRegressor,
        GLTClassifier,
        GLTRegressor,
        GraphFeatures,
        TransductiveKFold,
    )
    from walksum.field import GaussianField, fit_residual_field, logdet, marginals, sample, selected_inverse
    from walksum.graph import Graph, spatial_graph
    from walksum.nn import GLT, GLTBlock, GLTConv, PredictThenPropagate, Propagate, PropagateBank, load
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
    from walksum.training.cuda_graph import TrainingStep
    from walksum.workflow import Run, fit_tables, open_run

# The public names, by the module they come from. Everything else may change without notice.
_PUBLIC = {
    "graph": ["Graph", "spatial_graph"],
    "precision": ["Precision"],
    "solving": ["solve", "explain_solver"],
    "designs": [
        *("Design", "FixedPairwiseNormal", "LearnedPairwiseNormal", "FixedDiagonallyDominant"),
        *("LearnedDiagonallyDominant", "FixedLaplacian", "LearnedLaplacian"),
        *("CAR", "SAR", "Leroux", "Intrinsic", "Matern", "RandomWalk", "Squared"),
    ],
    "solvers": [
        *("Solver", "GaBP", "CG", "Dense", "Inverse", "Direct", "Hybrid", "Chebyshev", "Multigrid", "Unrolled"),
        *("Solution", "Status", "SolveError", "SolveWarning"),
    ],
    "field": ["GaussianField", "logdet", "marginals", "selected_inverse", "sample", "fit_residual_field"],
    "nn": ["Propagate", "PropagateBank", "PredictThenPropagate", "GLTConv", "GLTBlock", "GLT", "load"],
    "training.cuda_graph": ["TrainingStep"],
    "workflow": ["fit_tables", "open_run", "Run"],
    "estimators": [
        *("AutoClassifier", "AutoRegressor", "GraphFeatures", "FieldRegressor", "FieldClassifier"),
        *("GLTClassifier", "GLTRegressor", "TransductiveKFold"),
    ],
}
_MODULES = ["designs", "solvers", "field", "nn", "analysis", "plot", "data", "training", "workflow", "estimators"]
_WHERE = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = [*_WHERE, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = getattr(import_module(f"walksum.{_WHERE[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"walksum.{name}")
    elif name == "__version__":
        value = _version()
    else:
        raise AttributeError(f"module 'walksum' has no attribute {name!r}")
    globals()[name] = value
    return value


def _version() -> str:
    metadata = import_module("importlib.metadata")
    try:
        return metadata.version("walksum")
    except metadata.PackageNotFoundError:  # run from its source alone
        return "unknown"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
