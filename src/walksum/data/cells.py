"""Cells of CSV files that spreadsheets open: text that would be read as a formula is written as text."""

from __future__ import annotations

from typing import Any

BEGINNINGS = ("=", "+", "-", "@", "\t", "\r", "'")  # of what a spreadsheet may execute, and of our own escape


def escaped(cell: Any) -> Any:
    """With an apostrophe before a text that begins like a formula; numbers stay as they are, also negative ones."""
    if not isinstance(cell, str) or not cell.startswith(BEGINNINGS):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def plain(cell: Any) -> Any:
    """What :func:`escaped` was given."""
    return cell[1:] if isinstance(cell, str) and cell.startswith("'") else cell
