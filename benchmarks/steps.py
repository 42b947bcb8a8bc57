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


def baselines(inputs: int, classes: int) -> dict[str, nn.Module]:
    """GCN and APPNP with their normalised adjacency cached, as fast as PyG has them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit inside PyG
        from torch_geometric.nn import APPNP, GATConv, GCNConv, Sequential
    drop, signature = nn.Dropout(DROPOUT), "x, edge_index"
    through, mix = "x -> x", "x, edge_index -> x"
    first_gat = GATConv(inputs, WIDTH // HEADS, heads=HEADS, dropout=DROPOUT)
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
                (GATConv(WIDTH, classes, dropout=DROPOUT), mix),
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


def run(store: Store, progress: Progress, device: str, quick: bool) -> None:
    graphs = [name for name in ("cora", "pubmed") if name in problems.available()]
    task = progress.add_task("training steps", total=len(graphs))
    for name in graphs:
        progress.update(task, description=f"training steps on {name}")
        data = load(name).to(device)
        models = baselines(data.num_features, int(data.y.max()) + 1)
        models |= transformers(data.num_features, int(data.y.max()) + 1)
        if not all(store.has(kind="step", graph=name, contestant=label) for label in models):
            store.add(*_measure(name, models, data, device, quick))
        progress.advance(task)


def _measure(name: str, models: dict[str, nn.Module], data: Any, device: str, quick: bool) -> list[dict]:
    samples = {}
    for label, model in models.items():
        step = training_step(model.to(device), data.x, data.edge_index, data.y, data.train_mask)
        for _ in range(3):
            step()
        samples[label] = timing.sampler(step, device, at_least=0.05)
    taken = timing.interleaved(samples, dict.fromkeys(samples, 1.0 if quick else 8.0), rounds=3 if quick else 11)
    medians = {label: statistics.median(values) for label, values in taken.items()}
    return [
        {"kind": "step", "graph": name, "contestant": label, "seconds": value, "samples": len(taken[label])}
        | {f"over_{other}": value / medians[other] for other in ("gcn", "gat", "appnp")}
        for label, value in medians.items()
    ]
