"""The largest graphs on one GPU, each task in a process of its own: ``python -m benchmarks.large_gpu``.

products      2.4M nodes, 124M directed edges: seconds per training step and peak memory of a two-layer GLT
ten-million   10M nodes, 500M directed edges: the same, blocks computed again in the backward pass
papers        111M nodes, 3.2G directed edges, 16 columns: the fixed Laplacian solved to 1e-4

What is alive at the peak, in GiB; N F is a float32 vector of all columns, E the undirected edges.

=========== ===== ===== ============================================================================================
task         N F    E   peak
=========== ===== ===== ============================================================================================
products    0.57  0.23  edges 16 E bytes 0.93; neighbour lists 32 E bytes 1.9; activations 24 N F and x 14; 4.5 N F
                        of a solve 2.6; J, its gradient and what its formulas hold, 10 E floats at most 2.3: 22
ten-million 2.38  0.93  edges 3.7; lists 7.5; activations 24 N F would be 57, with one block at a time 14 N F 33; x
                        2.4; J and its formulas 5: 52. Building: pairs 3.8, keys and their sort 7, edges 3.7: 15
papers      6.62  6.0   pairs of 32 bits 12.0, lists of 32 bits 11.9 (offsets of 64 bits 0.8), keys of a range of rows
                        1: 26 while building, 36 while they are joined. Solve: lists 12.7, four vectors and a direction
                        in bfloat16 30, one vector for the error 6.6: 50. A Graph keeps its edges and four numbers per
                        directed edge, 120 in 64 bits: so that task holds the lists alone, and J's values follow from
                        the degrees
=========== ===== ===== ============================================================================================
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

import walksum as ws
from benchmarks import graphs, records
from benchmarks.truth import conjugate_gradients
from walksum.graph import CSR
from walksum.graph.graph import _csr, _degree

GIB = 2**30
SIZES = {  # nodes, pairs drawn, columns; of --small, to try it anywhere
    "products": ((2_400_000, 62_600_000, 64), (2_000, 20_000, 8)),
    "ten-million": ((10_000_000, 252_000_000, 64), (3_000, 40_000, 8)),
    "papers": ((111_000_000, 1_610_000_000, 16), (5_000, 60_000, 4)),
}
LIMIT = {"products": 90, "ten-million": 90, "papers": 150}  # seconds
TOLERANCES = {"products": (None, 1e-6), "ten-million": (None,)}  # of the solves; None: the default
DRAWN = 2**26  # pairs drawn at once
BUCKETS = 64  # ranges of rows that are sorted one after another


def training(name: str, device: str, small: bool) -> Iterator[dict[str, Any]]:
    """Seconds and memory of a training step, for a fixed and a learned design."""
    nodes, pairs, width = SIZES[name][small]
    began = time.perf_counter()
    graph = graphs.lognormal_on(device, nodes, pairs)
    _wait(device)
    yield {
        "nodes": nodes,
        "directed_edges": 2 * graph.num_edges,
        "build_s": time.perf_counter() - began,
        **_memory(device),
    }
    x = torch.randn(nodes, width, device=device)
    y = torch.randint(10, (nodes,), device=device)
    designs = (("diagonally-dominant", False), ("laplacian", True))
    for (design, learned), tol in itertools.product(designs, TOLERANCES[name]):
        solver: Any = "auto" if tol is None else ws.CG(tol=tol)
        model = ws.GLT(width, width, 2, 10, heads=1, design=design, learned=learned, dropout=0.0, solver=solver)
        model.recompute = name == "ten-million"
        model = model.to(device)
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
        step = ws.TrainingStep(lambda m=model: torch.nn.functional.cross_entropy(m(x, graph), y), optimiser)
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        times = [_timed(step, device) for _ in range(4)]
        solves = [found for mixer in model.mixers for found in (mixer.last_solve, mixer.last_backward_solve) if found]
        yield {
            "design": design,
            "learned": learned,
            "tol": tol,
            "first_s": times[0],
            "step_s": min(times[1:]),
            "solve_steps": [solution.steps for solution in solves],
            "backward_error": max(solution.residual for solution in solves),
            **_memory(device),
        }
        del model, optimiser, step


class Adjacency:
    """The neighbour lists of a graph, in row order: 32-bit neighbours, 64-bit starts.

    Args:
        pairs: int32 ``[2, M]``, with loops and duplicates.
        num_nodes: number of nodes.
    """

    def __init__(self, pairs: Tensor, num_nodes: int):
        self.num_nodes, lists, counts = num_nodes, [], []
        edge = -(-num_nodes // BUCKETS)
        for low in range(0, num_nodes, edge):
            high = min(low + edge, num_nodes)
            keys = [self._keys(a, b, low, high) for a, b in ((pairs[0], pairs[1]), (pairs[1], pairs[0]))]
            key = torch.unique(torch.cat(keys))
            del keys
            row = key // num_nodes
            counts.append(torch.bincount(row, minlength=high - low))
            lists.append((key - row * num_nodes).int())
        self.degree = torch.cat(counts)
        self.start = torch.cat([self.degree.new_zeros(1), self.degree.cumsum(0)])
        self.lists = lists  # one per bucket: joined they would take the memory twice for a moment

    def _keys(self, a: Tensor, b: Tensor, low: int, high: int) -> Tensor:
        found = []
        for at in range(0, a.numel(), DRAWN):
            rows, others = a[at : at + DRAWN], b[at : at + DRAWN]
            chosen = (rows >= low) & (rows < high) & (rows != others)
            found.append((rows[chosen].long() - low) * self.num_nodes + others[chosen])
        return torch.cat(found)

    @property
    def num_directed(self) -> int:
        return int(self.start[-1])

    def joined(self) -> ws.Graph:
        """As a Graph without edges but with neighbour lists, which is all that the kernels read."""
        graph = ws.Graph.trusted(self.degree.new_empty(2, 0), self.num_nodes)
        indices, nothing = torch.cat(self.lists), self.lists[0].new_empty(0)
        self.lists = []
        lists = CSR(indptr=self.start, indices=indices, edge=nothing, reverse=nothing, row=nothing)
        graph._derived.update({(_csr,): lists, (_degree,): self.degree})
        return graph

    def solve(self, h: Tensor, scale: float, tol: float) -> tuple[Tensor, int | None, float]:
        """(I - s D^-1/2 A D^-1/2) mu = h on the host, in float64: for graphs that are small."""
        ones, nodes = np.ones(self.num_directed), (self.num_nodes,) * 2
        A = sp.csr_matrix((ones, torch.cat(self.lists).cpu().numpy(), self.start.cpu().numpy()), nodes)
        root = sp.diags(self.degree.clamp_min(1).double().rsqrt().cpu().numpy())
        J, b = sp.identity(self.num_nodes) - scale * root @ A @ root, h.double().cpu().numpy()
        mu = conjugate_gradients(J, b, tol)
        residual, size, given = (abs(each).max(0) for each in (b - J @ mu, mu, b))
        return torch.from_numpy(mu).to(h), None, float((residual / ((1 + scale) * size + given)).max())


def papers(device: str, small: bool) -> Iterator[dict[str, Any]]:
    """Draw, build and solve (I - s D^-1/2 A D^-1/2) mu = h by conjugate gradients."""
    nodes, count, columns = SIZES["papers"][small]
    began = time.perf_counter()
    generator = torch.Generator(device=device).manual_seed(1)
    weight = torch.exp(1.16 * torch.randn(nodes, device=device, generator=generator))
    pairs = torch.empty(2, count, dtype=torch.int32, device=device)
    for at in range(0, count, DRAWN):
        drawn = graphs.weighted_pairs(weight, min(DRAWN, count - at), generator)
        pairs[:, at : at + drawn.size(1)] = drawn
    del weight, drawn
    _wait(device)
    yield {"drawn_s": time.perf_counter() - began, **_memory(device)}
    A = Adjacency(pairs, nodes)
    del pairs
    _wait(device)
    yield {"nodes": nodes, "directed_edges": A.num_directed, "build_s": time.perf_counter() - began, **_memory(device)}
    h = torch.randn(nodes, columns, device=device, generator=generator)
    began = time.perf_counter()
    _, steps, error = (solve_by_kernels if device == "cuda" else Adjacency.solve)(A, h, 0.99, tol=1e-4)
    _wait(device)
    yield {"steps": steps, "backward_error": error, "solve_s": time.perf_counter() - began, **_memory(device)}


def solve_by_kernels(A: Adjacency, h: Tensor, scale: float, tol: float) -> tuple[Tensor, int, float]:
    """As :meth:`Adjacency.solve`, by the library's kernels: neighbour lists and one value for all couplings.

    (I - s D^-1/2 A D^-1/2) mu = h is (D - s A) v = D^1/2 h with mu = D^1/2 v, whose couplings are all -s; Jacobi's
    preconditioner makes the steps of both the same. h is overwritten.
    """
    from walksum.backends.cuda.triton.matrix import Matrix
    from walksum.solvers.cg.cuda import Loop

    degree, given = A.degree.clamp_min(1).to(h.dtype), _largest(h)
    root = degree.sqrt().unsqueeze(1)
    matrix = Matrix(A.joined(), degree.unsqueeze(0), None, h.new_tensor([-scale]))
    small = tol / float(
        matrix.norm_inf()
    )  # |D - s A| is twice the largest degree, beside which errors of most rows vanish
    found = Loop(matrix, True, h.mul_(root).unsqueeze(0), tol, small, 300).solve()
    r = matrix.product(found.value).squeeze(0).sub_(h).div_(root)  # the residual of the system that was asked for
    mu = found.value.squeeze(0).mul_(root)
    return mu, found.steps, float((_largest(r) / ((1 + scale) * _largest(mu) + given)).max())


def _largest(x: Tensor) -> Tensor:
    """The largest magnitude of every column, without a vector of magnitudes."""
    return torch.maximum(x.amax(0), -x.amin(0))


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _timed(call: Callable[[], Any], device: str) -> float:
    _wait(device)
    began = time.perf_counter()
    call()
    _wait(device)
    return time.perf_counter() - began


def _memory(device: str) -> dict[str, float]:
    return {"peak_gib": torch.cuda.max_memory_allocated() / GIB} if device == "cuda" else {}


def _tell(task: str, told: dict[str, Any], out: Path | None) -> None:
    rounded = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in told.items()}
    print(json.dumps({"task": task, **rounded}), flush=True)
    records.append_line(out, {"task": task, **rounded})


def run(task: str, device: str, small: bool, out: Path | None) -> None:
    results = papers(device, small) if task == "papers" else training(task, device, small)
    try:
        for told in results:
            _tell(task, told, out)
    except torch.cuda.OutOfMemoryError as error:
        total, held = (torch.cuda.mem_get_info()[1] / GIB, torch.cuda.memory_allocated() / GIB)
        remedy = "use fewer columns or hidden units, or share the graph out over processes (walksum.distributed)"
        _tell(
            task,
            {"out_of_memory": str(error).split("(")[0].strip(), "held_gib": held, "total_gib": total, "remedy": remedy},
            out,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="graphs of a few thousand nodes, to try the script")
    parser.add_argument("--out", type=Path, help="file to which each result is appended as a line")
    parser.add_argument("--here", action="store_true", help="in this process, without a time limit")
    options = parser.parse_args()
    for task in options.tasks:
        if options.here:
            run(task, options.device, options.small, options.out)
            continue
        command = [sys.executable, "-m", "benchmarks.large_gpu", "--tasks", task, "--device", options.device, "--here"]
        command += ["--small"] * options.small + (["--out", str(options.out)] if options.out else [])
        try:
            subprocess.run(command, timeout=LIMIT[task], check=False)
        except subprocess.TimeoutExpired:
            _tell(task, {"stopped_after_s": LIMIT[task]}, options.out)


if __name__ == "__main__":
    main()
