"""The user's own graph: a table of nodes and one of edges (files or DataFrames), GraphML or a PyG .pt -> Problem."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from walksum.data.dates import date_columns, date_format, parse_dates
from walksum.data.edges import EdgeColumns, Edges, end_names, first, read_edges, weight_notes
from walksum.data.files import load_pt, read_graphml
from walksum.data.numerals import Numerals, find_numerals
from walksum.data.places import Places, make_places
from walksum.data.problem import CLASSIFICATION, REGRESSION, Problem, from_data
from walksum.data.tables import FrameTable, OnRead, Table, as_table, check_columns, check_file, is_missing, numbers

ID_NAMES = ("id", "node", "node_id", "name")
SURE_IDS = ID_NAMES[:3]  # a name may be for people, and the ids another column
MANY_VALUES = 20  # distinct whole numbers from which a numeric target is a quantity rather than a class
SPLIT_WORDS = dict.fromkeys(("train", "training"), "train") | dict.fromkeys(("test", "testing"), "test")
SPLIT_WORDS |= dict.fromkeys(("val", "valid", "validation", "validate", "dev", "development"), "val")
SPLIT_NAMES = ("split", "set", "subset", "part", "partition", "fold")
LARGEST = 1e30  # of a target: float32 ends at 3e38, and errors are squared in units of its spread
DEGREE = "degree"  # the one feature of nodes that have none
COVERED = 0.5  # share of the ends of edges that a guessed id column must hold


@dataclass(frozen=True)
class Columns:
    """Which column holds what; None: found by its usual name, or not there.

    Attributes:
        name: shown beside the id, never learned from.
        time, group: what a split goes by.
        coordinates, knn: columns that say where a node lies; ``neighbours`` as in :class:`walksum.data.places.Places`.
        decimal, thousands: how numbers are written; None: as the cells show.
        add_unknown: nodes that only edges name are added, with empty cells.
        numeric, text, dates, places, numerals: what training found, for later tables.
    """

    target: str | None = None
    id: str | None = None
    edges: EdgeColumns = field(default_factory=EdgeColumns)
    features: tuple[str, ...] | None = None
    split: str | None = None
    task: str | None = None
    drop_unknown: bool = False
    add_unknown: bool = False
    name: str | None = None
    time: str | None = None
    group: str | None = None
    coordinates: tuple[str, ...] = ()
    knn: tuple[str, ...] = ()
    neighbours: int | str | None = None
    decimal: str | None = None
    thousands: str | None = None
    numeric: frozenset[str] = field(default_factory=frozenset)
    text: frozenset[str] = field(default_factory=frozenset)
    dates: dict[str, str] | None = None
    places: Places | None = None
    numerals: dict[str, str] = field(default_factory=dict)

    @property
    def place_columns(self) -> tuple[str, ...]:
        return self.places.columns if self.places is not None else self.coordinates or self.knn


def read_tables(
    nodes: Any, edges: Any, columns: Columns, encoding: str = "utf-8", on_read: OnRead | None = None
) -> Problem:
    """Nodes and edges from DataFrames or files; see :mod:`walksum.data.tables`.

    Args:
        nodes, edges: a DataFrame or the path of a file each. Without ``edges``, near rows are joined, as
            ``coordinates`` or ``knn`` say. Without ``nodes``, they are what the edges name.
        columns: which column holds what.
        encoding: of text files.
        on_read: see :class:`walksum.data.tables.FileTable`.
    """
    links = None if edges is None else as_table(edges, "edges", encoding, on_read)
    if nodes is None:
        assert links is not None
        nodes, columns = pd.DataFrame({"id": end_names(links, columns.edges)}, dtype=object), replace(columns, id="id")
    table = as_table(nodes, "nodes", encoding, on_read)
    frame, columns, notes = _read_nodes(table, columns, links)
    ids, frame = _take_ids(table, frame, columns.id)
    if links is None:
        found = Edges(torch.zeros(2, 0, dtype=torch.long), None, EdgeColumns(), [])
        return _problem(table, frame, ids, found, columns, notes)
    if columns.add_unknown:
        ids, frame, added = _with_unknown(ids, frame, links, columns.edges)
        notes += added
    found = read_edges(links, pd.Index(ids, dtype=object), columns.edges, columns.drop_unknown)
    return _problem(table, frame, ids, found, columns, notes + found.notes)


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


def _read_nodes(table: Table, columns: Columns, links: Table | None) -> tuple[pd.DataFrame, Columns, list[str]]:
    present, places = table.columns(), columns.place_columns
    roles = (columns.target, columns.id, columns.split, columns.name, columns.time, columns.group)
    named = [name for name in roles if name is not None]
    check_columns(table.name, present, [*named, *places, *(columns.features or ())])
    identity, notes = columns.id, list[str]()
    if identity is None:
        identity, notes = _find_id(table, present, columns, links)
    columns = replace(columns, id=identity)
    _one_use_each(columns)
    apart = [columns.id, columns.target, columns.split, columns.name, columns.group]
    kept = [name for name in apart if name is not None]  # none of them is learned from, unless a feature names it
    features = columns.features if columns.features is not None else [name for name in present if name not in kept]
    extra = [name for name in (columns.time, *places) if name is not None]
    wanted = list(dict.fromkeys([*kept, *extra, *features]))
    numerals = _numerals(table, wanted, columns)
    frame = table.frame(wanted, text=[*kept, *columns.text], verbatim=identity, numerals=numerals)
    if not len(frame):
        raise ValueError(f"{table.name} has a header but no rows; expected one row per node")
    for name in columns.numeric & set(frame.columns):
        if frame[name].dtype != np.float64:
            frame[name] = numbers(table, frame[name], name)  # says which row is not a number
    _refuse_infinity(table, frame)
    if columns.features is None:
        features, more = _without_split_words(frame, list(features), columns)
        notes += more
    return frame, replace(columns, features=tuple(features), numerals=numerals.marks), notes + numerals.notes()


def _find_id(table: Table, present: list[str], columns: Columns, links: Table | None) -> tuple[str | None, list[str]]:
    """The id column by its usual name, or the first of unique values that the edges name; None: rows are numbered."""
    taken = {columns.target, columns.split, columns.name, columns.time, columns.group, *columns.place_columns}
    free = [name for name in present if name not in taken | set(columns.features or ())]
    usual = next((name for name in free if name.lower() in ID_NAMES), None)
    if links is None or (usual is not None and usual.lower() in SURE_IDS):
        return usual, []
    named = end_names(links, columns.edges, some=True)
    covered = {name: _covered(table, name, named) for name in ([usual] if usual else []) + free}
    covered = {name: share for name, share in covered.items() if share >= COVERED}
    best = max(covered, key=lambda name: covered[name], default=None)  # of equals the first
    rows = len(next(iter(table.pieces(present[:1])), ()))
    numbered = np.mean([word.isdigit() and str(int(word)) == word and int(word) < rows for word in named] or [0])
    if best is None or (best != free[0] and best != usual and numbered >= covered[best]):
        if usual is None:
            return None, [f"{table.name} has no id column ({', '.join(ID_NAMES)}); nodes are numbered from 0"]
        return usual, []
    if best == usual:
        return usual, []
    return best, [f"{best!r} is taken as the id column: {links.name} names its values; pass id= to choose another"]


def _covered(table: Table, name: str, wanted: set[str]) -> float:
    """The share of ``wanted`` that the column holds; 0 where its values repeat or are missing."""
    sample = table.sample([name])[name]
    if not wanted or not sample.is_unique or bool(sample.isna().any()):
        return 0.0
    values = pd.concat([piece[name] for piece in table.pieces([name])], ignore_index=True)
    texts = set(values.map(str))
    return len(wanted & texts) / len(wanted) if len(texts) == len(values) else 0.0


def _numerals(table: Table, wanted: list[str], columns: Columns) -> Numerals:
    """How numbers of the columns are written: as in training where that is known, else as the first rows show."""
    apart = {columns.id, columns.split, columns.name, *columns.text}
    open_ = [name for name in wanted if name not in apart]
    sample = table.sample(open_) if open_ else pd.DataFrame()
    cells = {name: sample[name][~is_missing(sample[name])] for name in open_ if name not in columns.numerals}
    cells = {name: values for name, values in cells.items() if columns.target != name or columns.task != CLASSIFICATION}
    found = find_numerals(cells, columns.decimal, columns.thousands, table.semicolons)
    before = {name: mark for name, mark in columns.numerals.items() if name in open_}
    return replace(found, marks=found.marks | before, examples=found.examples)


def _without_split_words(frame: pd.DataFrame, features: list[str], columns: Columns) -> tuple[list[str], list[str]]:
    """Features without a column that says train, val or test of each row, which the user has not named."""
    for name in features:
        words = set() if frame[name].dtype == np.float64 else set(frame[name].dropna().str.strip().str.lower())
        if name.lower() in SPLIT_NAMES and words and words <= set(SPLIT_WORDS):
            note = f"column {name!r} says train and test: it is not learned from; pass split={name!r} to split by it"
            return [each for each in features if each != name], [note]
    return features, []


def _with_unknown(
    ids: np.ndarray, frame: pd.DataFrame, links: Table, columns: EdgeColumns
) -> tuple[np.ndarray, pd.DataFrame, list[str]]:
    new = end_names(links, columns)
    new = [name for name in new if name not in set(ids)]
    if not new:
        return ids, frame, []
    note = f"{len(new)} nodes are named by {links.name} alone ({first(new)}): added, with empty cells"
    return np.array([*ids, *new], dtype=object), frame.reindex(range(len(ids) + len(new))), [note]


def _one_use_each(columns: Columns) -> None:
    """Refuse a column in two uses: a target among the features would be given away."""
    given = [("target=", columns.target), ("id=", columns.id), ("split=", columns.split)]
    given += [("name_column=", columns.name)]
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
    empty = pd.Series([None] * len(ids), dtype=object)
    target = frame[columns.target] if columns.target is not None else empty
    split = _split_words(table, frame[columns.split]) if columns.split else None
    names = None if columns.name is None else frame[columns.name].fillna("").to_numpy(dtype=object)
    features = list(columns.features) if columns.features is not None else _other_columns(frame, columns)
    places, position = _places(table, frame, columns, joins=edges.columns.source is None)
    index, weight = edges.index, edges.weight
    if places is not None and places.joins:
        index, weight, _ = places.edges(position)
    y, classes, task = _read_target(table, target, columns.task)
    learned, dates, told = _with_dates(table, frame[features], columns.dates)
    notes = [*notes, *told]
    by_degree = not len(learned.columns)
    if by_degree:
        learned = pd.DataFrame({DEGREE: _log_degree(index, len(ids))})
        notes = [*notes, "no feature columns: the logarithm of a node's degree is used"]
    return Problem(
        name=table.name.split(".")[0],
        ids=ids,
        features=learned,
        edge_index=index,
        edge_weight=weight,
        y=y,
        task=task,
        classes=classes,
        target=columns.target or "prediction",
        columns={
            "id": columns.id,
            **asdict(edges.columns),
            "split": columns.split,
            "name": columns.name,
            "time": columns.time,
            "group": columns.group,
            "dates": dates,
            "numerals": columns.numerals,
            "places": None if places is None else asdict(places),
            DEGREE: by_degree,
        },
        given_split=split,
        names=names,
        time=None if columns.time is None else _times(table, frame[columns.time], columns.time),
        groups=None if columns.group is None else _groups(table, frame[columns.group], columns.group),
        places=places,
        position=position,
        notes=notes,
    )


def _other_columns(frame: pd.DataFrame, columns: Columns) -> list[str]:
    apart = {columns.target, columns.split, columns.name, columns.group}
    return [name for name in frame.columns if name not in apart]


def _places(table: Table, frame: pd.DataFrame, columns: Columns, joins: bool) -> tuple[Places | None, Any]:
    if not columns.place_columns:
        return None, None
    if columns.add_unknown:
        raise ValueError("add_unknown=True adds nodes that lie nowhere; leave it out, or coordinates= and knn=")
    values = np.stack([numbers(table, frame[name], name, missing=False) for name in columns.place_columns], 1)
    places = columns.places
    if places is None:
        coordinates = bool(columns.coordinates)
        if coordinates and columns.knn:
            raise ValueError("coordinates= and knn= were both given; places come from one of them")
        places = make_places(columns.place_columns, values, coordinates, columns.neighbours, joins)
        values = values[:, [columns.place_columns.index(name) for name in places.columns]]
    places = replace(places, joins=joins)
    return places, places.position(values)


def _with_dates(
    table: Table, frame: pd.DataFrame, known: dict[str, str] | None
) -> tuple[pd.DataFrame, dict[str, str], list[str]]:
    """Columns of dates replaced by columns of numbers; how each is written, and notes."""
    found, notes = dict(known or {}), list[str]()
    if known is None:
        for name in frame.columns:
            shape = None if frame[name].dtype == np.float64 else date_format(frame[name])
            if shape is None:
                continue
            found[name], unsure = shape
            notes.append(
                f"{name!r} holds dates: read as year, month, season, weekday and days"
                + (f"; {frame[name].dropna().iloc[0]!r} is read as {found[name]}: write 2024-01-31 to be sure" * unsure)
            )
    parts: dict[str, Any] = {}
    for name in frame.columns:
        if name in found:
            parts |= date_columns(name, parse_dates(table, frame[name], name, found[name]))
        else:
            parts[name] = frame[name]
    return (pd.DataFrame(parts, index=frame.index) if found else frame), found, notes


def _times(table: Table, values: pd.Series, name: str) -> np.ndarray:
    """Days of dates, numbers as they are; NaN where there is none."""
    shape = None if values.dtype == np.float64 else date_format(values)
    if shape is None:
        return numbers(table, values, name)
    return date_columns(name, parse_dates(table, values, name, shape[0]))[f"{name}: days"]


def _groups(table: Table, values: pd.Series, name: str) -> np.ndarray:
    """One number per group; nodes without one are each their own."""
    codes, _ = pd.factorize(values.where(~is_missing(values), None))
    alone = codes < 0
    codes[alone] = codes.max(initial=-1) + 1 + np.arange(alone.sum())
    return codes


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
