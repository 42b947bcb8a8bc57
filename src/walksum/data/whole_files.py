"""Tables in files that are read at once: JSON lines, Feather and Excel."""

from __future__ import annotations

import importlib.util
import json
import zipfile
from pathlib import Path

import pandas as pd


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
