"""Multilayer perceptron: what the features know without the graph."""

import torch.nn.functional as F
from torch import Tensor, nn


class MLP(nn.Module):
    """Y = W_2 ReLU(W_1 X), dropout before each W. The edges are taken and ignored.

    Args:
        in_channels, out_channels: features per node, classes.
        hidden_channels, dropout: width and dropout rate.

    Shapes: x [N, in_channels], edge_index [2, E] -> [N, out_channels].
    """

    def __init__(self, in_channels: int, out_channels: int, *, hidden_channels: int = 64, dropout: float = 0.6):
        super().__init__()
        self.first = nn.Linear(in_channels, hidden_channels)
        self.second = nn.Linear(hidden_channels, out_channels)
        self.dropout = dropout

    def reset_parameters(self) -> None:
        self.first.reset_parameters()
        self.second.reset_parameters()

    def forward(self, x: Tensor, edge_index: Tensor | None = None) -> Tensor:
        x = F.dropout(x, self.dropout, self.training)
        x = self.first(x).relu()
        x = F.dropout(x, self.dropout, self.training)
        return self.second(x)
