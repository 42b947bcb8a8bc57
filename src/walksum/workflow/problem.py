"""Read a Problem from the arguments that name data, for training and again for a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from walksum._torch import cpu_by_default
from walksum.data.datasets import load, names
from walksum.data.dates import PARTS
from walksum.data.edges import EdgeColumns
from walksum.data.files import read_graphml
from walksum.data.frames import FrameTable, Table, name_list
from walksum.data.numerals import Numerals
from walksum.data.places import Places
from walksum.data.problem import REGRESSION, Problem, from_data
from walksum.data.problem_split import SPATIAL
from walksum.data.splits import PROTOCOLS
from walksum.data.tables import OnRead, as_table
from walksum.data.user_files import DEGREE, Columns, read_graph, read_tables
from walksum.workflow.predict import plain

NUMBERS = set("0123456789.,-+/% ")  # what counts and fractions of a split are written with, rightly or wrongly
PLACE_LISTS = ("columns", "centre", "scale")  # of Places; JSON has lists alone

if TYPE_CHECKING:
    from walksum.workflow.run import Run


@dataclass(frozen=True)
class Source:
    """Where a graph comes from: a dataset, tables or one file; nothing given means the digits.

    Args:
        dataset: a published one, by name.
        nodes, edges: tables, DataFrames or paths; edges may be missing where near rows are joined.
        graph: the path of a GraphML file or of a PyG Data saved as .pt.
        root: folder with the raw files of datasets.
        encoding: of text tables.
        on_read: see :class:`walksum.data.tables.FileTable`.
    """

    dataset: str | None = None
    nodes: Any = None
    edges: Any = None
    graph: Path | None = None
    root: Path | None = None
    encoding: str = "utf-8"
    on_read: OnRead | None = None

    def __post_init__(self) -> None:
        given = {"dataset=": self.dataset, "nodes=": self.nodes, "graph=": self.graph}
        named = [name for name, value in given.items() if value is not None]
        if len(named) > 1:
            raise ValueError(f"{' and '.join(named)} were given; name the data in one way")
        for name in ("nodes", "edges"):  # tables of polars and Arrow
            if hasattr(getattr(self, name), "to_pandas"):
                object.__setattr__(self, name, getattr(self, name).to_pandas())

    @property
    def has_tables(self) -> bool:
        return self.nodes is not None or self.edges is not None

    @property
    def has_columns(self) -> bool:
        """Whether columns can be named: a dataset and a .pt file hold x and y instead."""
        return self.has_tables or (self.graph is not None and self.graph.suffix == ".graphml")

    @property
    def is_demo(self) -> bool:
        """Whether nothing was named."""
        return self.dataset is None and not self.has_tables and self.graph is None

    def node_table(self) -> Table | None:
        """The table of nodes, of GraphML their attributes; None where there is none."""
        given = self.nodes if self.graph is None else self.graph
        if given is None or not self.has_columns or (isinstance(given, str | PathLike) and not Path(given).is_file()):
            return None
        if self.graph is not None:
            return FrameTable(read_graphml(self.graph, frozenset())[0], self.graph.name)
        return as_table(given, "nodes", self.encoding)

    def has_column(self, name: str) -> bool:
        """Whether the table of nodes is there and has this column."""
        table = self.node_table()
        return table is not None and name in table.columns()

    def read(self, columns: Columns) -> Problem:
        if self.graph is not None:
            return read_graph(self.graph, columns)
        if self.has_tables:
            self.check_tables(columns)
            return read_tables(self.nodes, self.edges, columns, self.encoding, self.on_read)
        name = self.dataset or "digits"
        return from_data(name, load(name, self.root))

    def check_tables(self, columns: Columns) -> None:
        """Refuse one table alone where it does not suffice."""
        if self.edges is None and not columns.place_columns:
            raise ValueError(
                "nodes= and edges= belong together; give both tables, or join near rows by coordinates='lon,lat' or "
                "knn='a,b'"
            )
        if self.nodes is None and (columns.target is not None or columns.features != ()):
            raise ValueError(
                "nodes= and edges= belong together; edges have no column of nodes to learn from: give a table with an "
                "id and the target of some nodes, and add_unknown=True for nodes that only edges name"
            )


def check_column_names(source: Source, columns: Columns) -> None:
    """Refuse names of columns where no table has any, and a table without a target."""
    if source.has_columns:
        if source.has_tables:
            source.check_tables(columns)
        if columns.target is None:
            raise ValueError("target= is missing; name the column to predict, for example target='label'")
        return
    ends, features = columns.edges, columns.features
    given = {"target": columns.target, "id": columns.id, "source": ends.source, "destination": ends.destination}
    given |= {"name_column": columns.name, "time_column": columns.time, "group_column": columns.group}
    given |= {"coordinates": ",".join(columns.coordinates) or None, "knn": ",".join(columns.knn) or None}
    given |= {"weight": ends.weight, "features": None if features is None else ",".join(features), "task": columns.task}
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name}={value!r} is for tables and GraphML; a dataset or .pt file has x, edge_index, y, edge_weight"
            )


@dataclass(frozen=True)
class SplitOption:
    """What ``split`` means: how to cut, a column of the nodes table, or a run whose split is taken again."""

    how: str | None = None
    column: str | None = None
    run: Path | None = None


def read_split(split: str | PathLike[str] | None, source: Source) -> SplitOption:
    """Parse ``split``: counts, fractions, a protocol or "spatial"; else a column, or the folder of a run."""
    if split is None:
        return SplitOption()
    if not isinstance(split, str | PathLike):
        raise ValueError(f"split={split!r}; expected text, such as '0.6,0.2,0.2', or the folder of a run")
    text = str(split)
    if text in (*PROTOCOLS, SPATIAL) or (set(text) <= NUMBERS and text.strip("./ ") and not source.has_column(text)):
        return SplitOption(how=text)
    if Path(split).is_dir() and not source.has_column(text) and source.graph is None:
        if not (Path(split) / "predictions.csv").is_file():
            raise ValueError(f"split={text!r} is a folder without predictions.csv; name the folder of a run")
        return SplitOption(run=Path(split))
    return SplitOption(column=text) if source.has_columns else SplitOption(how=text)


def with_split_of(problem: Problem, run: Path) -> Problem:
    """The problem with the split of an earlier run, found again by the nodes' ids."""
    before = pd.read_csv(run / "predictions.csv", dtype=str, keep_default_na=False)
    if "split" not in before:
        each = [str(run / name.removesuffix(".split")) for name in before if name.endswith(".split")]
        which = f"the run of one target: {' or '.join(each)}" if each else "a run that was trained"
        raise ValueError(f"split={str(run)!r} holds no split; name {which}")
    part = dict(zip(before["id"].map(plain), before["split"], strict=True))
    found = np.array([part.get(str(name)) or None for name in problem.ids], dtype=object)
    if not any(found):
        raise ValueError(f"split={str(run)!r} knows none of these nodes; its ids are {name_list(before['id'][:3])}")
    return replace(problem, given_split=found, columns=problem.columns | {"split": str(run)})


@cpu_by_default
def problem_of_run(run: Run, source: Source, drop_unknown: bool = False, labels: bool = False) -> Problem:
    """The graph as the run's table columns describe it; a run on a published dataset needs no source.

    Its target column is neither needed nor read; with ``labels`` it is read where it is there.
    """
    wanted = run.encoding
    if not source.has_tables and source.graph is None:
        source = replace(source, dataset=_dataset_of(run))
    columns = _columns_of(run, source, drop_unknown, labels)
    if source.nodes is not None and source.edges is None and not columns.place_columns:
        raise ValueError(
            "nodes= and edges= belong together; give both tables as in training, of edges its header line alone where "
            "no nodes are joined"
        )
    problem = source.read(columns)
    if isinstance(problem.features, Tensor) and problem.features.size(1) != wanted.num_features:
        raise ValueError(
            f"the graph has {problem.features.size(1)} features; the run was trained on {wanted.num_features}"
        )
    task, classes = run.config["task"], run.config["classes"]
    y, notes = problem.y, list(problem.notes)
    if labels and not problem.regression:
        y = _by_name(problem, classes)
        strange = np.nonzero(((y < 0) & (problem.y >= 0)).numpy())[0]
        if len(strange):
            cells = [f"{problem.classes[int(problem.y[k])]!r} of {problem.ids[k]!r}" for k in strange[:5]]
            notes.append(
                f"{len(strange)} cells of {run.config['target']!r} hold classes that training did not know "
                f"({', '.join(cells)}): read as empty; the classes are {name_list(classes)}"
            )
    if task == REGRESSION and not y.is_floating_point():
        y = torch.full(y.shape, torch.nan)  # of a file without y
    return replace(problem, y=y, classes=classes, task=task, target=run.config["target"], notes=notes)


def read_node_table(run: Run, source: Source, problem: Problem) -> pd.DataFrame | None:
    """All columns of the nodes table, one row per node of the problem; None where there is no such table."""
    id_column, table = run.config["columns"].get("id"), source.node_table()
    if table is None:
        return None
    names, marks = table.columns(), run.config["columns"].get("numerals") or {}
    numerals = Numerals({name: mark for name, mark in marks.items() if name in names})
    if id_column is None:  # nodes are numbered as their rows are
        return table.frame(names, numerals=numerals).reindex(range(problem.num_nodes))
    if id_column not in names:
        return None
    frame = table.frame(names, text=[id_column], verbatim=id_column, numerals=numerals)
    frame.index = pd.Index(frame[id_column].astype(str))
    found = frame[~frame.index.duplicated()].reindex([str(name) for name in problem.ids])
    return found.drop(columns=[id_column]).reset_index(drop=True)


def _dataset_of(run: Run) -> str:
    if run.config["columns"]:
        raise ValueError("nodes= and edges= are missing; a run does not keep the tables it learned from")
    if run.config["name"] not in names():
        raise ValueError("graph= is missing; a run does not keep the file it learned from")
    return run.config["name"]


def _columns_of(run: Run, source: Source, drop_unknown: bool, labels: bool) -> Columns:
    stored, wanted, target = run.config["columns"], run.encoding, run.config["target"]
    by_degree = stored.get(DEGREE, wanted.columns == [DEGREE])  # older runs do not say
    name, dates, places = stored.get("name"), stored.get("dates") or {}, stored.get("places")
    return Columns(
        target=target if labels and source.has_column(target) else None,
        id=stored.get("id"),
        edges=EdgeColumns(
            stored.get("source"), stored.get("destination"), stored.get("weight") or "", stored.get("decimal")
        ),
        features=() if by_degree else tuple(_read_columns(wanted.columns, dates)),
        name=name if source.has_column(name or "") else None,
        dates=dates,
        places=None if places is None else Places(**places | {k: tuple(places[k]) for k in PLACE_LISTS}),
        numerals=stored.get("numerals") or {},
        numeric=frozenset(wanted.columns if wanted.width is not None else wanted.numeric),
        text=frozenset(wanted.categories),
        task=run.config["task"],
        drop_unknown=drop_unknown,
        add_unknown=bool(stored.get("add_unknown")) and not drop_unknown,
    )


def _read_columns(wanted: list[str], dates: dict[str, str]) -> list[str]:
    """The columns of the table that the encoded columns come from; a date column becomes several."""
    made = {f"{name}: {part}": name for name in dates for part in PARTS}
    return list(dict.fromkeys(made.get(column, column) for column in wanted))


def _by_name(problem: Problem, classes: list[str]) -> Tensor:
    """Class numbers in the order of the run's classes; -1 for a class it does not know."""
    number = {name: k for k, name in enumerate(classes)}
    return torch.tensor([*(number.get(name, -1) for name in problem.classes), -1])[problem.y]
