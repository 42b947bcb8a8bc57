"""A document as LaTeX."""

from __future__ import annotations

import re

from walksum.paper.report.document import Block, Bullets, Document, Grid, Picture, TableCell, Title, Words

HEAD = "% Needs \\usepackage{booktabs} and \\usepackage{graphicx}."
SIGNS = {
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
    parts = [HEAD, f"\\section*{{{_escape(document.title)}}}", *(_block(block) for block in document.blocks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _escape(text: str) -> str:
    plain = "".join(SIGNS.get(sign, sign) for sign in text)
    return re.sub(r"`([^`]*)`", r"\\texttt{\1}", plain)


def _block(block: Block) -> str:
    match block:
        case Title():
            return f"\\{'sub' * (block.level - 1)}section*{{{_escape(block.text)}}}"
        case Words():
            return _escape(block.text)
        case Bullets():
            items = "\n".join(f"  \\item {_escape(item)}" for item in block.items)
            return f"\\begin{{itemize}}\n{items}\n\\end{{itemize}}"
        case Grid():
            return "" if block.folded else _grid(block)
        case Picture():
            return ""


def _grid(grid: Grid) -> str:
    width, lines = len(grid.columns), []
    for row in grid.rows:
        if isinstance(row, str):
            lines += [r"\midrule", f"\\multicolumn{{{width}}}{{l}}{{\\textbf{{{_escape(row)}}}}}\\\\"]
        else:
            lines += _row(row)
    body = "\n    ".join(lines)
    return (
        "\\begin{table*}[h]\n  \\centering\n"
        f"  \\caption{{{_escape(grid.caption)}}}\n"
        "  \\resizebox{\\textwidth}{!}{%\n"
        f"  \\begin{{tabular}}{{l{'c' * (width - 1)}}}\n    \\toprule\n"
        f"    {' & '.join(map(_escape, grid.columns))}\\\\\n    \\midrule\n"
        f"    {body}\n    \\bottomrule\n  \\end{{tabular}}}}\n\\end{{table*}}"
    )


def _row(row: tuple[TableCell, ...]) -> list[str]:
    lines = [" & ".join(map(_cell, row)) + r"\\"]
    if any(cell.below for cell in row):
        small = (f"{{\\scriptsize {_escape(cell.below)}}}" if cell.below else "" for cell in row)
        lines.append(" & ".join(small) + r"\\")
    return lines


def _cell(cell: TableCell) -> str:
    text = _escape(cell.text).replace(r" $\pm$ ", r"$\pm$")
    if cell.strong:
        text = f"\\textbf{{{text}}}"
    return f"\\underline{{{text}}}" if cell.underlined else text
