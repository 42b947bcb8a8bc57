"""The user's own graph: a table of nodes and one of edges (files or DataFrames), GraphML or a PyG .pt -> Problem."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from walksum.data.edges import EdgeColumns, Edges, first, read_edges, weight_notes
from walksum.data.files import load_pt, read_graphml
from walksum.data.problem import CLASSIFICATION, REGRESSION, Problem, from_data
from walksum.data.tables import FrameTable, OnRead, Table, as_table, check_columns, check_file, is_missing, numbers

ID_NAMES = ("id", "node", "node_id", "name")
MANY_VALUES = 20  # distinct whole numbers from which a numeric target is a quantity rather than a class
SPLIT_WORDS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
COMMA = re.compile(r"[+-]?\d+,\d+$")
LARGEST = 1e30  # of a target: float32 ends at 3e38, and errors are squared in units of its spread
DEGREE = "degree"  # the one feature of nodes that have none


@dataclass(frozen=True)
class Columns:
    """Which column holds what; None: found by its usual name."""

    target: str | None = None
    id: str | None = None
    edges: EdgeColumns = field(default_factory=EdgeColumns)
    features: tuple[str, ...] | None = None
    split: str | None = None
    task: str | None = None
    drop_unknown: bool = False
    numeric: frozenset[str] = field(default_factory=frozenset)  # must be numbers: they were in training
    text: frozenset[str] = field(default_factory=frozenset)  # must stay text


def read_tables(
    nodes: Any, edges: Any, columns: Columns, encoding: str = "utf-8", on_read: OnRead | None = None
) -> Problem:
    """Nodes and edges from DataFrames, or from CSV, TSV or Parquet files.

    Args:
        nodes, edges: a DataFrame or the path of a file each.
        columns: which column holds what.
        encoding: of text files.
        on_read: see :class:`walksum.data.tables.FileTable`.
    """
    table = as_table(nodes, "nodes", encoding, on_read)
    frame, columns = _read_nodes(table, columns)
    ids, frame = _take_ids(table, frame, columns.id)
    index = pd.Index(ids, dtype=object)
    found = read_edges(as_table(edges, "edges", encoding, on_read), index, columns.edges, columns.drop_unknown)
    notes = found.notes
    if columns.id is None:
        notes = [f"{table.name} has no id column ({', '.join(ID_NAMES)}); nodes are numbered from 0", *notes]
    return _problem(table, frame, ids, found, columns, notes)


def read_graph(path: Path, columns: Columns) -> Problem:
    """One file that holds it all: GraphML, or PyG's Data saved by torch.save."""
    check_file(path)
    if path.suffix == ".pt":
        return from_data(path.stem, load_pt(path))
    if path.suffix != ".graphml":
        raise ValueError(f"{path} is neither .graphml nor .pt; give tables by nodes= and edges=")
    texts = frozenset(name for name in (columns.target, columns.split) if name is not None) | columns.text
    frame, ends = read_graphml(path, texts)
    table = FrameTable(frame, path.name)
    ids, frame = _take_ids(table, frame, "id")
    check_columns(path.name, list(frame.columns), [*texts, *(columns.features or ())])
    _one_use_each(columns)
    found = _graphml_edges(path, ends, ids, columns.edges)
    return _problem(table, frame, ids, found, replace(columns, id="id"), found.notes)


def _read_nodes(table: Table, columns: Columns) -> tuple[pd.DataFrame, Columns]:
    present = table.columns()
    named = [name for name in (columns.target, columns.id, columns.split) if name is not None]
    check_columns(table.name, present, [*named, *(columns.features or ())])
    taken = (columns.target, columns.split, *(columns.features or ()))
    free = (name for name in present if name.lower() in ID_NAMES and name not in taken)
    identity = columns.id or next(free, None)
    columns = replace(columns, id=identity)
    _one_use_each(columns)
    used = [name for name in (identity, columns.target, columns.split) if name is not None]
    features = columns.features if columns.features is not None else [name for name in present if name not in used]
    wanted = [*used, *(name for name in features if name not in used)]
    frame = table.frame(wanted, text=[*used, *columns.text], verbatim=identity)
    if not len(frame):
        raise ValueError(f"{table.name} has a header but no rows; expected one row per node")
    for name in columns.numeric & set(frame.columns):
        if frame[name].dtype != np.float64:
            frame[name] = numbers(table, frame[name], name)  # says which row is not a number
    _refuse_infinity(table, frame)
    return frame, columns


def _one_use_each(columns: Columns) -> None:
    """Refuse a column in two uses: a target among the features would be given away."""
    given = [("target=", columns.target), ("id=", columns.id), ("split=", columns.split)]
    given += [("features=", name) for name in columns.features or ()]
    seen: dict[str, str] = {}
    for argument, name in given:
        if name is None:
            continue
        if name in seen:
            raise ValueError(f"{seen[name]} and {argument} both name the column {name!r}; use a column for one thing")
        seen[name] = argument


def _refuse_infinity(table: Table, frame: pd.DataFrame) -> None:
    values = frame.select_dtypes(np.float64)
    bad = np.isinf(values.to_numpy())
    if bad.any():
        row, column = map(int, np.argwhere(bad)[0])
        raise ValueError(f"{table.row(row)}: {values.columns[column]} is infinite; expected a finite number")


def _take_ids(table: Table, frame: pd.DataFrame, name: str | None) -> tuple[np.ndarray, pd.DataFrame]:
    if name is None:
        return np.arange(len(frame)).astype(str).astype(object), frame
    ids = frame[name]
    if bool(ids.isna().any()):
        raise ValueError(f"{table.row(int(ids.isna().argmax()))}: {name} is empty; every node needs an id")
    twice = ids[ids.duplicated()]
    if len(twice):
        raise ValueError(f"{table.name}: {len(twice)} rows repeat an id: {first(twice.unique())}; ids must be unique")
    return ids.to_numpy(dtype=object), frame.drop(columns=name)


def _problem(
    table: Table, frame: pd.DataFrame, ids: np.ndarray, edges: Edges, columns: Columns, notes: list[str]
) -> Problem:
    if columns.target is not None:
        check_columns(table.name, list(frame.columns), [columns.target])
    target = frame.pop(columns.target) if columns.target is not None else pd.Series([None] * len(ids), dtype=object)
    split = _split_words(table, frame.pop(columns.split)) if columns.split else None
    if columns.features is not None:
        frame = frame[list(columns.features)]
    y, classes, task = _read_target(table, target, columns.task)
    notes = [*notes, *_decimal_commas(frame, target)]
    by_degree = not len(frame.columns)
    if by_degree:
        frame = pd.DataFrame({DEGREE: _log_degree(edges.index, len(ids))})
        notes = [*notes, "no feature columns: the logarithm of a node's degree is used"]
    return Problem(
        name=table.name.split(".")[0],
        ids=ids,
        features=frame,
        edge_index=edges.index,
        edge_weight=edges.weight,
        y=y,
        task=task,
        classes=classes,
        target=columns.target or "prediction",
        columns={"id": columns.id, **asdict(edges.columns), "split": columns.split, DEGREE: by_degree},
        given_split=split,
        notes=notes,
    )


def _graphml_edges(path: Path, ends: pd.DataFrame, ids: np.ndarray, columns: EdgeColumns) -> Edges:
    index = pd.Index(ids, dtype=object)
    pairs = np.stack([index.get_indexer(ends[end].astype(object)) for end in ("source", "target")])
    name = columns.weight or ("weight" if "weight" in ends else None)
    if name is None:
        return Edges(torch.from_numpy(pairs).long(), None, EdgeColumns("source", "target"), [])
    check_columns(path.name, list(ends.columns), [name])
    values = numbers(FrameTable(ends, path.name), ends[name], name, missing=False).astype(np.float32)
    weight = torch.from_numpy(values)
    notes = weight_notes(path.name, name, weight)
    return Edges(torch.from_numpy(pairs).long(), weight, EdgeColumns("source", "target", name), notes)


def _decimal_commas(frame: pd.DataFrame, target: pd.Series) -> list[str]:
    """Columns that are text only because their numbers are written 1,5."""
    texts = {**{str(name): frame[name] for name in frame.columns}, str(target.name): target}
    known = {name: values[~is_missing(values)] for name, values in texts.items() if values.dtype != np.float64}
    found = [name for name, words in known.items() if len(words) and bool(words.astype(str).str.match(COMMA).all())]
    if not found:
        return []
    return [f"{first(found)}: numbers with a decimal comma are read as text; write 1.5, not 1,5"]


def _read_target(table: Table, values: pd.Series, task: str | None) -> tuple[Tensor, list[str], str]:
    """Classes, in the order of numbers where all are numbers; or quantities."""
    known = values[~is_missing(values)].astype(str)
    as_number = pd.to_numeric(known, errors="coerce")
    if task is None:
        task = REGRESSION if len(known) and _looks_like_a_quantity(as_number) else CLASSIFICATION
    if task == REGRESSION:
        bad = ~(as_number.abs() <= LARGEST)
        if bool(bad.any()):
            at = bad.idxmax()
            raise ValueError(
                f"{table.row(int(at))}: the target is {known[at]!r}; regression needs finite numbers up to {LARGEST:g}"
            )
        y = np.full(len(values), np.nan, np.float32)
        y[known.index] = as_number.to_numpy(np.float32)
        return torch.from_numpy(y), [], REGRESSION
    order = known.unique()
    classes = sorted(order) if bool(as_number.isna().any()) else sorted(order, key=float)
    codes = np.full(len(values), -1, np.int64)
    codes[known.index] = pd.Index(classes, dtype=object).get_indexer(known.astype(object))
    return torch.from_numpy(codes), list(classes), CLASSIFICATION


def _looks_like_a_quantity(numbers: pd.Series) -> bool:
    if bool(numbers.isna().any()):
        return False
    return bool((numbers % 1 != 0).any()) or numbers.nunique() > MANY_VALUES


def _split_words(table: Table, values: pd.Series) -> np.ndarray:
    words = values.map(lambda word: None if word is None else SPLIT_WORDS.get(str(word).strip().lower(), word))
    unknown = [word for word in words.dropna().unique() if word not in SPLIT_WORDS.values()]
    if unknown:
        raise ValueError(f"{table.name}: the split column holds {first(unknown)}; expected train, val, test or nothing")
    return words.to_numpy(dtype=object)


def _log_degree(edge_index: Tensor, num_nodes: int) -> np.ndarray:
    return np.log1p(torch.bincount(edge_index.flatten(), minlength=num_nodes).numpy().astype(np.float64))
