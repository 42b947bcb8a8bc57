"""Checks and times every GPU kernel and solver: ``python -m benchmarks.gpu_probe --out FOLDER``.

Correctness first (fresh inputs, poisoned outputs, float64 twins), then the small graphs, then the large ones,
each section guarded: a failure prints its traceback and the next section runs. All numbers go to gpu_probe.json.
``--smoke`` runs everything on tiny graphs; without a GPU that needs TRITON_INTERPRET=1.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

import walksum
from benchmarks import gpu_graphs
from benchmarks.gpu_timing import event_ms, floor_ms, replay_ms, sync, wall_ms
from walksum import CG, GaBP, Graph, Precision
from walksum.kernels import gpu, gpu_cg, gpu_edges, reference
from walksum.kernels.gpu_finish import CURVATURE, RESIDUAL, VERIFY
from walksum.kernels.gpu_matrix import Matrix
from walksum.kernels.gpu_messages import Precisions, Stepper
from walksum.kernels.gpu_plan import Tile
from walksum.solvers import cuda_cg, cuda_gabp
from walksum.solvers.cuda_cg import PreparedCudaCG
from walksum.solvers.cuda_gabp import PreparedCudaGaBP
from walksum.solvers.dense import PreparedDense
from walksum.solvers.gabp import Messages, PreparedGaBP

F = 64


@dataclass
class Probe:
    out: Path
    device: str
    smoke: bool
    budget: float
    began: float = field(default_factory=time.perf_counter)
    numbers: dict = field(default_factory=dict)

    def section(self, name: str, body: Callable[..., dict | None], *args: object) -> None:
        passed = time.perf_counter() - self.began
        if passed > self.budget:
            print(f"== {name}: skipped, {passed:.0f} s are over the budget")
            return
        print(f"== {name} (at {passed:.0f} s)", flush=True)
        try:
            self.numbers[name] = body(self, *args)
        except Exception:
            self.numbers[name] = {"failed": traceback.format_exc()}
            traceback.print_exc()
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()
        (self.out / "gpu_probe.json").write_text(json.dumps(self.numbers, indent=1, default=str))

    def size(self, full: int, smoke: int) -> int:
        return smoke if self.smoke else full


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm().clamp_min(1e-300))


def the_device(probe: Probe) -> dict:
    facts = {"torch": torch.__version__}
    if probe.device == "cuda":
        import triton

        facts |= {"name": torch.cuda.get_device_name(), "triton": triton.__version__}
        a = torch.randn(2**30, device="cuda")
        b = torch.empty_like(a)
        ms = event_ms(lambda: b.copy_(a), "cuda")
        facts["copy TB/s"] = round(2 * a.numel() * 4 / ms / 1e9, 3)
    print(facts)
    return facts


TILES = [
    Tile(8, 8, 64, 4), Tile(16, 8, 64, 4), Tile(4, 8, 64, 4), Tile(8, 4, 64, 2), Tile(16, 4, 64, 2), Tile(8, 2, 64, 1),
    Tile(16, 1, 64, 1), Tile(32, 1, 64, 2), Tile(32, 1, 64, 4), Tile(8, 8, 64, 4, "evict_first"),
    Tile(16, 4, 64, 2, "evict_first"), Tile(16, 16, 64, 8),
]  # fmt: skip

WIDTHS = [(1, 1), (1, 8), (1, 16), (1, 32), (1, 40), (1, 128), (1, 256), (1, 512), (8, 8)]  # heads, columns
DOTS = [(16, 4), (32, 4), (64, 4), (16, 2), (32, 8), (8, 1)]  # edges, warps


def correctness(probe: Probe) -> dict:
    n, heads = probe.size(3000, 24), 2
    graph = gpu_graphs.power_law(n, probe.size(20000, 60), probe.device, int(time.time()))
    J = gpu_graphs.repulsive(graph, heads, int(time.time()))
    found: dict[str, float] = {}
    for columns in (1, 7, 64, 130) if not probe.smoke else (5,):
        x = torch.randn(heads, n, columns, device=probe.device)
        exact = reference.spmm(graph, J.diag.double(), J.off.double(), x.double())
        values = gpu_edges.slot_values(graph, J.off)
        for hub in (16, 512):
            for by_length in (False, True):
                poisoned = torch.full_like(x, torch.nan)
                Matrix(graph, J.diag, values, hub=hub, by_length=by_length).product(x, poisoned)
                found[f"spmm F={columns} hub={hub} by_length={by_length}"] = error(poisoned, exact)
        half = x.bfloat16()
        exact_half = reference.spmm(graph, J.diag.double(), J.off.double(), half.double())
        found[f"spmm F={columns} bf16"] = error(Matrix(graph, J.diag, values).product(half), exact_half)
        a = torch.randn_like(x)
        dots = reference.edge_dot(graph, a.double(), x.double())
        found[f"edge_dot F={columns}"] = error(gpu.edge_dot(graph, a, x), dots)
        for split, held in ((False, 512), (True, 512), (True, 16)) if columns in (5, 7, 64) else ():
            found[f"gabp step F={columns} split={split} held={held}"] = gabp_step_error(J, x, split, held)
    found |= {f"tile {asdict(tile)}": tile_error(graph, J, tile) for tile in TILES[: probe.size(99, 1)]}
    bad = {name: e for name, e in found.items() if not e < 3e-6}
    print(f"{len(found)} checks, worst {max(found.values()):.1e}", "ALL GOOD" if not bad else f"BAD: {bad}")
    return {"errors": found, "bad": bad}


def tile_error(graph: Graph, J: Precision, tile: Tile) -> float:
    x = torch.randn(J.heads, graph.num_nodes, F, device=graph.device)
    exact = reference.spmm(graph, J.diag.double(), J.off.double(), x.double())
    values = gpu_edges.slot_values(graph, J.off)
    found = [
        Matrix(graph, J.diag, values, hub=64, by_length=by_length, tile=tile).product(x) for by_length in (False, True)
    ]
    return max(error(f, exact) for f in found)


def gabp_step_error(J: Precision, h: Tensor, split: bool, held: int) -> float:
    """One damped and one plain step from random messages against the plain torch step in float64."""
    graph, worst = J.graph, 0.0
    twin = Messages(Precision(graph, J.diag.double(), J.off.double()), h.double())
    twin.pi = -0.1 * torch.rand_like(twin.pi)
    twin.eta = torch.randn_like(twin.eta)
    alpha = twin.beliefs()[0]
    gain = (-twin.coupling / (alpha[:, graph.csr.row] - twin.pi)).float()
    eta, mean = twin.eta.float(), twin.mean()
    groups = tuple(g for g in (8, 32) if g < held)
    stepper = Stepper(graph, J.heads, h.size(2), held=held, groups=groups, split=split)
    for damping in (1.0, 0.6):
        new, mu = torch.full_like(eta, torch.nan), torch.full_like(h, torch.nan)
        change = torch.full((stepper.num_changes,), torch.nan, device=h.device)
        stepper.step(gain, h, eta, new, damping, alpha=alpha.float(), mu=mu, change=change)
        twin.pi, twin.eta = twin.pi.clone(), eta.double()
        pi = twin.pi
        _, d_eta = twin.step(damping)
        worst = max(worst, error(new, twin.eta), error(mu, mean), error(change.max(), d_eta.abs().max()))
        twin.pi, twin.eta = pi, eta.double()
    return worst


def check_solves(probe: Probe) -> dict:
    """Solutions against float64 dense ones, and against themselves: replays give the same bits."""
    n = probe.size(2500, 12)
    graph = gpu_graphs.power_law(n, probe.size(12000, 30), probe.device, int(time.time()))
    found = {}
    for name, J in (("lap", gpu_graphs.laplacian(graph)), ("signs", gpu_graphs.repulsive(graph, 2, 5))):
        h = torch.randn(J.heads, n, probe.size(F, 3), device=probe.device)
        exact = torch.linalg.solve(J.to_dense().double(), h.double())
        small = cuda_cg.SMALL
        for large in (False, True):
            cuda_cg.SMALL = cuda_gabp.SMALL = -1 if large else small
            runs = {
                "cg": PreparedCudaCG(J, CG(tol=1e-6)),
                "cg bf16": PreparedCudaCG(J, CG(tol=1e-6), torch.bfloat16),
                "gabp": PreparedCudaGaBP(J, GaBP(damping=1 if name == "lap" else 0.8, max_steps=3000, tol=1e-6)),
            }
            for key, prepared in runs.items():
                solutions = [prepared(h) for _ in range(probe.size(4, 1))]
                s = solutions[-1]
                same = all(torch.equal(s.value, other.value) for other in solutions)
                found[f"{name} {key} large={large}"] = [s.status.name, s.steps, s.residual, error(s.value, exact), same]
        cuda_cg.SMALL = cuda_gabp.SMALL = small
    for key, row in found.items():
        print(f"{key:24s} {row[0]} steps {row[1]} residual {row[2]:.1e} error {row[3]:.1e} same bits {row[4]}")
    return found


def small_graph(probe: Probe, num_nodes: int, num_edges: int) -> dict:
    """Forward and backward through walksum.solve against Algorithm 1 in plain torch, both on this device."""
    graph = gpu_graphs.power_law(num_nodes, num_edges, probe.device, 1, 0.4)
    columns, rows = probe.size(F, 3), {}
    print(f"{graph}  largest degree {int(graph.degree.max())}")
    for name, J in (("F-DD", gpu_graphs.dominant(graph)), ("F-Lap", gpu_graphs.laplacian(graph))):
        for heads, width in ((1, columns), (8, max(1, columns // 8))):
            K = Precision(graph, J.diag.expand(heads, -1).contiguous(), J.off.expand(heads, -1).contiguous())
            h = torch.randn(heads, num_nodes, width, device=probe.device)
            row = {}
            steps: list[int] = []
            body = forward_backward(K, h, CG(tol=1e-6), steps)
            row["CG fwd+bwd ms"] = wall_ms(body, probe.device, probe.size(21, 1), probe.size(5, 0))
            row["CG steps"] = steps[-2:]
            prepared = PreparedCudaCG(K, CG(tol=1e-6))
            row["CG one solve ms"] = wall_ms(lambda p=prepared, b=h: p(b), probe.device, probe.size(21, 1), 0)
            loop = graph.derived(cuda_cg._small_loop, h.shape, torch.float32, 1e-6, 1000, True)
            row["CG step replayed us"] = step_us(loop, probe.device)
            for _ in range(probe.size(100, 1)):
                loop.go_on()
            row["no-op step us"] = 1e3 * event_ms(loop.go_on, probe.device) / cuda_cg.STEPS_AHEAD
            if heads == 1:
                row |= yardstick(probe, K, h)
                row["ratio"] = row["yardstick fwd+bwd ms"] / row["CG fwd+bwd ms"]
                gabp = PreparedCudaGaBP(K, GaBP(damping=1.0, max_steps=5000))
                row["GaBP one solve ms"] = wall_ms(lambda p=gabp, b=h: p(b), probe.device, probe.size(7, 1), 0)
                row["GaBP steps"] = gabp(h).steps
                row["GaBP step replayed us"] = gabp_step_us(K, h, probe.device)
            rows[f"{name} H={heads}"] = row
            print(name, heads, {k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    return rows


def forward_backward(J: Precision, h: Tensor, solver: CG, steps: list[int]) -> Callable[[], None]:
    g = torch.randn_like(h)
    diag, off, b = (t.detach().clone().requires_grad_() for t in (J.diag, J.off, h))

    def body() -> None:
        diag.grad = off.grad = b.grad = None
        K = Precision(J.graph, diag, off)
        walksum.solve(K, b, solver, observe=lambda s: steps.append(s.steps)).backward(g)

    return body


def yardstick(probe: Probe, J: Precision, h: Tensor) -> dict:
    """Algorithm 1, damping 0.5, absolute tolerance 1e-6, at most 1000 steps, in plain torch."""
    messages = Messages(J, h)
    step = event_ms(lambda: messages.step(0.5), probe.device)
    limit = probe.size(1000, 20)
    prepared = PreparedGaBP(J, GaBP(damping=0.5, tol=1e-6, max_steps=limit, stop="messages"))
    sync(probe.device)
    start = time.perf_counter()
    forward = prepared(h)
    backward = prepared(torch.randn_like(h))
    gpu.edge_dot(J.graph, backward.value, forward.value)
    sync(probe.device)
    whole = 1e3 * (time.perf_counter() - start)
    steps = [forward.steps, backward.steps]
    return {"yardstick step ms": step, "yardstick fwd+bwd ms": whole, "yardstick steps": steps}


def step_us(loop: cuda_cg.SmallLoop, device: str) -> float:
    """One CG step inside a captured graph. With r . z set to 0 nothing moves, but all the work is done."""
    tol, loop.control.tol = loop.control.tol, 0.0
    loop.start()

    def two_steps() -> None:
        for _ in range(2):
            loop.control.scalars[:2].zero_()
            loop._step()

    us = 1e3 * replay_ms(two_steps, device, 10) / 2
    loop.control.tol = tol
    return us


def gabp_step_us(J: Precision, h: Tensor, device: str) -> float:
    matrix = Matrix.of(J.graph, J.diag, J.off)
    precisions = Precisions(J.graph, matrix.diag, matrix.values)
    precisions.step(1.0)
    eta = torch.randn(J.heads, 2 * J.graph.num_edges, h.size(2), device=device)
    new, stepper = torch.empty_like(eta), Stepper(J.graph, J.heads, h.size(2))
    return 1e3 * replay_ms(lambda: stepper.step(precisions.gain, h, eta, new), device)


def dense_crossover(probe: Probe) -> dict:
    """Factorise and solve twice, densely and by CG."""
    rows = {}
    for n in (64, 128, 256, 512, 1024, 2048, 4096)[: probe.size(9, 1)]:
        graph = gpu_graphs.uniform(n, 2 * n, probe.device, 1)
        for heads in (1, 8):
            J = gpu_graphs.repulsive(graph, heads, 1)
            h = torch.randn(heads, n, F // heads, device=probe.device)

            def dense(J: Precision = J, h: Tensor = h) -> None:
                prepared = PreparedDense(J, "Dense")
                prepared(prepared(h).value)

            def cg(J: Precision = J, h: Tensor = h) -> None:
                prepared = PreparedCudaCG(J, CG())
                prepared(prepared(h).value)

            repeat = probe.size(9, 1)
            rows[f"{n} x {heads}"] = [wall_ms(body, probe.device, repeat, probe.size(3, 0)) for body in (dense, cg)]
    print("N x H: [dense ms, CG ms]", {k: [round(t, 2) for t in v] for k, v in rows.items()})
    return rows


def large_graph(probe: Probe, name: str, make: Callable[[], Graph]) -> Graph:
    sync(probe.device)
    start = time.perf_counter()
    graph = make()
    sync(probe.device)
    made = time.perf_counter() - start
    csr = graph.csr
    sync(probe.device)
    built = time.perf_counter() - start - made
    peak = torch.cuda.max_memory_allocated() / 2**30 if probe.device == "cuda" else 0.0
    facts = {
        "nodes": graph.num_nodes, "directed edges": csr.indices.numel(), "largest degree": int(graph.degree.max()),
        "median degree": int(graph.degree.median()), "made s": round(made, 2), "CSR s": round(built, 2),
        "peak GiB": round(peak, 1),
    }  # fmt: skip
    print(name, facts, flush=True)
    probe.numbers[f"{name} graph"] = facts
    return graph


def gather_floor(graph: Graph, columns: int, weighted: bool = True, size: int = 4) -> float:
    return floor_ms(2 * graph.num_edges * (columns * size + (8 if weighted else 4)))


def spmm_sweep(probe: Probe, graph: Graph, full: bool) -> dict:
    J = gpu_graphs.laplacian(graph)
    x = torch.randn(1, graph.num_nodes, F, device=probe.device)
    values, out = gpu_edges.slot_values(graph, J.off), torch.empty_like(x)
    floor, rows = gather_floor(graph, F), {}
    print(f"gather floor {floor:.2f} ms (with reading x and writing out {floor + floor_ms(2 * 4 * x.numel()):.2f})")
    hubs, lengths = ((256, 512, 1024), (False, True)) if full else ((512,), (False,))
    tiles = TILES[: probe.size(99, 2)]
    settings = [(tile, 512, False) for tile in tiles]
    for tile, hub, by_length in settings:
        matrix = Matrix(graph, J.diag, values, hub=hub, by_length=by_length, tile=tile)
        rows[f"{_short(tile)} hub={hub} sorted={by_length}"] = event_ms(
            lambda m=matrix: m.product(x, out), probe.device
        )
    best = min(settings, key=lambda s: rows[f"{_short(s[0])} hub={s[1]} sorted={s[2]}"])[0]
    for hub in hubs:
        for by_length in lengths:
            matrix = Matrix(graph, J.diag, values, hub=hub, by_length=by_length, tile=best)
            key = f"{_short(best)} hub={hub} sorted={by_length}"
            rows[key] = event_ms(lambda m=matrix: m.product(x, out), probe.device)
    matrix = Matrix(graph, J.diag, values, tile=best)
    rows["unit weights"] = event_ms(
        lambda: Matrix(graph, J.diag, None, J.off[:, 0].contiguous(), tile=best).product(x, out), probe.device
    )
    half = x.bfloat16()
    rows["bf16 x"] = event_ms(lambda: matrix.product(half, out), probe.device)
    rows["slot values"] = event_ms(lambda: gpu_edges.slot_values(graph, J.off), probe.device)
    rows["cuSPARSE"] = cusparse_ms(graph, values, x, probe.device)
    if full and not probe.smoke:
        row, col = graph.csr.row.long(), graph.csr.indices.long()
        weight = values[0].unsqueeze(1)
        rows["gather + index_add"] = event_ms(
            lambda: torch.zeros_like(x[0]).index_add_(0, row, weight * x[0][col]), probe.device, 3, 1
        )
    ours = min(v for k, v in rows.items() if k.startswith("E"))
    for key, ms in sorted(rows.items(), key=lambda kv: kv[1]):
        print(f"  {key:44s} {ms:8.3f} ms  {floor / ms:5.0%} of floor  {rows['cuSPARSE'] / ms:5.2f} x cuSPARSE")
    return {"floor": floor, "ms": rows, "best": ours, "best tile": asdict(best)}


def cusparse_ms(graph: Graph, values: Tensor, x: Tensor, device: str) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        indptr = graph.csr.indptr.to(graph.csr.indices.dtype)
        A = torch.sparse_csr_tensor(indptr, graph.csr.indices, values[0], (graph.num_nodes,) * 2)
        return event_ms(lambda: A @ x[0], device)


def _short(tile: Tile) -> str:
    return f"E{tile.edges} R{tile.rows} W{tile.features} w{tile.warps} {tile.policy}".strip()


def widths(probe: Probe, graph: Graph) -> dict:
    """Other shapes of x with the default tiles."""
    rows = {}
    values = gpu_edges.slot_values(graph, gpu_graphs.laplacian(graph).off)
    diag = torch.ones(1, graph.num_nodes, device=probe.device)
    for heads, columns in WIDTHS:
        x = torch.randn(heads, graph.num_nodes, columns, device=probe.device)
        matrix = Matrix(graph, diag.expand(heads, -1).contiguous(), values.expand(heads, -1).contiguous())
        ms = event_ms(lambda m=matrix, b=x: m.product(b), probe.device, 5)
        floor = heads * gather_floor(graph, columns)
        rows[f"H={heads} F={columns}"] = [ms, floor / ms]
        print(f"  H={heads} F={columns:3d} {ms:8.3f} ms {floor / ms:5.0%} of floor", flush=True)
    return rows


def gabp_sweep(probe: Probe, graph: Graph, settings: list[dict]) -> dict:
    h = torch.randn(1, graph.num_nodes, F, device=probe.device)
    gain = -0.5 * torch.rand(1, 2 * graph.num_edges, device=probe.device)
    eta = torch.randn(1, 2 * graph.num_edges, F, device=probe.device)
    new, mu = torch.empty_like(eta), torch.empty_like(h)
    floor, rows = floor_ms(2 * eta.numel() * 4), {}
    for knobs in settings:
        stepper = Stepper(graph, 1, F, **knobs)
        rows[str(knobs)] = event_ms(lambda s=stepper: s.step(gain, h, eta, new), probe.device, 5)
    best = settings[min(range(len(settings)), key=lambda k: rows[str(settings[k])])]
    stepper = Stepper(graph, 1, F, **best)
    rows["best, with means"] = event_ms(
        lambda: stepper.step(gain, h, eta, new, alpha=torch.ones_like(h[..., 0]), mu=mu), probe.device, 3
    )
    rows["best, damped"] = event_ms(lambda: stepper.step(gain, h, eta, new, 0.5), probe.device, 3)
    if stepper.plan is not None:
        rows |= gabp_by_group(probe, graph, stepper, gain, h, eta, new)
    print(f"message floor {floor:.2f} ms")
    for key, ms in sorted(rows.items(), key=lambda kv: kv[1]):
        print(f"  {key:72s} {ms:8.3f} ms {floor / ms:5.0%}")
    precisions = Precisions(graph, torch.full_like(h[..., 0], 3.0), gain)
    rows["pi step"] = event_ms(lambda: precisions.step(1.0), probe.device, 3)
    print(f"  pi step {rows['pi step']:.3f} ms")
    return {"floor": floor, "ms": rows}


def gabp_by_group(
    probe: Probe, graph: Graph, stepper: Stepper, gain: Tensor, h: Tensor, eta: Tensor, new: Tensor
) -> dict:
    """How near the floor each group of row lengths is, alone."""
    rows, plan = {}, stepper.plan
    assert plan is not None
    degree = graph.degree
    for group in plan.groups:
        part = Stepper(graph, 1, F, held=stepper.held, groups=stepper.groups, numbers=stepper.numbers, split=True)
        alone = type(plan)(plan.order, (group,), *(t[:0] for t in (plan.hubs, plan.piece_start, plan.piece_begin,
                           plan.piece_end, plan.piece_hub)))  # fmt: skip
        object.__setattr__(part, "plan", alone)
        ms = event_ms(lambda s=part: s.step(gain, h, eta, new), probe.device, 3)
        edges = int(degree[plan.order[group[0] : group[1]].long()].sum())
        share = floor_ms(2 * edges * F * 4) / ms
        rows[f"  rows up to {group[2]}: {edges} messages, {share:.0%} of their floor"] = ms
    return rows


def edge_dot_sweep(probe: Probe, graph: Graph) -> dict:
    a, b = (torch.randn(1, graph.num_nodes, F, device=probe.device) for _ in range(2))
    floor, rows = floor_ms(graph.num_edges * (2 * F * 4 + 20)), {}
    for edges, warps in DOTS[: probe.size(9, 1)]:
        rows[f"edges={edges} warps={warps}"] = event_ms(
            lambda e=edges, w=warps: gpu_edges.edge_dot(graph, a, b, e, w), probe.device, 5
        )
    print(f"gather floor {floor:.2f} ms", {k: f"{v:.2f} ms {floor / v:.0%}" for k, v in rows.items()})
    return {"floor": floor, "ms": rows}


def cg_solve(probe: Probe, graph: Graph) -> dict:
    h = torch.randn(1, graph.num_nodes, F, device=probe.device)
    floor, rows = gather_floor(graph, F), {}
    for name, J in (("F-Lap", gpu_graphs.laplacian(graph)), ("F-DD", gpu_graphs.dominant(graph))):
        for storage in (torch.float32, torch.bfloat16):
            prepared = PreparedCudaCG(J, CG(tol=1e-5), storage)
            s = prepared(h)
            ms = event_ms(lambda p=prepared: p(h), probe.device, 3, 1)
            unit = prepared._system is not None and prepared._system.matrix.values is None
            bound = gather_floor(graph, F, not unit, 2 if storage is torch.bfloat16 else 4)
            row = {
                "ms": ms, "steps": s.steps, "status": s.status.name, "residual": s.residual,
                "times floor of its products": ms / (bound * (s.steps + 1)), "unit weights": unit,
                "times float32 floor": ms / (floor * (s.steps + 1)),
            }  # fmt: skip
            rows[f"{name} {storage}"] = row
            print(
                " ", name, storage, {k: round(v, 3) if isinstance(v, float) and v > 1e-3 else v for k, v in row.items()}
            )
    rows["parts"] = cg_parts(probe, gpu_graphs.laplacian(graph), h)
    return rows


def cg_parts(probe: Probe, J: Precision, h: Tensor) -> dict:
    system = cuda_cg.System(Matrix.of(J.graph, J.diag, J.off), True)
    loop = cuda_cg.Loop(system, h, torch.float32, 0.0, 10**6)
    loop.start()
    control, matrix = loop.control, system.matrix

    def active(body: Callable[[], object]) -> float:
        def once() -> None:
            control.scalars[:2].zero_()  # all columns active and, as r . z = 0, at rest
            body()

        return event_ms(once, probe.device, 5)

    count = matrix.programs(h.size(2))
    parts = {
        "product + curvature": active(lambda: matrix.product(loop.p, loop.q, CURVATURE.value, control)),
        "plain product": active(lambda: matrix.product(loop.p, loop.q)),
        "update": active(lambda: gpu_cg.update(control, loop.mu, loop.r, loop.p, loop.q, system.inverse)),
        "direction": active(lambda: gpu_cg.direction(control, loop.p, loop.r, system.inverse)),
        "finish": active(lambda: control.finish(CURVATURE.value, count, min(64, h.size(2)))),
        "start": active(lambda: cuda_cg.Loop.start.__get__(_NoAdvance(loop))()),
        "residual": active(lambda: matrix.product(loop.mu, None, RESIDUAL.value, control, h=h)),
    }
    control.scalars[0].fill_(1)
    control.scalars[9].zero_()
    parts["verify"] = event_ms(
        lambda: matrix.product(loop.mu, loop.r, VERIFY.value, control, h, system.inverse, loop.p), probe.device, 1, 0
    )
    print("  parts, ms:", {k: round(v, 3) for k, v in parts.items()})
    one = floor_ms(4 * h.numel())
    print(f"  one pass over N x F: {one:.3f} ms; update takes 6, direction 3, the product 2 beside its gather")
    return parts


class _NoAdvance:
    """A loop whose start does not go on to iterate."""

    def __init__(self, loop: cuda_cg.Loop):
        self.__dict__.update(vars(loop))

    def advance(self) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--budget", type=float, default=400.0, help="seconds after which no section is begun")
    parser.add_argument("--warm", metavar="K/N", help="only compile share K of N")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    probe = Probe(args.out, device, args.smoke or device == "cpu", args.budget)
    if args.warm:
        warm(probe, *map(int, args.warm.split("/")))
        return
    run(probe)
    print(f"total {time.perf_counter() - probe.began:.0f} s")


def gabp_settings() -> list[dict]:
    split = [{"held": held, "numbers": numbers, "split": True} for held in (128, 256, 512) for numbers in (32, 64)]
    for knobs in split:
        knobs["groups"] = tuple(g for g in (16, 32, 64, 128, 256) if g < knobs["held"])
    coarse = [{"held": 256, "groups": (16, 64), "numbers": n, "split": True} for n in (32, 64)]
    return [*split, *coarse, {"split": False}]


def warm(probe: Probe, part: int, parts: int) -> None:
    """Compile a share of the kernels into Triton's cache; processes in parallel save minutes."""
    graph = gpu_graphs.power_law(probe.size(4000, 20), probe.size(60000, 40), probe.device, 1, 0.7)
    jobs = warm_jobs(probe, graph)
    for job in jobs[part::parts]:
        try:
            job()
        except Exception:
            traceback.print_exc()
    sync(probe.device)
    print(f"warmed {part}/{parts} of {len(jobs)} in {time.perf_counter() - probe.began:.0f} s")


def warm_jobs(probe: Probe, graph: Graph) -> list[Callable[[], object]]:
    """On a small graph with rows of every length, the launches of the large ones."""
    device, n = probe.device, graph.num_nodes
    J, h = gpu_graphs.laplacian(graph), torch.randn(1, n, F, device=device)
    values, ones = gpu_edges.slot_values(graph, J.off), torch.ones(8, n, device=device)
    eta = torch.zeros(1, 2 * graph.num_edges, F, device=device)
    jobs: list[Callable[[], object]] = []
    for storage in (torch.float32, torch.bfloat16):
        for matrix in (Matrix(graph, J.diag, values), Matrix(graph, J.diag, None, J.off[:, 0].contiguous())):
            system = cuda_cg.System(matrix, True)
            jobs += [cuda_cg.Loop(system, h, storage, 1e-5, 100).start]
    for knobs in gabp_settings():
        step = Stepper(graph, 1, F, **knobs).step
        jobs += [lambda s=step, d=damping: s(values, h, eta, eta, d) for damping in (1.0, 0.5)]
        jobs += [lambda s=step: s(values, h, eta, eta, alpha=h, mu=h)]
    for tile in TILES:
        for by_length in (False, True):
            matrix = Matrix(graph, J.diag, values, by_length=by_length, tile=tile)
            jobs += [lambda m=matrix: m.product(h)]
    for heads, columns in WIDTHS:
        matrix = Matrix(graph, ones[:heads].contiguous(), values.expand(heads, -1).contiguous())
        jobs += [lambda m=matrix, c=columns: m.product(torch.zeros(m.diag.size(0), n, c, device=device))]
    jobs += [lambda e=edges, w=warps: gpu_edges.edge_dot(graph, h, h, e, w) for edges, warps in DOTS]
    jobs += [lambda: PreparedCudaCG(J, CG())(h), lambda: PreparedCudaGaBP(J, GaBP(max_steps=20))(h)]
    return jobs


def run(probe: Probe) -> None:
    size, device = probe.size, probe.device
    probe.section("device", the_device)
    probe.section("correctness", correctness)
    probe.section("solves", check_solves)
    probe.section("cora", small_graph, size(2708, 12), size(5278, 20))
    probe.section("pubmed", small_graph, size(19717, 14), size(44324, 20))
    graph = large_graph(
        probe, "skewed", lambda: gpu_graphs.power_law(size(10**6, 20), size(10**7 + 60000, 80), device, 1)
    )
    settings = gabp_settings()[: size(99, 1)]
    probe.section("skewed spmm", spmm_sweep, graph, True)
    probe.section("skewed gabp", gabp_sweep, graph, settings)
    probe.section("skewed cg", cg_solve, graph)
    probe.section("skewed edge_dot", edge_dot_sweep, graph)
    probe.section("skewed widths", widths, graph)
    del graph
    graph = large_graph(
        probe, "products", lambda: gpu_graphs.lognormal(size(2_400_000, 20), size(60_600_000, 60), device, 1)
    )
    probe.section("products spmm", spmm_sweep, graph, False)
    probe.section("products cg", cg_solve, graph)
    probe.section("products gabp", gabp_sweep, graph, settings)
    probe.section("products edge_dot", edge_dot_sweep, graph)
    del graph
    graph = large_graph(
        probe, "uniform", lambda: gpu_graphs.uniform(size(2_400_000, 20), size(60_000_000, 60), device, 1)
    )
    probe.section("uniform spmm", spmm_sweep, graph, False)
    probe.section("uniform gabp", gabp_sweep, graph, settings[: size(99, 1)])
    del graph
    probe.section("dense crossover", dense_crossover)


if __name__ == "__main__":
    main()
