"""Conjugate gradients."""

from walksum.solvers.cg.solver import CG

__all__ = ["CG"]
