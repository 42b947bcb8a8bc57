"""Seconds per epoch of one training on the CPU and on the GPU, for problems of the size of Texas, Cora and PubMed.

    python -m benchmarks.devices --epochs 60

Fixes the rule behind ``device="auto"``: ``walksum.training.devices.GPU_FROM``. The graphs are the published ones where
WALKSUM_DATA names them, else random ones of the same size. An epoch is a training step and an evaluation, as ``fit``
takes them; the first ``WARM_UP`` epochs (kernels compile, the step is captured) are not counted.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from statistics import median

import torch

from walksum.data.datasets import load
from walksum.data.splits import COUNTS, Split, make_split
from walksum.graph import Graph
from walksum.training import Data, Epoch, Recipe, fit
from walksum.training.devices import GPU_FROM, size_of
from walksum.training.models import model_by_name

SIZES = {"texas": (183, 279, 1703, 5), "cora": (2708, 5278, 1433, 7), "pubmed": (19717, 44324, 500, 3)}
MODELS = {
    "GLT, fixed diagonally dominant": ("glt", {"design": "diagonally-dominant", "learned": False}),
    "GLT, fixed Laplacian": ("glt", {"design": "laplacian", "learned": False}),
    "GLT, learned Laplacian": ("glt", {"design": "laplacian", "learned": True}),
    "GCN": ("gcn", {}),
    "MLP": ("mlp", {}),
}
WARM_UP = 10


def problem(name: str) -> Data:
    """The published graph, or a random one of its size."""
    nodes, edges, features, classes = SIZES[name]
    if "WALKSUM_DATA" in os.environ:
        data = load(name)
        return Data(data.x, data.edge_index, data.y, make_split(data, "random", 0, name=name))
    draw = torch.Generator().manual_seed(0)
    x = (torch.rand(nodes, features, generator=draw) < 0.02).float()
    one_way = torch.randint(nodes, (2, edges), generator=draw)
    y = torch.randint(classes, (nodes,), generator=draw)
    return Data(
        x, torch.cat([one_way, one_way.flip(0)], 1), y, Split(*torch.arange(sum(COUNTS[name])).split(COUNTS[name]))
    )


def measure(data: Data, name: str, options: dict, device: str, epochs: int) -> tuple[float, str]:
    """The median seconds per epoch, and whether the step ran as a CUDA graph."""
    assert isinstance(data.edges, torch.Tensor)
    edges = Graph.from_edge_index(data.edges, data.x.size(0)) if name == "glt" else data.edges
    data = Data(data.x, edges, data.y, data.splits)
    torch.manual_seed(0)
    model = model_by_name(name).make(data.x.size(1), int(data.y.max()) + 1, num_nodes=data.x.size(0), **options)
    marks: list[float] = []

    def mark(epoch: Epoch, best: Epoch) -> None:
        marks.append(time.perf_counter())

    last = WARM_UP + epochs
    outcome = fit(model, data, Recipe(patience=last, max_epochs=last), device=device, on_epoch=mark)
    seconds = median(b - a for a, b in zip(marks[WARM_UP - 1 :], marks[WARM_UP:], strict=False))
    return seconds, "captured" if outcome.captured else f"not captured: {outcome.not_captured}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=60, help="timed epochs")
    parser.add_argument("--only", choices=list(SIZES), action="append")
    args = parser.parse_args()
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    print(f"CPU: {platform.processor() or platform.machine()}, {torch.get_num_threads()} threads; GPU: {gpu or 'none'}")
    source = "published" if "WALKSUM_DATA" in os.environ else "random, of the same size"
    print(f"data: {source}; auto takes the GPU from size {GPU_FROM:,}")
    for dataset in args.only or SIZES:
        data = problem(dataset)
        for title, (name, options) in MODELS.items():
            here, _ = measure(data, name, options, "cpu", args.epochs)
            line = f"{dataset:8} size {size_of(data):>10,} {title:32} CPU {1e3 * here:9.2f} ms"
            if gpu:
                there, step = measure(data, name, options, "cuda", args.epochs)
                line += f"  GPU {1e3 * there:9.2f} ms  CPU/GPU {here / there:6.2f}  {step}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
