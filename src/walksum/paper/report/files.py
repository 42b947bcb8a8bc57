"""Pages and plots onto the disk: whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from walksum.paper.report import html, markdown, text
from walksum.paper.report.document import Document

RENDER = {"text": text.render, "md": markdown.render, "html": html.render}
FORMATS = (*RENDER, "csv")
SUFFIXES = {".txt": "text", ".md": "md", ".csv": "csv", ".html": "html", ".htm": "html"}


def format_of(name: str, out: Path | None) -> str:
    """The format asked for; else what the file's name says; else text."""
    if name and name not in FORMATS:
        raise ValueError(f"format={name!r} is unknown; choose among {', '.join(FORMATS)}")
    return name or (SUFFIXES.get(out.suffix.lower(), "text") if out else "text")


def render(document: Document, format: str) -> str:
    return RENDER[format](document)


def write(path: Path, content: str) -> None:
    """Beside its place first: what was there stays until the new text is whole."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(21, "it is a folder", str(path))
        scratch.write_text(content, encoding="utf-8")
        os.replace(scratch, path)
    except OSError as error:
        with suppress(OSError):
            scratch.unlink()
        reason = f"{path.parent} is a file" if isinstance(error, FileExistsError) else error.strerror
        raise ValueError(f"{path} cannot be written ({reason}); choose another place") from error
