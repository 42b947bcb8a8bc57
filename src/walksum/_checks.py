"""Checks of arguments: each raises a ValueError that names the argument, its value and what was expected."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any


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
