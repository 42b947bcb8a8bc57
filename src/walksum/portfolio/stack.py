"""Predict-then-propagate members of one shape, trained side by side as one computation.

Members differ in seed, weight decay, operators and fold. Adam and weight decay act on each alone and each config stops
by its own patience, so it trains as it would by itself; only the dropout mask of the input is common to all, so that
one sparse product serves them all.

The folds of a config keep the weights of one epoch, which they choose together. If each fold chose its own by the rows
that judge it, networks would look better than they are: on a hundred rows by more than what sets members apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor

from walksum.graph import Graph
from walksum.portfolio import clock
from walksum.portfolio.blend import Metric
from walksum.portfolio.input import Input, InputOfFolds
from walksum.portfolio.joint import KnownField
from walksum.portfolio.networks import Networks, StackRecipe, some_of
from walksum.portfolio.problem import Problem
from walksum.portfolio.spread import Operator
from walksum.training.recipe import descend

EVERY = 2  # epochs between two looks at the validation rows
STEPS_OF_A_LOOK = 2.5  # two epochs, and the answers without dropout
FEWEST_LOOKS = 30  # with fewer a network has learned too little to count: rather fewer networks
SEVERAL, TIMING = 4, 0.05  # configs whose step is timed beside that of one, and the share of the time that may take
CROWDED = 0.75  # share of a stack's members up to which the others, which have stopped, are still computed


@dataclass(frozen=True)
class Config:
    """One member: which operators its outputs are mixed by, and how strongly its first layer is held."""

    name: str
    operators: tuple[Operator, ...]
    weight_decay: float
    seed: int = 0


@dataclass
class Stacked:
    """What training leaves: outputs of each config and fold at its best epoch, ``[configs, folds, N, C]``."""

    outputs: np.ndarray
    networks: Networks
    epochs: np.ndarray  # [members]: the best epoch of each
    complete: bool


@dataclass(frozen=True)
class Seen:
    """What training learns from: the places of the labelled rows in its table, and their targets.

    ``learn`` and ``held_out [M, rows]`` are the weights of the rows that each member learns from, and that judge it;
    ``unlabelled [M, N]`` those of the nodes where two draws of the dropout are to agree.
    """

    where: slice | Tensor
    y: Tensor
    learn: Tensor
    held_out: Tensor
    unlabelled: Tensor | None


class Stack:
    """All configs on all folds: member m = config m // folds on fold m % folds."""

    def __init__(
        self, problem: Problem, x: Input | InputOfFolds, graph: Graph, configs: list[Config], recipe: StackRecipe,
        fields: list[KnownField] | None = None, metric: Metric | None = None,
    ):  # fmt: skip
        self.problem, self.x, self.graph, self.recipe, self.configs = problem, x, graph, recipe, configs
        self.fields = fields  # of the residuals, one per fold, for networks without operators
        self.metric = metric  # that chooses epochs; None: accuracy, or the squared error
        folds, C = len(problem.folds), problem.outputs
        M = len(configs) * folds
        F, H = x.shape[1], recipe.hidden
        operators = sorted({op for config in configs for op in config.operators})
        uses = torch.tensor([[op in config.operators for op in operators] for config in configs])
        uses = uses.repeat_interleave(folds, 0)
        K = len(operators) if recipe.where == "hidden" else 1
        device = problem.device
        first, last = [], []
        for config in configs:
            for fold in range(folds):
                random = torch.Generator().manual_seed(1_000_003 * config.seed + 1009 * problem.seed + fold)
                first.append(_glorot(F, H, random))
                last.append(_glorot(K * H, C, random))
        parameters: dict[str, Tensor] = {
            "first": torch.stack(first, 1),
            "first_bias": torch.zeros(M, H),
            "last": torch.stack(last),
            "last_bias": torch.zeros(M, 1, C),
            "gamma": uses.float() / uses.sum(1, keepdim=True),
        }
        parameters = {name: p.to(device) for name, p in parameters.items()}
        self.start = Networks(operators, recipe.where, uses, parameters, recipe.before)
        self.learned_gamma = (uses & (uses.sum(1, keepdim=True) > 1)).float().to(device)
        self.decay = torch.tensor([config.weight_decay for config in configs]).repeat_interleave(folds).to(device)
        self.generator_seed = 7919 * problem.seed + 31 * sum(config.seed for config in configs) + M

    def affordable(self, deadline: float) -> list[Config]:
        """The configs that have time for ``FEWEST_LOOKS``, spread over all: no step of a whole stack is begun blindly.

        One config's step says how long those of all take at most. Where that is too long, and a look is cheap, the step
        of several tells what each further one adds: on small graphs it is little.
        """
        count = len(self.configs)
        if deadline == float("inf"):
            return self.configs
        looks = FEWEST_LOOKS * STEPS_OF_A_LOOK * (2 if self.recipe.consistency else 1)  # draws
        with torch.random.fork_rng(devices=[] if self.problem.device == "cpu" else None):
            first = each = self._seconds_of_step(1, deadline)
            left, several = deadline - clock.now(), min(SEVERAL, count)
            if several > 1 and left < looks * count * each and 2 * several * first < TIMING * left:
                each = max((self._seconds_of_step(several, deadline) - first) / (several - 1), first / several)
        if first == float("inf"):
            return []
        room = int(max(0.0, (deadline - clock.now() - looks * first) / max(looks * each, 1e-9) + 1))
        if room >= count:
            return self.configs
        return self.configs[:: -(-count // room)] if room else []

    def _seconds_of_step(self, configs: int, deadline: float) -> float:
        """Of the second of two, since the first one prepares; infinity where the first passes the deadline: on graphs
        of millions of edges one takes seconds."""
        some = self.start.take(torch.arange(configs * len(self.problem.folds)))
        some.parameters = {name: p.detach().clone().requires_grad_() for name, p in some.parameters.items()}
        took = 0.0
        for _ in range(2):
            start = clock.now()
            if start > deadline:
                return float("inf")
            some.forward(self._table, self.graph, self.recipe).square().mean().backward()
            grad = some.parameters["first"].grad
            assert grad is not None
            grad.sum().item()  # a GPU is waited for
            took = clock.now() - start
        return took

    @property
    def _few_rows(self) -> bool:
        """Without edges no other row than the labelled matters while training, unless two draws are to agree there."""
        return self.start.without_edges and not self.recipe.consistency

    @cached_property
    def _table(self) -> Input | InputOfFolds:
        """What networks read while they train."""
        return self.x.rows(self.problem.labelled) if self._few_rows else self.x

    def train(self, deadline: float = float("inf"), epochs: np.ndarray | None = None) -> Stacked:
        """Descend; every config keeps the weights of the epoch that the validation rows of its folds liked best.

        Args:
            deadline: of :func:`walksum.portfolio.clock.now`.
            epochs: of each member ``[M]``: no row judges, all labelled rows are learned from for so many epochs.
        """
        problem, recipe, seen = self.problem, self.recipe, self._seen(epochs is not None)
        device, (M, _) = problem.device, seen.learn.shape
        kept = {name: p.clone() for name, p in self.start.parameters.items()}
        best = torch.full((M,), -torch.inf, device=device)
        stop = torch.from_numpy(np.zeros(M, np.int64) if epochs is None else epochs.copy()).to(device)
        last = recipe.epochs if epochs is None else int(epochs.max())
        parts = self.start.in_parts(self._table.shape[0], len(problem.folds), 2 if recipe.consistency else 1)
        complete = True
        with torch.random.fork_rng(devices=[] if device == "cpu" else None):
            torch.manual_seed(self.generator_seed)
            for part, active in enumerate(parts):
                networks, optimiser = self._descent(self.start, None, active, active)
                checked = clock.now()
                until = checked + (deadline - checked) / (len(parts) - part)
                for epoch in range(1, last + 1):
                    descend(partial(self._loss, networks, active, seen), optimiser)
                    if epoch % EVERY:
                        continue
                    if epochs is None:
                        score = self._score(networks, active, seen)
                        better = score > best[active]
                        best[active] = torch.where(better, score, best[active])
                        stop[active] = torch.where(better, epoch, stop[active])
                        ended = epoch - stop[active] >= recipe.patience
                    else:
                        better = ended = stop[active] == epoch
                    some, over = torch.stack([better.sum(), ended.sum()]).tolist()
                    if some:
                        _keep(kept, networks, active, better)
                    if over == len(active):
                        break
                    if len(active) - over <= CROWDED * len(active):
                        active = active[~ended]
                        networks, optimiser = self._descent(networks, optimiser, (~ended).nonzero().view(-1), active)
                    before, checked = checked, clock.now()
                    if checked + 1.5 * (checked - before) > until:  # the next look and the answers would come too late
                        complete = False
                        break
        final = replace(self.start, parameters=kept)
        return Stacked(self._outputs(final), final.to("cpu"), stop.cpu().numpy(), complete)

    def _seen(self, all_labelled: bool) -> Seen:
        """What training learns from; with ``all_labelled`` every labelled row is learned from, and none judges."""
        problem, rows, device = self.problem, self.problem.labelled, self.problem.device
        numbers = torch.from_numpy(rows).to(device)
        learn, held_out = (_weights(problem, rows, part, len(self.configs)).to(device) for part in (0, 1))
        if all_labelled:
            everyone = replace(problem, folds=[(rows, rows)], kept={})
            learn = _weights(everyone, rows, 0, len(learn)).to(device)
        unlabelled = _unlabelled(self.x.shape[0], learn, numbers) if self.recipe.consistency else None
        where = slice(None) if self._few_rows else numbers
        return Seen(where, problem.target()[rows].to(device), learn, held_out, unlabelled)

    def _loss(self, networks: Networks, active: Tensor, seen: Seen) -> Tensor:
        """The sum over the networks, which are the members ``active``."""
        out = networks.forward(self._table, self.graph, self.recipe)
        if self.fields is not None:
            fields = self._by_fold(out[:, seen.where], self.problem.labelled)
            return torch.stack([field.loss(own, place) for field, own, place in fields]).sum()
        found = self._loss_of_labels(out, active, seen)
        if seen.unlabelled is None:
            return found
        other = networks.forward(self._table, self.graph, self.recipe)
        found = 0.5 * found + 0.5 * self._loss_of_labels(other, active, seen)
        return found + self.recipe.consistency * (_disagreement(out, other) * seen.unlabelled[active]).sum()

    def _loss_of_labels(self, out: Tensor, active: Tensor, seen: Seen) -> Tensor:
        return (_losses(out[:, seen.where], seen.y, self.problem.classes) * seen.learn[active]).sum()

    @torch.no_grad()
    def _score(self, networks: Networks, active: Tensor, seen: Seen) -> Tensor:
        """Of the rows that judge each network: the mean over the folds of its config."""
        out = networks.forward(self._table, self.graph)[:, seen.where]
        out = self._with_fields(out, self.problem.labelled)
        score = _scores(out, seen.y, seen.held_out[active], self.problem.classes, self.metric)
        folds = len(self.problem.folds)
        return score.view(-1, folds).mean(1).repeat_interleave(folds)

    def _outputs(self, networks: Networks) -> np.ndarray:
        """``[configs, folds, N, C]``."""
        with torch.no_grad():
            out = self._with_fields(networks.answer(self.x, self.graph), np.arange(self.x.shape[0]))
        found = out.double().cpu().numpy()
        return found.reshape(len(self.configs), len(self.problem.folds), *found.shape[1:])

    def _by_fold(self, out: Tensor, rows: np.ndarray) -> Iterator[tuple[KnownField, Tensor, Tensor]]:
        """Field, outputs ``[configs, rows]`` and places of the training rows among ``rows``, of each fold."""
        assert self.fields is not None
        for k, (field, (train, _)) in enumerate(zip(self.fields, self.problem.folds, strict=True)):
            yield field, out[k :: len(self.fields), :, 0], torch.from_numpy(np.searchsorted(rows, train)).to(out.device)

    def _with_fields(self, out: Tensor, rows: np.ndarray) -> Tensor:
        """Outputs ``[M, rows, C]`` and what the known residuals say, where residuals are a field."""
        if self.fields is None:
            return out
        at = torch.from_numpy(rows).to(out.device)
        found = [field.predict(own, place, at) for field, own, place in self._by_fold(out, rows)]
        return torch.stack(found, 1).flatten(0, 1).unsqueeze(-1)

    def _descent(
        self, networks: Networks, before: torch.optim.Optimizer | None, who: Tensor, active: Tensor
    ) -> tuple[Networks, torch.optim.Optimizer]:
        """The networks ``who``, which are the members ``active``, with what Adam remembers of them."""
        found = networks.take(who)
        found.parameters = {name: p.detach().clone().requires_grad_() for name, p in found.parameters.items()}
        optimiser = torch.optim.Adam(
            list(found.parameters.values()), lr=self.recipe.lr, fused=self.problem.device == "cpu" or None
        )
        for name, p in networks.parameters.items():
            if before is not None and p in before.state:
                old = before.state[p]
                moments = {key: some_of(name, old[key], who) for key in ("exp_avg", "exp_avg_sq")}
                optimiser.state[found.parameters[name]] = {"step": old["step"].clone(), **moments}

        strength, learned_gamma = self.decay[active].view(1, -1, 1), self.learned_gamma[active]

        def decay(*_: Any) -> None:
            """Before each step: every member's own weight decay; weights of a single operator stay as they are."""
            first, gamma = found.parameters["first"], found.parameters["gamma"]
            assert first.grad is not None
            first.grad.addcmul_(first.detach(), strength)
            if gamma.grad is not None:
                gamma.grad *= learned_gamma

        optimiser.register_step_pre_hook(decay)
        return found, optimiser


def _keep(kept: dict[str, Tensor], networks: Networks, active: Tensor, better: Tensor) -> None:
    """Remember the weights of the networks that are ``better``; ``active`` says which members the networks are."""
    for name, p in networks.parameters.items():
        if name == "first":
            kept[name][:, active[better]] = p.detach()[:, better]
        else:
            kept[name][active[better]] = p.detach()[better]


def _glorot(rows: int, columns: int, random: torch.Generator) -> Tensor:
    bound = (6 / (rows + columns)) ** 0.5
    return (2 * torch.rand(rows, columns, generator=random) - 1) * bound


def _weights(problem: Problem, rows: np.ndarray, part: int, configs: int) -> Tensor:
    """``[M, rows]``: the share of each row in its fold's part."""
    weights = np.stack([np.isin(rows, fold[part]) for fold in problem.folds]).astype(np.float64)
    if problem.weight is not None:
        weights *= problem.weight[rows]
    weights /= np.maximum(weights.sum(1, keepdims=True), 1e-300)
    return torch.from_numpy(weights).float().repeat(configs, 1)


def _unlabelled(num_nodes: int, learn: Tensor, rows: Tensor) -> Tensor:
    """``[M, N]``: equal weights of the nodes that a network does not learn a target of."""
    free = torch.ones(len(learn), num_nodes, device=learn.device)
    free[:, rows] = (learn == 0).float()
    return free / free.sum(1, keepdim=True).clamp_min(1)


def _disagreement(one: Tensor, other: Tensor) -> Tensor:
    """``[M, N]``: mean squared distance of two draws' probabilities from their sharpened mean, which is held fixed."""
    shares = torch.stack([one.softmax(-1), other.softmax(-1)])
    sharp = shares.detach().mean(0).square()
    return (shares - sharp / sharp.sum(-1, keepdim=True)).square().sum(-1).mean(0)


def _losses(out: Tensor, y: Tensor, classes: int) -> Tensor:
    """``[M, N]``."""
    if not classes:
        return (out.squeeze(-1) - y) ** 2
    M, N, C = out.shape
    return nnf.cross_entropy(out.reshape(M * N, C), y.repeat(M), reduction="none").view(M, N)


def _scores(out: Tensor, y: Tensor, held_out: Tensor, classes: int, metric: Metric | None) -> Tensor:
    """``[M]``: the metric on each member's validation rows, by default accuracy, ties by the loss; of a regression the
    loss alone unless there is a metric."""
    loss = (_losses(out, y, classes) * held_out).sum(1)
    if metric is not None:
        return _by_metric(metric, out, y, held_out).to(loss) - 1e-4 * loss.clamp_max(100)
    if not classes:
        return -loss
    right = ((out.argmax(-1) == y) * held_out).sum(1)
    return right - 1e-4 * loss.clamp_max(100)


def _by_metric(metric: Metric, out: Tensor, y: Tensor, held_out: Tensor) -> Tensor:
    """``[M]``; zero where the metric is not defined, as the ROC AUC of one class alone."""
    outputs, truth, rows = out.double().cpu().numpy(), y.double().cpu().numpy(), (held_out > 0).cpu().numpy()
    found = np.zeros(len(outputs))
    for m, (each, mine) in enumerate(zip(outputs, rows, strict=True)):
        with suppress(ValueError):
            found[m] = metric(each[mine], truth[mine])
    return torch.from_numpy(np.nan_to_num(found))
