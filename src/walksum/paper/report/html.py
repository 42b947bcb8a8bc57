"""A document as one HTML file that needs nothing else: light and dark, tables that sort, plots inside."""

from __future__ import annotations

import re

from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape

from walksum.paper.report.document import Document


def render(document: Document) -> str:
    loader = Environment(loader=PackageLoader("walksum.paper.report", "."), autoescape=True, trim_blocks=True)
    loader.filters["words"] = _words
    loader.tests["heading"] = lambda row: isinstance(row, str)
    return loader.get_template("tables.html").render(document=document, kind=lambda block: type(block).__name__)


def _words(text: str) -> Markup:
    return Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text))))
