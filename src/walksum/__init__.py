"""walksum: graph layers whose mixing is one exact linear operator, mu = J^-1 h."""

from walksum.graph import Graph
from walksum.precision import Precision
from walksum.solve import solve
from walksum.solvers import (
    CG,
    Chebyshev,
    Dense,
    GaBP,
    Multigrid,
    Solution,
    SolveError,
    Solver,
    SolveWarning,
    Status,
    Unrolled,
)

__version__ = "0.1.0"

__all__ = ["Graph", "Precision", "solve"]
__all__ += ["Solver", "GaBP", "CG", "Chebyshev", "Multigrid", "Dense", "Unrolled"]
__all__ += ["Solution", "Status", "SolveError", "SolveWarning"]
