"""PredictThenPropagate: a small network per node, then the exact propagation of what it says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as nnf
from torch import Tensor, nn

from walksum._checks import check_choice, check_count
from walksum.nn.bank import SCALES, PropagateBank
from walksum.nn.inputs import check_features
from walksum.nn.propagate import Propagate

WHERE = ("outputs", "hidden")


class PredictThenPropagate(nn.Module):
    r"""Predict from each node's own features, then propagate the predictions.

    .. math::
        \text{outputs:}\; \sum_k \gamma_k P_k\, W_2\, \mathrm{ReLU}(W_1 x), \qquad
        \text{hidden:}\; W_2\, [P_1 z, \ldots, P_K z],\; z = \mathrm{ReLU}(W_1 x)

    Args:
        in_channels, hidden_channels, out_channels: of the two linear maps.
        bank: signed scales, a :class:`walksum.PropagateBank` or one :class:`walksum.Propagate`. The default mixes near
            and far, attractive and repulsive; its farthest operator reaches 100 hops along a path.
        where: propagate the outputs (few parameters after the mixing) or the hidden layer.
        dropout: of the input and of the hidden layer.

    Shapes:
        - **input:** node features ``(N, in_channels)``, edge indices ``(2, M)`` or a Graph, optional weights ``(M,)``
        - **output:** ``(N, out_channels)``

    Example:
        >>> import torch, walksum as ws
        >>> model = ws.PredictThenPropagate(3, 8, 2, bank=(0.0, 0.9, -0.9))
        >>> model(torch.randn(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]])).shape
        torch.Size([4, 2])
        >>> optimiser = torch.optim.Adam(model.parameter_groups(weight_decay=5e-3), lr=1e-2)
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        bank: Sequence[float | Propagate] | PropagateBank | Propagate = SCALES,
        where: str = "outputs",
        dropout: float = 0.6,
    ):
        super().__init__()
        check_choice("where", where, WHERE)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout={dropout!r}; expected a share in [0, 1)")
        mix = "sum" if where == "outputs" else "concat"
        self.bank = bank if isinstance(bank, PropagateBank | Propagate) else PropagateBank(bank, mix)
        if isinstance(self.bank, PropagateBank) and self.bank.mix != mix:
            raise ValueError(f"bank has mix={self.bank.mix!r}; where={where!r} takes a bank with mix={mix!r}")
        self.where, self.dropout = where, dropout
        hidden_channels = check_count("hidden_channels", hidden_channels)
        parts = len(self.bank.layers) if where == "hidden" and isinstance(self.bank, PropagateBank) else 1
        self.first = nn.Linear(check_count("in_channels", in_channels), hidden_channels)
        self.last = nn.Linear(parts * hidden_channels, check_count("out_channels", out_channels))

    def reset_parameters(self) -> None:
        for module in (self.first, self.last, self.bank):
            module.reset_parameters()

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """``[N, out_channels]`` for node features ``[N, in_channels]``."""
        check_features(x, self.first.in_features, first=self.first)
        z = nnf.relu(self.first(nnf.dropout(x, self.dropout, self.training)))
        z = nnf.dropout(z, self.dropout, self.training)
        if self.where == "hidden":
            return self.last(self.bank(z, edge_index, edge_weight))
        return self.bank(self.last(z), edge_index, edge_weight)

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Groups for an optimiser: weight decay on the first map alone, where the many weights are."""
        if not weight_decay >= 0:
            raise ValueError(f"weight_decay={weight_decay!r}; expected a non-negative number")
        first = list(self.first.parameters())  # in order: the state of an optimiser is loaded by it
        rest = [p for name, p in self.named_parameters() if not name.startswith("first.")]
        return [{"params": first, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
