"""Gaussian belief propagation."""

from walksum.solvers.gabp.solver import GaBP

__all__ = ["GaBP"]
