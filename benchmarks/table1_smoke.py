"""Every kind of cell of Table 1 for a few epochs, as one batch of all seeds: milliseconds per epoch, and where they go.

    python -m benchmarks.table1_smoke --device cuda

Finds what a long run would stumble over: kernels that do not compile, memory, losses that are not finite, a device that
disagrees with the CPU. Says for every kind what an epoch of all runs costs, so what a whole table will cost.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from walksum.nn import GLTConv
from walksum.paper.runs import cell_data, model_factory, recipe_of
from walksum.paper.sweep.spec import RunSpec, paper_spec
from walksum.training.batches import SeedTrainer
from walksum.training.data import Data
from walksum.training.loop import Batch
from walksum.training.steps import StackedStep, last_solves

KINDS = [
    ("glt-laplacian-fixed", "texas", {}),
    ("glt-diagonally-dominant-learned", "texas", {}),
    ("glt-diagonally-dominant-learned", "texas", {"solver": "dense"}),
    ("glt-diagonally-dominant-fixed", "cora", {}),
    ("glt-laplacian-fixed", "citeseer", {}),
    ("glt-pairwise-normal-learned", "cora", {}),
    ("glt-laplacian-learned", "citeseer", {}),
    ("glt-laplacian-fixed", "pubmed", {}),
    ("glt-laplacian-fixed", "pubmed", {"solver": "cg"}),
    ("glt-pairwise-normal-fixed", "pubmed", {}),
    ("glt-pairwise-normal-learned", "pubmed", {}),
    ("glt-diagonally-dominant-learned", "pubmed", {}),
    ("glt-laplacian-learned", "pubmed", {}),
    ("gcn", "cora", {}),
    ("gat", "pubmed", {}),
    ("sat", "cora", {}),
    ("graphormer", "texas", {}),
    ("cgnn", "cora", {}),
]
WARM_UP = 5  # solvers capture, kernels compile, a kept J is inverted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=10, help="timed epochs of each kind")
    parser.add_argument("--limit", type=float, default=6.0, help="seconds a kind may take")
    parser.add_argument("--only", default="", help="only kinds whose name holds this")
    parser.add_argument("--out", type=Path, help="also write the numbers here, as lines of JSON")
    args = parser.parse_args()
    started = time.perf_counter()
    for model, dataset, changes in KINDS:
        name = " ".join([model, dataset, *changes.values()])
        if args.only in name:
            row = {
                "kind": name,
                "runs": args.runs,
                **_guarded(lambda m=model, d=dataset, c=changes: kind(m, d, c, args)),
            }
            print(_line(row), flush=True)
            if args.out:
                with args.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    if args.device != "cpu":
        for model in ("glt-laplacian-fixed", "glt-diagonally-dominant-learned"):
            print(model, _guarded(lambda m=model: agreement(m, args.device)), flush=True)
    print(f"all in {time.perf_counter() - started:.1f} s")


def _guarded(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return call()
    except Exception as error:
        traceback.print_exc(limit=-4)
        return {"error": f"{type(error).__name__}: {str(error)[:300]}"}


def kind(model: str, dataset: str, changes: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of the parts of an epoch: medians over the timed ones."""
    cuda = args.device != "cpu"
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    specs = [paper_spec(model, dataset, seed, **changes) for seed in range(args.runs)]
    began = time.perf_counter()
    batch = _batch(cell_data(specs, args.device, None), specs)
    parts, losses, ready = [], [], 0.0
    for number in range(WARM_UP + args.epochs):
        took, loss = _epoch(batch, cuda)
        losses.append(loss)
        if number == WARM_UP - 1:
            ready = time.perf_counter() - began
        if number >= WARM_UP:
            parts.append(took)
            if time.perf_counter() - began > args.limit:
                break
    step, evaluation = torch.tensor(parts).median(0).values.tolist()
    layers = [layer for layer in batch.step.model.modules() if isinstance(layer, GLTConv)]
    seen = [solve for direction in last_solves(layers) for solve in direction]
    return {
        "epoch_ms": step + evaluation,
        "step_ms": step,
        "evaluation_ms": evaluation,
        "ready_s": ready,
        "finite": bool(torch.isfinite(torch.stack(losses)).all()),
        "loss": [float(losses[0].mean()), float(losses[-1].mean())],
        "steps": [solve[0] for solve in seen],
        "residual": max((solve[1] for solve in seen), default=0.0),
        "status": sorted({solve[2] for solve in seen}),
        "memory_gb": torch.cuda.max_memory_allocated() / 1e9 if cuda else None,
    }


def _batch(data: Data, specs: list[RunSpec]) -> Batch:
    trainer = SeedTrainer(model_factory(specs[0], data), data, recipe_of(specs[0]), keep_weights=False)
    return trainer.batch([spec.seed for spec in specs])


def _epoch(batch: Batch, cuda: bool) -> tuple[list[float], torch.Tensor]:
    marks = [_now(cuda)]
    loss = batch.step()
    marks.append(_now(cuda))
    batch.step.outputs()
    marks.append(_now(cuda))
    return [1e3 * (b - a) for a, b in pairwise(marks)], loss


def _now(cuda: bool) -> float:
    if cuda:
        torch.cuda.synchronize()
    return time.perf_counter()


def agreement(model: str, device: str) -> dict[str, Any]:
    """The outputs and gradients of three members on Cora, dropout off, here and on the CPU."""
    specs = [paper_spec(model, "cora", seed, dropout=0.0) for seed in range(3)]
    (outputs, grads), (expected, grads_expected) = (
        _pass(_batch(cell_data(specs, d, None), specs)) for d in (device, "cpu")
    )
    worst = [
        float((a.cpu() - b).norm() / b.norm().clamp_min(1e-12)) for a, b in zip(grads, grads_expected, strict=True)
    ]
    return {"outputs differ by": float((outputs.cpu() - expected).abs().max()), "gradients, relative": max(worst)}


def _pass(batch: Batch) -> tuple[torch.Tensor, list[torch.Tensor]]:
    step = batch.step
    assert isinstance(step, StackedStep)
    step.optimiser.param_groups[0]["lr"] = 0.0  # the same weights in every pass
    for _ in range(4):  # past the point where a kept J is inverted
        step()
    blocks = [value.grad for name, value in step.parameters.items() if "merge" in name or "ffn" in name]
    return step.outputs(), [grad for grad in blocks if grad is not None]


def _line(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{row['kind']:45} {row['error']}"
    parts = " ".join(f"{name[:4]} {row[name + '_ms']:7.1f}" for name in ("step", "evaluation"))
    memory = "" if row["memory_gb"] is None else f" {row['memory_gb']:.1f} GB"
    return (
        f"{row['kind']:45} {row['epoch_ms']:8.1f} ms ({parts}) ready {row['ready_s']:.1f} s{memory} "
        f"finite={row['finite']} loss {row['loss'][0]:.2f}->{row['loss'][1]:.2f} steps {row['steps']} "
        f"res {row['residual']:.0e} {','.join(row['status'])}"
    )


if __name__ == "__main__":
    main()
