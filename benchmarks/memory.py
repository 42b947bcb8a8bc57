"""What a training step holds for its backward pass: recorded GaBP steps against implicit gradients.

    python -m benchmarks.memory

The paper's claim: recording T steps of message passing holds O(T E) numbers, the implicit gradient O(E + N) for any T.
Counted are the distinct bytes that autograd saves between forward and backward, by torch's own hooks; they depend on no
machine. The record goes to ``results/bench/memory.json``, the page docs/solvers.md quotes it.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

import walksum as ws
from benchmarks import graphs
from benchmarks.records import machine
from walksum._files import to_json, write_file

COLUMNS, STEPS, SIZES = 8, (10, 20, 50, 100, 200), (1_000, 10_000, 100_000)
RECORD = Path(__file__).parents[1] / "results" / "bench" / "memory.json"


def saved_bytes(edges: int, solver: ws.Solver) -> int:
    """The bytes that one solve saves for its backward pass, on a power-law graph with a tenth as many nodes."""
    graph = graphs.power_law(edges // 10, edges, 0.5)
    off = torch.full((1, graph.num_edges), -0.02, dtype=torch.float64, requires_grad=True)
    diag = torch.ones(1, graph.num_nodes, dtype=torch.float64) + 0.02 * graph.degree
    h = torch.ones(1, graph.num_nodes, COLUMNS, dtype=torch.float64, requires_grad=True)
    held: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        mu = ws.solve(ws.Precision(graph, diag, off), h, solver=solver, on_nonconverged="ignore")
    mu.sum().backward()
    return sum(held.values())


def measure() -> list[dict]:
    rows = []
    for edges in SIZES:
        for steps in STEPS:
            if edges * steps > 2_000_000:
                continue  # a recording of gigabytes says nothing more
            recorded = saved_bytes(edges, ws.Unrolled(steps=steps))
            implicit = saved_bytes(edges, ws.GaBP(max_steps=steps))
            rows.append({"edges": edges, "steps": steps, "recorded": recorded, "implicit": implicit})
            print(f"{edges:>7} edges, {steps:>3} steps: recorded {recorded / 2**20:9.2f} MiB, "
                  f"implicit {implicit / 2**20:6.2f} MiB, {recorded / implicit:6.0f} times")  # fmt: skip
    return rows


if __name__ == "__main__":
    found = {"machine": machine("cpu"), "columns": COLUMNS, "rows": measure()}
    write_file(RECORD, to_json(found, indent=1))
