"""walksum: graph layers whose mixing is one exact linear operator, mu = J^-1 h."""

from walksum.graph import Graph
from walksum.precision import Precision
from walksum.solve import solve
from walksum.solvers import CG, Dense, GaBP, Solution, SolveError, Solver, SolveWarning, Status, Unrolled
from walksum.solvers.direct import Direct
from walksum.solvers.hybrid import Hybrid

__version__ = "0.1.0"

__all__ = ["Graph", "Precision", "solve", "Direct", "Hybrid"]
__all__ += ["Solver", "GaBP", "CG", "Dense", "Unrolled", "Solution", "Status", "SolveError", "SolveWarning"]
