"""The table of nodes: which column holds what, how its numbers are written, and which column names the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from walksum.data.edges import EdgeColumns, end_names
from walksum.data.frames import UNNAMED, Table, check_columns, is_missing, numbers
from walksum.data.numerals import Numerals, read_numerals
from walksum.data.places import Places
from walksum.data.problem import CLASSIFICATION

ID_NAMES = ("id", "node", "node_id", "name")
SURE_IDS = ID_NAMES[:3]  # a name may be for people, and the ids another column
COVERED = 0.5  # share of the ends of edges that a guessed id column must hold
SPLIT_WORDS = dict.fromkeys(("train", "training"), "train") | dict.fromkeys(("test", "testing"), "test")
SPLIT_WORDS |= dict.fromkeys(("val", "valid", "validation", "validate", "dev", "development"), "val")
FEW, HALF = 0.1, 0.5  # share of cells that are no numbers, and of one word, up to which numbers were meant
SPLIT_NAMES = ("split", "set", "subset", "part", "partition", "fold")


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


def read_nodes(table: Table, columns: Columns, links: Table | None) -> tuple[pd.DataFrame, Columns, list[str]]:
    """Read the needed columns; also return the columns with what was detected about them, and notes."""
    present, places = table.columns(), columns.place_columns
    roles = (columns.target, columns.id, columns.split, columns.name, columns.time, columns.group)
    named = [name for name in roles if name is not None]
    check_columns(table.name, present, [*named, *places, *(columns.features or ())])
    if columns.add_unknown and columns.drop_unknown:
        raise ValueError(
            "add_unknown= and drop_unknown= were both given; nodes that only edges name are added or left out"
        )
    identity, notes = columns.id, list[str]()
    if identity is None:
        identity, notes = _find_id(table, present, columns, links)
    columns = replace(columns, id=identity)
    check_one_use_each(columns)
    apart = [columns.id, columns.target, columns.split, columns.name, columns.group]
    kept = [name for name in apart if name is not None]  # none of them is learned from, unless a feature names it
    features: Sequence[str] = columns.features or ()
    if columns.features is None:
        features = [name for name in present if name not in kept and not name.startswith(UNNAMED)]
        unnamed = sum(name not in kept and name.startswith(UNNAMED) for name in present)
        if unnamed:
            said = f"{unnamed} column(s) without a name, often row numbers, are not learned from; name them"
            notes.append(f"{table.name}: {said}")
    extra = [name for name in (columns.time, *places) if name is not None]
    wanted = list(dict.fromkeys([*kept, *extra, *features]))
    numerals = _numerals(table, wanted, columns)
    frame = table.frame(wanted, text=[*kept, *columns.text], verbatim=identity, numerals=numerals)
    if identity is not None and (below := _empty_below(frame)):
        frame = frame[: len(frame) - below]
        notes.append(f"{table.name}: {below} rows at its end hold nothing and are left out")
    if not len(frame):
        raise ValueError(f"{table.name} has a header but no rows; expected one row per node")
    for name in columns.numeric & set(frame.columns):
        if frame[name].dtype != np.float64:
            frame[name] = numbers(table, frame[name], name)  # says which row is not a number
    _refuse_infinity(table, frame)
    if columns.features is None:
        features, more = _without_split_words(frame, list(features))
        notes += more + [note for name in features if (note := _on_odd_cell(table, frame[name])) is not None]
    return frame, replace(columns, features=tuple(features), numerals=numerals.marks), notes + numerals.notes()


def meant_as_numbers(known: pd.Series, odd: pd.Series) -> bool:
    """Whether ``odd`` cells, which are no numbers, are an exception: few, or all the same word."""
    share = odd.mean()
    return 0 < share <= FEW or (0 < share < HALF and known[odd].nunique() == 1)


def _on_odd_cell(table: Table, values: pd.Series) -> str | None:
    """A note if a few cells turn a column of numbers into text."""
    known = values.dropna()
    odd = pd.to_numeric(known, errors="coerce").isna()
    if known.dtype == np.float64 or not meant_as_numbers(known, odd):
        return None
    at = odd.idxmax()
    return (
        f"{values.name!r} is read as text: {table.row(int(at))} holds {known[at]!r} where most cells hold numbers; "
        "leave such cells empty to learn from the numbers"
    )


def _find_id(table: Table, present: list[str], columns: Columns, links: Table | None) -> tuple[str | None, list[str]]:
    """Find the id column: by its usual name, or by the ids that the edges use; None: rows are numbered."""
    taken = {columns.target, columns.split, columns.name, columns.time, columns.group, *columns.place_columns}
    free = [name for name in present if name not in taken | set(columns.features or ())]
    usual = next((name for name in free if name.lower() in ID_NAMES), None)
    if links is None or (usual is not None and usual.lower() in SURE_IDS):
        return usual, []
    named = end_names(links, columns.edges, some=True)
    if columns.target is not None and columns.target != usual and _covered(table, columns.target, named) >= COVERED:
        raise ValueError(
            f"target={columns.target!r} holds the ids by which {links.name} names the nodes; name another column to "
            "predict, or the column of ids by id="
        )
    covered = {name: _covered(table, name, named) for name in ([usual] if usual else []) + free}
    covered = {name: share for name, share in covered.items() if share >= COVERED}
    best = max(covered, key=lambda name: covered[name], default=None)  # of equals the first
    rows = len(next(iter(table.pieces(present[:1])), ()))
    numbered = np.mean([word.isdecimal() and str(int(word)) == word and int(word) < rows for word in named] or [0])
    if best is None or (best != free[0] and best != usual and numbered >= covered[best]):
        if usual is None:
            return None, [f"{table.name} has no id column ({', '.join(ID_NAMES)}); nodes are numbered from 0"]
        return usual, []
    if best == usual:
        return usual, []
    return best, [f"{best!r} is taken as the id column: {links.name} names its values; pass id= to choose another"]


def _empty_below(cells: pd.DataFrame) -> int:
    """How many rows at the end of a table hold nothing, as spreadsheets leave them."""
    some = (cells.notna() & (cells != "")).any(axis=1).to_numpy()
    return int(some[::-1].argmax()) if some.any() else len(cells)


def _covered(table: Table, name: str, wanted: set[str]) -> float:
    """The share of ``wanted`` that the column holds; 0 where its values repeat or are missing."""
    sample = table.sample([name])
    sample = sample[name][: len(sample) - _empty_below(sample)]
    if not wanted or not sample.is_unique or bool(sample.isna().any()):
        return 0.0
    column = pd.concat([piece[[name]] for piece in table.pieces([name])], ignore_index=True)
    values = column[name][: len(column) - _empty_below(column)]
    texts = set(values.map(str))
    return len(wanted & texts) / len(wanted) if len(texts) == len(values) else 0.0


def _numerals(table: Table, wanted: list[str], columns: Columns) -> Numerals:
    """Detect how numbers are written; the format of training is kept where the first rows follow it."""
    apart = {columns.id, columns.split, columns.name, *columns.text}
    open_ = [name for name in wanted if name not in apart]
    sample = table.sample(open_) if open_ else pd.DataFrame()
    cells = {name: sample[name][~is_missing(sample[name])] for name in open_}
    if columns.task == CLASSIFICATION and columns.target not in columns.numerals:
        cells.pop(columns.target or "", None)
    return read_numerals(cells, columns.numerals, columns.decimal, columns.thousands, table.semicolons)


def _without_split_words(frame: pd.DataFrame, features: list[str]) -> tuple[list[str], list[str]]:
    """Features without a column that says train, val or test of each row, which the user has not named."""
    for name in features:
        words = set() if frame[name].dtype == np.float64 else set(frame[name].dropna().str.strip().str.lower())
        if name.lower() in SPLIT_NAMES and words and words <= set(SPLIT_WORDS):
            note = f"column {name!r} says train and test: it is not learned from; pass split={name!r} to split by it"
            return [each for each in features if each != name], [note]
    return features, []


def check_one_use_each(columns: Columns) -> None:
    """Refuse a column with two uses: a target among the features would leak."""
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
    places = "knn=" if columns.knn else "coordinates="
    for argument, name in [("time_column=", columns.time), ("group_column=", columns.group)] + [
        (places, name) for name in columns.place_columns
    ]:  # each is known of all nodes before the target is, and a split by the target would part its values
        if name is not None and name == columns.target:
            raise ValueError(f"target= and {argument} both name the column {name!r}; use a column for one thing")


def _refuse_infinity(table: Table, frame: pd.DataFrame) -> None:
    values = frame.select_dtypes(np.float64)
    bad = np.isinf(values.to_numpy())
    if bad.any():
        row, column = map(int, np.argwhere(bad)[0])
        raise ValueError(f"{table.row(row)}: {values.columns[column]} is infinite; expected a finite number")
