"""Sweeps the knobs of the GPU kernels: ``python -m benchmarks.gpu_tune --out FOLDER [--seconds 150] [--smoke]``.

What it finds best is set by hand: tiles in kernels/gpu_plan.py, row groups of belief propagation in
kernels/gpu_messages.py. Each section is guarded: a failure prints its traceback and the next one runs.
``--smoke`` takes tiny graphs; without a GPU that needs TRITON_INTERPRET=1.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch

import walksum as ws
from benchmarks import floors, gpu_graphs, problems
from benchmarks.gpu_timing import event_ms, floor_ms, wall_ms
from walksum.backends.cuda.triton import cg as gpu_cg
from walksum.backends.cuda.triton import edges as gpu_edges
from walksum.backends.cuda.triton.matrix import Matrix
from walksum.backends.cuda.triton.messages import GROUPS, Stepper
from walksum.backends.cuda.triton.plan import Tile, spmm_tile
from walksum.backends.cuda.triton.scalars import CURVATURE
from walksum.solvers.cg import cuda
from walksum.solvers.cg.cuda import PreparedCudaCG

# edges, rows, warps, late; the width follows from the columns
WIDE = [(16, 1, 1, False), (8, 1, 1, False), (32, 1, 1, False), (16, 1, 1, True), (32, 1, 2, True)]
NARROW = [(16, 4, 1, False), (16, 2, 1, False), (32, 2, 1, False), (32, 1, 1, False), (8, 8, 1, False)]
SHAPES = [(1, 1), (1, 8), (1, 16), (1, 32), (1, 40), (1, 64), (1, 128), (1, 512), (8, 8)]  # heads, columns
MESSAGES = [
    {},
    {"numbers": 32},
    {"numbers": 128},
    {"most": 16384},
    {"fewest": 2048},
    {"held": 512, "groups": GROUPS[:-1]},
    {"held": 2048, "groups": (*GROUPS, 1024)},
    {"groups": (8, *GROUPS)},
]


def spmm(graph: ws.Graph, device: str) -> Iterator[tuple[str, float, float]]:
    """Tiles for every shape of x, and where a row becomes a hub."""
    values = gpu_edges.slot_values(graph, gpu_graphs.laplacian(graph).off)
    for heads, columns in SHAPES if graph.num_nodes > 100 else SHAPES[:1]:
        default = spmm_tile(columns)
        x = torch.randn(heads, graph.num_nodes, columns, device=device)
        diag, repeated = x[..., 0].contiguous(), values.expand(heads, -1).contiguous()
        floor = 1e3 * floors.spmm_bytes(graph, heads, columns) / floor_rate()
        for edges, rows, warps, late in NARROW if columns <= 16 else WIDE if columns in (32, 64) else WIDE[:2]:
            tile = Tile(edges, rows, default.features, warps, late=late)
            for hub in (256, 128, 512) if (tile, columns) == (default, 64) else (256,):
                matrix = Matrix(graph, diag, repeated, hub=hub, tile=tile)
                ms = event_ms(lambda m=matrix, b=x: m.product(b), device, 5)
                yield f"{heads} x {columns}: {label(tile)} hub {hub}{' *' if tile == default else ''}", ms, floor


def messages(graph: ws.Graph, device: str) -> Iterator[tuple[str, float, float]]:
    """Belief propagation: how messages are dealt to programs, then each group of row lengths alone."""
    columns = 64 if graph.num_nodes > 100 else 3
    h = torch.randn(1, graph.num_nodes, columns, device=device)
    gain = -0.5 * torch.rand(1, 2 * graph.num_edges, device=device)
    eta = torch.randn(1, 2 * graph.num_edges, columns, device=device)
    new, floor = torch.empty_like(eta), 1e3 * floors.gabp_bytes(graph, 1, columns) / floor_rate()
    for knobs in MESSAGES[: None if columns == 64 else 2]:
        stepper = Stepper(graph, 1, columns, split=True, **knobs)  # type: ignore[arg-type]
        yield f"all {knobs}", event_ms(lambda s=stepper: s.step(gain, h, eta, new), device, 5), floor
    for knobs in ({}, {"numbers": 32}, {"numbers": 128}):
        stepper = Stepper(graph, 1, columns, split=True, **knobs)  # type: ignore[arg-type]
        plan = stepper.plan
        assert plan is not None
        for group in plan.groups:
            empty = {n: getattr(plan, n)[:0] for n in ("hubs", "piece_start", "piece_begin", "piece_end", "piece_hub")}
            object.__setattr__(stepper, "plan", replace(plan, groups=(group,), **empty))
            count = int(graph.degree[plan.order[group[0] : group[1]].long()].sum())
            ms = event_ms(lambda s=stepper: s.step(gain, h, eta, new), device, 3)
            yield f"rows up to {group[2]} {knobs}", ms, floor_ms(8 * count * columns)


def cg_parts(graph: ws.Graph, device: str) -> Iterator[tuple[str, float, float]]:
    """The kernels of one step, a start, and whole solves with the direction in float32 and in bfloat16."""
    J = gpu_graphs.laplacian(graph)
    h = torch.randn(1, graph.num_nodes, 64 if graph.num_nodes > 100 else 3, device=device)
    system = cuda.System(Matrix.of(graph, J.diag, J.off), True)
    loop = cuda.Loop(system, h, torch.float32, 0.0, 0.0, 10**6)
    control, matrix, one = loop.control, system.matrix, floor_ms(4 * h.numel())
    gather = 1e3 * floors.spmm_bytes(graph, 1, h.size(2)) / floor_rate()

    def active(body: Callable[[], object]) -> float:
        def once() -> None:
            control.scalars[:2].zero_()  # all columns active and, as r . z = 0, at rest
            body()

        return event_ms(once, device, 5)

    yield "start", active(lambda: gpu_cg.start(control, h, loop.mu, loop.r, loop.p, system.inverse)), 5 * one
    yield "product", active(lambda: matrix.product(loop.p, loop.q)), gather
    yield "product, curvature", active(lambda: matrix.product(loop.p, loop.q, CURVATURE.value, control)), gather
    yield "update", active(lambda: gpu_cg.update(control, loop.mu, loop.r, loop.p, loop.q, system.inverse)), 6 * one
    yield "direction", active(lambda: gpu_cg.direction(control, loop.p, loop.r, system.inverse)), 3 * one
    count = matrix.programs(h.size(2))
    yield (
        f"finish of {count}",
        active(lambda: control.finish(CURVATURE.value, count, spmm_tile(h.size(2)).features)),
        0.0,
    )
    for name, K in (("F-Lap", J), ("F-DD", gpu_graphs.dominant(graph))):
        prepared = PreparedCudaCG(K, ws.CG(tol=1e-5))
        s = prepared(h)
        about = f"{name} {s.status.name} {s.steps} steps {s.residual:.1e}"
        yield about, event_ms(lambda p=prepared: p(h), device, 3, 1), s.steps * gather


def small(name: str, device: str) -> Iterator[tuple[str, float, float]]:
    """Whole solves on small graphs; milliseconds."""
    graph = small_graph(name, device)
    for heads, columns in ((1, 64), (8, 8)) if name != "tiny" else ((1, 3),):
        J = gpu_graphs.dominant(graph)
        J = ws.Precision(graph, J.diag.expand(heads, -1).contiguous(), J.off.expand(heads, -1).contiguous())
        h = torch.randn(heads, graph.num_nodes, columns, device=device)
        prepared, where = PreparedCudaCG(J, ws.CG()), f"{name} {heads} x {columns}"
        yield f"{where} solve ({prepared(h).steps} steps)", wall_ms(lambda p=prepared, b=h: p(b), device), 0.0
        yield f"{where} forward and backward", wall_ms(lambda K=J, b=h: both_passes(K, b), device), 0.0


def both_passes(J: ws.Precision, h: torch.Tensor) -> None:
    diag, off, b = (t.detach().requires_grad_() for t in (J.diag, J.off, h))
    ws.solve(ws.Precision(J.graph, diag, off), b).backward(h)


def dense(device: str, sizes: tuple[int, ...]) -> Iterator[tuple[str, float, float]]:
    for n in sizes:
        J = gpu_graphs.repulsive(gpu_graphs.uniform(n, 2 * n, device, 1), 1, 1)
        h = torch.randn(1, n, 64 if n > 8 else 2, device=device)
        for solver in (ws.Dense(), ws.CG()):
            ms = wall_ms(lambda s=solver, K=J, b=h: s.prepare(K)(b), device, 7)
            yield f"{n} nodes, {solver.name}", ms, 0.0


def small_graph(name: str, device: str) -> ws.Graph:
    if name in ("cora", "pubmed") and os.environ.get("WALKSUM_DATA"):
        return problems.load_graph(name)[0].to(device)
    sizes = {"cora": (2708, 5278), "pubmed": (19717, 44324), "tiny": (12, 20)}
    return gpu_graphs.power_law(*sizes[name], device, 1, 0.5)


def label(tile: Tile) -> str:
    return f"E{tile.edges} R{tile.rows} W{tile.features} w{tile.warps}{' late' if tile.late else ''}"


def floor_rate() -> float:
    return 2e3 / floor_ms(2.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--seconds", type=float, default=150.0, help="no section is begun after so many")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    device, began = "cuda" if torch.cuda.is_available() else "cpu", time.perf_counter()
    found: dict[str, object] = {}

    def section(name: str, make: Callable[..., Iterator[tuple[str, float, float]]], *given: object) -> None:
        passed = time.perf_counter() - began
        if passed > args.seconds:
            print(f"== {name}: left out after {passed:.0f} s")
            return
        print(f"== {name} (at {passed:.0f} s)", flush=True)
        rows: dict[str, tuple[float, float]] = {}
        try:
            for key, ms, floor in make(*given):
                rows[key] = (ms, floor)
                print(f"  {key:84s} {ms:9.4f} ms" + (f" {floor / ms:5.0%}" if floor else ""), flush=True)
        except Exception:
            traceback.print_exc()
        found[name] = rows
        (args.out / "gpu_tune.json").write_text(json.dumps(found, indent=1))
        gc.collect()
        torch.cuda.empty_cache()

    for name in ("tiny",) if args.smoke else ("cora", "pubmed"):
        section(name, small, name, device)
    section("dense", dense, device, (8,) if args.smoke else (16, 32, 64, 128, 256))
    for name in ("power-law-1m", "wide-2.4m"):
        graph = gpu_graphs.large(name, device, 1e-5 if args.smoke else 1.0)
        section(f"{name} messages", messages, graph, device)
        section(f"{name} cg", cg_parts, graph, device)
        if name == "power-law-1m":
            section(f"{name} spmm", spmm, graph, device)
        del graph
    print(f"tuned in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
