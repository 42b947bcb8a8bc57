"""Predict-then-propagate members of one shape, trained side by side as one computation.

Members differ in seed, weight decay, operators and fold. Adam and weight decay act on each alone, so each trains as it
would by itself; only the dropout mask of the input is common to all, so that one sparse product serves them all.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as nnf
from torch import Tensor

from walksum.graph import Graph
from walksum.nn.propagate import Propagate
from walksum.portfolio.problem import SPARSE, Problem
from walksum.training.optimiser import descend

Operator = tuple[float, bool]  # signed scale (0: identity), loops


@dataclass(frozen=True)
class Config:
    """One member: which operators its outputs are mixed by, and how strongly its first layer is held."""

    name: str
    operators: tuple[Operator, ...]
    weight_decay: float
    seed: int = 0


@dataclass(frozen=True)
class StackRecipe:
    where: str = "outputs"
    hidden: int = 64
    dropout: float = 0.6
    input_dropout: float = 0.6
    lr: float = 1e-2
    epochs: int = 400
    patience: int = 60


@dataclass
class Stacked:
    """What training leaves: outputs of each config and fold at its best epoch, ``[configs, folds, N, C]``."""

    outputs: np.ndarray
    networks: Networks
    epochs: int
    complete: bool


class _Product(torch.autograd.Function):
    """``X W`` for a constant sparse X, given with its transpose."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, Xt: Tensor, weight: Tensor) -> Tensor:
        ctx.Xt = Xt
        return X @ weight

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        return None, None, ctx.Xt @ grads[0].contiguous()


class Input:
    """Features that stay, dense or sparse, with dropout on what is not zero."""

    def __init__(self, X: Any, device: str):
        density = X.nnz / max(1, X.shape[0] * X.shape[1]) if sp.issparse(X) else float((X != 0).mean())
        self.sparse = density <= SPARSE
        self.shape = X.shape
        if not self.sparse:
            dense = X.toarray() if sp.issparse(X) else np.asarray(X)
            self.dense = torch.from_numpy(np.ascontiguousarray(dense, dtype=np.float32)).to(device)
            return
        rows = sp.csr_matrix(X, dtype=np.float32)
        numbered = sp.csr_matrix((np.arange(rows.nnz) + 1, rows.indices, rows.indptr), rows.shape)
        columns = numbered.T.tocsr()
        self.values = torch.from_numpy(rows.data.copy()).to(device)
        self.by_column = torch.from_numpy(columns.data.astype(np.int64) - 1).to(device)
        self.row_parts = _parts(rows, device)
        self.column_parts = _parts(columns, device)
        with warnings.catch_warnings():  # torch says once per process that its CSR matrices are new
            warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
            self.times(torch.zeros(X.shape[1], 1, device=device), 0.0)

    def times(self, weight: Tensor, p: float) -> Tensor:
        """``dropout(X, p) W``."""
        if not self.sparse:
            return nnf.dropout(self.dense, p) @ weight if p else self.dense @ weight
        values = nnf.dropout(self.values, p) if p else self.values
        # scipy made the indices, so that they need no check at each step
        X = torch.sparse_csr_tensor(*self.row_parts, values, self.shape, check_invariants=False)
        Xt = torch.sparse_csr_tensor(
            *self.column_parts, values[self.by_column], self.shape[::-1], check_invariants=False
        )
        return _Product.apply(X, Xt, weight)


def _parts(matrix: sp.csr_matrix, device: str) -> tuple[Tensor, Tensor]:
    return tuple(torch.from_numpy(p.astype(np.int64)).to(device) for p in (matrix.indptr, matrix.indices))  # type: ignore[return-value]


@dataclass
class Networks:
    """M networks of one shape, as one computation.

    Attributes:
        operators: those that some network uses.
        where: whether "outputs" or "hidden" layers are propagated.
        uses: which operators each network uses ``[M, K]``.
        parameters: first ``[F, M, H]`` (one product for all), first_bias, last, last_bias, gamma ``[M, ...]``.
    """

    operators: list[Operator]
    where: str
    uses: Tensor
    parameters: dict[str, Tensor]

    def forward(self, x: Input, graph: Graph, recipe: StackRecipe | None = None) -> Tensor:
        """``[M, N, C]``; with a recipe as in training, with its dropout."""
        w = self.parameters
        F, M, H = w["first"].shape
        z = x.times(w["first"].reshape(F, M * H), 0.0 if recipe is None else recipe.input_dropout)
        z = torch.relu(z + w["first_bias"].reshape(-1))  # [N, M H]
        z = z if recipe is None else nnf.dropout(z, recipe.dropout)
        N = z.size(0)
        if self.where == "hidden":
            parts = [_spread(op, z, graph).view(N, M, H) for op in self.operators]
            z = torch.cat(parts, -1).transpose(0, 1)
            return torch.baddbmm(w["last_bias"], z, w["last"])
        out = torch.baddbmm(w["last_bias"], z.view(N, M, H).transpose(0, 1), w["last"])  # [M, N, C]
        return self._mixed(out, graph)

    def _mixed(self, out: Tensor, graph: Graph) -> Tensor:
        M, N, C = out.shape
        gamma, total = self.parameters["gamma"], None
        for k, op in enumerate(self.operators):
            who = self.uses[:, k].nonzero().view(-1).to(out.device)
            everyone = len(who) == M
            part = out if everyone else out[who]
            columns = part.transpose(0, 1).reshape(N, len(who) * C)
            spread = _spread(op, columns, graph).view(N, len(who), C).transpose(0, 1)
            spread = spread * (gamma[:, k] if everyone else gamma[who, k]).view(-1, 1, 1)
            if everyone:
                total = spread if total is None else total + spread
            else:
                base = torch.zeros_like(out) if total is None else total
                total = base.index_add(0, who, spread)
        assert total is not None
        return total

    def to(self, device: str) -> Networks:
        moved = {name: p.to(device) for name, p in self.parameters.items()}
        return Networks(self.operators, self.where, self.uses, moved)

    def take(self, who: Tensor) -> Networks:
        """Some of the networks."""
        parameters = {name: p[:, who] if name == "first" else p[who] for name, p in self.parameters.items()}
        return Networks(self.operators, self.where, self.uses[who], parameters)


class Stack:
    """All configs on all folds: member m = config m // folds on fold m % folds."""

    def __init__(self, problem: Problem, x: Input, graph: Graph, configs: list[Config], recipe: StackRecipe):
        self.problem, self.x, self.graph, self.recipe, self.configs = problem, x, graph, recipe, configs
        folds, C = len(problem.folds), problem.outputs
        self.members = M = len(configs) * folds
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
        parameters = {name: p.to(device).requires_grad_() for name, p in parameters.items()}
        self.networks = Networks(operators, recipe.where, uses, parameters)
        self.learned_gamma = (uses & (uses.sum(1, keepdim=True) > 1)).float().to(device)
        self.decay = torch.tensor([config.weight_decay for config in configs]).repeat_interleave(folds).to(device)
        self.generator_seed = 7919 * problem.seed + 31 * sum(config.seed for config in configs) + M

    def train(self, deadline: float = float("inf")) -> Stacked:
        """Descend; every member keeps outputs and weights of the epoch that its own validation rows liked best."""
        problem, recipe, networks = self.problem, self.recipe, self.networks
        device, M, folds = problem.device, self.members, len(problem.folds)
        y = problem.target().to(device)
        learn, judge = (_weights(problem, part, len(self.configs)).to(device) for part in (0, 1))
        optimiser = torch.optim.Adam(list(networks.parameters.values()), lr=recipe.lr, fused=device == "cpu" or None)
        optimiser.register_step_pre_hook(self._decay)

        def loss() -> Tensor:
            return (_losses(networks.forward(self.x, self.graph, recipe), y, problem.classes) * learn).sum()

        best = torch.full((M,), -torch.inf, device=device)
        weights = {name: p.detach().clone() for name, p in networks.parameters.items()}
        kept = torch.zeros(M, problem.num_nodes, problem.outputs, device=device)
        since, complete, epoch = 0, True, 0
        with torch.random.fork_rng(devices=[] if device == "cpu" else None):
            torch.manual_seed(self.generator_seed)
            for epoch in range(1, recipe.epochs + 1):
                descend(
                    lambda: (_losses(networks.forward(self.x, self.graph, recipe), y, problem.classes) * learn).sum(),
                    optimiser,
                )
                with torch.no_grad():
                    out = networks.forward(self.x, self.graph)
                    score = _scores(out, y, judge, problem.classes)
                better = score > best
                if bool(better.any()):
                    best = torch.where(better, score, best)
                    kept[better] = out[better]
                    for name, p in networks.parameters.items():
                        which = (slice(None), better) if name == "first" else better
                        weights[name][which] = p.detach()[which]
                    since = 0
                else:
                    since += 1
                if since >= recipe.patience:
                    break
                if time.monotonic() > deadline:
                    complete = False
                    break
        outputs = kept.view(len(self.configs), folds, problem.num_nodes, problem.outputs).double().cpu().numpy()
        weights = {name: p.cpu() for name, p in weights.items()}
        return Stacked(outputs, Networks(networks.operators, recipe.where, networks.uses, weights), epoch, complete)

    def _decay(self, *_: Any) -> None:
        """Before each step: every member's own weight decay; weights of a single operator stay as they are."""
        first, gamma = self.networks.parameters["first"], self.networks.parameters["gamma"]
        assert first.grad is not None
        first.grad.add_(first.detach() * self.decay.view(1, -1, 1))
        gamma.grad = None if gamma.grad is None else gamma.grad * self.learned_gamma


def _spread(operator: Operator, columns: Tensor, graph: Graph) -> Tensor:
    scale, loops = operator
    if scale == 0:
        return columns
    coupling = "attractive" if scale > 0 else "repulsive"
    return Propagate(abs(scale), coupling=coupling, loops=loops)(columns, graph)


def _glorot(rows: int, columns: int, random: torch.Generator) -> Tensor:
    bound = (6 / (rows + columns)) ** 0.5
    return (2 * torch.rand(rows, columns, generator=random) - 1) * bound


def _weights(problem: Problem, part: int, configs: int) -> Tensor:
    """``[M, N]``: 1 / count on the rows of each fold's part."""
    weights = torch.zeros(len(problem.folds), problem.num_nodes)
    for k, fold in enumerate(problem.folds):
        weights[k, torch.from_numpy(fold[part])] = 1 / max(1, len(fold[part]))
    return weights.repeat(configs, 1)


def _losses(out: Tensor, y: Tensor, classes: int) -> Tensor:
    """``[M, N]``."""
    if not classes:
        return (out.squeeze(-1) - y) ** 2
    M, N, C = out.shape
    return nnf.cross_entropy(out.reshape(M * N, C), y.repeat(M), reduction="none").view(M, N)


def _scores(out: Tensor, y: Tensor, judge: Tensor, classes: int) -> Tensor:
    """``[M]``: validation accuracy, ties by the loss; of a regression the loss alone."""
    loss = (_losses(out, y, classes) * judge).sum(1)
    if not classes:
        return -loss
    right = ((out.argmax(-1) == y) * judge).sum(1)
    return right - 1e-4 * loss.clamp_max(100)
