"""Which figures a run has, and which the paper: numbers first, then one drawing a name, in any theme."""

from walksum.figures.paper import of_paper
from walksum.figures.run import of_run
from walksum.figures.subject import Drawing, Listener

__all__ = ["of_run", "of_paper", "Drawing", "Listener"]
