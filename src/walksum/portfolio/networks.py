"""Small predict-then-propagate networks of one shape, side by side as one computation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from walksum._torch import free_memory
from walksum.graph import Graph
from walksum.nn.dropout import Dropout
from walksum.portfolio.input import Input, InputOfFolds
from walksum.portfolio.spread import Operator, spread

HELD = 6  # tensors of all nodes and hidden units that a step of training has at once, at most, per draw of the dropout
SHARE = 0.5  # of the memory that is free, for one part of a stack


@dataclass(frozen=True)
class StackRecipe:
    """How networks of one stack are made and trained.

    Attributes:
        where: what is propagated by the networks' operators: the "outputs" or the "hidden" layer.
        before: what the first linear map is propagated by, before the hidden layer; None: by nothing.
        node_dropout: share of nodes whose first linear map is zero, so that the others speak for them.
        consistency: weight of the squared difference between two draws of the dropout at nodes without a label, each
            from the sharpened mean of both (after Feng et al., 2020); 0: one draw and no such term.
    """

    where: str = "outputs"
    before: Operator | None = None
    hidden: int = 64
    dropout: float = 0.6
    input_dropout: float = 0.6
    node_dropout: float = 0.0
    consistency: float = 0.0
    lr: float = 1e-2
    epochs: int = 400
    patience: int = 100


@dataclass
class Networks:
    """M networks of one shape, as one computation.

    Attributes:
        operators: those that some network uses.
        where: what they propagate: the "outputs" or the "hidden" layer.
        uses: which operators each network uses ``[M, K]``.
        parameters: first ``[F, M, H]`` (one product for all), first_bias, last, last_bias, gamma ``[M, ...]``.
        before: what the first linear map is propagated by.
    """

    operators: list[Operator]
    where: str
    uses: Tensor
    parameters: dict[str, Tensor]
    before: Operator | None = None

    def __post_init__(self) -> None:
        device = self.parameters["gamma"].device
        self.users = [None if column.all() else column.nonzero().view(-1).to(device) for column in self.uses.T]

    def forward(self, x: Input | InputOfFolds, graph: Graph, recipe: StackRecipe | None = None) -> Tensor:
        """``[M, N, C]``; with a recipe as in training, with its dropout."""
        w = self.parameters
        p, q = (0.0, 0.0) if recipe is None else (recipe.input_dropout, recipe.node_dropout)
        before = self.before
        if before is not None and isinstance(x, Input) and not (x.sparse or p or q):
            x, before = x.propagated(before, graph), None  # a table that stays as it is: once for all epochs
        z = x.times(w["first"], p)
        N, M, H = z.shape
        if q:
            z = z * Dropout(q)(z.new_ones(N, M, 1))
        z = z.reshape(N, M * H)
        if before is not None:
            z = spread(before, z, graph)
        z = torch.relu(z + w["first_bias"].reshape(-1))  # [N, M H]
        z = z if recipe is None else Dropout(recipe.dropout)(z)
        if self.where == "hidden":
            parts = [spread(op, z, graph).view(N, M, H) for op in self.operators]
            z = torch.cat(parts, -1).transpose(0, 1)
            return torch.baddbmm(w["last_bias"], z, w["last"])
        out = torch.baddbmm(w["last_bias"], z.view(N, M, H).transpose(0, 1), w["last"])  # [M, N, C]
        return out if self._mixes_nothing else self._mixed(out, graph)

    def answer(self, x: Input | InputOfFolds, graph: Graph) -> Tensor:
        """``[M, N, C]`` without dropout and without derivatives, as many networks at a time as memory has room for."""
        with torch.no_grad():
            parts = self.in_parts(x.shape[0], len(x.tables) if isinstance(x, InputOfFolds) else 1)
            if len(parts) == 1:
                return self.forward(x, graph)
            return torch.cat([self.take(part).forward(x, graph) for part in parts])

    def in_parts(self, rows: int, together: int = 1, draws: int = 1) -> tuple[Tensor, ...]:
        """The numbers of the networks, in parts that memory has room for; so many are never parted.

        Halves, quarters and so on: what is free varies, and only another number of parts draws other dropout.
        """
        _, M, H = self.parameters["first"].shape
        held = HELD * draws + (2 * len(self.operators) if self.where == "hidden" else 0)
        device = self.parameters["first"].device
        each, room, size = 4 * held * rows * H, SHARE * free_memory(device), M
        while size > together and size * each > room:
            size = -(-size // (2 * together)) * together
        return torch.arange(M, device=device).split(size)

    @property
    def _mixes_nothing(self) -> bool:
        return all(operator.scale == 0 for operator in self.operators)

    @property
    def without_edges(self) -> bool:
        return self.before is None and self._mixes_nothing

    def _mixed(self, out: Tensor, graph: Graph) -> Tensor:
        _, N, C = out.shape
        gamma, total = self.parameters["gamma"], None
        for k, (op, who) in enumerate(zip(self.operators, self.users, strict=True)):
            part = out if who is None else out[who]
            columns = part.transpose(0, 1).reshape(N, len(part) * C)
            mixed = spread(op, columns, graph).view(N, len(part), C).transpose(0, 1)
            mixed = mixed * (gamma[:, k] if who is None else gamma[who, k]).view(-1, 1, 1)
            if who is None:
                total = mixed if total is None else total + mixed
            else:
                base = torch.zeros_like(out) if total is None else total
                total = base.index_add(0, who, mixed)
        assert total is not None
        return total

    def to(self, device: str) -> Networks:
        return replace(self, parameters={name: p.to(device) for name, p in self.parameters.items()})

    def take(self, who: Tensor) -> Networks:
        """Some of the networks."""
        return replace(
            self, uses=self.uses[who.cpu()], parameters={n: some_of(n, p, who) for n, p in self.parameters.items()}
        )


def some_of(name: str, values: Tensor, who: Tensor) -> Tensor:
    return values[:, who] if name == "first" else values[who]
