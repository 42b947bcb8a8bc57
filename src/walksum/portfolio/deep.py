"""Deep networks whose layers each see a node, its neighbours and its far surroundings side by side."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

from walksum.graph import Graph
from walksum.nn.dropout import Dropout
from walksum.portfolio import clock
from walksum.portfolio.arrays import Arrays, below
from walksum.portfolio.blend import Metric, class_score, log_loss
from walksum.portfolio.columns import Standard, own_and_degree
from walksum.portfolio.input import Input
from walksum.portfolio.problem import Fold, Problem
from walksum.portfolio.spread import Operator, neighbours, spread
from walksum.training.recipe import descend

SCALES = (0.5, -0.5, 0.9)
PARTS = 2 + len(SCALES)  # a node itself, its neighbours, its far surroundings
FEWEST_LOOKS = 15  # at validation rows, one after every second epoch
FIRST_LOOKS, PASSES_OF_A_LOOK = 4, 7  # two epochs forward and back, and the answers
EPOCHS_OF_WORDS = 400  # at most


class DeepBank(nn.Module):
    """``h + Linear(GELU(Linear([h, A h, P_1 h, ...])))`` with layer norms, so many times."""

    def __init__(self, in_channels: int, out_channels: int, layers: int, width: int, dropout: float):
        super().__init__()
        self.embed = nn.Linear(in_channels, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers + 1))
        self.mix = nn.ModuleList(nn.Linear(PARTS * width, width) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.last = nn.Linear(width, out_channels)
        self.drop = Dropout(dropout)

    def forward(self, x: Tensor, graph: Graph) -> Tensor:
        h = self.embed(x)
        for norm, mix, out in zip(self.norms, self.mix, self.out, strict=False):
            z = norm(h)
            z = torch.cat([z, *(spread(Operator(s), z, graph) for s in SCALES), neighbours(z, graph)], -1)
            z = self.drop(nnf.gelu(mix(z)))
            h = h + self.drop(out(z))
        return self.last(self.norms[-1](h))


class WordBank(nn.Module):
    """``dropout(ReLU(norm(h W + A h W_1 + P_1 h W_2 + ...)))`` so many times, then a linear map.

    It reads a sparse table of words as it is. With ``labels`` it also reads known labels: in training a random part of
    them at each step, so large, and learns from the others.
    """

    def __init__(
        self, in_channels: int, out_channels: int, layers: int, width: int, dropout: float, labels: float = 0.0
    ):
        super().__init__()
        self.words = _glorot(in_channels, width)
        self.told = _glorot(out_channels, width) if labels else None
        self.mix = nn.ParameterList(_glorot(width, width) for _ in range(layers - 1))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.last = nn.Linear(width, out_channels)
        self.drop, self.labels = Dropout(dropout), labels

    def forward(self, x: Input, graph: Graph, told: Tensor | None = None) -> Tensor:
        """``told [N, C]``: known labels, rows of zeros elsewhere."""
        z = x.times(self.words, 0.0)
        if self.told is not None and told is not None:
            z = z + told @ self.told
        for norm, mix in zip(self.norms, [*self.mix, None], strict=True):
            own, near, *far = z.chunk(PARTS, -1)
            z = own + neighbours(near, graph)
            for s, part in zip(SCALES, far, strict=True):
                z = z + spread(Operator(s), part, graph)
            z = self.drop(torch.relu(norm(z)))
            z = self.last(z) if mix is None else z @ mix
        return z


def _glorot(rows: int, width: int) -> nn.Parameter:
    bound = (6 / (rows + width)) ** 0.5
    return nn.Parameter(torch.empty(rows, PARTS * width).uniform_(-bound, bound))


def fit_deep(
    problem: Problem, layers: int, metric: Any, deadline: float, seed: int = 0, epochs: int = 800,
    width: int = 64, dropout: float = 0.2, lr: float = 3e-3, patience: int = 120,
) -> tuple[np.ndarray, DeepBanks, bool] | None:  # fmt: skip
    """Outputs ``[folds, N, C]``, the networks, and whether no fold was cut short; None without time for a few looks."""
    columns = own_and_degree(problem)
    standard = Standard.of(columns)
    banks = DeepBanks([], standard, layers, width)
    x = torch.from_numpy(standard(columns)).to(problem.device)
    if not _affordable(banks, x, problem, deadline):
        return None

    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = DeepBank(x.size(1), problem.outputs, layers, width, dropout).to(problem.device)
        optimiser = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-3)

        def clip(*_: Any) -> None:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)

        optimiser.register_step_pre_hook(clip)
        return model, optimiser

    return _fit(banks, problem, x, make, metric, deadline, [seed], [epochs], patience)


def fit_words(
    problem: Problem, labels: float, metric: Metric, deadline: float, seeds: int, epochs: list[int] | None = None,
    layers: int = 2, width: int = 64,
) -> tuple[np.ndarray, DeepBanks, bool] | None:  # fmt: skip
    """The same of networks on words, ``seeds`` of them averaged; ``epochs`` of each where no row judges."""
    banks = DeepBanks([], None, layers, width, seeds)
    x = banks.read(problem)
    if not _affordable(banks, x, problem, deadline):
        return None
    fused = problem.device == "cpu" or None

    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = WordBank(x.shape[1], problem.outputs, layers, width, 0.7, labels).to(problem.device)
        return model, torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4, fused=fused)

    def finer(out: np.ndarray, y: np.ndarray) -> float:
        """Of epochs with equal scores the one of the smaller loss."""
        return class_score(metric, out, y) + 1e-4 * max(-100.0, log_loss(out, y))

    return _fit(banks, problem, x, make, finer, deadline, [*range(seeds)], epochs or [EPOCHS_OF_WORDS] * seeds, 60)


def _fit(
    banks: DeepBanks, problem: Problem, x: Any, make: Callable[[], tuple[nn.Module, torch.optim.Optimizer]],
    metric: Any, deadline: float, seeds: list[int], epochs: list[int], patience: int,
) -> tuple[np.ndarray, DeepBanks, bool] | None:  # fmt: skip
    graph, y, complete = problem.graph.to(problem.device), problem.target().to(problem.device), True
    turns = [(k, seed, most) for k in range(len(problem.folds)) for seed, most in zip(seeds, epochs, strict=True)]
    for turn, (k, seed, most) in enumerate(turns):
        now = clock.now()
        until = now + (deadline - now) / (len(turns) - turn)
        with torch.random.fork_rng(devices=[] if problem.device == "cpu" else None):
            torch.manual_seed(100_003 * seed + 1009 * problem.seed + k)
            model, optimiser = make()
            trained = _train(model, optimiser, x, graph, y, problem.folds[k], problem, metric, until, most, patience)
        if trained is None:
            return None
        complete &= trained[1]
        banks.epochs.append(trained[0])
        banks.models.append(model.cpu())
    with torch.no_grad():
        found = [banks.fold(k).answer(problem, x, train)[0] for k, (train, _) in enumerate(problem.folds)]
    return torch.stack(found).double().cpu().numpy(), banks, complete


@dataclass
class DeepBanks:
    """Deep networks of all folds; where a fold has several ``seeds``, their probabilities are averaged."""

    models: list[Any]
    standard: Standard | None  # None: of words, which are read as they are
    layers: int
    width: int
    seeds: int = 1
    epochs: list[int] = field(default_factory=list)  # that each was trained for; not kept in files

    def fold(self, k: int) -> DeepBanks:
        """The networks of one fold."""
        return replace(self, models=self.models[k * self.seeds : (k + 1) * self.seeds])

    def read(self, problem: Problem) -> Any:
        if self.standard is None:
            return Input(problem.X, problem.device)
        return torch.from_numpy(self.standard(own_and_degree(problem))).to(problem.device)

    def outputs(self, problem: Problem) -> np.ndarray:
        """``[1, folds, N, C]`` for another table."""
        with torch.no_grad():
            return self.answer(problem, self.read(problem), problem.known).double().cpu().numpy()[None]

    def answer(self, problem: Problem, x: Any, known: np.ndarray) -> Tensor:
        """``[folds, N, C]`` by the labels of ``known`` rows, where they are read; no node's own is."""
        graph = problem.graph.to(problem.device)
        found = []
        for model in self.models:
            model = copy.deepcopy(model).to(problem.device).eval()
            told = _told(model, problem, known)
            out = model(x, graph, *told)
            for rows in _tensors((known[::2], known[1::2]), problem.device) if told else ():  # one half by the other
                out = out.index_copy(0, rows, model(x, graph, told[0].index_fill(0, rows, 0.0))[rows])
            found.append(out)
        if self.seeds == 1:
            return torch.stack(found)
        shares = torch.stack(found).log_softmax(-1).unflatten(0, (-1, self.seeds))
        return shares.logsumexp(1) - math.log(self.seeds)

    def keep(self, which: list[int]) -> DeepBanks:
        return self

    def state(self) -> tuple[dict[str, Any], Arrays]:
        arrays = {} if self.standard is None else {"mean": self.standard.mean, "spread": self.standard.spread}
        for k, model in enumerate(self.models):
            arrays |= {f"{k}.{name}": value.numpy() for name, value in model.state_dict().items()}
        config = {"layers": self.layers, "width": self.width, "folds": len(self.models) // self.seeds}
        return config | {"seeds": self.seeds, "words": self.standard is None}, arrays

    @classmethod
    def of_state(cls, config: dict[str, Any], arrays: Arrays) -> DeepBanks:
        words, seeds, models = config.get("words", False), config.get("seeds", 1), []  # older runs have neither
        for k in range(config["folds"] * seeds):
            weights = {name: torch.from_numpy(values) for name, values in below(f"{k}.", arrays).items()}
            out, width = weights["last.weight"].shape
            model: nn.Module
            if words:
                model = WordBank(len(weights["words"]), out, config["layers"], width, 0.0, float("told" in weights))
            else:
                model = DeepBank(weights["embed.weight"].size(1), out, config["layers"], width, 0.0)
            model.load_state_dict(weights)
            models.append(model.eval())
        standard = None if words else Standard(arrays["mean"], arrays["spread"])
        return cls(models, standard, config["layers"], config["width"], seeds)


def _told(model: nn.Module, problem: Problem, known: np.ndarray) -> tuple[Tensor, ...]:
    """The labels of ``known`` rows ``[N, C]``, of networks that read any."""
    if not getattr(model, "labels", 0.0):
        return ()
    told = np.zeros((problem.num_nodes, problem.classes), np.float32)
    told[known, problem.y[known].astype(np.int64)] = 1.0
    return (torch.from_numpy(told).to(problem.device),)


def _tensors(rows: tuple[np.ndarray, ...], device: str) -> list[Tensor]:
    return [torch.from_numpy(np.ascontiguousarray(each)).to(device) for each in rows]


def _affordable(banks: DeepBanks, x: Any, problem: Problem, deadline: float) -> bool:
    """Whether the looks after which training itself knows better end in time, by the time of one layer's answers."""
    if deadline == np.inf:
        return True
    graph, kind = problem.graph.to(problem.device), DeepBank if banks.standard else WordBank

    def measured() -> float:
        with torch.random.fork_rng(devices=[] if problem.device == "cpu" else None), torch.no_grad():
            one = kind(x.shape[1], problem.outputs, 1, banks.width, 0.0).to(problem.device).eval()
            one(x, graph).sum().item()  # prepares
            start = clock.now()
            one(x, graph).sum().item()  # a GPU is waited for
            return clock.now() - start

    layer = problem.once(("seconds of a deep layer", kind, banks.width), measured)
    passes = FIRST_LOOKS * PASSES_OF_A_LOOK * banks.layers
    return clock.now() + passes * layer * len(problem.folds) * banks.seeds <= deadline


def _train(
    model: Any, optimiser: torch.optim.Optimizer, x: Any, graph: Graph, y: Tensor, fold: Fold,
    problem: Problem, metric: Any, until: float, epochs: int, patience: int,
) -> tuple[int, bool] | None:  # fmt: skip
    """The number of epochs that the fold's validation rows liked best, and whether training ended by itself.

    Without such rows it takes all epochs. None where its first looks tell that there is no time for a few more.
    """
    train, valid = _tensors(fold, problem.device)
    truth = problem.y[fold[1]]
    told = _told(model, problem, fold[0])
    weight = torch.ones(len(train)) if problem.weight is None else torch.from_numpy(problem.weight[fold[0]]).float()
    share = (weight / weight.sum()).to(problem.device)

    def loss() -> Tensor:
        seen, mine = told, share
        if told:
            hidden = torch.rand(len(train), device=train.device) >= model.labels
            seen, mine = (told[0].index_fill(0, train[hidden], 0.0),), share * hidden
            mine = mine / mine.sum().clamp_min(1e-12)
        out = model(x, graph, *seen)[train]
        each = nnf.cross_entropy(out, y[train], reduction="none") if problem.classes else (out[:, 0] - y[train]) ** 2
        return (each * mine).sum()

    best, kept, since, chosen = -np.inf, copy.deepcopy(model.state_dict()), 0, epochs
    whole, checked = True, clock.now()
    for epoch in range(epochs):
        model.train()
        descend(loss, optimiser)
        if epoch % 2 or not len(valid):
            continue
        model.eval()
        with torch.no_grad():
            score = class_score(metric, model(x, graph, *told)[valid].double().cpu().numpy(), truth)
        if score > best:
            best, kept, since, chosen = score, copy.deepcopy(model.state_dict()), 0, epoch + 1
        else:
            since += 2
        before, checked = checked, clock.now()
        looks = 1 if epoch != 2 else FEWEST_LOOKS  # so few would be worth nothing: the time is for other members
        whole = checked + looks * (checked - before) <= until
        if epoch <= 2 and not whole:
            return None
        if since >= patience or not whole:
            break
    if len(valid):
        model.load_state_dict(kept)
    model.eval()
    return chosen, whole
