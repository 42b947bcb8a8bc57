"""Reading tables from files of many kinds, with messages a person can act on.

CSV, TSV (plain or gzipped) and Parquet are read in chunks, so that a file of gigabytes needs no more memory than what
is kept of it; JSON lines, Feather and Excel are read whole.
"""

from __future__ import annotations

import csv
import gzip
import importlib.util
import json
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from walksum.data.frames import FrameTable, Table, check_columns, check_file

CHUNK = 2_000_000  # cells in one piece
FEWEST = 1_000  # rows in one piece, at least
LARGE = 16 * 2**20  # bytes from which reading reports progress
GZIP = b"\x1f\x8b"
OTHER_KINDS = {  # how files begin that are often found under the name of a text table
    b"pk\x03\x04": "an Excel file or another zip archive; name it .xlsx, or save it as CSV",
    b"\xd0\xcf\x11\xe0": "an old Excel file; save it as .xlsx or as CSV",
    b"par1": "Parquet; name it .parquet",
    b"arrow1": "Feather; name it .feather",
    GZIP: "a gzipped file; name it .csv.gz",
    b'{"': "JSON lines; name it .jsonl",
    b"[{": "JSON; name it .json",
    b"<!doctype": "a web page; download the table itself",
    b"<html": "a web page; download the table itself",
    b"<?xml": "XML; a graph as GraphML goes to graph=",
}

OnRead = Callable[[str, int, int], None]  # file name, bytes read, bytes in all


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
            header = next(self._chunks(None, rows=1, header=None)).iloc[0]
            twice = header[header.duplicated() & (header != "")]
            if len(twice):  # pandas would call the second y.1, and a model learn the target from it
                raise ValueError(f"{self.name} has several columns called {twice.iloc[0]!r}; names must be unique")
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

    def _chunks(self, columns: Sequence[str] | None, rows: int, header: Any = "infer") -> Iterator[pd.DataFrame]:
        path, size = self.path, self.path.stat().st_size
        with path.open("rb") as raw:
            stream: Any = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            chunks = pd.read_csv(
                stream,
                sep=_separator(path, self.encoding),
                header=header,
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
            # one batch without and one with empty cells would write a number 5 and 5.0; pandas' metadata would make
            # an index of a column again
            yield batch.to_pandas(integer_object_nulls=True, ignore_metadata=True)[list(columns)].astype(object)
            done += batch.num_rows
            if self.on_read is not None and size >= LARGE:
                self.on_read(self.name, size * done // max(1, file.metadata.num_rows), size)


def as_table(source: Any, name: str, encoding: str = "utf-8", on_read: OnRead | None = None) -> Table:
    """A table from a DataFrame, or from the path of a file; ``name`` is the argument's, for messages."""
    if isinstance(source, pd.DataFrame):
        return FrameTable(source, name)
    if isinstance(source, str | os.PathLike):
        return FileTable(Path(source), encoding, on_read)
    raise ValueError(f"{name} is a {type(source).__name__}; expected a pandas DataFrame or the path of a file")


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
    """Tab for .tsv; else the one of , ; tab | that the header line holds most of."""
    if ".tsv" in path.suffixes:
        return "\t"
    with path.open("rb") as raw:
        stream: Any = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        header = stream.readline().decode(encoding, "replace")
    return max(",;\t|", key=header.count)


def _refuse_other_kinds(path: Path) -> None:
    """A file of another kind under the name of a text table would be read as one column without meaning."""
    with path.open("rb") as file:
        start = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()
    for mark, kind in OTHER_KINDS.items():
        if start.lower().startswith(mark) and not (mark == GZIP and path.suffix == ".gz"):
            raise ValueError(f"{path.name} is not a text table: it begins like {kind}")


@contextmanager
def _explained(path: Path, encoding: str) -> Iterator[None]:
    """What can go wrong inside a text file, in words."""
    check_file(path)
    _refuse_other_kinds(path)
    try:
        yield
    except UnicodeError as error:
        what = "byte " + hex(error.object[error.start]) if isinstance(error, UnicodeDecodeError) else str(error)
        with path.open("rb") as file:
            likely = "utf-16" if file.read(2) in (b"\xff\xfe", b"\xfe\xff") else "latin-1"
        raise ValueError(
            f"{path.name} is not {encoding} text ({what}); save it as UTF-8, or name its encoding, "
            f"for example encoding={likely!r}"
        ) from error
    except LookupError as error:
        if "encoding" not in str(error):
            raise
        raise ValueError(f"encoding {encoding!r} is unknown; for example utf-8 or latin-1") from error
    except pd.errors.EmptyDataError as error:
        raise ValueError(f"{path} is empty; expected a header line and one row per node or edge") from error
    except (pd.errors.ParserError, csv.Error, zlib.error, gzip.BadGzipFile, EOFError) as error:
        raise ValueError(f"{path.name} is not a readable table: {str(error).strip()}") from error


def _read_json_lines(path: Path, encoding: str) -> pd.DataFrame:
    """One object per line, or one list of objects."""
    try:
        text = path.read_text(encoding)
        rows = json.loads(text) if text.lstrip().startswith("[") else [json.loads(x) for x in text.splitlines() if x]
    except UnicodeError as error:
        raise ValueError(f"{path.name} is not {encoding} text; name its encoding") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not JSON with one object per line: {error}") from error
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f'{path.name} holds no rows; expected one JSON object per line, such as {{"id": 1}}')
    flat = pd.DataFrame(rows, dtype=object)
    nested = [name for name in flat.columns if bool(flat[name].map(lambda cell: isinstance(cell, list | dict)).any())]
    if nested:
        raise ValueError(f"{path.name}: {nested[0]!r} holds lists or objects; expected one value per cell")
    return flat


def _read_feather(path: Path, encoding: str) -> pd.DataFrame:
    try:
        import pyarrow
        import pyarrow.feather as feather
    except ImportError as error:
        raise ValueError(f"{path} is Feather, which needs pyarrow: pip install 'walksum[parquet]'") from error
    try:
        return feather.read_table(path).to_pandas()
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} is not a readable Feather file: {error}") from error


def _read_excel(path: Path, encoding: str) -> pd.DataFrame:
    if importlib.util.find_spec("openpyxl") is None:
        raise ValueError(f"{path} is Excel, which needs openpyxl: pip install openpyxl")
    try:
        return pd.read_excel(path, dtype=object, keep_default_na=False, engine="openpyxl")
    except (ValueError, KeyError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a readable Excel file: {error}; save it as .xlsx or as CSV") from error


WHOLE = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), _read_json_lines),
    **dict.fromkeys((".feather", ".arrow"), _read_feather),
    **dict.fromkeys((".xlsx", ".xls"), _read_excel),
}
