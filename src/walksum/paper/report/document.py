"""A page as values, and its formats: Markdown, one HTML file, LaTeX, or text for a terminal. `code` is in backticks.

Pages of the docs that are written by hand have tables between two marks, which scripts fill from records.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape
from rich.console import Console
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True)
class TableCell:
    """One cell of a grid; ``below`` stands under its text in smaller print."""

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


FORMATS = ("text", "md", "latex", "csv", "html")
SUFFIXES = {".txt": "text", ".md": "md", ".tex": "latex", ".csv": "csv", ".html": "html", ".htm": "html"}
WIDE = 160  # columns where there is no terminal to ask


def format_of(name: str, out: Path | None) -> str:
    """The format asked for; else what the file's name says; else text."""
    if name and name not in FORMATS:
        raise ValueError(f"format={name!r} is unknown; choose among {', '.join(FORMATS)}")
    return name or (SUFFIXES.get(out.suffix.lower(), "text") if out else "text")


def render(document: Document, format: str) -> str:
    """The document as "text", "md", "latex" or "html"."""
    return {"text": text, "md": markdown, "latex": latex, "html": html}[format](document)


def html(document: Document) -> str:
    """One file that needs nothing else: light and dark, tables that sort, plots inside."""
    loader = Environment(loader=PackageLoader("walksum.paper.report", "."), autoescape=True, trim_blocks=True)
    loader.filters["words"] = lambda words: Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(words))))
    loader.tests["heading"] = lambda row: isinstance(row, str)
    return loader.get_template("tables.html").render(document=document, kind=lambda block: type(block).__name__)


def markdown(document: Document) -> str:
    """Good enough to be a page of the docs."""
    parts = [f"# {document.title}", *map(_markdown_block, document.blocks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _markdown_block(block: Block) -> str:
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
            return "" if block.folded else _markdown_grid(block)


def _markdown_grid(grid: Grid) -> str:
    empty = [""] * (len(grid.columns) - 1)
    rows = ([f"*{_escape(row)}*", *empty] if isinstance(row, str) else map(_markdown_cell, row) for row in grid.rows)
    return f"{markdown_table(map(_escape, grid.columns), rows, right=True)}\n\n{_escape(grid.caption)}"


def _markdown_cell(cell: TableCell) -> str:
    text, below = (_escape(part).replace(" ± ", "&nbsp;±&nbsp;") for part in (cell.text, cell.below))
    if cell.strong:
        text = f"**{text}**"
    if cell.underlined:
        text = f"<u>{text}</u>"
    return text + (f"<br><small>{below}</small>" if below else "")


def _escape(text: str) -> str:
    if "`" in text:
        return text
    return re.sub(r"([|*_])", r"\\\1", text).replace("<", "&lt;").replace(">", "&gt;")


def text(document: Document) -> str:
    """For a terminal, by rich."""
    file = io.StringIO()
    show(document, Console(file=file, width=WIDE, highlight=False))
    return file.getvalue()


def show(document: Document, console: Console) -> None:
    """Print it; where there is no terminal, bold and underline become **this** and _this_."""
    marked = not console.is_terminal
    console.print(Text(document.title, style="bold"), soft_wrap=False)
    for block in document.blocks:
        for piece in _pieces(block, marked):
            console.print(piece, soft_wrap=False)


def _pieces(block: Block, marked: bool) -> Iterator[Any]:
    match block:
        case Title():
            yield Text("\n" + block.text, style="bold" if block.level == 2 else "")
        case Words():
            yield Text(block.text)
        case Bullets():
            yield from (Text(f"- {item}") for item in block.items)
        case Grid() if not block.folded:
            yield from (_rich_table(block, marked), Text(block.caption, style="dim"))


def _rich_table(grid: Grid, marked: bool) -> Table:
    table = Table()
    for k, column in enumerate(grid.columns):
        table.add_column(column, justify="left" if k == 0 else "right")
    for row in grid.rows:
        if isinstance(row, str):
            table.add_section()
            table.add_row(Text(row, style="italic"))
        else:
            table.add_row(*(_rich_cell(cell, marked) for cell in row))
    return table


def _rich_cell(cell: TableCell, marked: bool) -> Text:
    sign = "**" if cell.strong else "_" if cell.underlined else ""
    style = " ".join(["bold"] * cell.strong + ["underline"] * cell.underlined)
    text = Text(f"{sign}{cell.text}{sign}") if marked else Text(cell.text, style=style)
    return text.append(f"\n{cell.below}", style="not bold not underline dim") if cell.below else text


LATEX_HEAD = "% Needs \\usepackage{booktabs} and \\usepackage{graphicx}."
LATEX_SIGNS = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "±": r"$\pm$",
}


def latex(document: Document) -> str:
    """For a paper: tables with booktabs, the rest as plain paragraphs and lists."""
    parts = [
        LATEX_HEAD,
        f"\\section*{{{_latex_escape(document.title)}}}",
        *(_latex_block(block) for block in document.blocks),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _latex_escape(text: str) -> str:
    plain = "".join(LATEX_SIGNS.get(sign, sign) for sign in text)
    return re.sub(r"`([^`]*)`", r"\\texttt{\1}", plain)


def _latex_block(block: Block) -> str:
    match block:
        case Title():
            return f"\\{'sub' * (block.level - 1)}section*{{{_latex_escape(block.text)}}}"
        case Words():
            return _latex_escape(block.text)
        case Bullets():
            items = "\n".join(f"  \\item {_latex_escape(item)}" for item in block.items)
            return f"\\begin{{itemize}}\n{items}\n\\end{{itemize}}"
        case Grid():
            return "" if block.folded else _latex_grid(block)
        case Picture():
            return ""


def _latex_grid(grid: Grid) -> str:
    width, lines = len(grid.columns), []
    for row in grid.rows:
        if isinstance(row, str):
            lines += [r"\midrule", f"\\multicolumn{{{width}}}{{l}}{{\\textbf{{{_latex_escape(row)}}}}}\\\\"]
        else:
            lines += _latex_row(row)
    body = "\n    ".join(lines)
    return (
        "\\begin{table*}[h]\n  \\centering\n"
        f"  \\caption{{{_latex_escape(grid.caption)}}}\n"
        "  \\resizebox{\\textwidth}{!}{%\n"
        f"  \\begin{{tabular}}{{l{'c' * (width - 1)}}}\n    \\toprule\n"
        f"    {' & '.join(map(_latex_escape, grid.columns))}\\\\\n    \\midrule\n"
        f"    {body}\n    \\bottomrule\n  \\end{{tabular}}}}\n\\end{{table*}}"
    )


def _latex_row(row: tuple[TableCell, ...]) -> list[str]:
    lines = [" & ".join(map(_latex_cell, row)) + r"\\"]
    if any(cell.below for cell in row):
        small = (f"{{\\scriptsize {_latex_escape(cell.below)}}}" if cell.below else "" for cell in row)
        lines.append(" & ".join(small) + r"\\")
    return lines


def _latex_cell(cell: TableCell) -> str:
    text = _latex_escape(cell.text).replace(r" $\pm$ ", r"$\pm$")
    if cell.strong:
        text = f"\\textbf{{{text}}}"
    return f"\\underline{{{text}}}" if cell.underlined else text


def fill_marks(text: str, name: str, content: str) -> str:
    """The page with new content between ``<!-- name -->`` and ``<!-- /name -->``."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the page lacks {begin} and {end}, each once; put them where {name!r} belongs")
    before, rest = text.split(begin)
    return f"{before}{begin}\n\n{content.strip()}\n\n{end}{rest.split(end)[1]}"


def markdown_table(head: Iterable[str], rows: Iterable[Iterable[str]], right: bool = False) -> str:
    """A table in Markdown; ``right``: every column after the first holds numbers, aligned right."""
    names = list(head)
    rule = ["---", *["---:" if right else "---"] * (len(names) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (names, rule, *rows))
