"""GraphPart: one process's share of a graph, which takes the place of a Graph; Layout: its tensors."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from walksum._torch import needs_grad
from walksum.distributed.exchange import Exchange, Fill
from walksum.distributed.partition import Partition
from walksum.graph import Graph
from walksum.graph.edges import check_weight


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
    """Compute the layout of one part from the whole graph."""
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


class GraphPart(Graph):
    """The nodes of one process, the halo around them and the edges of both, with what exchanges rows.

    A model made for one process runs on it unchanged: it is given the rows of the owned nodes and returns theirs.
    Designs and solves fetch what they need of other processes, forward and backward; gradients of weights are partial
    sums, which DistributedDataParallel adds up. All processes must take the same calls in the same order.

    Args:
        layout: what this process holds.
        group: the process group; None for the default one.

    Attributes:
        num_owned: nodes of this part; ``num_nodes`` counts the halo too.
        exchange: the :class:`Exchange`, with its counts of bytes.
    """

    def __init__(self, layout: Layout, group: Any = None):
        self._fill_in(layout, Exchange(layout.send, layout.send_counts, layout.receive_counts, group))
        _agree(self)

    def _fill_in(self, layout: Layout, exchange: Exchange) -> None:
        self.layout, self.exchange = layout, exchange
        self.num_owned = layout.owned.numel()
        structure = None
        if layout.weight is not None:
            structure = object.__new__(GraphPart)
            structure._fill_in(replace(layout, weight=None), exchange)
        self._set(layout.edges, self.num_owned + layout.halo.numel(), layout.weight, structure)

    @classmethod
    def of(cls, graph: Graph, partition: Partition, part: int | None = None, group: Any = None) -> GraphPart:
        """The part of this process, where each has the whole graph in memory; else see :func:`load_part`."""
        part = (dist.get_rank(group) if dist.is_initialized() else 0) if part is None else part
        return cls(cut(graph, partition, part), group)

    @property
    def parts(self) -> int:
        return self.layout.parts

    def fill(self, values: Tensor) -> Tensor:
        """Rows of the owned nodes, or of all local ones, with the rows of the halo as their owners have them."""
        if values.dim() not in (2, 3) or values.size(-2) not in (self.num_owned, self.num_nodes):
            return values
        if self.parts == 1:
            return values
        kept = values.size(-2) == self.num_owned and not needs_grad(values) and not values.is_inference()
        if not kept:
            return self._fetch(values)
        # features are the same tensor every epoch: fetched once, and kept as long as they
        known = self.structure.derived(_known)
        if values not in known or known[values][0] != values._version:
            known[values] = (values._version, self._fetch(values))
        return known[values][1]

    def _fetch(self, values: Tensor) -> Tensor:
        own = values.narrow(-2, 0, self.num_owned)
        if values.dim() == 2:
            return Fill.apply(own.unsqueeze(0), self.exchange).squeeze(0)
        return Fill.apply(own, self.exchange)

    def largest_weight(self) -> Tensor:
        assert self.edge_weight is not None
        return torch.as_tensor(self.layout.largest, dtype=self.edge_weight.dtype, device=self.device)

    def with_weight(self, edge_weight: Tensor) -> GraphPart:
        """The same part with other weights, one per local edge; all processes call it together."""
        check_weight(edge_weight, self.num_edges, self.device)
        largest = self.exchange.max(
            edge_weight.detach().abs().amax().double().view(1)
            if edge_weight.numel()
            else torch.zeros(1, dtype=torch.float64, device=self.device)
        )
        weighted = object.__new__(GraphPart)
        weighted.layout = replace(self.layout, weight=edge_weight, largest=float(largest))
        weighted.exchange, weighted.num_owned = self.exchange, self.num_owned
        weighted._set(self.edges, self.num_nodes, edge_weight, self.structure)
        return weighted

    def checked(self, num_nodes: int | None, edge_weight: Tensor | None) -> Graph:
        if num_nodes is not None and num_nodes != self.num_owned:
            raise ValueError(
                f"x has {num_nodes} rows but {self} owns {self.num_owned} nodes; give the rows of the owned nodes"
            )
        return super().checked(None, edge_weight)

    def solve_across(self, J: Any, h: Tensor, *how: Any) -> Tensor:
        from walksum.distributed.solving import solve_across  # which needs this class

        return solve_across(J, h, *how)

    def system_across(self, J: Any) -> Any:
        from walksum.distributed.estimates import SystemAcross  # which needs this class

        return SystemAcross(J)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> GraphPart:
        device = torch.empty(0, device=device).device
        if device == self.device:
            return self
        layout = self.layout.to(device)
        return GraphPart(layout, self.exchange.group)

    def __reduce__(self) -> tuple:
        raise TypeError("a GraphPart belongs to its process; write parts with save_parts and read them with load_part")

    def __repr__(self) -> str:
        weighted = "" if self.edge_weight is None else ", weighted"
        return (
            f"GraphPart({self.layout.part} of {self.parts}, num_owned={self.num_owned}, "
            f"halo={self.num_nodes - self.num_owned}, num_edges={self.num_edges}{weighted})"
        )


def _known(part: GraphPart) -> WeakIdKeyDictionary:
    return WeakIdKeyDictionary()


def _agree(part: GraphPart) -> None:
    """Check that all processes hold parts of one partition of one graph, on devices of one kind."""
    layout, exchange = part.layout, part.exchange
    processes = dist.get_world_size(exchange.group) if dist.is_initialized() else 1
    if layout.parts != processes:
        raise ValueError(
            f"the graph was cut into {layout.parts} parts but there are {processes} processes; partition it into "
            f"{processes}, or start {layout.parts} processes with torchrun --nproc-per-node {layout.parts}"
        )
    if processes == 1:
        return
    own = (layout.part, layout.fingerprint, layout.send_counts, layout.receive_counts, part.device.type)
    everyone: list[Any] = [None] * processes
    dist.all_gather_object(everyone, own, group=exchange.group)
    for rank, (number, graph, sent, _, device) in enumerate(everyone):
        if number != rank:
            raise ValueError(f"process {rank} holds part {number}; each process must hold the part of its rank")
        if graph != everyone[0][1]:
            raise ValueError(f"process {rank} holds a part of another graph than process 0; cut one graph for all")
        if device != everyone[0][4]:
            raise ValueError(f"process {rank} is on {device} but process 0 on {everyone[0][4]}; use one kind of device")
        if sent != [other[3][rank] for other in everyone]:
            raise ValueError(f"part {rank} was cut by another partition than the others; cut all parts by one")
