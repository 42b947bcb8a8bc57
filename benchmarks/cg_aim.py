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
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import walksum as ws
from benchmarks import graphs, peers, records, timing
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
        some = h[..., :8].double()
        exact, _ = peers.TorchCSR(graph).solve(J.diag.double(), J.off.double(), some, tol=1e-13, most=100_000)
        for aim in AIMS:
            with patch.object(cuda, "AIM", aim):
                run = partial(ws.CG().prepare(J), h)
            found, taken = run(), statistics.median(timing.seconds(run, device) for _ in range(3))
            error = float((found.value[..., :8].double() - exact).abs().max() / exact.abs().max())
            kept = {"nodes": nodes, "directed_edges": 2 * graph.num_edges, "scale": scale, "aim": aim, "error": error}
            kept |= {"backward_error": found.residual, "steps": found.steps, "status": str(found.status)}
            yield kept | {"seconds": taken}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.cg_aim", description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="a small graph, to try it anywhere")
    parser.add_argument("--out", type=Path, default=Path("results/bench/cg_aim.jsonl"))
    args = parser.parse_args(argv)
    for size in SMALL if args.small else SIZES:
        for record in compared(*size, args.device):
            print(json.dumps(record), flush=True)
            records.append_line(args.out, record)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
