"""Deep bank: residual layers that each see a node, its neighbours and its far surroundings side by side."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

from walksum.graph import Graph
from walksum.portfolio import clock
from walksum.portfolio.arrays import Arrays
from walksum.portfolio.columns import Standard, own_and_degree
from walksum.portfolio.problem import Problem
from walksum.portfolio.spread import neighbours, spread
from walksum.training.recipe import descend

SCALES = (0.5, -0.5, 0.9)
FEWEST_LOOKS = 15  # at validation rows, one after every second epoch
FIRST_LOOKS, PASSES_OF_A_LOOK = 4, 7  # two epochs forward and back, and the answers


class DeepBank(nn.Module):
    """``h + Linear(GELU(Linear([h, A h, P_1 h, ...])))`` with layer norms, so many times."""

    def __init__(self, in_channels: int, out_channels: int, layers: int, width: int, dropout: float):
        super().__init__()
        self.embed = nn.Linear(in_channels, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers + 1))
        self.mix = nn.ModuleList(nn.Linear(5 * width, width) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.last = nn.Linear(width, out_channels)
        self.dropout = dropout

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        h = self.embed(x)
        for norm, mix, out in zip(self.norms, self.mix, self.out, strict=False):
            z = norm(h)
            z = torch.cat([z, *(spread((s, False), z, graph) for s in SCALES), neighbours(z, graph)], -1)
            z = nnf.dropout(nnf.gelu(mix(z)), self.dropout, self.training)
            h = h + nnf.dropout(out(z), self.dropout, self.training)
        return self.last(self.norms[-1](h))


def fit_deep(
    problem: Problem, layers: int, metric: Any, deadline: float, seed: int = 0, epochs: int = 800,
    width: int = 64, dropout: float = 0.2, lr: float = 3e-3, patience: int = 120,
) -> tuple[np.ndarray, DeepBanks, bool] | None:  # fmt: skip
    """Outputs ``[folds, N, C]``, the networks, and whether no fold was cut short; None without time for a few looks."""
    graph = problem.graph.to(problem.device)
    columns = own_and_degree(problem)
    standard = Standard.of(columns)
    x = torch.from_numpy(standard(columns)).to(problem.device)
    y = problem.target().to(problem.device)
    if not _affordable(x, graph, problem, layers, width, deadline):
        return None
    models: list[DeepBank] = []
    out, complete = np.zeros((len(problem.folds), problem.num_nodes, problem.outputs)), True
    for k, fold in enumerate(problem.folds):
        now = clock.now()
        until = now + (deadline - now) / (len(problem.folds) - k)
        with torch.random.fork_rng(devices=[] if problem.device == "cpu" else None):
            torch.manual_seed(100_003 * seed + 1009 * problem.seed + k)
            model = DeepBank(x.size(1), problem.outputs, layers, width, dropout).to(problem.device)
            out[k], whole = _train(model, x, graph, y, fold, problem, metric, until, epochs, lr, patience)
        complete &= whole
        models.append(model.cpu())
    return out, DeepBanks(models, standard, layers, width), complete


@dataclass
class DeepBanks:
    """One deep bank per fold."""

    models: list[DeepBank]
    standard: Standard
    layers: int
    width: int

    def outputs(self, problem: Problem) -> np.ndarray:
        """``[1, folds, N, C]`` for another table."""
        x = torch.from_numpy(self.standard(own_and_degree(problem))).to(problem.device)
        graph = problem.graph.to(problem.device)
        with torch.no_grad():
            found = [
                copy.deepcopy(model).to(problem.device).eval()(x, graph).double().cpu().numpy() for model in self.models
            ]
        return np.stack(found)[None]

    def keep(self, which: list[int]) -> DeepBanks:
        return self

    def state(self) -> tuple[dict[str, Any], Arrays]:
        arrays = {"mean": self.standard.mean, "spread": self.standard.spread}
        for k, model in enumerate(self.models):
            arrays |= {f"{k}.{name}": value.numpy() for name, value in model.state_dict().items()}
        return {"layers": self.layers, "width": self.width, "folds": len(self.models)}, arrays

    @classmethod
    def of_state(cls, config: dict[str, Any], arrays: Arrays) -> DeepBanks:
        models = []
        for k in range(config["folds"]):
            weights = {n.removeprefix(f"{k}."): torch.from_numpy(v) for n, v in arrays.items() if n.startswith(f"{k}.")}
            out, width = weights["last.weight"].shape
            model = DeepBank(weights["embed.weight"].size(1), out, config["layers"], width, 0.0)
            model.load_state_dict(weights)
            models.append(model.eval())
        return cls(models, Standard(arrays["mean"], arrays["spread"]), config["layers"], config["width"])


def _affordable(x: Tensor, graph: Graph, problem: Problem, layers: int, width: int, deadline: float) -> bool:
    """Whether the looks after which training itself knows better end in time, by the time of one layer's answers."""
    if deadline == np.inf:
        return True

    def measured() -> float:
        with torch.random.fork_rng(devices=[] if problem.device == "cpu" else None), torch.no_grad():
            one = DeepBank(x.size(1), problem.outputs, 1, width, 0.0).to(problem.device)
            one(x, graph).sum().item()  # prepares
            start = clock.now()
            one(x, graph).sum().item()  # a GPU is waited for
            return clock.now() - start

    layer = problem.once(("seconds of a deep layer", width), measured)
    return clock.now() + FIRST_LOOKS * PASSES_OF_A_LOOK * layers * layer * len(problem.folds) <= deadline


def _train(
    model: nn.Module, x: Tensor, graph: Graph, y: Tensor, fold: Any, problem: Problem, metric: Any, until: float,
    epochs: int, lr: float, patience: int,
) -> tuple[np.ndarray, bool]:  # fmt: skip
    optimiser = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-3)
    train, valid = (torch.from_numpy(rows).to(x.device) for rows in fold)
    truth = problem.y[fold[1]]

    def clip(*_: Any) -> None:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    optimiser.register_step_pre_hook(clip)

    weight = torch.ones(len(train)) if problem.weight is None else torch.from_numpy(problem.weight[fold[0]]).float()
    share = (weight / weight.sum()).to(x.device)

    def loss() -> Tensor:
        out = model(x, graph)[train]
        each = nnf.cross_entropy(out, y[train], reduction="none") if problem.classes else (out[:, 0] - y[train]) ** 2
        return (each * share).sum()

    best, kept, since = -np.inf, copy.deepcopy(model.state_dict()), 0
    whole, checked = True, clock.now()
    for epoch in range(epochs):
        model.train()
        descend(loss, optimiser)
        if epoch % 2:
            continue
        model.eval()
        with torch.no_grad():
            score = metric(model(x, graph)[valid].double().cpu().numpy(), truth)
        if score > best:
            best, kept, since = score, copy.deepcopy(model.state_dict()), 0
        else:
            since += 2
        before, checked = checked, clock.now()
        looks = 1 if epoch != 2 else FEWEST_LOOKS  # so few would be worth nothing: the time is for other members
        whole = checked + looks * (checked - before) <= until
        if since >= patience or not whole:
            break
    model.load_state_dict(kept)
    model.eval()
    with torch.no_grad():
        return model(x, graph).double().cpu().numpy(), whole
