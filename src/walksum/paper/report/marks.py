"""Pages that are written by hand, but for tables that a script makes from records and puts between two marks."""

from __future__ import annotations

from collections.abc import Iterable


def fill_marks(text: str, name: str, content: str) -> str:
    """The page with new content between ``<!-- name -->`` and ``<!-- /name -->``."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the page lacks {begin} and {end}, each once; put them where {name!r} belongs")
    before, rest = text.split(begin)
    return f"{before}{begin}\n\n{content.strip()}\n\n{end}{rest.split(end)[1]}"


def markdown_table(lines: Iterable[Iterable[str]]) -> str:
    """One line of text per list of cells, the first two being the head and the line below it."""
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
