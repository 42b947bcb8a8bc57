"""Graphs as spatial statisticians hold them: libpysal's Graph and W, .gal and .gwt files, networkx."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch

from walksum.graph.graph import Graph

Link = tuple[Any, Any, float]


class SpatialGraph(NamedTuple):
    """A graph, and the name of each of its nodes in order."""

    graph: Graph
    ids: list


def spatial_graph(source: Any, ids: Sequence | None = None) -> SpatialGraph:
    """Read a graph from libpysal, networkx, or a .gal or .gwt file, with the names of its nodes.

    Links become undirected edges, whose weight is the mean of both directions; loops go. Rows that were standardised
    are taken back to their original weights, since designs such as SAR standardise for themselves.

    Args:
        source: a ``libpysal.graph.Graph``, a ``libpysal.weights.W``, a ``networkx`` graph, or the path of a ``.gal`` or
            ``.gwt`` file.
        ids: the names of all nodes in the order that is wanted; by default as the source has them.

    Example:
        >>> import networkx, walksum as ws
        >>> graph, ids = ws.spatial_graph(networkx.Graph([("a", "b"), ("b", "c")]))
        >>> graph, ids
        (Graph(num_nodes=3, num_edges=2), ['a', 'b', 'c'])
    """
    if isinstance(source, str | PathLike):
        known, links = _from_file(Path(source))
    elif hasattr(source, "adjacency") and hasattr(source, "unique_ids"):
        known, links = _from_pysal_graph(source)
    elif hasattr(source, "neighbors") and hasattr(source, "id_order"):
        known, links = _from_pysal_w(source)
    elif hasattr(source, "edges") and hasattr(source, "nodes"):
        known, links = _from_networkx(source)
    else:
        raise ValueError(
            f"source is a {type(source).__name__}; expected a libpysal Graph or W, a networkx graph, "
            "or the path of a .gal or .gwt file"
        )
    return _build(known if ids is None else list(ids), links)


def is_named(source: Any) -> bool:
    """Whether the source has named nodes: a file, a networkx graph, or a Graph or W of libpysal."""
    networkx = hasattr(source, "nodes") and hasattr(source, "edges") and hasattr(source, "adj")
    pysal = hasattr(source, "unique_ids") or (hasattr(source, "neighbors") and hasattr(source, "id_order"))
    return networkx or pysal or isinstance(source, str | PathLike)


def _build(ids: list, links: Iterable[Link]) -> SpatialGraph:
    number = {name: k for k, name in enumerate(ids)}
    if len(number) != len(ids):
        raise ValueError("ids contains a name twice; every node needs a name of its own")
    links = list(links)
    strangers = [name for link in links for name in link[:2] if name not in number]
    if strangers:
        raise ValueError(f"a link names the node {strangers[0]!r}, which is not among the {len(ids)} ids")
    pairs = torch.tensor([(number[a], number[b]) for a, b, _ in links], dtype=torch.int64).reshape(-1, 2).t()
    weight = torch.tensor([w for _, _, w in links], dtype=torch.float64)
    unweighted = bool((weight == 1).all())
    return SpatialGraph(Graph.from_edge_index(pairs, len(ids), None if unweighted else weight), ids)


def _from_pysal_graph(source: Any) -> tuple[list, list[Link]]:
    links = [(a, b, float(w)) for (a, b), w in source.adjacency.items() if a != b]  # isolates are loops of weight 0
    if getattr(source, "transformation", "O") not in ("O", "B", None):
        links = _unit_weights(links, f"a Graph with transformation {source.transformation!r}")
    return list(source.unique_ids), links


def _from_pysal_w(source: Any) -> tuple[list, list[Link]]:
    weights = source.transformations.get("O", source.weights)
    pairs = ((a, b, float(w)) for a in source.id_order for b, w in zip(source.neighbors[a], weights[a], strict=True))
    return list(source.id_order), [link for link in pairs if link[0] != link[1]]


def _unit_weights(links: list[Link], what: str) -> list[Link]:
    """Rows of equal weights were standardised from ones; others cannot be taken back."""
    row: dict[Any, float] = {}
    if any(abs(row.setdefault(a, w) - w) > 1e-12 * abs(w) for a, _, w in links):
        raise ValueError(f"source is {what} whose original weights are lost; use source.transform('O')")
    return [(a, b, 1.0) for a, b, _ in links]


def _from_networkx(source: Any) -> tuple[list, list[Link]]:
    links = [(a, b, data.get("weight")) for a, b, data in source.edges(data=True) if a != b]
    missing = [link for link in links if link[2] is None]
    if missing and len(missing) < len(links):
        raise ValueError(f"the edge {missing[0][:2]} has no weight while others have one; give all edges one, or none")
    return list(source.nodes), [(a, b, 1.0 if w is None else float(w)) for a, b, w in links]


def _from_file(path: Path) -> tuple[list, list[Link]]:
    if path.suffix.lower() not in (".gal", ".gwt"):
        raise ValueError(f"{path} is neither a .gal nor a .gwt file")
    if not path.exists():
        raise ValueError(f"{path} does not exist")
    lines = path.read_text().splitlines()
    header = lines[0].split() if lines else []
    counts = [word for word in header[:2] if word.lstrip("-").isdigit()]
    if not counts:
        raise ValueError(f"{path} begins with {' '.join(header)!r}; expected the number of nodes")
    count = int(counts[-1])
    known, links = (_read_gal if path.suffix.lower() == ".gal" else _read_gwt)(path, lines[1:])
    if len(known) != count:
        raise ValueError(
            f"{path} announces {count} nodes and names {len(known)}; pass ids=[...] with the names of all of them"
        )
    return known, links


def _read_gal(path: Path, lines: list[str]) -> tuple[list, list[Link]]:
    """A line "id k", then the k neighbours of the node; a node without any may be followed by an empty line."""
    known, links, words = [], [], [line.split() for line in lines]
    at = 0
    while at < len(words):
        if not words[at]:
            at += 1
            continue
        if len(words[at]) != 2 or not words[at][1].isdigit():
            raise ValueError(f"{path}, line {at + 2}: {lines[at]!r}; expected a node and its number of neighbours")
        name, count = words[at][0], int(words[at][1])
        at, found = at + 1, list[str]()
        while len(found) < count and at < len(words):
            found += words[at]
            at += 1
        if len(found) != count:
            raise ValueError(f"{path}: node {name} announces {count} neighbours and has {len(found)}")
        known.append(name)
        links += [(name, other, 1.0) for other in found if other != name]
    return _numbers(known, links)


def _read_gwt(path: Path, lines: list[str]) -> tuple[list, list[Link]]:
    """A line "from to weight" for every link."""
    links: list[Link] = []
    for number, line in enumerate(lines, 2):
        words = line.split()
        if not words:
            continue
        try:
            links.append((words[0], words[1], float(words[2])))
        except (IndexError, ValueError):
            raise ValueError(f"{path}, line {number}: {line!r}; expected two nodes and a weight") from None
    known = list(dict.fromkeys([name for link in links for name in link[:2]]))
    known, links = _numbers(known, links)
    return (sorted(known) if all(isinstance(name, int) for name in known) else known), links


def _numbers(known: list, links: list[Link]) -> tuple[list, list[Link]]:
    """Names that are all whole numbers become int, as in a table."""
    if not all(name.isdigit() for name in known) or not all(link[1].isdigit() for link in links):
        return known, links
    return [int(name) for name in known], [(int(a), int(b), w) for a, b, w in links]
