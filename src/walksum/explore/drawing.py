"""The drawing of the graph: which nodes and edges are shown, where, and how strongly they are coloured."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from walksum.explore.answer import Answer
from walksum.explore.colours import node_colours
from walksum.explore.view import INFLUENCE
from walksum.plot.layout import around_layout, into_square, whole_layout
from walksum.workflow.trained_run import TrainedRun

WHOLE_NODES = 2_000  # graphs up to this size are drawn whole
FEW_NODES = 300  # a whole drawing of so few has room for nodes as large as those around one
AROUND_NODES = 150
MOST_EDGES, MOST_AROUND = 6_000, 700  # a canvas of more takes seconds to repaint without a GPU
DECADES = 3.0  # of influence between full colour and none
SIDE, AROUND_SIDE = 1600.0, 900.0  # of the drawing's square, in its own units
LABELLED = 26  # of the nodes around one, so many carry their id

# names of columns that hold places, in the order they are looked for; the first is drawn to the right
PLACES = (("longitude", "latitude"), ("lon", "lat"), ("lng", "lat"), ("easting", "northing"), ("x", "y"))
Element = dict[str, Any]


@dataclass(frozen=True)
class GraphDrawing:
    """Elements for cytoscape, and in words what is left out."""

    elements: list[Element]
    note: str


def draws_whole(trained: TrainedRun) -> bool:
    return trained.num_nodes <= WHOLE_NODES


def tones(answer: Answer) -> np.ndarray:
    """Colour strength in [-1, 1] with the sign of the influence: 1 at the strongest other node, 0 from 1/1000 of it."""
    value = answer.influence.value
    size = np.abs(value)
    others = np.delete(size, answer.node)
    top = float(others.max(initial=0.0))
    if top == 0:
        return np.zeros_like(value)
    with np.errstate(divide="ignore"):
        strength = 1 + np.log10(size / top) / DECADES
    return np.sign(value) * np.clip(strength, 0, 1)


def draw(trained: TrainedRun, answer: Answer | None, colour: str = INFLUENCE) -> GraphDrawing:
    if draws_whole(trained):
        return _whole(trained, answer, colour)
    return GraphDrawing([], "") if answer is None else _around(trained, answer, colour)


def _whole(trained: TrainedRun, answer: Answer | None, colour: str) -> GraphDrawing:
    edges = trained.graph.edges.numpy()
    note = ""
    if edges.shape[1] > MOST_EDGES:
        kept = np.zeros(edges.shape[1], dtype=bool)
        kept[np.random.default_rng(0).permutation(edges.shape[1])[:MOST_EDGES]] = True
        onpath = path_edges(answer)
        kept |= np.array([f"{a}|{b}" in onpath for a, b in edges.T.tolist()])
        note = f"{MOST_EDGES:,} of {edges.shape[1]:,} edges are drawn, chosen at random, and those on a strongest path."
        edges = edges[:, kept]
    nodes = np.arange(trained.num_nodes)
    side = AROUND_SIDE if trained.num_nodes <= FEW_NODES else SIDE
    spots = places(trained.table)
    spots = whole_layout(trained.graph) if spots is None else spots
    return GraphDrawing(_elements(trained, answer, nodes, edges, spots * side, colour), note)


def _around(trained: TrainedRun, answer: Answer, colour: str) -> GraphDrawing:
    nodes = answer.influence.ranked(AROUND_NODES)
    nodes = np.concatenate([[answer.node], nodes[nodes != answer.node]])[:AROUND_NODES]
    nodes = nodes[np.abs(answer.influence.value[nodes]) > 0]
    edges, among = edges_among(trained, nodes)
    note = f"The {len(nodes)} nodes with the strongest influence are drawn, of {trained.num_nodes:,}"
    note += f"; {edges.shape[1]:,} of the {among:,} edges among them." if edges.shape[1] < among else "."
    place = np.full(trained.num_nodes, -1)
    place[nodes] = np.arange(len(nodes))
    spots = places(trained.table)
    around = around_layout(place[edges], answer.influence.hops[nodes]) if spots is None else into_square(spots[nodes])
    return GraphDrawing(_elements(trained, answer, nodes, edges, around * AROUND_SIDE, colour), note)


def edges_among(trained: TrainedRun, nodes: np.ndarray) -> tuple[np.ndarray, int]:
    """Edges between these nodes, and how many there are; of too many, those whose ends rank first."""
    rank = np.full(trained.num_nodes, -1)
    rank[nodes] = np.arange(len(nodes))
    i, j = trained.graph.edges.numpy()
    found = np.flatnonzero((rank[i] >= 0) & (rank[j] >= 0))
    if len(found) > MOST_AROUND:
        both = rank[i[found]] + rank[j[found]]
        both[(rank[i[found]] == 0) | (rank[j[found]] == 0)] = -1  # the chosen node keeps all of its own
        kept = found[np.argsort(both, kind="stable")[:MOST_AROUND]]
    else:
        kept = found
    return np.stack([i[kept], j[kept]]), len(found)


def _elements(
    trained: TrainedRun, answer: Answer | None, nodes: np.ndarray, edges: np.ndarray, position: np.ndarray, colour: str
) -> list[Element]:
    tone = tones(answer) if answer is not None and colour == INFLUENCE else None
    hues = node_colours(trained, colour).hues
    named = set(nodes.tolist()) if len(nodes) <= LABELLED else set(nodes[:LABELLED].tolist())
    around = not draws_whole(trained)
    large = ["around"] * (around or trained.num_nodes <= FEW_NODES)
    drawn = []
    for node, (x, y) in zip(nodes.tolist(), position.tolist(), strict=True):
        data: dict[str, Any] = {"id": f"n{node}", "name": trained.name(node), "hue": hues[node]}
        classes = list(large)
        if around and node in named:
            data["caption"] = trained.name(node)
            classes.append("named")
        if trained.is_training(node):
            classes.append("training")
        if tone is not None:
            data["tone"] = round(float(tone[node]), 3)
            classes.append("toned")
        if answer is not None and node == answer.node:
            classes.append("chosen")
            data["caption"] = trained.name(node)
        drawn.append({"data": data, "position": {"x": round(x, 1), "y": round(y, 1)}, "classes": " ".join(classes)})
    onpath = path_edges(answer)
    for a, b in edges.T.tolist():
        name = f"{a}|{b}"
        data = {"id": f"e{name}", "source": f"n{a}", "target": f"n{b}"}
        classes = [*large, *["path"] * (name in onpath)]
        drawn.append({"data": data, "classes": " ".join(classes)})
    return drawn


def path_edges(answer: Answer | None) -> set[str]:
    """The edges of the strongest paths, named by the numbers of their ends."""
    paths = answer.paths if answer is not None else []
    return {f"{min(a, b)}|{max(a, b)}" for path in paths for a, b in pairwise(path.nodes)}


def recolour(trained: TrainedRun, answer: Answer | None, colour: str = INFLUENCE) -> dict[str, Any]:
    """What changes on a whole drawing that is already there: colours, the chosen node, the paths."""
    if answer is None:
        return {"tones": None, "hues": node_colours(trained, colour).hues, "chosen": None, "paths": []}
    by_influence = colour == INFLUENCE
    return {
        "tones": np.round(tones(answer), 3).tolist() if by_influence else None,
        "hues": None if by_influence else node_colours(trained, colour).hues,
        "chosen": f"n{answer.node}",
        "caption": trained.name(answer.node),
        "paths": [f"e{name}" for name in sorted(path_edges(answer))],
    }


def places(table: pd.DataFrame | None) -> np.ndarray | None:
    """Positions ``[N, 2]`` in the unit square, y downwards as screens have it, if two columns are coordinates."""
    if table is None:
        return None
    called = {str(name).lower(): name for name in table.columns}
    for right, up in PLACES:
        if right in called and up in called:
            spots = (
                table[[called[right], called[up]]].apply(pd.to_numeric, errors="coerce").to_numpy(np.float64, copy=True)
            )
            if np.isfinite(spots).all():
                if up in ("latitude", "lat"):  # a degree of longitude is shorter away from the equator
                    spots[:, 0] *= np.cos(np.radians(spots[:, 1].mean()))
                spots[:, 1] *= -1
                low, side = spots.min(0), np.ptp(spots, axis=0).max()
                return None if side == 0 else (spots - low) / side
    return None
