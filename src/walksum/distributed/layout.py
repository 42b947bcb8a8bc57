"""Layout: what one process holds of a partitioned graph, as tensors."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walksum.distributed.partition import Partition
from walksum.graph import Graph


@dataclass(frozen=True)
class Layout:
    """The nodes of one part, those of other parts next to them (its halo), and every edge that touches the part.

    Nodes of the part are numbered first, in the order of the whole graph; then the halo, by owner, then by number.

    Attributes:
        part, parts: which of how many.
        num_nodes, num_edges: of the whole graph.
        fingerprint: of the whole graph; :func:`fingerprint`.
        owned, halo: numbers in the whole graph.
        edges: ``[2, e]`` in local numbers, ``i < j``, sorted.
        edge: ``[e]``, the number of each edge in the whole graph.
        weight: ``[e]`` or None; ``largest`` is the largest magnitude of a weight in the whole graph.
        send: local numbers of owned nodes that others need, by receiver.
        send_counts, receive_counts: per part.
    """

    part: int
    parts: int
    num_nodes: int
    num_edges: int
    fingerprint: str
    owned: Tensor
    halo: Tensor
    edges: Tensor
    edge: Tensor
    weight: Tensor | None
    largest: float
    send: Tensor
    send_counts: list[int]
    receive_counts: list[int]

    def to(self, device: torch.device | str) -> Layout:
        moved: dict[str, Any] = {
            f.name: v.to(device) for f in fields(self) if isinstance(v := getattr(self, f.name), Tensor)
        }
        return replace(self, **moved)


def fingerprint(graph: Graph) -> str:
    """A hash of the edges and their weights: a checkpoint belongs to one graph."""
    digest = hashlib.sha256(f"{graph.num_nodes} {graph.num_edges}".encode())
    for values in (graph.edges, graph.edge_weight):
        if values is not None:
            digest.update(np.ascontiguousarray(values.detach().cpu().numpy()).data)
    return digest.hexdigest()


def cut(graph: Graph, partition: Partition, part: int) -> Layout:
    """The layout of one part; needs the whole graph."""
    partition.check(graph)
    n, (i, j) = graph.num_nodes, graph.edges
    owner = partition.assignment.to(graph.device)
    at_i, at_j = owner[i], owner[j]
    mine = ((at_i == part) | (at_j == part)).nonzero().view(-1)
    i, j, at_i, at_j = i[mine], j[mine], at_i[mine], at_j[mine]
    ours, theirs = torch.where(at_i == part, i, j), torch.where(at_i == part, j, i)
    crosses = at_i != at_j
    ours, theirs = ours[crosses], theirs[crosses]
    there = owner[theirs]
    sent, received = torch.unique(there * n + ours), torch.unique(there * n + theirs)  # each node once per receiver
    owned, halo = (owner == part).nonzero().view(-1), received % n
    local = torch.empty(n, dtype=torch.int64, device=graph.device)
    local[owned] = torch.arange(len(owned), device=graph.device)
    local[halo] = len(owned) + torch.arange(len(halo), device=graph.device)
    low, high = torch.minimum(local[i], local[j]), torch.maximum(local[i], local[j])
    order = torch.argsort(low * (len(owned) + len(halo)) + high)
    weight = graph.edge_weight
    return Layout(
        part=part,
        parts=partition.parts,
        num_nodes=n,
        num_edges=graph.num_edges,
        fingerprint=graph.derived(fingerprint),
        owned=owned,
        halo=halo,
        edges=torch.stack([low[order], high[order]]),
        edge=mine[order],
        weight=None if weight is None else weight.detach()[mine[order]],
        largest=0.0 if weight is None or not weight.numel() else float(graph.largest_weight()),
        send=local[sent % n],
        send_counts=torch.bincount(sent // n, minlength=partition.parts).tolist(),
        receive_counts=torch.bincount(received // n, minlength=partition.parts).tolist(),
    )
