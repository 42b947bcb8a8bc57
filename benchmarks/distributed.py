"""What several gloo processes find, hold and send, against one process: ``python -m benchmarks.distributed``.

Each number of processes is a run of its own, whose processes read their part from disk and never hold the whole. One
step is forward and backward of a layer with a learned Laplacian, in float64. Memory is the peak of a process during
that step, beyond what it held after its imports and a step on a small graph.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp

import walksum as ws
from benchmarks import graphs, timing
from walksum._files import to_json, write_file
from walksum.data import load
from walksum.data.splits import Split
from walksum.distributed import joined, load_part, partition, save_parts
from walksum.training import Data

COLUMNS, WIDTH = 16, 16
OUT = Path("results/scale/gloo.json")


def problem(name: str) -> tuple[ws.Graph, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    if name == "pubmed":
        data = load("pubmed")
        return ws.Graph.from_edge_index(data.edge_index, data.num_nodes), data.x[:, :COLUMNS].double()
    graph = {"power-law-100k": lambda: graphs.power_law(100_000, 500_000, 0.5), "grid-100k": lambda: graphs.grid(317)}
    made = graph[name]()
    return made, torch.randn(made.num_nodes, COLUMNS, generator=draw, dtype=torch.float64)


def layer() -> ws.GLTConv:
    torch.manual_seed(0)
    return ws.GLTConv(COLUMNS, WIDTH, solver=ws.CG(tol=1e-12, preconditioner="jacobi")).double()


def step(model: ws.GLTConv, x: torch.Tensor, graph: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
    out = model(x, graph)
    return out.detach(), list(torch.autograd.grad(out.square().sum(), list(model.parameters())))


def work(rank: int, processes: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(processes), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    with joined(timeout=300):
        small = graphs.power_law(60, 120, 0.4)
        step(layer(), torch.randn(60, COLUMNS, dtype=torch.float64), small)  # load what is compiled
        timing.clear_peak()
        before = timing.peak_resident()
        data = load_part(f"{folder}/parts-{processes}", rank)
        model, exchange = layer(), data.edges.exchange
        start = time.perf_counter()
        out, gradients = step(model, data.x, data.edges)
        seconds, held = time.perf_counter() - start, timing.peak_resident() - before
        for each in gradients:
            exchange.sum(each)
        assert model.last_solve is not None
        assert model.last_backward_solve is not None
        told = {
            "seconds": seconds,
            "memory": held,
            "owned": data.edges.num_owned,
            "halo": data.edges.num_nodes - data.edges.num_owned,
            "edges": data.edges.num_edges,
            "steps": [model.last_solve.steps, model.last_backward_solve.steps],
            "residual": [model.last_solve.residual, model.last_backward_solve.residual],
            "fixed": _fixed(data.x, data.edges),
        }
        found = {"out": out, "owned": data.edges.layout.owned, "gradients": gradients, "told": told}
        torch.save(found, f"{folder}/{rank}.pt")


def _fixed(x: torch.Tensor, part: Any) -> dict[str, Any]:
    """A solve with a fixed J, forward and backward: every exchange has the same width."""
    J, seen, exchange = ws.FixedLaplacian(0.9)(part, x), [], part.exchange
    h = x.clone().requires_grad_()
    sent, exchanges, reductions = exchange.bytes_sent, exchange.exchanges, exchange.reductions
    start = time.perf_counter()
    ws.solve(J, h, ws.CG(tol=1e-10), observe=seen.append).square().sum().backward()
    return {
        "seconds": time.perf_counter() - start,
        "steps": [solution.steps for solution in seen],
        "bytes_sent": exchange.bytes_sent - sent,
        "exchanges": exchange.exchanges - exchanges,
        "reductions": exchange.reductions - reductions,
    }


def measure(name: str, processes: int, method: str, folder: str) -> dict[str, Any]:
    """One number of processes on one graph."""
    graph, x = problem(name)
    expected, d_expected = step(layer(), x, graph)
    nodes = torch.arange(graph.num_nodes)
    shares = partition(graph, processes, method)
    data = Data(x, graph, torch.zeros(graph.num_nodes), Split(nodes[:1], nodes[1:2], nodes[2:3]), "regression")
    save_parts(f"{folder}/parts-{processes}", data, shares)
    mp.spawn(work, (processes, _free_port(), folder), nprocs=processes)
    found = [torch.load(f"{folder}/{rank}.pt") for rank in range(processes)]
    out = torch.empty_like(expected)
    for each in found:
        out[each["owned"]] = each["out"]
    told = [each["told"] for each in found]
    one = shares.exchange_bytes(graph, COLUMNS, torch.float64)  # from the edges and the partition alone
    return {
        "graph": name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "processes": processes,
        "method": method,
        "cut": shares.cut(graph),
        "solution_error": _distance([out], [expected]),
        "gradient_error": _distance(found[0]["gradients"], d_expected),
        "bytes_predicted": [size * each["fixed"]["exchanges"] for size, each in zip(one, told, strict=True)],
        "bytes_sent": [each["fixed"]["bytes_sent"] for each in told],
        "per_process": told,
    }


def _distance(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, expected, strict=True))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", nargs="+", default=["pubmed", "grid-100k", "power-law-100k"])
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--method", default="metis")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    records = json.loads(options.out.read_text()) if options.out.exists() else []
    for name in options.graphs:
        for processes in options.processes:
            with tempfile.TemporaryDirectory() as folder:
                record = measure(name, processes, options.method, folder)
            key = (name, processes, options.method)
            records = [r for r in records if (r["graph"], r["processes"], r["method"]) != key] + [record]
            write_file(options.out, to_json(records, indent=1))
            print(to_json({k: v for k, v in record.items() if k != "per_process"}), flush=True)


if __name__ == "__main__":
    main()
