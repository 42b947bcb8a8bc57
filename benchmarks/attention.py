"""Times and checks fused attention: ``python -m benchmarks.attention [--train | --tune] [--small] [--out FILE]``.

For the shapes of SAT and Graphormer on Cora, CiteSeer and PubMed, one run and thirty at once: milliseconds of forward
and of forward and backward, of ours and of torch's ``scaled_dot_product_attention``, and errors against float64.
``--train`` times epochs of the two models, all runs at once, evaluation included. ``--tune`` tries the blocks of each
kernel; what is best is set by hand in baselines/passes.py. ``--small`` takes a tiny graph; without a GPU that needs
TRITON_INTERPRET=1.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import torch
import torch.nn.functional as nnf
from torch import Tensor

from benchmarks import problems, real
from benchmarks.gpu_timing import event_ms, sync, wall_ms
from walksum.baselines import passes
from walksum.baselines.distance import NUM_BUCKETS, distance_buckets
from walksum.baselines.fused import fused_attention
from walksum.baselines.passes import Block
from walksum.baselines.structure import neighbours
from walksum.baselines.tiles import Tiles
from walksum.experiments.spec import RunSpec
from walksum.experiments.training import train_runs

SIZES = {"cora": (2708, 5278), "citeseer": (3327, 4552), "pubmed": (19717, 44324)}  # nodes and edges, without the files
HEADS = ((8, 8), (1, 64))  # heads and width of the two layers
RUNS = (1, 30)
CHECKED = 64  # rows whose loss is compared with float64
LARGEST = 2e10  # bytes of a dense bias that torch is given
TRIED = [  # rows: of the side a program owns
    Block(64, 64), Block(64, 64, stages=3), Block(128, 64, 8), Block(64, 128), Block(128, 128, 8), Block(128, 64),
]  # fmt: skip


def buckets_of(name: str, device: str) -> Tensor:
    if "WALKSUM_DATA" in os.environ and name in SIZES:
        data = real.load(name)
        edge_index, num_nodes = data.edge_index, data.num_nodes
    else:
        num_nodes, edges = SIZES.get(name, (150, 300))
        edge_index = problems.power_law(num_nodes, edges, 0.4).edges
    return distance_buckets(neighbours(edge_index, num_nodes), num_nodes).to(device)


def states(runs: int, heads: int, num_nodes: int, width: int, kinds: int, device: str) -> list[Tensor]:
    """query, key, value, table and the gradient of the output."""
    parts = [torch.randn(runs, num_nodes, heads, width, device=device).transpose(1, 2) for _ in range(3)]
    table = 0.5 * torch.randn(runs, heads, kinds, device=device)
    weight = torch.randn(runs, num_nodes, heads, width, device=device).transpose(1, 2)
    return [t.requires_grad_() for t in (*parts, table)] + [weight]


def forward_backward(attend: Callable[..., Tensor], inputs: list[Tensor], weight: Tensor) -> tuple[Tensor, ...]:
    out = attend(*inputs)
    return out, *torch.autograd.grad(out, inputs, weight, materialize_grads=True)


def errors(inputs: list[Tensor], weight: Tensor, bucket: Tensor | None, tiles: Tiles | None) -> list[float]:
    """Of output, query, key, value and table, in norm, for a loss on some rows of the first run."""
    rows = torch.randperm(weight.size(2), device=weight.device)[:CHECKED]
    inputs = [t.detach()[:1].requires_grad_() for t in inputs]
    mask = torch.zeros_like(weight[:1])
    mask[:, :, rows] = weight[:1, :, rows]
    found = forward_backward(lambda *x: fused_attention(*x, tiles), inputs, mask)

    def exact(query: Tensor, key: Tensor, value: Tensor, table: Tensor) -> Tensor:
        score = query[:, :, rows] @ key.mT / query.size(-1) ** 0.5
        if bucket is not None:
            score = score + table[..., bucket[rows].long()]
        return score.softmax(-1) @ value

    doubles = [t.detach().double().requires_grad_() for t in inputs]
    expected = forward_backward(exact, doubles, mask[:, :, rows].double())
    pairs = zip((found[0][:, :, rows], *found[1:]), expected, strict=True)
    return [float((a - b).norm() / b.norm().clamp(min=1e-30)) for a, b in pairs if b.numel()]


def torch_ms(inputs: list[Tensor], weight: Tensor, bucket: Tensor | None, device: str) -> float | None:
    """Of torch's attention; the bias it is given is dense, and neither made nor differentiated here."""
    runs, heads, num_nodes, _ = weight.shape
    if bucket is not None and 4.0 * runs * heads * num_nodes**2 > LARGEST:
        return None
    bias = None if bucket is None else inputs[3].detach()[..., bucket.long()]

    def step() -> object:
        out = nnf.scaled_dot_product_attention(*inputs[:3], attn_mask=bias)
        return torch.autograd.grad(out, inputs[:3], weight)

    return event_ms(step, device, repeat=3, warm=1)


def measure(name: str, bucket: Tensor, runs: int, biased: bool, shape: tuple[int, int], device: str) -> dict:
    heads, width = shape
    *inputs, weight = states(runs, heads, bucket.size(0), width, NUM_BUCKETS if biased else 0, device)
    tiles = Tiles.of(bucket) if biased else None

    def attend(*x: Tensor) -> Tensor:
        return fused_attention(*x, tiles)

    def forward() -> object:
        with torch.no_grad():
            return attend(*inputs)

    def both() -> object:
        return forward_backward(attend, inputs, weight)

    start = time.perf_counter()
    both()
    sync(device)
    first = 1e3 * (time.perf_counter() - start)
    row = {
        "graph": name, "runs": runs, "heads": heads, "width": width, "biased": biased, "first_ms": first,
        "forward_ms": event_ms(forward, device, repeat=5), "both_ms": event_ms(both, device, repeat=5),
        "host_ms": wall_ms(both, device, 5, 1), "errors": errors(inputs, weight, bucket if biased else None, tiles),
        "torch_ms": None,
    }  # fmt: skip
    try:
        row["torch_ms"] = torch_ms(inputs, weight, bucket if biased else None, device)
    except RuntimeError as error:
        row["torch_error"] = str(error).splitlines()[0][:200]
    return row


def said(row: dict) -> str:
    other = "-" if row["torch_ms"] is None else f"{row['torch_ms']:.2f}"
    wrong = " ".join(f"{e:.0e}" for e in row["errors"])
    return (
        f"{row['graph']:9} runs {row['runs']:2} heads {row['heads']} width {row['width']:2} "
        f"{'biased' if row['biased'] else 'plain':6} forward {row['forward_ms']:9.3f} ms, with backward "
        f"{row['both_ms']:9.3f} ms, a run {row['both_ms'] / row['runs']:7.3f}, on the host {row['host_ms']:9.3f}; "
        f"torch {other:>9} ms; first {row['first_ms']:7.0f} ms; errors {wrong}"
    )


def tune(bucket: Tensor, device: str) -> Iterator[dict]:
    """One kernel at a time, the others as they are."""
    for biased, ((kernel, narrow), usual) in itertools.product((True, False), list(passes.BLOCKS.items())):
        heads, width = HEADS[0] if narrow else HEADS[1]
        *inputs, weight = states(1, heads, bucket.size(0), width, NUM_BUCKETS if biased else 0, device)
        tiles = Tiles.of(bucket) if biased else None
        for block in TRIED:
            if kernel == "keys":
                block = replace(block, rows=block.cols, cols=block.rows)
            passes.BLOCKS[kernel, narrow] = block
            try:
                ms = event_ms(_only(kernel, [*inputs, tiles], weight), device, repeat=3, warm=1)
                yield {"kernel": kernel, "biased": biased, "narrow": narrow, "block": asdict(block), "ms": ms}
            except Exception as error:  # a block that does not fit the device is an answer too
                print(f"{kernel} {block}: {type(error).__name__}: {str(error).splitlines()[0][:150]}")
        passes.BLOCKS[kernel, narrow] = usual


def tuned(row: dict) -> str:
    kind = f"{row['kernel']:7} {'biased' if row['biased'] else 'plain':6} {'narrow' if row['narrow'] else 'wide':6}"
    return f"{kind} {row['ms']:8.3f} ms {row['block']}"


def _only(kernel: str, inputs: list, weight: Tensor) -> Callable[[], object]:
    given = [x.detach() if isinstance(x, Tensor) else x for x in inputs]
    if kernel == "forward":
        return lambda: passes.attention(*given)
    saved = passes.attention(*given)
    return lambda: passes.attention_gradient(weight, *saved, *given[3:])


def epoch_ms(model: str, name: str, runs: int, device: str, epochs: tuple[int, int] = (10, 30)) -> tuple[float, str]:
    """Of one run, among ``runs`` trained together, and what the records say; what happens once is left out."""
    seconds, notes = [], set()
    for count in (2, *epochs):  # two epochs compile the kernels
        specs = [RunSpec(model=model, dataset=name, seed=seed, max_epochs=count) for seed in range(runs)]
        start = time.perf_counter()
        train_runs(specs, device=device, on_record=lambda record: notes.add(record.message))
        sync(device)
        seconds.append(time.perf_counter() - start)
    return 1e3 * (seconds[2] - seconds[1]) / (epochs[1] - epochs[0]) / runs, "; ".join(sorted(notes))


def train(names: list[str], device: str) -> None:
    for name in names:
        for model in ("sat", "graphormer"):
            ms, notes = epoch_ms(model, name, RUNS[-1], device)
            print(f"{name:9} {model:10} {RUNS[-1]} runs together: {ms:.3f} ms an epoch and run {notes}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--graphs", default=",".join(SIZES))
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    names = ["small"] if options.small else options.graphs.split(",")
    if options.train:
        return train(names, device)
    rows, end = [], time.monotonic() + options.seconds
    for name in names:
        start = time.perf_counter()
        bucket = buckets_of(name, device)
        print(f"{name}: distances in {time.perf_counter() - start:.1f} s", flush=True)
        for row in tune(bucket, device) if options.tune else _rows(name, bucket, options.small, device):
            rows.append(row)
            print(tuned(row) if options.tune else said(row), flush=True)
            if time.monotonic() > end:
                break
        gc.collect()
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1))


def _rows(name: str, bucket: Tensor, small: bool, device: str) -> Iterator[dict]:
    for biased in (False, True):
        for shape in HEADS:
            for runs in RUNS[:1] if small else RUNS:
                try:
                    yield measure(name, bucket, runs, biased, shape, device)
                except Exception:
                    traceback.print_exc()


if __name__ == "__main__":
    main()
