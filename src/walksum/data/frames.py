"""Tables that can be read in pieces, and how their cells become numbers and texts.

A column is numbers until a row holds something else; then the table is read again with that column as text.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from walksum.data.numerals import Numerals

SAMPLE = 5_000  # rows that show how a column is written
UNNAMED = ("Unnamed: ", "__index_level_")  # how pandas calls a column without a header, and an index in a Parquet file
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NaT", "<NA>", "null", "NULL", "None")
LONGEST, LISTED = 80, 8  # letters of a cell, and columns of a table, in a message
YES_NO = {"True": 1.0, "TRUE": 1.0, "true": 1.0, "False": 0.0, "FALSE": 0.0, "false": 0.0}  # booleans in a text file


class Table(ABC):
    """A table that can be read in pieces; ``name`` stands for it in messages."""

    name: str
    semicolons = False  # whether they separate its cells

    @abstractmethod
    def columns(self) -> list[str]:
        """The names of its columns."""

    @abstractmethod
    def pieces(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """The named columns as objects, missing where they were, one chunk of rows at a time."""

    @abstractmethod
    def row(self, number: int) -> str:
        """Describe where row ``number`` (from 0 on) is, for a message."""

    def sample(self, columns: Sequence[str]) -> pd.DataFrame:
        """The first rows of the named columns, as they are written."""
        return next(iter(self.pieces(columns)), pd.DataFrame(columns=list(columns)))[:SAMPLE]

    def frame(
        self,
        columns: Sequence[str],
        text: Sequence[str] = (),
        verbatim: str | None = None,
        numerals: Numerals | None = None,
    ) -> pd.DataFrame:
        """The named columns: float64 where every value is a number or missing, text otherwise and for ``text``.

        In the column ``verbatim`` only an empty cell is missing: a node may be called NA. Columns of ``numerals`` are
        read as these say.
        """
        as_text, marked = set(text), set() if numerals is None else set(numerals.marks)
        while True:
            try:
                typed = []
                for chunk in self.pieces(columns):
                    plain = {name: numerals.plain(name, chunk[name]) for name in marked} if numerals else {}
                    typed.append(_typed(chunk.assign(**plain), as_text, verbatim))
                return pd.concat(typed, ignore_index=True) if typed else pd.DataFrame(columns=list(columns))
            except _TurnedToText as found:  # once for the first rows, and rarely for a word after thousands of numbers
                as_text |= found.columns
                marked -= found.columns


class FrameTable(Table):
    """A pandas DataFrame. A named index counts as a column; whole numbers that pandas holds as floats are read as such.

    Args:
        frame: the rows.
        name: what to call it in messages.
    """

    def __init__(self, frame: pd.DataFrame, name: str):
        self.name, self._labels = name, frame.index
        unnamed = [level for level, each in enumerate(frame.index.names) if each is None]
        if len(unnamed) < frame.index.nlevels:
            # levels without a name are row numbers, as groupby().apply() leaves them
            frame = frame.set_axis(frame.index.droplevel(unnamed)).reset_index(allow_duplicates=True)
        self._frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
        if not self._frame.columns.is_unique:
            twice = self._frame.columns[self._frame.columns.duplicated()]
            index = " (an index with a name counts as one)" if twice[0] in map(str, self._labels.names) else ""
            raise ValueError(f"{name} has several columns called {twice[0]!r}{index}; names must be unique")

    def columns(self) -> list[str]:
        return list(self._frame.columns)

    def row(self, number: int) -> str:
        return f"{self.name}, row {self._labels[number]}"

    def pieces(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        check_columns(self.name, self.columns(), columns)
        yield pd.DataFrame({name: _objects(self._frame[name]) for name in columns}).reset_index(drop=True)


def _objects(values: pd.Series) -> pd.Series:
    """Python objects; 5.0 becomes 5 where all are whole, for ids and classes with gaps are floats in pandas.

    Durations become days.
    """
    if values.dtype.kind == "m":
        values = values.astype("timedelta64[ns]") / pd.Timedelta(days=1)
    if values.dtype.kind == "c":
        raise ValueError(f"column {values.name!r} holds complex numbers; give real and imaginary part as two columns")
    if values.dtype.kind == "f":
        known = values.dropna().to_numpy(np.float64)
        if len(known) and (np.trunc(known) == known).all() and (np.abs(known) < 2**53).all():
            values = values.astype("Int64")
    return values.astype(object)


def check_file(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path")
    if not path.is_file():
        raise ValueError(f"{path} is not a file; expected a table, for example a CSV file")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty; expected a header line and one row per node or edge")


def check_columns(table: str, present: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise a ValueError for a column that is not there, with the most similar name."""
    for name in wanted:
        if name not in present:
            near = difflib.get_close_matches(name, present, 1, cutoff=0.6)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"{table} has no column {name!r}; {hint}it has {_listed(present)}")


def numbers(
    table: Table,
    values: pd.Series,
    column: str,
    first_row: int = 0,
    missing: bool = True,
    expected: str = "a finite number",
    most: float = np.finfo(np.float64).max,
) -> np.ndarray:
    """Convert to float64; an error names the first row with no number up to ``most``, or (unless ``missing``) none."""
    blank = is_missing(values)
    parsed = _as_numbers(values, blank).to_numpy()
    bad = (np.isnan(parsed) & ~blank.to_numpy()) | (np.abs(parsed) > most)
    if not missing:
        bad |= blank.to_numpy()
    if bad.any():
        at = int(bad.argmax())
        cell = values.iloc[at]
        found = "empty" if pd.isna(cell) or not str(cell).strip() else repr(str(cell))
        raise ValueError(f"{table.row(first_row + at)}: {column} is {found}; expected {expected}")
    return parsed


def is_missing(values: pd.Series) -> pd.Series:
    """Cells that are empty, hold white space alone, or a word for it."""
    found = values.isna() | values.isin(MISSING)
    if pd.api.types.is_numeric_dtype(values):
        return found
    return found | values.map(lambda cell: isinstance(cell, str) and cell.isspace()).astype(bool)


def _as_numbers(values: pd.Series, blank: pd.Series) -> pd.Series:
    """Float64, NaN where a cell is ``blank`` or no number; a column of True and False alone becomes ones and zeros."""
    parsed = pd.to_numeric(values.where(~blank, np.nan), errors="coerce").astype(np.float64)
    if bool((parsed.isna() & ~blank).any()) and bool(values[~blank].isin(YES_NO).all()):
        return values.map(YES_NO).astype(np.float64)
    return parsed


class _TurnedToText(Exception):
    """Columns that began as numbers hold a word."""

    def __init__(self, columns: set[str]):
        self.columns = columns


def _typed(chunk: pd.DataFrame, as_text: set[str], verbatim: str | None) -> pd.DataFrame:
    made: dict[str, Any] = {}
    turned = set()
    for name in chunk.columns:
        values = chunk[name]
        blank = values.isna() | (values == "") if name == verbatim else is_missing(values)
        if name in as_text:
            made[name] = values.where(~blank, None).map(str, na_action="ignore").astype(object)
            continue
        parsed = _as_numbers(values, blank)
        if bool((parsed.isna() & ~blank).any()):
            turned.add(name)
        made[name] = parsed
    if turned:  # all at once: a table with hundreds of columns of words would be read hundreds of times
        raise _TurnedToText(turned)
    return pd.DataFrame(made, columns=chunk.columns)


def name_list(names: Sequence[Any], most: int = 5) -> str:
    """Some names for a message, at most ``most`` of them."""
    names = list(names)
    return ", ".join(short(name) for name in names[:most]) + (", ..." if len(names) > most else "")


def short(value: Any) -> str:
    """A cell for a message; a page of text would hide what is said about it."""
    return repr(f"{value[:LONGEST]}...") if isinstance(value, str) and len(value) > LONGEST else repr(value)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(map(repr, names[:LISTED])) + more
