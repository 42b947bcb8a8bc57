"""Dates in tables: found by how they are written, and turned into columns of numbers."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from walksum.data.frames import Table, is_missing

ISO = "ISO8601"
DAYS = (
    (r"\d{4}/\d{1,2}/\d{1,2}", ("%Y/%m/%d",)),
    (r"\d{1,2}\.\d{1,2}\.\d{4}", ("%d.%m.%Y",)),
    (r"\d{1,2}/\d{1,2}/\d{4}", ("%d/%m/%Y", "%m/%d/%Y")),
    (r"\d{1,2}[ -][A-Za-z]{3}[ -]\d{4}", ("%d %b %Y", "%d-%b-%Y")),
)
TIMES = (("", ""), (r" \d{1,2}:\d{2}", " %H:%M"), (r" \d{1,2}:\d{2}:\d{2}", " %H:%M:%S"))
WRITTEN = [(re.compile(r"\d{4}-\d{2}(-\d{2})?([T ].*)?"), [ISO])]
WRITTEN += [(re.compile(day + time), [each + how for each in formats]) for day, formats in DAYS for time, how in TIMES]
SAMPLE = 5_000
YEAR = 365.2425  # days
PARTS = ("year", "month", "season sine", "season cosine", "weekday", "days")


def date_format(values: pd.Series) -> tuple[str, bool] | None:
    """Detect the date format of a column of text, and whether another one fits too; None if it holds no dates."""
    known = values[~is_missing(values)].astype(str).str.strip().drop_duplicates()[:SAMPLE]
    if not len(known):
        return None
    for shape, formats in WRITTEN:
        if shape.fullmatch(known.iloc[0]) and bool(known.str.fullmatch(shape).all()):
            fitting = [each for each in formats if not bool(_parsed(known, each).isna().any())]
            return (fitting[0], len(fitting) > 1) if fitting else None
    return None


def parse_dates(table: Table, values: pd.Series, column: str, how: str) -> pd.Series:
    """Parse dates; empty cells become missing, any other cell that is no date is an error that names its row."""
    blank = is_missing(values)
    found = _parsed(values.where(~blank, None), how)
    bad = (found.isna() & ~blank).to_numpy()
    if bad.any():
        at = int(bad.argmax())
        example = "2024-01-31" if how == ISO else pd.Timestamp(2024, 1, 31).strftime(how)
        raise ValueError(f"{table.row(at)}: {column} is {str(values.iloc[at])!r}; expected a date such as {example}")
    return found


def date_columns(name: str, dates: pd.Series) -> dict[str, np.ndarray]:
    """Columns of a date: year, month, season (sine and cosine), day of the week (Monday 0), days since 1970."""
    days = (dates - pd.Timestamp(0).as_unit("s")) / pd.Timedelta(days=1).as_unit("s")  # in ns years end in 2262
    angle = 2 * np.pi * (dates.dt.day_of_year - 1) / YEAR
    parts = (dates.dt.year, dates.dt.month, np.sin(angle), np.cos(angle), dates.dt.day_of_week, days)
    return {f"{name}: {part}": found.to_numpy(np.float64) for part, found in zip(PARTS, parts, strict=True)}


def _parsed(values: pd.Series, how: str) -> pd.Series:
    texts = values.map(lambda value: str(value).strip(), na_action="ignore")
    return pd.to_datetime(texts, format=how, errors="coerce", utc=True).dt.tz_localize(None)
