"""walksum: graph layers whose mixing is one exact linear operator, mu = J^-1 h."""

from walksum.graph import Graph
from walksum.precision import Precision
from walksum.solve import solve
from walksum.solvers import CG, Dense, Direct, GaBP, Hybrid, Unrolled
from walksum.solvers.base import Solution, SolveError, Solver, SolveWarning, Status

__version__ = "0.1.0"

__all__ = ["Graph", "Precision", "solve"]
__all__ += ["Solver", "GaBP", "CG", "Dense", "Unrolled", "Direct", "Hybrid"]
__all__ += ["Solution", "Status", "SolveError", "SolveWarning"]
