"""Docstrings for the site: equations become MathML, which browsers draw without a script; roles become links."""

from __future__ import annotations

import re
from typing import Any

import griffe
from latex2mathml.converter import convert

import walksum as ws

EQUATION = re.compile(r"^\.\. math::[ ]*(?P<first>[^\n]*)\n(?P<rest>(?:[ \t]+[^\n]*\n?|\n(?=[ \t]))*)", re.MULTILINE)
INLINE = re.compile(r":math:`([^`]+)`")
EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)  # only "Examples" is read as code, "Example" as a remark
ROLE = re.compile(r":(?:class|func|meth|mod|attr):`~?([^`]+)`")


def translated(text: str) -> str:
    """Markdown of a docstring that holds Sphinx's roles."""
    text = EQUATION.sub(lambda m: f"\n{_block(m['first'] + ' ' + m['rest'])}\n\n", text)
    text = INLINE.sub(lambda m: _math(" ".join(m[1].split())), text)
    text = EXAMPLE.sub("Examples:", text)
    return ROLE.sub(lambda m: _link(m[1]), text)


def _block(latex: str) -> str:
    # one <math> per line of the equation: a blank line stands between two of them
    lines = [" ".join(part.split()) for part in latex.replace(r"\\", "\n").split("\n\n")]
    return "\n\n".join(_math(line, display="block") for line in lines if line)


def _math(latex: str, **options: str) -> str:
    return convert(latex, **options).replace("&#x029F5;", "&#x02216;")  # set minus, as more fonts have it


def _link(target: str) -> str:
    name = target.removesuffix("()").split(".")
    for part in name:
        if part in ws._WHERE:
            return f"[`{'.'.join(name[-2:]) if part != name[-1] else part}`]({part}.md)"
    return f"`{name[-1]}`"


class Docstrings(griffe.Extension):
    """Translate every docstring once it is read."""

    def on_object(self, *, obj: Any, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = translated(obj.docstring.value)
