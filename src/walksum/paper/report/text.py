"""A document for a terminal, by rich."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from walksum.paper.report.document import Block, Bullets, Document, Grid, Picture, TableCell, Title, Words

WIDE = 160  # columns where there is no terminal to ask


def render(document: Document) -> str:
    file = io.StringIO()
    show(document, Console(file=file, width=WIDE, highlight=False))
    return file.getvalue()


def show(document: Document, console: Console) -> None:
    for piece in (Text(document.title, style="bold"), *pieces(document, marked=not console.is_terminal)):
        console.print(piece, soft_wrap=False)


def pieces(document: Document, marked: bool = False) -> Iterator[Any]:
    """``marked``: bold and underline as **this** and _this_, for files that have neither."""
    for block in document.blocks:
        yield from _block(block, marked)


def _block(block: Block, marked: bool) -> Iterator[Any]:
    match block:
        case Title():
            yield Text("\n" + block.text, style="bold" if block.level == 2 else "")
        case Words():
            yield Text(block.text)
        case Bullets():
            yield from (Text(f"- {item}") for item in block.items)
        case Grid():
            if not block.folded:
                yield from (_table(block, marked), Text(block.caption, style="dim"))
        case Picture():
            return


def _table(grid: Grid, marked: bool) -> Table:
    table = Table()
    for k, column in enumerate(grid.columns):
        table.add_column(column, justify="left" if k == 0 else "right")
    for row in grid.rows:
        if isinstance(row, str):
            table.add_section()
            table.add_row(Text(row, style="italic"))
        else:
            table.add_row(*(_cell(cell, marked) for cell in row))
    return table


def _cell(cell: TableCell, marked: bool) -> Text:
    sign = "**" if cell.strong else "_" if cell.underlined else ""
    style = " ".join(["bold"] * cell.strong + ["underline"] * cell.underlined)
    text = Text(f"{sign}{cell.text}{sign}") if marked else Text(cell.text, style=style)
    return text.append(f"\n{cell.below}", style="not bold not underline dim") if cell.below else text
