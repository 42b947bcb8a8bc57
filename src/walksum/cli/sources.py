"""From the options that name data to a Problem."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from walksum.data.own import Columns
    from walksum.data.problem import Problem


def read_problem(
    dataset: str | None,
    nodes: Path | None,
    edges: Path | None,
    graph: Path | None,
    root: Path | None,
    columns: Columns,
    encoding: str,
    on_read: Any,
) -> Problem:
    """The dataset, the tables or the file; digits when none is named."""
    from walksum.data.datasets import load
    from walksum.data.own import read_graph, read_tables
    from walksum.data.problem import from_data
    from walksum.data.tables import Reader

    check_sources(dataset, nodes, edges, graph)
    if graph is not None:
        return read_graph(graph, columns)
    if nodes is None or edges is None:
        name = dataset or "digits"
        return from_data(name, load(name, root))
    return read_tables(nodes, edges, columns, Reader(encoding, on_read))


def check_sources(dataset: str | None, nodes: Path | None, edges: Path | None, graph: Path | None) -> None:
    """Refuse data named twice or by halves."""
    given = [name for name, value in (("--dataset", dataset), ("--nodes", nodes), ("--graph", graph)) if value]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} were given; name the data in one way")
    if (nodes is None) != (edges is None):
        raise ValueError("--nodes and --edges belong together; give both tables")


def split_names_a_column(split: str | None) -> bool:
    """--split is a column of the nodes table unless it is numbers or a protocol."""
    from walksum.data.splits import PROTOCOLS

    return split is not None and split not in PROTOCOLS and not split.replace(",", "").replace(".", "").isdigit()


def with_target(columns: Columns, target: str | None, needed: bool) -> Columns:
    if needed and target is None:
        raise ValueError("--target is missing; name the column to predict, for example --target label")
    return replace(columns, target=target)
