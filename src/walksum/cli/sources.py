"""From the options that name data to a Problem."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from walksum.data.problem import Problem
    from walksum.data.user_files import Columns
    from walksum.workflow.run import Run


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
    from walksum.data.problem import from_data
    from walksum.data.tables import Reader
    from walksum.data.user_files import read_graph, read_tables

    check_sources(dataset, nodes, edges, graph)
    if graph is not None:
        return read_graph(graph, columns)
    if nodes is None or edges is None:
        name = dataset or "digits"
        return from_data(name, load(name, root))
    return read_tables(nodes, edges, columns, Reader(encoding, on_read))


def problem_of_run(
    run: Run,
    nodes: Path | None,
    edges: Path | None,
    graph: Path | None,
    drop_unknown: bool,
    encoding: str,
    on_read: Any,
    labels: bool = False,
) -> Problem:
    """The graph as the run's table columns describe it.

    Its target column is neither needed nor read; with ``labels`` it is read where it is there.
    """
    import torch

    from walksum.data.datasets import names
    from walksum.data.edges import EdgeColumns
    from walksum.data.user_files import DEGREE, Columns

    stored, wanted = run.config["columns"], run.encoding
    by_degree = stored.get(DEGREE, wanted.columns == [DEGREE])  # runs of before did not say
    features = () if by_degree else tuple(wanted.columns)
    columns = Columns(
        target=run.config["target"] if labels and _has_column(nodes, run.config["target"], encoding) else None,
        id=stored.get("id"),
        edges=EdgeColumns(stored.get("source"), stored.get("destination"), stored.get("weight")),
        features=features,
        numeric=frozenset(wanted.columns if wanted.width is not None else wanted.numeric),
        text=frozenset(wanted.categories),
        task=run.config["task"],
        drop_unknown=drop_unknown,
    )
    if nodes is None and graph is None:
        if stored:
            raise ValueError("--nodes and --edges are missing; a run does not keep the tables it learned from")
        if run.config["name"] not in names():
            raise ValueError("--graph is missing; a run does not keep the file it learned from")
        problem = read_problem(run.config["name"], None, None, None, None, columns, encoding, None)
    else:
        problem = read_problem(None, nodes, edges, graph, None, columns, encoding, on_read)
    if isinstance(problem.features, torch.Tensor) and problem.features.size(1) != wanted.num_features:
        raise ValueError(
            f"the graph has {problem.features.size(1)} features; the run was trained on {wanted.num_features}"
        )
    y = _by_name(problem, run.config["classes"]) if labels and not problem.regression else problem.y
    if run.config["task"] == "regression" and not y.is_floating_point():
        y = torch.full(y.shape, torch.nan)  # of a file without y
    return replace(problem, y=y, classes=run.config["classes"], task=run.config["task"], target=run.config["target"])


def _has_column(nodes: Path | None, name: str, encoding: str) -> bool:
    from walksum.data.tables import Reader

    return nodes is not None and nodes.is_file() and name in Reader(encoding).columns(nodes)


def _by_name(problem: Problem, classes: list[str]) -> Tensor:
    """Class numbers as the run counts them; -1 for a class it does not know."""
    import torch

    number = {name: k for k, name in enumerate(classes)}
    found = torch.tensor([*(number.get(name, -1) for name in problem.classes), -1])
    return found[problem.y]


def check_sources(dataset: str | None, nodes: Path | None, edges: Path | None, graph: Path | None) -> None:
    """Refuse data named twice or by halves."""
    given = [name for name, value in (("--dataset", dataset), ("--nodes", nodes), ("--graph", graph)) if value]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} were given; name the data in one way")
    if (nodes is None) != (edges is None):
        raise ValueError("--nodes and --edges belong together; give both tables")


def check_table_options(given: dict[str, Any]) -> None:
    """Refuse options that name columns where no table has any: they would change nothing."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} {value} is for tables and GraphML; a dataset or .pt file has x, edge_index, y, edge_weight"
            )


def split_names_a_column(split: str | None) -> bool:
    """--split is a column of the nodes table unless it is numbers or a protocol."""
    from walksum.data.splits import PROTOCOLS

    return split is not None and split not in PROTOCOLS and not split.replace(",", "").replace(".", "").isdigit()


def with_target(columns: Columns, target: str | None, needed: bool) -> Columns:
    if needed and target is None:
        raise ValueError("--target is missing; name the column to predict, for example --target label")
    return replace(columns, target=target)
