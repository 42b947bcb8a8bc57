"""How far conjugate gradients on a GPU should go: error against float64 and seconds, for aims of their recursion.

    python -m benchmarks.cg_aim [--small] [--device cpu] [--out results/bench/cg_aim.jsonl]

The default tolerance is a bound on the backward error; the recursion's residual goes on to ``AIM`` below it, since a
forward error may be larger by the condition of J. What is compared is the forward error: the largest difference to a
solution in float64, over the largest number of that.
"""

from __future__ import annotations

import argparse
import json
import statistics
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import walksum as ws
from benchmarks import graphs, timing
from benchmarks.gpu import torch_csr
from walksum.solvers.cg import cuda

AIMS = (2**-24, 2**-25, 2**-26, 2**-27, 2**-28)
SCALES = (0.5, 0.9, 0.99, 0.999, 0.9999)  # of the couplings: condition numbers from 3 to 20,000
SIZES = ((200_000, 4_000_000, 64), (2_400_000, 62_600_000, 64))  # nodes, pairs drawn, columns
SMALL = ((300, 2_000, 8),)


def compared(nodes: int, pairs: int, columns: int, device: str) -> Iterator[dict[str, Any]]:
    """One record per scale and aim."""
    graph = graphs.lognormal_on(device, nodes, pairs)
    h = torch.randn(1, nodes, columns, device=device)
    root = graph.degree.double().clamp_min(1).rsqrt()
    i, j = graph.edges
    for scale in SCALES:
        off = -(scale * root[i] * root[j]).float()
        J = ws.Precision(graph, torch.ones(nodes, device=device), off)
        exact = _exact(J, h[..., :8].contiguous())
        for aim in AIMS:
            with patch.object(cuda, "AIM", aim):
                run = partial(ws.CG().prepare(J), h)
            found, taken = run(), statistics.median(timing.seconds(run, device) for _ in range(3))
            error = float((found.value[..., :8].double() - exact).abs().max() / exact.abs().max())
            kept = {"nodes": nodes, "directed_edges": 2 * graph.num_edges, "scale": scale, "aim": aim, "error": error}
            kept |= {"backward_error": found.residual, "steps": found.steps, "status": str(found.status)}
            yield kept | {"seconds": taken}


def _exact(J: ws.Precision, h: torch.Tensor) -> torch.Tensor:
    """Conjugate gradients in float64 on the same numbers, in torch's operations."""
    crow, col, value = torch_csr(J)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "sparse CSR is in beta state"
        A = torch.sparse_csr_tensor(crow, col, value.double(), (J.num_nodes, J.num_nodes), check_invariants=False)
    b = h[0].double()
    x, r = torch.zeros_like(b), b.clone()
    p, rho = r.clone(), (r * r).sum(0)
    first = rho.clone()
    while bool((rho > 1e-26 * first).any()):
        q = A @ p
        alpha = rho / (p * q).sum(0)
        x += alpha * p
        r -= alpha * q
        rho, before = (r * r).sum(0), rho
        p = r + (rho / before) * p
    return x[None]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.cg_aim", description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="a small graph, to try it anywhere")
    parser.add_argument("--out", type=Path, default=Path("results/bench/cg_aim.jsonl"))
    args = parser.parse_args(argv)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for size in SMALL if args.small else SIZES:
        for record in compared(*size, args.device):
            print(json.dumps(record), flush=True)
            with args.out.open("a") as file:
                file.write(json.dumps(record) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
