"""Checks of arguments: each raises a ValueError that names the argument, its value and what was expected."""

from __future__ import annotations

import math
from collections.abc import Iterable
from copy import copy
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp


def check_positive(**values: float) -> None:
    for name, value in values.items():
        if not isinstance(value, Real) or isinstance(value, bool) or not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{name}={value!r}; expected a positive finite number")


def check_count(name: str, value: Any) -> int:
    """A whole number of at least one, also of numpy, as Python's int."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r}; expected a positive whole number")
    return int(value)


def check_limits(max_steps: int, tol: float | None) -> None:
    """The end of an iteration; ``tol=None`` stands for the tolerance of the dtype."""
    check_count("max_steps", max_steps)
    if tol is not None:
        check_positive(tol=tol)


def check_choice(name: str, value: object, known: Iterable[str], *others: str) -> None:
    """``others`` says in words what else may be given."""
    known = tuple(known)
    if value not in known:
        raise ValueError(f"{name}={value!r}; known: {', '.join([*map(repr, known), *others])}")


def check_real_matrix(name: str, matrix: Any) -> None:
    """Real numbers without a mask; of a scipy sparse matrix also whether its indices lie inside of it.

    scipy reads and writes memory by indices that it has not checked.
    """
    if matrix.dtype.kind not in "biuf":
        remedy = f"; use {name}.real" if matrix.dtype.kind == "c" else ""
        raise ValueError(f"{name} has shape {matrix.shape}, dtype {matrix.dtype}; expected real numbers{remedy}")
    check_unmasked(name, matrix)
    if not sp.issparse(matrix):
        return
    try:
        if matrix.format == "coo":
            type(matrix)((matrix.data, matrix.coords), shape=matrix.shape)
        elif hasattr(matrix, "check_format"):
            copy(matrix).check_format(full_check=True)  # which writes into the attributes of what it checks
    except ValueError as error:
        kind = f"a damaged {matrix.format} matrix"
        raise ValueError(f"{name} is {kind}: {error}; make it anew from its entries") from error


def check_unmasked(name: str, array: Any) -> None:
    masked = np.ma.count_masked(array) if isinstance(array, np.ma.MaskedArray) else 0
    if masked:
        raise ValueError(f"{name} has {masked} masked numbers; leave them out, or fill them by {name}.filled(...)")
