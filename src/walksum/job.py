"""The main job: a dataset in; a trained model, honest comparisons and a run folder out."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from walksum.baselines.mlp import MLP
from walksum.data.splits import Split, make_split
from walksum.graph import Graph
from walksum.nn import GLT
from walksum.solvers import Solution
from walksum.train import Epoch, Outcome, Recipe, train

LABELS_A_CLASS, VALIDATION = 10, 200  # of the digits
ALPHAS = (0.2, 0.5, 0.8, 0.9, 0.95, 0.99)

OnEpoch = Callable[[str, Epoch, Epoch], None]


@dataclass(frozen=True)
class Job:
    """What to train on what. Every number that decides the result is here."""

    dataset: str = "digits"
    design: str = "diagonally-dominant"
    learned: bool = False
    coupling: str | None = None
    hidden: int = 64
    layers: int = 2
    seed: int = 0


@dataclass(frozen=True)
class Result:
    """A trained model, next to what simpler methods reach with the same labels."""

    job: Job
    model: GLT
    outcome: Outcome
    split: Split
    graph: Graph
    prediction: Tensor
    accuracy: dict[str, float]  # test accuracy by method
    solve: Solution  # of the last layer, in evaluation

    def metrics(self) -> dict[str, Any]:
        return {
            "job": dataclasses.asdict(self.job),
            "split": {"protocol": "balanced" if self.job.dataset == "digits" else "random", "nodes": self.split.counts},
            "test_accuracy": self.accuracy,
            "best_epoch": dataclasses.asdict(self.outcome.best),
            "epochs": len(self.outcome.history),
            "seconds": self.outcome.seconds,
            "interrupted": self.outcome.interrupted,
            "solver": {
                "name": self.solve.solver,
                "steps": self.solve.steps,
                "residual": self.solve.residual,
                "status": self.solve.status.name,
            },
            "history": [dataclasses.asdict(epoch) for epoch in self.outcome.history],
        }


def run(job: Job, data: Data, on_epoch: OnEpoch | None = None) -> Result:
    """Train the job's GLT, then the comparisons, on one split of ``data``."""
    split = split_of(job, data)
    graph = Graph.from_edge_index(data.edge_index, data.num_nodes)
    classes = int(data.y.max()) + 1
    torch.manual_seed(job.seed)
    model = GLT(
        data.num_features,
        job.hidden,
        job.layers,
        classes,
        design=job.design,
        learned=job.learned,
        coupling=job.coupling,
    )
    patience = 200 if job.design == "laplacian" and not job.learned else 100  # the paper's
    glt = train(model, data.x, graph, data.y, split, Recipe(patience=patience), _named(on_epoch, "GLT"))
    accuracy = {"GLT": glt.best.test_accuracy}
    if not glt.interrupted:
        torch.manual_seed(job.seed)
        mlp = MLP(data.num_features, classes, hidden_channels=job.hidden)
        outcome = train(mlp, data.x, graph, data.y, split, Recipe(lr=1e-2), _named(on_epoch, "MLP"))
        accuracy |= {"MLP": outcome.best.test_accuracy, "LabelSpreading": label_spreading(graph, data.y, split)}
    with torch.no_grad():
        prediction = model(data.x, graph).softmax(-1)
    solve = model.mixers[-1].last_solve
    assert solve is not None
    return Result(job, model, glt, split, graph, prediction, accuracy, solve)


def split_of(job: Job, data: Data) -> Split:
    if job.dataset == "digits":
        rest = data.num_nodes - LABELS_A_CLASS * 10 - VALIDATION
        return make_split(data, "balanced", job.seed, counts=(LABELS_A_CLASS, VALIDATION, rest))
    return make_split(data, "random", job.seed, name=job.dataset)


def label_spreading(graph: Graph, y: Tensor, split: Split) -> float:
    """Test accuracy of scikit-learn's LabelSpreading on the same graph and labels, alpha chosen on validation."""
    from sklearn.semi_supervised import LabelSpreading

    adjacency = torch.zeros(graph.num_nodes, graph.num_nodes)
    i, j = graph.edges
    adjacency[i, j] = adjacency[j, i] = 1.0
    known = torch.full_like(y, -1)
    known[split.train] = y[split.train]
    best = (-1.0, 0.0)
    for alpha in ALPHAS:
        spread = LabelSpreading(kernel=lambda X, Y: adjacency.numpy(), alpha=alpha, max_iter=1000)
        hit = torch.from_numpy(spread.fit(adjacency.numpy(), known.numpy()).transduction_) == y
        best = max(best, (hit[split.val].double().mean().item(), hit[split.test].double().mean().item()))
    return best[1]


def save(result: Result, folder: Path, picture: Callable[[Path], None] | None = None) -> Path:
    """Write the run folder as a whole or not at all: it is filled beside its place, then moved there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        result.model.save(scratch / "model")
        (scratch / "metrics.json").write_text(json.dumps(result.metrics(), indent=2))
        if picture is not None:
            picture(scratch / "picture.png")
        scratch.chmod(0o755)
        os.rename(scratch, folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return folder


def _named(on_epoch: OnEpoch | None, name: str) -> Callable[[Epoch, Epoch], None] | None:
    return None if on_epoch is None else lambda epoch, best: on_epoch(name, epoch, best)
