"""Reading tables, in pieces, with messages a person can act on: files of many kinds, and DataFrames.

CSV, TSV (plain or gzipped) and Parquet are read in chunks, so that a file of gigabytes needs no more memory than what
is kept of it; JSON lines, Feather and Excel are read whole. A column is numbers until a row holds something else; then
the table is read again with that column as text.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from walksum.data.numerals import Numerals
from walksum.data.whole_files import WHOLE

CHUNK = 2_000_000  # cells in one piece
FEWEST = 1_000  # rows in one piece, at least
SAMPLE = 5_000  # rows that show how a column is written
LARGE = 16 * 2**20  # bytes from which reading reports progress
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")

OnRead = Callable[[str, int, int], None]  # file name, bytes read, bytes in all


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
        """Where row ``number`` (from 0 on) stands, in words."""

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
            except _TurnedToText as column:  # rare: a number for thousands of rows, then a word
                as_text.add(str(column))
                marked.discard(str(column))


class FileTable(Table):
    """A file, its kind known by its name: CSV, TSV (plain or gzipped), Parquet, Feather, JSON lines or Excel.

    Args:
        path: the file.
        encoding: of a text file.
        on_read: called with the file's name, the bytes read and the bytes in all while a large file is read.
    """

    def __init__(self, path: Path, encoding: str = "utf-8", on_read: OnRead | None = None):
        self.path, self.name, self.encoding, self.on_read = path, path.name, encoding, on_read

    @property
    def semicolons(self) -> bool:  # type: ignore[override]
        return self._whole is None and not _is_parquet(self.path) and _separator(self.path, self.encoding) == ";"

    @cached_property
    def _whole(self) -> FrameTable | None:
        """A file of a kind that is read at once."""
        read = WHOLE.get(self.path.suffix.lower())
        if read is None:
            return None
        check_file(self.path)
        return FrameTable(read(self.path, self.encoding), self.name)

    def columns(self) -> list[str]:
        check_file(self.path)
        if self._whole is not None:
            return self._whole.columns()
        if _is_parquet(self.path):
            return [str(name) for name in _parquet(self.path).schema_arrow.names]
        with _explained(self.path, self.encoding):
            return list(next(self._chunks(None, rows=1)).columns)

    def row(self, number: int) -> str:
        return f"{self.name}, line {number + 2}"  # after the header, counted from 1

    def pieces(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        check_columns(self.name, self.columns(), columns)
        if self._whole is not None:
            yield from self._whole.pieces(columns)
            return
        if _is_parquet(self.path):
            yield from self._parquet_pieces(columns)
            return
        with _explained(self.path, self.encoding):
            yield from self._chunks(columns, _rows(columns))

    def _chunks(self, columns: Sequence[str] | None, rows: int) -> Iterator[pd.DataFrame]:
        path, size = self.path, self.path.stat().st_size
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

    def _parquet_pieces(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        file, size, done = _parquet(self.path), self.path.stat().st_size, 0
        for batch in file.iter_batches(_rows(columns), columns=list(columns)):
            yield batch.to_pandas()[list(columns)].astype(object)
            done += batch.num_rows
            if self.on_read is not None and size >= LARGE:
                self.on_read(self.name, size * done // max(1, file.metadata.num_rows), size)


class FrameTable(Table):
    """A pandas DataFrame. A named index counts as a column; whole numbers that pandas holds as floats are read as such.

    Args:
        frame: the rows.
        name: what to call it in messages.
    """

    def __init__(self, frame: pd.DataFrame, name: str):
        self.name, self._labels = name, frame.index
        if any(each is not None for each in frame.index.names):
            frame = frame.reset_index()
        self._frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
        if not self._frame.columns.is_unique:
            twice = self._frame.columns[self._frame.columns.duplicated()]
            raise ValueError(f"{name} has several columns called {twice[0]!r}; names must be unique")

    def columns(self) -> list[str]:
        return list(self._frame.columns)

    def row(self, number: int) -> str:
        return f"{self.name}, row {self._labels[number]}"

    def pieces(self, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        check_columns(self.name, self.columns(), columns)
        yield pd.DataFrame({name: _objects(self._frame[name]) for name in columns}).reset_index(drop=True)


def as_table(source: Any, name: str, encoding: str = "utf-8", on_read: OnRead | None = None) -> Table:
    """A table from a DataFrame, or from the path of a file; ``name`` is the argument's, for messages."""
    if isinstance(source, pd.DataFrame):
        return FrameTable(source, name)
    if isinstance(source, str | os.PathLike):
        return FileTable(Path(source), encoding, on_read)
    raise ValueError(f"{name} is a {type(source).__name__}; expected a pandas DataFrame or the path of a file")


def _objects(values: pd.Series) -> pd.Series:
    """Python objects; 5.0 becomes 5 where all are whole, for ids and classes with gaps are floats in pandas."""
    if values.dtype.kind == "f":
        known = values.dropna()
        if len(known) and bool((known % 1 == 0).all()) and bool((known.abs() < 2**53).all()):
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
    """Refuse names the table has not, with the nearest one it has."""
    for name in wanted:
        if name not in present:
            near = difflib.get_close_matches(name, present, 1, cutoff=0.6)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"{table} has no column {name!r}; {hint}it has {_listed(present)}")


def numbers(table: Table, values: pd.Series, column: str, first_row: int = 0, missing: bool = True) -> np.ndarray:
    """float64 values; an error with the first row that is not a number, or (unless ``missing``) has none."""
    blank = is_missing(values)
    parsed = pd.to_numeric(values.where(~blank), errors="coerce").to_numpy(dtype=np.float64)
    bad = (np.isnan(parsed) & ~blank.to_numpy()) | np.isinf(parsed)
    if not missing:
        bad |= blank.to_numpy()
    if bad.any():
        at = int(bad.argmax())
        raise ValueError(f"{table.row(first_row + at)}: {column} is {str(values.iloc[at])!r}; expected a finite number")
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
                f"for example encoding={likely!r}"
            ) from error
        if isinstance(error, LookupError) and "encoding" in str(error):
            raise ValueError(f"encoding {self.encoding!r} is unknown; for example utf-8 or latin-1") from error
        if isinstance(error, pd.errors.EmptyDataError):
            raise ValueError(f"{path} is empty; expected a header line and one row per node or edge") from error
        if isinstance(error, pd.errors.ParserError | csv.Error | zlib.error | gzip.BadGzipFile | EOFError):
            raise ValueError(f"{path.name} is not a readable table: {str(error).strip()}") from error


def _begins(path: Path, *marks: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(2) in marks


def _listed(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
