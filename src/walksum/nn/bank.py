"""PropagateBank: several propagations of one graph side by side, the identity among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.inits import reset

from walksum._checks import check_choice
from walksum.graph import as_graph
from walksum.nn.explained import call_message_hooks, is_explained
from walksum.nn.inputs import one_column
from walksum.nn.propagate import Propagate, check_nodes

SCALES = (0.0, 0.5, 0.9, -0.5, -0.9, 0.99995)  # the last reaches 100 hops along a path
MIXES = ("sum", "concat", "stack")


class PropagateBank(MessagePassing):
    r"""Near and far, attractive and repulsive propagation at once.

    .. math::
        P_s = (1 - |s|)\,(I - s\, D^{-1/2} A D^{-1/2})^{-1}, \qquad P_0 = I, \qquad
        \mu = \sum_k \gamma_k P_{s_k} x

    A fixed J keeps its factor with the graph, so that an epoch costs the sweeps alone; all share one elimination order.

    Args:
        scales: one signed number per operator: positive attracts, negative repels, 0 is the identity. A
            :class:`walksum.Propagate` may stand in place of a number.
        mix: "sum" (with learned weights gamma, which start equal), "concat" (``[N, K F]``) or "stack" (``[K, N, F]``).
        loops: of the operators given by numbers, see :class:`walksum.Propagate`.

    Shapes:
        - **input:** node features ``(N, F)`` or ``(B, N, F)``, edge indices ``(2, M)`` or a Graph, weights ``(M,)``
        - **output:** ``(N, F)``, ``(N, K F)`` or ``(K, N, F)``

    Example:
        >>> import torch, walksum as ws
        >>> x, ring = torch.eye(4), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> ws.PropagateBank((0.0, 0.9, -0.9), mix="concat")(x, ring).shape
        torch.Size([4, 12])
    """

    def __init__(self, scales: Sequence[float | Propagate] = SCALES, mix: str = "sum", loops: bool = False):
        super().__init__(aggr=None)
        check_choice("mix", mix, MIXES)
        if isinstance(scales, str) or not isinstance(scales, Sequence) or not len(scales):
            raise ValueError(f"scales={scales!r}; expected one signed number in (-1, 1) per operator")
        self.mix, self.loops = mix, loops
        self.layers = nn.ModuleList(_layer(scale, loops) for scale in scales)
        self.gamma = nn.Parameter(torch.empty(len(self.layers))) if mix == "sum" else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        reset(self.layers)
        if self.gamma is not None:
            nn.init.constant_(self.gamma, 1 / len(self.layers))

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Mix ``x`` over the graph by every operator."""
        check_nodes(x)
        call_message_hooks(self, x)  # alpha is told by the layers
        explained = any(is_explained(layer) for layer in self.layers if isinstance(layer, Propagate))
        if not explained and not torch.compiler.is_compiling():  # there the operators look the graph up themselves
            edge_index = as_graph(edge_index, x.size(0 if x.dim() == 1 else -2), one_column(edge_weight))
            edge_weight = None
        parts = [x if isinstance(layer, nn.Identity) else layer(x, edge_index, edge_weight) for layer in self.layers]
        if self.mix == "concat":
            return torch.stack(parts, -1) if x.dim() == 1 else torch.cat(parts, -1)
        stacked = torch.stack(parts)
        if self.gamma is None:
            return stacked
        return torch.tensordot(self.gamma.to(stacked.dtype), stacked, 1)

    def __repr__(self) -> str:
        scales = ", ".join("0" if isinstance(layer, nn.Identity) else repr(layer) for layer in self.layers)
        return f"PropagateBank([{scales}], mix={self.mix!r})"


def _layer(scale: float | Propagate, loops: bool) -> nn.Module:
    if isinstance(scale, Propagate):
        return scale
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not -1 < scale < 1:
        raise ValueError(f"scales contains {scale!r}; expected numbers in (-1, 1) or walksum.Propagate layers")
    if scale == 0:
        return nn.Identity()
    return Propagate(abs(scale), coupling="attractive" if scale > 0 else "repulsive", loops=loops)
