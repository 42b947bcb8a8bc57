"""How many threads small work gets."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

FEW_ROWS = 50_000  # up to which one thread is enough


def few_threads(rows: int) -> Any:
    """A context with one thread for tables of few rows.

    Trees of few rows and products with single vectors meet at a barrier every few microseconds; where other programs
    hold the cores, each of those waits for the scheduler.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    return threadpool_limits(1) if rows <= FEW_ROWS else nullcontext()
