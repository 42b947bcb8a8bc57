"""Read edges from a table in chunks, and turn the names of nodes into numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from unicodedata import normalize

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from walksum.data.frames import UNNAMED, FrameTable, Table, check_columns, is_missing, name_list, numbers
from walksum.data.numerals import Numerals, read_numerals

MOST = float(np.finfo(np.float32).max)  # weights are kept in float32
EXPECTED = f"a finite number such as 1.5, of size up to {MOST:.1g}"
END_NAMES = [("source", "target"), ("src", "dst"), ("from", "to"), ("source", "destination")]
END_NAMES += [(f"{one}_id", f"{other}_id") for one, other in END_NAMES]
NO_ENDS = ("weight", "edge", "edge_id", "index")


@dataclass(frozen=True)
class EdgeColumns:
    """Which column holds what; None: found by its usual name, else the first two columns; no weight but a note.

    A ``weight`` of "" says that edges shall have none. ``decimal``: the mark of weights, where it was given or found.
    """

    source: str | None = None
    destination: str | None = None
    weight: str | None = None
    decimal: str | None = None


@dataclass(frozen=True)
class Edges:
    index: Tensor
    weight: Tensor | None
    columns: EdgeColumns
    notes: list[str]


def read_edges(table: Table, ids: pd.Index, columns: EdgeColumns, drop_unknown: bool) -> Edges:
    """Read the edges of a table, between nodes with these ids."""
    present, named = table.columns(), columns.source is not None or columns.destination is not None
    columns = _with_ends(table.name, present, columns)
    ends = [str(columns.source), str(columns.destination)]
    by_place = not named and (ends[0].lower(), ends[1].lower()) not in END_NAMES
    if by_place and not isinstance(table, FrameTable) and all(end in ids for end in ends):
        raise ValueError(
            f"{table.name} seems to have no header line: its first names the nodes {ends[0]!r} and {ends[1]!r}; "
            "write one above it, such as source,target, or name the columns by source= and destination="
        )
    collected, numerals, nothing = _Collected(ids), _numerals(table, columns), 0
    for piece in table.pieces([*ends, columns.weight] if columns.weight else ends):
        values, some = None, (piece.notna() & (piece != "")).any(axis=1)
        if not some.all():  # spreadsheets leave rows that hold nothing
            nothing, piece = nothing + int((~some).sum()), piece[some]
        if columns.weight:
            cells = piece[columns.weight]
            cells = numerals.plain(columns.weight, cells) if numerals.marks else cells
            values = numbers(table, cells, columns.weight, collected.rows, False, EXPECTED, MOST)
        collected.add(piece[ends[0]], piece[ends[1]], values)
    notes = _on_unknown(table.name, collected, drop_unknown) + numerals.notes()
    if nothing:
        notes.append(f"{nothing} rows of {table.name} name no node and are left out")
    if by_place and len(present) > 2:
        notes.append(
            f"{ends[0]!r} and {ends[1]!r} of {table.name} are taken as the ends of edges; pass source= and "
            "destination= to choose others"
        )
    if not any(bool((i != j).any()) for i, j in collected.pairs):
        notes.append(f"{table.name} joins no nodes: each is predicted by its own columns alone")
    if columns.weight is None and "weight" in present:
        notes.append(f"{table.name} has a column 'weight' that is not used; pass weight='weight' to use it")
    weight = collected.edge_weight()
    if weight is not None:
        notes += weight_notes(table.name, str(columns.weight), weight)
        notes += _on_several(table.name, str(columns.weight), collected.edge_index(), weight)
    columns = replace(columns, decimal=numerals.marks.get(columns.weight or ""))
    return Edges(collected.edge_index(), weight, columns, notes)


def _numerals(table: Table, columns: EdgeColumns) -> Numerals:
    """How the weights are written."""
    if not columns.weight:
        return Numerals()
    cells = table.sample([columns.weight])[columns.weight]
    before = {columns.weight: columns.decimal} if columns.decimal else {}
    return read_numerals({columns.weight: cells[~is_missing(cells)]}, before, None, None, table.semicolons)


def end_names(table: Table, columns: EdgeColumns, some: bool = False) -> Any:
    """The names of the nodes that edges join, in the order they come; ``some``: those of the first rows, as a set."""
    columns = _with_ends(table.name, table.columns(), columns)
    ends = [str(columns.source), str(columns.destination)]
    found: dict[str, None] = {}
    for piece in [table.sample(ends)] if some else table.pieces(ends):
        cells = pd.unique(piece[ends].to_numpy(dtype=object).reshape(-1))
        found |= dict.fromkeys(str(name) for name in cells if name is not None and name == name and name != "")
    return set(found) if some else list(found)


def weight_notes(table: str, column: str, weight: Tensor) -> list[str]:
    """Notes on negative and zero weights; weights that are all zero are refused."""
    count = weight.numel()
    negative, zero = int((weight < 0).sum()), int((weight == 0).sum())
    if count and zero == count:
        raise ValueError(f"{table}: every {column} is 0, so no edge would carry anything; leave out weight= or mend it")
    notes = []
    if negative:
        notes.append(
            f"{negative} of {count} edges of {table} have a negative {column}: their coupling has the opposite sign "
            "(the Laplacian designs refuse them)"
        )
    if zero:
        notes.append(f"{zero} of {count} edges of {table} have {column} 0: they carry nothing")
    return notes


def _on_several(table: str, column: str, index: Tensor, weight: Tensor) -> list[str]:
    """A note where rows of one edge have different weights, of which the mean is taken."""
    rows = pd.DataFrame(np.sort(index.numpy(), 0).T, columns=["i", "j"]).assign(weight=weight.numpy())
    again = int(rows[rows["i"] != rows["j"]].drop_duplicates().duplicated(["i", "j"]).sum())
    if not again:
        return []
    return [
        f"{again} rows of {table} repeat an edge, or its other direction, with another {column}: the mean is taken; "
        "add them up before if they are amounts"
    ]


def _with_ends(table: str, present: list[str], columns: EdgeColumns) -> EdgeColumns:
    if columns.source is None and columns.destination is None:
        by_name = {name.lower(): name for name in reversed(present)} | {name: name for name in present}
        pair = next(([by_name[one], by_name[other]] for one, other in END_NAMES if {one, other} <= set(by_name)), None)
        free = [name for name in present if not name.startswith(UNNAMED)] or present  # row numbers join nothing
        if pair is None and len(free) < 2:
            raise ValueError(
                f"{table} has the single column {free[0]!r}; edges need a source and a destination, with a "
                "comma, semicolon, tab or | between them"
            )
        sure = [name for name in free if name.lower() not in NO_ENDS]
        pair = pair or (sure if len(sure) > 1 else free)
        columns = replace(columns, source=pair[0], destination=pair[1])
    columns = replace(columns, source=columns.source or "source", destination=columns.destination or "target")
    roles = {"source=": columns.source, "destination=": columns.destination, "weight=": columns.weight}
    named = [name for name in roles.values() if name]
    check_columns(table, present, named)
    for name in named:
        if named.count(name) > 1:
            same = " and ".join(role for role, column in roles.items() if column == name)
            raise ValueError(f"{table}: {same} both name the column {name!r}; use a column for one thing")
    return columns


def _on_unknown(table: str, collected: _Collected, drop_unknown: bool) -> list[str]:
    if not collected.unknown:
        return []
    names = f"name unknown nodes: {name_list(collected.examples)}" if collected.examples else "have an empty end"
    message = f"{collected.unknown} of {collected.rows} rows of {table} {names}"
    if not drop_unknown and not collected.examples:
        raise ValueError(f"{message}; fill it in, or pass drop_unknown=True to leave those edges out")
    if not drop_unknown:
        raise ValueError(
            f"{message}; add them to the nodes, or pass drop_unknown=True to leave those edges out, or "
            f"when training add_unknown=True to add empty rows; the nodes' ids are {name_list(collected.ids[:3], 2)}"
            f"{_likely_cause(collected)}"
        )
    return [f"{message}; those edges were left out"]


def _likely_cause(collected: _Collected) -> str:
    """A hint where ids differ in how they are written alone: spreadsheets may write 005 as 5.0."""
    plain = {_plain(str(name)): str(name) for name in collected.ids}
    for name in collected.examples:
        if (twin := plain.get(_plain(name))) is not None:
            return f"; {name!a} and {twin!a} differ in {_how(name, twin)}"
    return ""


def _plain(name: str) -> str:
    return normalize("NFC", name).strip().removesuffix(".0").lstrip("0").casefold()


def _how(name: str, twin: str) -> str:
    if normalize("NFC", name) == normalize("NFC", twin):
        return "how letters are encoded: give both tables one Unicode form, as by str.normalize('NFC') of pandas"
    if name.casefold() == twin.casefold():
        return "capital letters alone: write ids alike in both tables"
    return "zeros or spaces alone: write ids as text in both tables"


class _Collected:
    """Edges as pairs of row numbers; the names of a chunk are dropped with it, so large files fit."""

    def __init__(self, ids: pd.Index):
        self.ids = ids
        self.rows = self.unknown = 0
        self.examples: list[str] = []
        self.pairs: list[np.ndarray] = []
        self.weights: list[np.ndarray] = []

    def add(self, source: pd.Series, destination: pd.Series, weight: np.ndarray | None) -> None:
        ends = [self._numbers_of(side) for side in (source, destination)]
        known = (ends[0] >= 0) & (ends[1] >= 0)
        self.rows, self.unknown = self.rows + len(known), self.unknown + int((~known).sum())
        small = np.int32 if len(self.ids) < 2**31 else np.int64
        self.pairs.append(np.stack(ends).astype(small)[:, known])
        if weight is not None:
            self.weights.append(weight[known].astype(np.float32))

    def _numbers_of(self, side: pd.Series) -> np.ndarray:
        codes, names = pd.factorize(side)  # a chunk repeats its names: each is looked up once
        texts = [name if isinstance(name, str) else str(name) for name in names]
        number = np.append(self.ids.get_indexer(pd.Index(texts, dtype=object)), -1)  # the last for empty cells
        if len(self.examples) < 6:
            unseen = (text for text, found in zip(texts, number, strict=False) if found < 0)
            self.examples += [text for text in unseen if text not in self.examples][:6]
        return number[codes]

    def edge_index(self) -> Tensor:
        return torch.from_numpy(np.concatenate(self.pairs, 1) if self.pairs else np.zeros((2, 0), np.int32)).long()

    def edge_weight(self) -> Tensor | None:
        return torch.from_numpy(np.concatenate(self.weights)) if self.weights else None
