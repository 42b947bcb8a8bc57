"""A whole training step of a two-layer model: GLT beside PyG's GCN, GAT and APPNP of the same width."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as nnf
from rich.progress import Progress
from torch import Tensor, nn

import walksum as ws
from benchmarks import problems, timing
from benchmarks.real import load
from benchmarks.records import Store

WIDTH, HEADS, DROPOUT = 64, 8, 0.6


def baselines(inputs: int, classes: int, loops: bool = True) -> dict[str, nn.Module]:
    """GCN and APPNP with their normalised adjacency cached, as fast as PyG has them.

    ``loops``: whether GAT adds self-loops to the edges it is given.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit inside PyG
        from torch_geometric.nn import APPNP, GATConv, GCNConv, Sequential
    drop, signature = nn.Dropout(DROPOUT), "x, edge_index"
    through, mix = "x -> x", "x, edge_index -> x"
    first_gat = GATConv(inputs, WIDTH // HEADS, heads=HEADS, dropout=DROPOUT, add_self_loops=loops)
    return {
        "gcn": Sequential(
            signature,
            [
                (drop, through),
                (GCNConv(inputs, WIDTH, cached=True), mix),
                (nn.ReLU(), through),
                (drop, through),
                (GCNConv(WIDTH, classes, cached=True), mix),
            ],
        ),
        "gat": Sequential(
            signature,
            [
                (drop, through),
                (first_gat, mix),
                (nn.ELU(), through),
                (drop, through),
                (GATConv(WIDTH, classes, dropout=DROPOUT, add_self_loops=loops), mix),
            ],
        ),
        "appnp": Sequential(
            signature,
            [
                (drop, through),
                (nn.Linear(inputs, WIDTH), through),
                (nn.ReLU(), through),
                (drop, through),
                (nn.Linear(WIDTH, classes), through),
                (APPNP(K=10, alpha=0.1, cached=True), mix),
            ],
        ),
    }


def transformers(inputs: int, classes: int) -> dict[str, nn.Module]:
    """GLT, fixed and learned; none where this build of the library has no model yet."""
    model = getattr(ws, "GLT", None)
    if model is None:
        return {}
    common = {"in_channels": inputs, "hidden_channels": WIDTH, "num_layers": 2, "out_channels": classes}
    return {
        "glt-fixed": model(**common, design="diagonally-dominant", learned=False, dropout=DROPOUT),
        "glt-learned": model(**common, heads=(HEADS, 1), design="laplacian", learned=True, dropout=DROPOUT),
    }


def training_step(model: nn.Module, x: Tensor, edge_index: Tensor, y: Tensor, train: Tensor) -> Callable[[], Any]:
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=5e-4)
    model.train()

    def step() -> None:
        optimiser.zero_grad()
        nnf.cross_entropy(model(x, edge_index)[train], y[train]).backward()
        optimiser.step()

    return step


def captured_step(model: nn.Module, x: Tensor, edge_index: Tensor, y: Tensor, train: Tensor) -> ws.TrainingStep:
    """The step as ``walksum train`` takes it: on a GPU one CUDA graph, its loss and verdicts read after each."""
    fast = {"capturable": True, "fused": True} if x.is_cuda else {}
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=5e-4, **fast)
    nodes = train.nonzero().flatten()
    target = y[nodes]
    model.train()
    return ws.TrainingStep(lambda: nnf.cross_entropy(model(x, edge_index).index_select(0, nodes), target), optimiser)


def steps(data: Any, device: str) -> dict[str, Callable[[], Any]]:
    """Every contestant's step, warm; on a GPU also ours as it is, launch by launch, and GAT captured, if it can be."""
    inputs, classes = data.num_features, int(data.y.max()) + 1
    given = (data.x, data.edge_index, data.y, data.train_mask)
    found: dict[str, Callable[[], Any]] = {}
    for name, model in baselines(inputs, classes).items():
        found[name] = training_step(model.to(device), *given)
    for name, model in transformers(inputs, classes).items():
        found[name] = captured_step(model.to(device), *given)
    if device != "cpu":
        for name, model in transformers(inputs, classes).items():
            found[f"{name}-eager"] = training_step(model.to(device), *given)
        found["gat-captured"] = _captured_gat(inputs, classes, data, device)
    for step in found.values():
        for _ in range(6):
            step()
    return {name: step for name, step in found.items() if name != "gat-captured" or step.captured}  # type: ignore[attr-defined]


def _captured_gat(inputs: int, classes: int, data: Any, device: str) -> ws.TrainingStep:
    """With the self-loops among the edges: where GAT adds them itself, it makes the host look at how many there are."""
    from torch_geometric.utils import add_remaining_self_loops

    edges = add_remaining_self_loops(data.edge_index, num_nodes=data.num_nodes)[0]
    model = baselines(inputs, classes, loops=False)["gat"].to(device)
    return captured_step(model, data.x, edges, data.y, data.train_mask)


def run(store: Store, progress: Progress, device: str, quick: bool) -> None:
    graphs = [name for name in ("cora", "pubmed") if name in problems.available()]
    task = progress.add_task("training steps", total=len(graphs))
    for name in graphs:
        progress.update(task, description=f"training steps on {name}")
        data = load(name).to(device)
        if not all(store.has(kind="step", graph=name, contestant=label) for label in ("gat", "glt-learned")):
            store.add(*_measure(name, data, device, quick))
        progress.advance(task)


def _measure(name: str, data: Any, device: str, quick: bool) -> list[dict]:
    found = steps(data, device)
    samples = {label: timing.sampler(step, device, at_least=0.05) for label, step in found.items()}
    taken = timing.interleaved(samples, dict.fromkeys(samples, 1.0 if quick else 8.0), rounds=3 if quick else 11)
    medians = {label: statistics.median(values) for label, values in taken.items()}
    return [
        {"kind": "step", "graph": name, "contestant": label, "seconds": value, "samples": len(taken[label])}
        | {f"over_{other}": value / medians[other] for other in ("gcn", "gat", "appnp")}
        for label, value in medians.items()
    ]
