"""The user's own graph: a table of nodes and one of edges (files or DataFrames), GraphML or a PyG .pt -> Problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from walksum.data.dates import date_columns, date_format, parse_dates
from walksum.data.edges import EdgeColumns, Edges, end_names, read_edges, weight_notes
from walksum.data.files import load_pt, read_graphml
from walksum.data.frames import FrameTable, Table, check_columns, check_file, is_missing, name_list, numbers
from walksum.data.node_table import SPLIT_WORDS, Columns, check_one_use_each, meant_as_numbers, read_nodes
from walksum.data.places import Places, make_places
from walksum.data.problem import CLASSIFICATION, REGRESSION, Problem, from_data
from walksum.data.tables import OnRead, as_table

MANY_VALUES = 20  # distinct whole numbers from which a numeric target is a quantity rather than a class
FAR = 10  # ranges of a column's other values beyond which a number is a code rather than a measurement
MOST_LOST = 1e-3  # of a target's standard deviation, by rounding
LARGEST = 1e30  # of a target: float32 ends at 3e38, and errors are squared in units of its spread
DEGREE = "degree"  # the one feature of nodes that have none


def read_tables(
    nodes: Any, edges: Any, columns: Columns, encoding: str = "utf-8", on_read: OnRead | None = None
) -> Problem:
    """Read nodes and edges from DataFrames or files; see :mod:`walksum.data.tables`.

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
    frame, columns, notes = read_nodes(table, columns, links)
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
    """Read a graph from one file: GraphML, or PyG's Data saved by torch.save."""
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
    check_one_use_each(columns)
    found = _graphml_edges(path, ends, ids, columns.edges)
    return _problem(table, frame, ids, found, replace(columns, id="id"), found.notes)


def _with_unknown(
    ids: np.ndarray, frame: pd.DataFrame, links: Table, columns: EdgeColumns
) -> tuple[np.ndarray, pd.DataFrame, list[str]]:
    known = set(ids)
    new = [name for name in end_names(links, columns) if name not in known]
    if not new:
        return ids, frame, []
    note = f"{len(new)} nodes are named by {links.name} alone ({name_list(new)}): added, with empty cells"
    return np.array([*ids, *new], dtype=object), frame.reindex(range(len(ids) + len(new))), [note]


def _take_ids(table: Table, frame: pd.DataFrame, name: str | None) -> tuple[np.ndarray, pd.DataFrame]:
    if name is None:
        return np.arange(len(frame)).astype(str).astype(object), frame
    ids = frame[name]
    if bool(ids.isna().any()):
        raise ValueError(f"{table.row(int(ids.isna().argmax()))}: {name} is empty; every node needs an id")
    twice = ids[ids.duplicated()]
    if len(twice):
        repeated = name_list(twice.unique())
        raise ValueError(f"{table.name}: {len(twice)} rows repeat an id: {repeated}; ids must be unique")
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
    given = _features(frame, columns)
    places, position = _places(table, frame, columns, joins=edges.columns.source is None)
    index, weight = edges.index, edges.weight
    if places is not None and places.joins:
        index, weight, _ = places.edges(position)
    said, learns = list(notes), columns.dates is None  # a run knows how its dates are written, and learns nothing more
    y, classes, task = _read_target(table, target, columns.task, learns)
    if learns:
        said += _on_case(classes) + _on_codes(given)
        said += _on_counters(given.drop(columns=[*columns.place_columns], errors="ignore"))
    learned, dates, date_notes = _with_dates(table, given, columns.dates)
    groups, group_notes = (None, []) if columns.group is None else _groups(frame[columns.group], columns.group)
    said += date_notes + group_notes
    by_degree = not len(learned.columns)
    if by_degree:
        learned = _log_degree(index, len(ids))
        said.append("no feature columns: the logarithm of a node's degree is used")
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
            "add_unknown": columns.add_unknown,
        },
        given_split=split,
        names=names,
        time=None if columns.time is None else _times(table, frame[columns.time], columns.time),
        groups=groups,
        places=places,
        position=position,
        notes=said,
    )


def _features(frame: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """The columns to learn from: where none are named, those without another use."""
    if columns.features is not None:
        return frame[[*columns.features]]
    apart = {columns.target, columns.split, columns.name, columns.group}
    return frame[[name for name in frame.columns if name not in apart]]


def _log_degree(edge_index: Tensor, num_nodes: int) -> pd.DataFrame:
    degree = torch.bincount(edge_index.flatten(), minlength=num_nodes).numpy().astype(np.float64)
    return pd.DataFrame({DEGREE: np.log1p(degree)})


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
    """Replace columns of dates by columns of numbers; also return their formats, and notes."""
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
        return numbers(table, values, name, expected="a date such as 2024-01-31, or a number, in the time_column=")
    return date_columns(name, parse_dates(table, values, name, shape[0]))[f"{name}: days"]


def _groups(values: pd.Series, name: str) -> tuple[np.ndarray, list[str]]:
    """One number per group; nodes without one are each their own, with a note."""
    codes, _ = pd.factorize(values.where(~is_missing(values), None))
    alone = codes < 0
    codes[alone] = codes.max(initial=-1) + 1 + np.arange(alone.sum())
    return codes, [f"{alone.sum()} nodes have no {name!r}: each is a group of its own"] * bool(alone.any())


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


def _read_target(table: Table, values: pd.Series, task: str | None, learns: bool) -> tuple[Tensor, list[str], str]:
    """Classes, in the order of numbers where all are numbers; or quantities."""
    known = values[~is_missing(values)].astype(str)
    as_number = pd.to_numeric(known, errors="coerce")
    if task is None:
        _refuse_odd_cell(table, known, as_number)
        _refuse_dates(table, known, as_number)
        task = REGRESSION if len(known) and _looks_like_a_quantity(as_number) else CLASSIFICATION
    if task == REGRESSION:
        bad = ~(as_number.abs() <= LARGEST)
        if bool(bad.any()):
            at = bad.idxmax()
            raise ValueError(
                f"{table.row(int(at))}: the target is {known[at]!r}; regression needs finite numbers up to {LARGEST:g}"
            )
        if learns:
            _refuse_lost_digits(table, as_number.to_numpy(np.float64))
        y = np.full(len(values), np.nan, np.float32)
        y[known.index] = as_number.to_numpy(np.float32)
        return torch.from_numpy(y), [], REGRESSION
    order = known.unique()
    _refuse_twins(table, order)
    classes = sorted(order) if bool(as_number.isna().any()) else sorted(order, key=float)
    codes = np.full(len(values), -1, np.int64)
    codes[known.index] = pd.Index(classes, dtype=object).get_indexer(known.astype(object))
    return torch.from_numpy(codes), list(classes), CLASSIFICATION


def _refuse_lost_digits(table: Table, values: np.ndarray) -> None:
    """Targets are kept in float32: of a small spread around a large number, or of tiny numbers, little is left."""
    lost = float(np.abs(values.astype(np.float32) - values).max(initial=0.0))
    if len(values) and np.ptp(values) > 0 and lost > MOST_LOST * values.std():
        raise ValueError(
            f"{table.name}: the target's values differ by about {values.std():.2g} around {values.mean():.8g}, which "
            "float32 cannot tell apart; subtract one number from all of them, or give them in another unit"
        )


def _refuse_odd_cell(table: Table, known: pd.Series, as_number: pd.Series) -> None:
    """Refuse a target of many different numbers with a few words among them."""
    odd = as_number.isna()
    if meant_as_numbers(known, odd) and _looks_like_a_quantity(as_number[~odd]):
        at = odd.idxmax()
        raise ValueError(
            f"{table.row(int(at))}: the target is {known[at]!r}, where most are numbers; leave the cell empty, or pass "
            "task='classification'"
        )


def _refuse_dates(table: Table, known: pd.Series, as_number: pd.Series) -> None:
    """Refuse a target of many dates, each of which would be a class."""
    if bool(as_number.isna().all()) and known.nunique() > MANY_VALUES and date_format(known) is not None:
        raise ValueError(
            f"{table.name}: the target holds {known.nunique()} dates, such as {known.iloc[0]!r}; give them as numbers, "
            "for example days since a day of your choice, or pass task='classification' to take each as a class"
        )


def _refuse_twins(table: Table, labels: Any) -> None:
    """Refuse a class that is written in two ways, which would be two classes."""
    seen: dict[Any, str] = {}
    for label in labels:
        number = pd.to_numeric(label, errors="coerce")
        twin = seen.setdefault(label.strip() if number != number else number, label)
        if twin != label:
            raise ValueError(f"{table.name}: the target holds {twin!r} and {label!r}; write one class in one way")


def _on_codes(frame: pd.DataFrame) -> list[str]:
    """A note on numbers such as -9999 that may stand for missing ones: beside them the others look all the same."""
    found = []
    for name, cells in frame.select_dtypes(np.float64).items():
        values = cells.dropna().to_numpy()
        for code in (values.min(), values.max()) if len(values) else ():
            others = values[values != code]
            count = len(values) - len(others)
            if not 2 <= count <= len(others):
                continue
            with np.errstate(over="ignore"):
                if 0 < FAR * np.ptp(others) < np.abs(others - code).min():
                    found.append(f"{code:g} of {name!r} ({count} rows)")
    if not found:
        return []
    some = ", ".join(found[:5]) + ", ..." * (len(found) > 5)
    said = "if they stand for missing ones, leave those cells empty"
    return [f"numbers far from all others of their column: {some}; {said}"]


def _on_counters(frame: pd.DataFrame) -> list[str]:
    """A note on columns that count the rows: they tell the order of the table, which may be that of the target."""
    names = [name for name, cells in frame.select_dtypes(np.float64).items() if bool((np.diff(cells) == 1).all())]
    if not names or len(frame) <= MANY_VALUES:  # a few numbers in a row are chance
        return []
    return [
        f"columns that count the rows are learned from: {name_list(names)}; if one names the nodes, pass it as id=, "
        "else leave it out by features="
    ]


def _on_case(classes: Sequence[str]) -> list[str]:
    """A note on classes that only capital letters tell apart: they may be meant as one."""
    seen: dict[str, str] = {}
    pairs = [(seen.setdefault(label.casefold(), label), label) for label in classes]
    alike = [f"{one!r} and {other!r}" for one, other in pairs if one != other]
    if not alike:
        return []
    return [f"classes that differ in capital letters alone are taken for different ones: {', '.join(alike[:5])}"]


def _looks_like_a_quantity(numbers: pd.Series) -> bool:
    if bool(numbers.isna().any()):
        return False
    return bool((numbers % 1 != 0).any()) or numbers.nunique() > MANY_VALUES


def _split_words(table: Table, values: pd.Series) -> np.ndarray:
    words = values.map(lambda word: None if word is None else SPLIT_WORDS.get(str(word).strip().lower(), word))
    unknown = [word for word in words.dropna().unique() if word not in SPLIT_WORDS.values()]
    if unknown:
        odd = name_list(unknown)
        raise ValueError(f"{table.name}: the split column holds {odd}; expected train, val, test or nothing")
    return words.to_numpy(dtype=object)
