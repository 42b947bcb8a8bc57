"""Bytes that must move, if every array is touched once: what 'share of the bandwidth floor' is a share of.

On a CPU the floor counts main memory, so a graph that fits into the caches can show a share above one.
"""

from __future__ import annotations

import torch

import walksum as ws

FLOAT = INDEX = 4
MESSAGES = {"gabp"}
PRODUCTS = {"cg", "cg-dic", "chebyshev"}


def spmm_bytes(graph: ws.Graph, heads: int, columns: int) -> float:
    """One J x: a row of x for each directed edge, its index and value; own rows read, results written."""
    slots, rows = 2 * graph.num_edges, 2 * graph.num_nodes
    return heads * (slots * (columns * FLOAT + FLOAT) + rows * columns * FLOAT) + slots * INDEX


def gabp_bytes(graph: ws.Graph, heads: int, columns: int) -> float:
    """One step: every message read once and written once, with its gain and its slot; h read."""
    slots = 2 * graph.num_edges
    return heads * (slots * (2 * columns * FLOAT + FLOAT) + graph.num_nodes * columns * FLOAT) + slots * INDEX


def step_bytes(contestant: str, graph: ws.Graph, heads: int, columns: int) -> float | None:
    """Bytes per step of an iterative solver; None where a step is not one pass over the edges."""
    if contestant in MESSAGES:
        return gabp_bytes(graph, heads, columns)
    return spmm_bytes(graph, heads, columns) if contestant in PRODUCTS else None


def available_bytes(device: str) -> int:
    if device == "cpu":
        import psutil

        return psutil.virtual_memory().available
    torch.cuda.empty_cache()  # what the allocator keeps for later is free too
    return torch.cuda.mem_get_info()[0]
