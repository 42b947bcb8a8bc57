"""The formats of a report."""

from __future__ import annotations

from pathlib import Path

from walksum.paper.report import html, markdown, text
from walksum.paper.report.document import Document

RENDER = {"text": text.render, "md": markdown.render, "html": html.render}
FORMATS = (*RENDER, "csv")
SUFFIXES = {".txt": "text", ".md": "md", ".csv": "csv", ".html": "html", ".htm": "html"}


def format_of(name: str, out: Path | None) -> str:
    """The format asked for; else what the file's name says; else text."""
    if name and name not in FORMATS:
        raise ValueError(f"--format {name!r} is unknown; choose among {', '.join(FORMATS)}")
    return name or (SUFFIXES.get(out.suffix.lower(), "text") if out else "text")


def render(document: Document, format: str) -> str:
    return RENDER[format](document)
