"""Numbers as people write them: decimal commas, thousands separators, percent and currency signs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pandas as pd

SIGN = r"(?:[€$£¥₹]|EUR|USD|GBP|CHF)"
POINT, COMMA = ".", ","
OTHER = {POINT: COMMA, COMMA: POINT}
# a group of three digits follows a separator, the same one in all of the number
SHAPES = {
    mark: re.compile(
        rf"\s*[+-]?\s*{SIGN}?\s*[+-]?(?=[\d{re.escape(mark)}])"
        rf"(?:\d{{1,3}}([{re.escape(OTHER[mark])}'\s])\d{{3}}(?:\1\d{{3}})*|\d+)?"
        rf"(?:{re.escape(mark)}\d+)?\s*(?:%|{SIGN})?\s*"
    )
    for mark in (POINT, COMMA)
}
NOISE = re.compile(rf"[\s'%]|{SIGN}")
GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")


def written(value: float, digits: int = 4, sign: str = "") -> str:
    """A number for readers: of so many digits, but with all of those before the point: 51441, not 5.144e+04."""
    text = f"{value:{sign}.{digits}g}"
    return f"{value:{sign}.0f}" if "e+" in text and abs(value) < 1e15 else text


@dataclass(frozen=True)
class Numerals:
    """The columns of formatted numbers, and the decimal mark of each.

    Attributes:
        marks: "." or "," by column.
        examples: one cell of each.
        unsure: columns whose cells would fit the other mark as well, such as 1,234.
    """

    marks: dict[str, str] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    unsure: tuple[str, ...] = ()

    def plain(self, column: str, values: pd.Series) -> pd.Series:
        """Rewrite numbers plainly, as 1234.5; other cells stay as they are."""
        mark = self.marks[column]
        texts = values[values.map(lambda value: isinstance(value, str)).astype(bool)]
        texts = texts[texts.str.fullmatch(SHAPES[mark])]
        clean = texts.str.replace(NOISE, "", regex=True).str.replace(OTHER[mark], "", regex=False)
        made = values.astype(object).copy()
        made[texts.index] = clean.str.replace(mark, POINT, regex=False)
        return made

    def notes(self) -> list[str]:
        """Notes on columns that were read as numbers, with an example each."""
        notes = []
        for column, text in self.examples.items():
            mark = self.marks[column]
            as_number = self.plain(column, pd.Series([text], dtype=object)).iloc[0]
            doubt = f"; pass decimal={OTHER[mark]!r} if it means {_other(text, mark)}" if column in self.unsure else ""
            notes.append(f"{column!r} is written like {text!r} and read as numbers: {as_number}{doubt}")
        return notes


def _other(text: str, mark: str) -> str:
    return Numerals({"": OTHER[mark]}).plain("", pd.Series([text], dtype=object)).iloc[0]


def find_numerals(
    columns: Mapping[str, pd.Series], decimal: str | None = None, thousands: str | None = None, semicolons: bool = False
) -> Numerals:
    """Find the columns of text in which every known cell is a formatted number.

    Args:
        columns: known cells, by column.
        decimal: the decimal mark of the table; None: what its cells show.
        thousands: its separator of thousands; decides the decimal mark as well.
        semicolons: whether cells are separated by semicolons, as where the comma is a decimal mark.
    """
    mark = checked_marks(decimal, thousands)
    texts = {
        name: values
        for name, values in columns.items()
        if len(values) and all(isinstance(value, str) for value in values)
    }
    odd = {name: values for name, values in texts.items() if bool(pd.to_numeric(values, errors="coerce").isna().any())}
    fits = {
        name: [each for each, shape in SHAPES.items() if bool(values.str.fullmatch(shape).all())]
        for name, values in odd.items()
    }
    fits = {name: found for name, found in fits.items() if found and (mark is None or mark in found)}
    sure = {found[0] for found in fits.values() if len(found) == 1}
    usual = mark or (next(iter(sure)) if len(sure) == 1 else COMMA if semicolons else POINT)
    if usual == COMMA and (mark or COMMA in sure):  # 1.234 is a thousand there
        fits |= {name: [POINT, COMMA] for name, values in texts.items() if name not in odd and _dotted(values)}
    marks = {name: usual if usual in found else found[0] for name, found in fits.items()}
    examples = {name: _example(texts[name]) for name in marks}
    both = [name for name in marks if len(fits[name]) > 1 and bool(texts[name].str.contains(r"[.,]").any())]
    return Numerals(marks, examples, () if mark else tuple(both))


def read_numerals(
    columns: Mapping[str, pd.Series], before: Mapping[str, str], decimal: str | None, thousands: str | None,
    semicolons: bool = False,
) -> Numerals:  # fmt: skip
    """As :func:`find_numerals`; the marks of an earlier table, ``before``, are kept where the cells follow them."""
    # 0.125 would be 125 by the decimal comma of a training table, beside 0.5, which tells that a point is meant
    kept = {name: mark for name, mark in before.items() if name in columns and follows(columns[name], mark)}
    others = {name: values for name, values in columns.items() if name not in kept}
    found = find_numerals(others, decimal, thousands, semicolons)
    return replace(found, marks=found.marks | kept)


def follows(values: pd.Series, mark: str) -> bool:
    """Whether every cell of text is a number with this decimal mark."""
    texts = values[values.map(lambda value: isinstance(value, str)).astype(bool)]
    return bool(texts.astype(str).str.fullmatch(SHAPES[mark]).all())


def checked_marks(decimal: str | None, thousands: str | None) -> str | None:
    """Check the two options; the decimal mark that they imply, if any."""
    if decimal not in (None, POINT, COMMA):
        raise ValueError(f"decimal={decimal!r}; expected '.' or ','")
    if thousands not in (None, POINT, COMMA, " ", "'"):
        raise ValueError(f"thousands={thousands!r}; expected ',', '.', ' ' or \"'\"")
    if decimal is not None and decimal == thousands:
        raise ValueError(f"decimal={decimal!r} and thousands={thousands!r} are the same; a number has one of each")
    return decimal or OTHER.get(thousands or "")


def _dotted(texts: pd.Series) -> bool:
    """Whether every dot in plain numbers could separate thousands."""
    dots = texts[texts.str.contains(POINT, regex=False)]
    return len(dots) > 0 and bool(dots.str.strip().str.fullmatch(GROUPED).all())


def _example(texts: pd.Series) -> str:
    odd = texts[pd.to_numeric(texts, errors="coerce").isna() | texts.str.contains(POINT, regex=False)]
    return str((odd if len(odd) else texts).iloc[0]).strip()
