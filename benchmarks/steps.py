"""A whole training step of a two-layer model: GLT beside PyG's GCN, GAT and APPNP of the same width.

All have the same dropout, the same optimiser and the same way to be launched: eager steps are compared with eager
steps, steps captured as CUDA graphs with captured ones. What depends on the graph alone is done before for all (GCN and
APPNP keep their normalised adjacency, GAT is given its self-loops, GLT its Graph).

On a CPU a GLT skips the zeros of its input features, which PyG's layers do not. "gcn-skip" and "gat-skip" are PyG's
models with the same input layer, to tell that gain from the rest.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as nnf
from rich.progress import Progress
from torch import Tensor, nn

import walksum as ws
from benchmarks import problems, timing
from benchmarks.measure import medians
from benchmarks.records import Record, Store
from walksum.nn.dropout import Dropout
from walksum.nn.input_linear import InputLinear

WIDTH, HEADS, DROPOUT, RUNS = 64, 8, 0.6, 3
EAGER, CAPTURED = "eager", "captured"
DROPOUTS: dict[str, type[nn.Dropout]] = {"walksum": Dropout, "torch": nn.Dropout}
OTHERS = ("gcn", "gat", "appnp")
SKIP = ("gcn-skip", "gat-skip")


class SkippingInput(InputLinear):
    """The projection of a PyG layer, with the dropout before it and without its zeros."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs, bias=False)
        self.drop = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, self.drop)


def compared_models(inputs: int, classes: int) -> dict[str, nn.Module]:
    """PyG's models as fast as PyG has them; dropout as modules, so that it can be exchanged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit inside PyG
        from torch_geometric.nn import APPNP, GATConv, GCNConv

    class Attention(GATConv):
        """GATConv whose dropout of attention weights is a module."""

        def __init__(self, *args: Any, **kwargs: Any):
            super().__init__(*args, add_self_loops=False, **kwargs)
            self.drop = nn.Dropout(DROPOUT)

        def edge_update(self, alpha_j, alpha_i, edge_attr, index, ptr, dim_size):  # type: ignore[no-untyped-def]
            return self.drop(super().edge_update(alpha_j, alpha_i, edge_attr, index, ptr, dim_size))

    class Stack(nn.Sequential):
        """Not PyG's Sequential: it names generated code by a random number, and takes earlier code of that name."""

        def forward(self, x: Tensor, edges: Any) -> Tensor:  # type: ignore[override]
            for part in self:
                x = part(x, edges) if isinstance(part, (GCNConv, GATConv, APPNP)) else part(x)
            return x

    def drop() -> nn.Module:
        return nn.Dropout(DROPOUT)

    def skipping(layer: nn.Module) -> nn.Module:
        layer.lin = SkippingInput(inputs, WIDTH)
        return layer

    return {
        "gcn": Stack(
            drop(), GCNConv(inputs, WIDTH, cached=True), nn.ReLU(), drop(), GCNConv(WIDTH, classes, cached=True)
        ),
        "gat": Stack(
            drop(), Attention(inputs, WIDTH // HEADS, heads=HEADS), nn.ELU(), drop(), Attention(WIDTH, classes)
        ),
        "appnp": Stack(
            drop(), nn.Linear(inputs, WIDTH), nn.ReLU(), drop(), nn.Linear(WIDTH, classes),
            APPNP(K=10, alpha=0.1, cached=True),
        ),
        "gcn-skip": Stack(
            skipping(GCNConv(inputs, WIDTH, cached=True)), nn.ReLU(), drop(), GCNConv(WIDTH, classes, cached=True)
        ),
        "gat-skip": Stack(
            skipping(Attention(inputs, WIDTH // HEADS, heads=HEADS)), nn.ELU(), drop(), Attention(WIDTH, classes)
        ),
    }  # fmt: skip


def transformers(inputs: int, classes: int) -> dict[str, nn.Module]:
    """GLT, fixed and learned."""
    common = {"in_channels": inputs, "hidden_channels": WIDTH, "num_layers": 2, "out_channels": classes}
    return {
        "glt-fixed": ws.GLT(**common, design="diagonally-dominant", learned=False, dropout=DROPOUT),
        "glt-learned": ws.GLT(**common, heads=(HEADS, 1), design="laplacian", learned=True, dropout=DROPOUT),
    }


def with_dropout(model: nn.Module, kind: type[nn.Dropout]) -> nn.Module:
    """Every dropout of the model becomes one of this kind, in place."""
    for part in list(model.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, nn.Dropout):
                setattr(part, name, kind(child.p))
    return model


def make_steps(data: Any, device: str, dropout: str, mode: str) -> dict[str, Callable[[], Any]]:
    """Every model's step, warm; one that cannot be captured is missing."""
    from torch_geometric.utils import add_remaining_self_loops

    inputs, classes = data.num_features, int(data.y.max()) + 1
    nodes = data.train_mask.nonzero().flatten()
    loops = add_remaining_self_loops(data.edge_index, num_nodes=data.num_nodes)[0]
    graph = ws.Graph.from_edge_index(data.edge_index, data.num_nodes)
    models = compared_models(inputs, classes) | transformers(inputs, classes)
    found = {}
    for name, model in models.items():
        if name in SKIP and device != "cpu":
            continue
        edges = graph if name.startswith("glt") else loops if name.startswith("gat") else data.edge_index
        step = _step(with_dropout(model, DROPOUTS[dropout]).to(device), data.x, edges, data.y[nodes], nodes, mode)
        for _ in range(6):
            step()
        if mode == EAGER or step.captured:
            found[name] = step
    return found


def _step(model: nn.Module, x: Tensor, edges: Any, target: Tensor, nodes: Tensor, mode: str) -> Any:
    """One step of Adam, the same for all models; captured steps read their loss after each, as training does."""
    model.train()
    fused: Any = {"fused": True, "capturable": mode == CAPTURED}  # as the training loop has it
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=5e-4, **fused)

    def loss() -> Tensor:
        return nnf.cross_entropy(model(x, edges).index_select(0, nodes), target)

    if mode == CAPTURED:
        return ws.TrainingStep(loss, optimiser)

    def step() -> float:
        optimiser.zero_grad()
        value = loss()
        value.backward()
        optimiser.step()
        return float(value.detach())

    return step


def conditions(device: str) -> Iterator[tuple[str, str]]:
    """Mode and dropout. On a GPU the library's dropout is torch's, on a CPU there is nothing to capture."""
    if device == "cpu":
        yield from ((EAGER, name) for name in DROPOUTS)
    else:
        yield from ((mode, "torch") for mode in (EAGER, CAPTURED))


def run(store: Store, progress: Progress, device: str, quick: bool, graphs: tuple[str, ...] = ()) -> None:
    names = [name for name in (graphs or ("cora", "pubmed")) if name in problems.REAL and name in problems.available()]
    asked = [(name, *condition) for name in names for condition in conditions(device)]
    task = progress.add_task("training steps", total=len(asked))
    for name, mode, dropout in asked:
        progress.update(task, description=f"training steps on {name}, {mode}, {dropout} dropout")
        key = {"kind": "step", "graph": name, "mode": mode, "dropout": dropout}
        if not store.has(**key, contestant="glt-learned"):
            store.add(*_measure(problems.load(name).to(device), device, quick, **key))
        progress.advance(task)


def _measure(data: Any, device: str, quick: bool, **key: Any) -> list[Record]:
    """Three runs, in each of which every model is made anew; ratios are within a run."""
    runs = []
    for _ in range(RUNS):
        steps = make_steps(data, device, key["dropout"], key["mode"])
        samples = {name: timing.sampler(step, device, at_least=0.05) for name, step in steps.items()}
        budget = dict.fromkeys(samples, 0.5 if quick else 3.0)
        taken = timing.interleaved(samples, budget, rounds=3 if quick else 7)
        runs.append({name: statistics.median(values) for name, values in taken.items()})
    shared = [name for name in runs[0] if all(name in run for run in runs)]
    return [
        {**key, "contestant": name}
        | medians(
            [
                {"seconds": run[name]} | {f"over_{other}": run[name] / run[other] for other in OTHERS if other in run}
                for run in runs
            ]
        )
        for name in shared
    ]
