"""Elimination beside CHOLMOD (through cvxopt) and SuperLU (scipy): analysis, numbers, selected inverse, one-off solves.

The rule: float64, one thread, median of 5 of each, in turns; seconds are CPU time of the thread, so that other users of
the machine do not count. Run ``OMP_NUM_THREADS=1 python -m benchmarks.elimination``; the record goes to
``results/bench/elimination.json``. CHOLMOD orders by approximate minimum degree, SuperLU by both orderings it has.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as sla
import torch
from torch import Tensor

import walksum as ws
from benchmarks import graphs, timing
from benchmarks.records import machine
from walksum.backends.cpu.ldl import symbolic
from walksum.solvers.factor import Factor

ROUNDS, LEAST = 5, 0.01  # of each; seconds a sample of something short lasts
COLUMNS = 64
RECORD = Path(__file__).parents[1] / "results" / "bench" / "elimination.json"


def medians(runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median seconds of each, in turns; a first round warms up, a second tells how often to repeat."""
    for run in runs.values():
        run()
    samples = {name: timing.sampler(run, "cpu", LEAST) for name, run in runs.items()}
    taken = timing.interleaved(samples, dict.fromkeys(samples, math.inf), ROUNDS)
    return {name: statistics.median(times) for name, times in taken.items()}


def random_edges(nodes: int) -> tuple[Tensor, int]:
    """Average degree 3: fills in more than a mesh of the same size."""
    return torch.randint(0, nodes, (2, 3 * nodes // 2), generator=torch.Generator().manual_seed(0)), nodes


def dominant(graph: ws.Graph) -> ws.Precision:
    return ws.Precision(graph, graph.degree.double() + 0.1, -torch.ones(graph.num_edges, dtype=torch.float64))


def cholmod_matrix(A: Any) -> Any:
    from cvxopt import matrix, spmatrix

    A = sp.tril(A).tocoo()
    rows, columns = (matrix(index.astype(np.int64)) for index in (A.row, A.col))
    return spmatrix(matrix(A.data), rows, columns, A.shape)


def mesh(side: int) -> dict[str, Any]:
    from cvxopt import cholmod

    J = dominant(graphs.grid(side))
    M = cholmod_matrix(J.to_scipy(0))
    F, plan = cholmod.symbolic(M), symbolic.symbolic(J.graph)
    assert plan is not None
    factor = Factor(J, plan)
    times = medians(
        {
            "analysis": lambda: symbolic._eliminate(J.graph, math.inf),
            "analysis, CHOLMOD": lambda: cholmod.symbolic(M),
            "numeric": lambda: Factor(J, plan)._made(),
            "numeric, CHOLMOD": lambda: cholmod.numeric(M, F),
            "selected inverse": factor.selected_inverse,
        }
    )
    return {
        "graph": f"grid {side} x {side}",
        "fill": plan.fill,
        "operations": plan.operations,
        "seconds": times,
        "analysis / CHOLMOD": times["analysis"] / times["analysis, CHOLMOD"],
        "numeric / CHOLMOD": times["numeric"] / times["numeric, CHOLMOD"],
        "selected inverse / numeric": times["selected inverse"] / times["numeric"],
        "nested dissection (METIS)": nested_dissection(J.graph),
    }


def nested_dissection(graph: ws.Graph) -> dict[str, float] | None:
    """What METIS would change: seconds for its order, once, and the operations with it."""
    try:
        from pymetis import CSRAdjacency
        from pymetis import nested_dissection as order_of
    except ImportError:
        return None
    from walksum.backends.cpu.ldl import tree

    indptr, indices, _ = symbolic._lists(graph)
    start = time.thread_time()
    order = np.asarray(order_of(CSRAdjacency(indptr, indices))[0], np.int32)
    seconds = time.thread_time() - start
    sequence, parent = tree.postordered(tree.parents(indptr, indices, order, tree.inverse_of(order)))
    order = order[sequence]
    count = tree.column_counts(indptr, indices, order, tree.inverse_of(order), parent).astype(float)
    return {"seconds": seconds, "fill": count.sum(), "operations": (count * (count + 1) / 2).sum()}


def seen_once(name: str, edges: Tensor, nodes: int) -> dict[str, Any]:
    """Graph, analysis, factorisation and a solve, against SuperLU on a matrix that is there already."""
    J = dominant(ws.Graph.from_edge_index(edges, nodes))
    h = torch.randn(1, nodes, COLUMNS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    A, b = J.to_scipy(0).tocsc(), h[0].numpy()

    def ours() -> None:
        graph = ws.Graph.from_edge_index(edges, nodes)
        Factor.of(ws.Precision(graph, J.diag, J.off)).solve(h)

    times = medians(
        {
            "ours": ours,
            "Graph alone": lambda: ws.Graph.from_edge_index(edges, nodes),
            "splu": lambda: sla.splu(A).solve(b),
            "splu, symmetric ordering": lambda: sla.splu(
                A, permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}
            ).solve(b),
        }
    )
    best = min(times["splu"], times["splu, symmetric ordering"])
    ratios = {"ours / splu": times["ours"] / times["splu"], "ours / best splu": times["ours"] / best}
    return {"graph": name, "nodes": nodes, "edges": J.graph.num_edges, "seconds": times, **ratios}


def counties(folder: Path) -> dict[str, Any]:
    """logdet and its gradient, the selected inverse."""
    import pandas as pd

    nodes, edges = (pd.read_csv(folder / f"{name}.csv") for name in ("nodes", "edges"))
    number = {key: k for k, key in enumerate(nodes.iloc[:, 0])}
    ends = torch.tensor([[number[key] for key in edges.iloc[:, k]] for k in (0, 1)])
    J = dominant(ws.Graph.from_edge_index(ends, len(nodes)))

    def logdet_and_gradient() -> None:
        factor = Factor.of(J)
        factor.logdet()
        factor.selected_inverse()

    return {"graph": "counties", "seconds": medians({"logdet and gradient": logdet_and_gradient})}


def pubmed(folder: Path) -> dict[str, Any]:
    from torch_geometric.datasets import Planetoid

    data = Planetoid(str(folder), "PubMed")[0]
    graph = ws.Graph.from_edge_index(data.edge_index, data.num_nodes)
    return {"graph": "PubMed", "seconds": medians({"analysis": lambda: symbolic._eliminate(graph, math.inf)})}


def main(sides: list[int]) -> None:
    torch.set_num_threads(1)
    timing.clock = time.thread_time
    data = Path(os.environ["WALKSUM_DATA"])
    once = [(f"grid {k} x {k}", graphs.grid(k).edges, k * k) for k in (14, 32, 55)]
    once += [(f"random, {n} nodes", *random_edges(n)) for n in (200, 1000, 3000)]
    cells = [seen_once(*case) for case in once]
    cells += [counties(data / "counties"), pubmed(data / "Planetoid")]
    cells += [mesh(side) for side in sides]
    RECORD.write_text(json.dumps({"machine": machine("cpu"), "rule": __doc__, "cells": cells}, indent=1) + "\n")
    for cell in cells:
        print(json.dumps(cell))


if __name__ == "__main__":
    if os.environ.get("OMP_NUM_THREADS") != "1":
        sys.exit("set OMP_NUM_THREADS=1 before the start: BLAS reads it once")
    main([int(side) for side in sys.argv[1:]] or [300, 1000])
