"""Reading tables: CSV, TSV (plain or gzipped) and Parquet, in pieces, with messages a person can act on.

A table is read in chunks, so that a file of gigabytes needs no more memory than what is kept of it. A column is numbers
until a row holds something else; then the file is read again with that column as text.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

CHUNK = 2_000_000  # cells a piece
FEWEST = 1_000  # rows a piece at least
LARGE = 16 * 2**20  # bytes from which reading reports progress
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")

OnRead = Callable[[str, int, int], None]  # file name, bytes read, bytes in all


@dataclass(frozen=True)
class Reader:
    """How files are read: the encoding of text files, and whom to tell about progress."""

    encoding: str = "utf-8"
    on_read: OnRead | None = None

    def columns(self, path: Path) -> list[str]:
        """The header of a table."""
        if _is_parquet(path):
            return [str(name) for name in _parquet(path).schema_arrow.names]
        with _explained(path, self.encoding):
            return list(next(self._chunks(path, None, rows=1)).columns)

    def frame(self, path: Path, columns: Sequence[str], text: Sequence[str], verbatim: str | None) -> pd.DataFrame:
        """The named columns: float64 where every value is a number or missing, text otherwise and for ``text``.

        In the column ``verbatim`` only an empty cell is missing: a node may be called NA.
        """
        as_text = set(text)
        while True:
            try:
                parts = [_typed(chunk, as_text, verbatim) for chunk in self.pieces(path, columns)]
                return pd.concat(parts, ignore_index=True)
            except _TurnedToText as column:  # rare: a number for thousands of rows, then a word
                as_text.add(str(column))

    def pieces(self, path: Path, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        """The named columns, all as text with None where missing, a chunk at a time."""
        check_columns(path, self.columns(path), columns)
        if _is_parquet(path):
            yield from self._parquet_pieces(path, columns)
            return
        with _explained(path, self.encoding):
            yield from self._chunks(path, columns, _rows(columns))

    def _chunks(self, path: Path, columns: Sequence[str] | None, rows: int) -> Iterator[pd.DataFrame]:
        size = path.stat().st_size
        with path.open("rb") as raw:
            stream: Any = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            chunks = pd.read_csv(
                stream,
                sep=_separator(path, self.encoding),
                dtype=object,
                keep_default_na=False,
                encoding=self.encoding,
                skipinitialspace=True,
                chunksize=rows,
            )
            with chunks:
                for chunk in chunks:
                    if not isinstance(chunk.index, pd.RangeIndex):  # pandas took the first cells for row names
                        raise ValueError(f"{path.name}: its rows have more cells than its header has names")
                    yield chunk if columns is None else chunk[list(columns)]
                    if self.on_read is not None and size >= LARGE:
                        self.on_read(path.name, min(raw.tell(), size), size)

    def _parquet_pieces(self, path: Path, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        file, size, done = _parquet(path), path.stat().st_size, 0
        for batch in file.iter_batches(_rows(columns), columns=list(columns)):
            yield batch.to_pandas()[list(columns)].astype(object)
            done += batch.num_rows
            if self.on_read is not None and size >= LARGE:
                self.on_read(path.name, size * done // max(1, file.metadata.num_rows), size)


def check_file(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path")
    if not path.is_file():
        raise ValueError(f"{path} is not a file; expected a CSV, TSV or Parquet table")
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty; expected a header line and one row a node or edge")


def check_columns(path: Path, present: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse names the table has not, with the nearest one it has."""
    for name in wanted:
        if name not in present:
            near = difflib.get_close_matches(name, present, 1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"{path.name} has no column {name!r}; {hint}it has {_listed(present)}")


def numbers(path: Path, values: pd.Series, column: str, first_row: int = 2, missing: bool = True) -> np.ndarray:
    """float64 values; an error with the first row that is not a number, or (unless ``missing``) has none."""
    blank = is_missing(values)
    parsed = pd.to_numeric(values.where(~blank), errors="coerce").to_numpy(dtype=np.float64)
    bad = (np.isnan(parsed) & ~blank.to_numpy()) | np.isinf(parsed)
    if not missing:
        bad |= blank.to_numpy()
    if bad.any():
        at = int(bad.argmax())
        raise ValueError(
            f"{path.name}, line {first_row + at}: {column} is {str(values.iloc[at])!r}; expected a finite number"
        )
    return parsed


def is_missing(values: pd.Series) -> pd.Series:
    return values.isna() | values.isin(MISSING)


class _TurnedToText(Exception):
    """A column that began as numbers holds a word."""


def _typed(chunk: pd.DataFrame, as_text: set[str], verbatim: str | None) -> pd.DataFrame:
    made: dict[str, Any] = {}
    for name in chunk.columns:
        values = chunk[name]
        blank = values.isna() | (values == "") if name == verbatim else is_missing(values)
        if name in as_text:
            made[name] = values.where(~blank, None).map(str, na_action="ignore").astype(object)
            continue
        parsed = pd.to_numeric(values.where(~blank, np.nan), errors="coerce").astype(np.float64)
        if bool((parsed.isna() & ~blank).any()):
            raise _TurnedToText(name)
        made[name] = parsed
    return pd.DataFrame(made, columns=chunk.columns)


def _rows(columns: Sequence[str]) -> int:
    return max(FEWEST, CHUNK // max(1, len(columns)))


def _is_parquet(path: Path) -> bool:
    return path.suffix in (".parquet", ".pq")


def _parquet(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ValueError(f"{path} is Parquet, which needs pyarrow: pip install 'walksum[parquet]'") from error
    check_file(path)
    try:
        return parquet.ParquetFile(path)
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} is not a readable Parquet file: {error}") from error


def _separator(path: Path, encoding: str) -> str:
    """Tab for .tsv; else the one of , ; tab that the header line holds most of."""
    if ".tsv" in path.suffixes:
        return "\t"
    with path.open("rb") as raw:
        stream: Any = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        header = stream.readline().decode(encoding, "replace")
    return max(",;\t", key=header.count)


class _explained:
    """What can go wrong inside a text file, in words."""

    def __init__(self, path: Path, encoding: str):
        check_file(path)
        self.path, self.encoding = path, encoding

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        path = self.path
        if isinstance(error, UnicodeError):
            what = "byte " + hex(error.object[error.start]) if isinstance(error, UnicodeDecodeError) else str(error)
            likely = "utf-16" if _begins(path, b"\xff\xfe", b"\xfe\xff") else "latin-1"
            raise ValueError(
                f"{path.name} is not {self.encoding} text ({what}); save it as UTF-8, or name its encoding, "
                f"for example --encoding {likely}"
            ) from error
        if isinstance(error, LookupError) and "encoding" in str(error):
            raise ValueError(f"encoding {self.encoding!r} is unknown; for example utf-8 or latin-1") from error
        if isinstance(error, pd.errors.EmptyDataError):
            raise ValueError(f"{path} is empty; expected a header line and one row a node or edge") from error
        if isinstance(error, pd.errors.ParserError | csv.Error | zlib.error | gzip.BadGzipFile | EOFError):
            raise ValueError(f"{path.name} is not a readable table: {str(error).strip()}") from error


def _begins(path: Path, *marks: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(2) in marks


def _listed(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
