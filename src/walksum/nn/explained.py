"""What PyG's explainers set on a layer, its edge mask and its hooks, applied to J instead of to messages."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from walksum.graph import EdgeInput, Graph, as_graph
from walksum.nn.inputs import edge_of_entry
from walksum.precision import Precision


def is_explained(layer: MessagePassing) -> bool:
    """Whether an explainer wants to mask the edges of this layer, or to read what it makes of them."""
    return bool(layer.explain or layer._message_forward_hooks)


def masked(layer: MessagePassing, J: Precision, edge_index: EdgeInput) -> Precision:
    """Multiply the couplings by the edge mask of an explainer, made symmetric; J itself where there is none."""
    mask = layer._edge_mask if layer.explain else None
    if mask is None:
        return J
    if isinstance(edge_index, Graph):
        raise ValueError(
            f"an explainer masks the edges of a layer that was given {edge_index}; a Graph does not tell which of its "
            "edges each value of the mask is of: give the layer the edge_index that is explained"
        )
    weight = as_graph(edge_index, J.num_nodes, mask.sigmoid() if layer._apply_sigmoid else mask).edge_weight
    assert weight is not None
    if weight.size(0) != J.graph.num_edges:
        raise ValueError(
            f"J couples {J.graph.num_edges} pairs of nodes on {weight.size(0)} edges; a mask of the edges is offered "
            "for designs that couple neighbours alone, not nodes at two hops"
        )
    return Precision(J.graph, J.diag, J.off * weight.to(J.dtype))


def call_message_hooks(layer: MessagePassing, messages: Tensor, **given: Tensor) -> None:
    """Call the hooks by which PyG's AttentionExplainer reads alpha; one that changes messages would change nothing."""
    for hook in layer._message_forward_hooks.values():
        if hook(layer, (given,), messages) is not None:
            raise ValueError(
                f"a message hook of {type(layer).__name__} returned new messages, and this layer sends none; where "
                "to_hetero_with_bases set the hook, use to_hetero"
            )


def partial_correlation(J: Precision, edge_index: Any) -> Tensor:
    """-J_ij / sqrt(J_ii J_jj) of each given entry, ``[M, H]``; 0 for loops."""
    edge = edge_of_entry(edge_index, J.graph)
    values = torch.cat([-J.normalised().off, J.off.new_zeros(J.heads, 1)], 1)  # edge -1 is the last column
    return values.index_select(1, edge % values.size(1)).t()
