"""Mini-batches of parts of one graph beside the full batch: accuracy on PubMed, and what the border takes away.

    python -m benchmarks.minibatch [--splits 10] [--out results/pyg/minibatch.jsonl]

A part is solved as a graph of its own, so influence ends at its border. A halo of k hops is the boundary correction:
the part is solved together with its neighbourhood, whose outputs are thrown away.

"accumulated": the gradients of all parts are added up before each step, so that only the border differs from the full
batch. "drawn": a step per batch of ten parts out of a hundred, with the couplings between them, as ClusterLoader draws
them. Each variant chooses its epoch on validation nodes, and test nodes are read there once. Models are judged on the
whole graph and, as somebody without room for it would, in the same parts.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

import walksum as ws
from benchmarks import records
from walksum.data import load, make_split

SCALE, HIDDEN, EPOCHS, DRAWN_EPOCHS, LOOKS = 0.9, 16, 60, 20, 5
PARTS, SMALL_PARTS = 10, 100
FULL, DRAWN = "full batch", "METIS parts, drawn"
VARIANTS = {
    FULL: ("", None),
    "METIS parts, accumulated": ("metis", 0),
    "METIS parts with a halo of 1 hop, accumulated": ("metis", 1),
    "METIS parts with a halo of 2 hops, accumulated": ("metis", 2),
    "random parts, accumulated": ("random", 0),
    DRAWN: ("metis", 0),
}


class Part(NamedTuple):
    """Nodes of a mini-batch: those that are answered for come first, then the halo."""

    nodes: Tensor
    own: int
    graph: ws.Graph
    x: Tensor


def owners(graph: ws.Graph, parts: int, kind: str) -> Tensor:
    """The part of each node: cut by METIS, or random."""
    if kind == "random":
        return torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0)) % parts
    import pymetis

    matrix, options = graph.to_scipy(), pymetis.Options(seed=0)
    adjacency = pymetis.CSRAdjacency(matrix.indptr, matrix.indices)
    return torch.tensor(pymetis.part_graph(parts, adjacency=adjacency, options=options)[1])


def make_part(graph: ws.Graph, x: Tensor, own: Tensor, halo: int = 0) -> Part:
    """The part of the nodes in the mask ``own``, with the induced subgraph of them and their halo."""
    (i, j), inside = graph.edges, own
    for _ in range(halo):
        grown = inside.clone()
        grown[i[inside[j]]] = grown[j[inside[i]]] = True
        inside = grown
    nodes = torch.cat([own.nonzero().view(-1), (inside & ~own).nonzero().view(-1)])
    place = torch.empty(graph.num_nodes, dtype=torch.long)
    place[nodes] = torch.arange(nodes.numel())
    edges = place[graph.edges[:, inside[i] & inside[j]]]
    return Part(nodes, int(own.sum()), ws.Graph.from_edge_index(edges, nodes.numel()), x[nodes])


def in_parts(model: Any, parts: list[Part], x: Tensor | None = None) -> Tensor:
    """Outputs of all nodes, each from the part that answers for it."""
    outs = [model(part.x if x is None else x[part.nodes], part.graph)[: part.own] for part in parts]
    place = torch.cat([part.nodes[: part.own] for part in parts])
    return torch.empty(place.numel(), outs[0].size(1), dtype=outs[0].dtype).index_copy(0, place, torch.cat(outs))


def drawn(graph: ws.Graph, x: Tensor, owner: Tensor) -> list[Part]:
    """Ten small parts each, in random order: new batches in every epoch."""
    batch = (torch.randperm(SMALL_PARTS) % PARTS)[owner]
    return [make_part(graph, x, batch == k) for k in range(PARTS)]


def train(data: Any, graph: ws.Graph, name: str, parts: list[Part], owner: Tensor | None, seed: int) -> dict[str, Any]:
    """Test accuracy on the whole graph and in parts, each at the epoch that validation chose for it."""
    split = make_split(data, "random", seed, name="pubmed")
    torch.manual_seed(seed)
    model = ws.PredictThenPropagate(
        data.num_features, HIDDEN, int(data.y.max()) + 1, bank=ws.Propagate(SCALE), dropout=0.0
    )
    optimiser = torch.optim.Adam(model.parameter_groups(weight_decay=5e-3), lr=0.05 if owner is None else 0.02)
    learned = torch.zeros(data.num_nodes, dtype=torch.bool)
    learned[split.train] = True
    epochs, best, started = (EPOCHS if owner is None else DRAWN_EPOCHS), {}, time.process_time()  # type: ignore[var-annotated]
    for epoch in range(1, epochs + 1):
        model.train()
        for part in parts if owner is None else drawn(graph, data.x, owner):
            asked = learned[part.nodes[: part.own]].nonzero().view(-1)
            if asked.numel():
                out = model(part.x, part.graph).index_select(0, asked)
                nnf.cross_entropy(out, data.y[part.nodes[asked]], reduction="sum").div(split.train.numel()).backward()
            if owner is not None:
                optimiser.step()
                optimiser.zero_grad()
        if owner is None:
            optimiser.step()
            optimiser.zero_grad()
        if epoch % (epochs // LOOKS) == 0:
            _look(model, data, graph, None if name == FULL else parts, split, best)
    seconds = time.process_time() - started
    return {where: 100 * values[2] for where, values in best.items()} | {"cpu_seconds": seconds}


@torch.no_grad()
def _look(model: nn.Module, data: Any, graph: ws.Graph, parts: list[Part] | None, split: Any, best: dict) -> None:
    model.eval()
    outputs = {"whole": model(data.x, graph)}
    if parts is not None:
        outputs["parts"] = in_parts(model, parts)
    for name, out in outputs.items():
        right = (out.argmax(1) == data.y).float()
        score = (float(right[split.val].mean()), -float(nnf.cross_entropy(out[split.val], data.y[split.val])))
        if name not in best or score > best[name][:2]:
            best[name] = (*score, float(right[split.test].mean()))


def border_error(x: Tensor, graph: ws.Graph, parts: list[Part]) -> float:
    """The relative error of propagated features, part by part instead of whole."""
    mix = ws.Propagate(SCALE)
    whole = mix(x, graph)
    return float((in_parts(mix, parts, x) - whole).norm() / whole.norm())


def run(splits: int) -> list[records.Record]:
    data = load("pubmed")
    graph, some = ws.Graph.from_edge_index(data.edge_index, data.num_nodes), data.x[:, :16].double()
    whole = Part(torch.arange(data.num_nodes), data.num_nodes, graph, data.x)
    full: list[dict[str, Any]] = []
    found = []
    for name, (kind, halo) in VARIANTS.items():
        owner, parts = None, [whole]
        if halo is not None:
            owner = owners(graph, PARTS, kind)
            parts = [make_part(graph, data.x, owner == k, halo) for k in range(PARTS)]
        small = owners(graph, SMALL_PARTS, kind) if name == DRAWN else None
        runs = [train(data, graph, name, parts, small, seed) for seed in range(splits)]
        full = full or runs
        row: records.Record = {"variant": name, "splits": splits}
        for where in ("whole", "parts"):
            if where in runs[0]:
                apart = [run[where] - other["whole"] for run, other in zip(runs, full, strict=True)]
                row[where] = {
                    "accuracy": round(statistics.mean(run[where] for run in runs), 2),
                    "minus_full": round(statistics.mean(apart), 2),
                    "standard_error": round(statistics.stdev(apart) / splits**0.5, 2) if splits > 1 else None,
                }
        if owner is not None:
            i, j = graph.edges
            row["cut_edges"] = round(float((owner[i] != owner[j]).double().mean()), 4)
            row["nodes_solved"] = round(sum(part.nodes.numel() for part in parts) / data.num_nodes, 3)
            row["border_error"] = round(border_error(some, graph, parts), 4)
        row["cpu_seconds"] = round(statistics.mean(run["cpu_seconds"] for run in runs), 2)
        print(row, flush=True)
        found.append(row)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = run(args.splits)
    about = {"commit": records.commit(), **records.machine("cpu"), "scale": SCALE, "hidden": HIDDEN}
    records.write_lines(args.out, [about, *found])


if __name__ == "__main__":
    main()
