"""The estimated log-determinant of a power-law graph (degrees of exponent 2.5): relative standard error and seconds.

    python -m benchmarks.estimated_logdet --nodes 1000000 --edges 10000000 --device cuda

Run once to compile, then three times; the median counts.
"""

import argparse
import json
import statistics
import time

import torch

import walksum as ws
from benchmarks import graphs
from walksum.field import Estimate, Report, logdet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--scale", type=float, default=0.9, help="s of the normalised Laplacian I - s D^-1/2 A D^-1/2")
    parser.add_argument("--probes", type=int, default=32)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    weight = torch.arange(1, args.nodes + 1, dtype=torch.double) ** (-2 / 3)
    pairs = graphs.weighted_pairs(weight, args.edges + args.edges // 10, torch.Generator().manual_seed(0))
    graph = ws.Graph.from_edge_index(pairs, args.nodes).to(args.device)
    J = ws.FixedLaplacian(args.scale)(graph)
    seconds, reports = [], list[Report]()
    for seed in range(4):
        start = time.perf_counter()
        value = float(logdet(J, "estimated", Estimate(probes=args.probes, seed=seed), reports.append))
        seconds.append(time.perf_counter() - start)
    error = reports[-1].standard_error
    assert error is not None
    record = {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "device": str(J.device),
        "probes": args.probes,
        "logdet": value,
        "relative_standard_error": float(error) / abs(value),
        "lanczos_steps": reports[-1].steps,
        "status": reports[-1].status.name,
        "seconds": statistics.median(seconds[1:]),
    }
    print(json.dumps(record, indent=2))


if __name__ == "__main__":
    main()
