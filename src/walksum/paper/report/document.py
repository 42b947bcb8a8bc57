"""A page as values: blocks that every format renders in its own way. Texts are plain, with `code` in backticks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TableCell:
    """One cell of a grid; ``below`` is said more quietly under its text."""

    text: str
    below: str = ""
    strong: bool = False
    underlined: bool = False


@dataclass(frozen=True)
class Grid:
    """A table.

    Args:
        rows: each a tuple of cells, the first being the row's name; a plain string is a heading across the table.
        folded: only for formats with room for it, where it can be folded away.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...] | str, ...]
    folded: bool = False


@dataclass(frozen=True)
class Title:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Words:
    text: str


@dataclass(frozen=True)
class Bullets:
    items: tuple[str, ...]


@dataclass(frozen=True)
class Picture:
    """A plot: ``svg`` for pages that hold it, ``link`` for those that point to it (empty: not drawn there)."""

    title: str
    svg: str
    link: str = ""


Block = Grid | Title | Words | Bullets | Picture


@dataclass(frozen=True)
class Document:
    title: str
    blocks: tuple[Block, ...]


def cells(*texts: str) -> tuple[TableCell, ...]:
    return tuple(map(TableCell, texts))
