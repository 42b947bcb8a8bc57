"""A document as Markdown, good enough to be a page of the docs."""

from __future__ import annotations

from collections.abc import Iterable

from walksum.paper.report.document import Block, Bullets, Document, Grid, Picture, TableCell, Title, Words


def render(document: Document) -> str:
    parts = [f"# {document.title}", *(_block(block) for block in document.blocks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(block: Block) -> str:
    match block:
        case Title():
            return f"{'#' * block.level} {block.text}"
        case Words():
            return _escape(block.text)
        case Bullets():
            return "\n".join(f"- {_escape(item)}" for item in block.items)
        case Picture():
            return f"![{block.title}]({block.link})" if block.link else ""
        case Grid():
            return "" if block.folded else _grid(block)


def _grid(grid: Grid) -> str:
    lines = [_line(map(_escape, grid.columns)), _line(["---", *(["---:"] * (len(grid.columns) - 1))])]
    for row in grid.rows:
        if isinstance(row, str):
            lines.append(_line([f"*{_escape(row)}*", *([""] * (len(grid.columns) - 1))]))
        else:
            lines.append(_line(map(_cell, row)))
    return "\n".join(lines) + f"\n\n{_escape(grid.caption)}"


def _line(texts: Iterable[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _cell(cell: TableCell) -> str:
    text, below = (_escape(part).replace(" ± ", "&nbsp;±&nbsp;") for part in (cell.text, cell.below))
    if cell.strong:
        text = f"**{text}**"
    if cell.underlined:
        text = f"<u>{text}</u>"
    return text + (f"<br><small>{below}</small>" if below else "")


def _escape(text: str) -> str:
    for sign in ("|", "*", "_"):
        text = text.replace(sign, "\\" + sign) if "`" not in text else text
    return text.replace("<", "&lt;").replace(">", "&gt;") if "`" not in text else text
