"""How far a portfolio overruns its budget, on made graphs of several kinds; one line of a file per graph and budget.

    python scripts/keep_budget.py --budgets 10 30 --out results/auto/budget.jsonl

Seconds are those of the budget's clock, which stands still while kernels are compiled, and include all of ``fit``. On a
machine that is busy with other work, --cpu makes that clock count the processor time of this process on one thread; run
it once before, so that no kernel is compiled.
"""

import argparse
import json
import time

import numpy as np
import scipy.sparse as sp
import torch

import walksum as ws
from walksum.portfolio import clock


def made(random, nodes, edges, columns, classes, alike=0.6):
    """Classes that columns hint at and that a share of the edges joins."""
    y = random.integers(0, classes, nodes)
    order, source = np.argsort(y, kind="stable"), random.integers(0, nodes, edges)
    first, last = (np.searchsorted(y[order], y[source], side) for side in ("left", "right"))
    same = order[first + ((last - first) * random.random(edges)).astype(int)]
    target = np.where(random.random(edges) < alike, same, random.integers(0, nodes, edges))
    X = 0.5 * random.normal(size=(classes, columns))[y] + random.normal(size=(nodes, columns))
    return X, y, np.stack([source, target])


def numbers(random, nodes, edges):
    """A number of a node's own column and of its neighbours'."""
    X, pairs = random.normal(size=(nodes, 10)), random.integers(0, nodes, (2, edges))
    A = sp.coo_matrix((np.ones(edges), pairs), (nodes, nodes)).tocsr()
    return X, X[:, 0] + A @ X[:, 1] / (1 + edges / nodes) + 0.3 * random.normal(size=nodes), pairs


def words(random):
    _, y, pairs = made(random, 20_000, 60_000, 1, 7)
    table = sp.random(20_000, 3_000, 0.01, format="lil", random_state=1)
    table[np.arange(20_000), y * 400 + random.integers(0, 400, 20_000)] = 1.0
    return table.tocsr(), y, pairs


def hubs(random, n=11_700, m=519_000):
    fame = random.pareto(1.5, n) + 0.2
    pairs = random.choice(n, (2, m), p=fame / fame.sum())
    X = random.normal(size=(n, 10))
    return X, (X[:, 0] + random.normal(size=n) > 0).astype(int), pairs


GRAPHS = {
    "3,000 nodes": lambda random: made(random, 3_000, 9_000, 20, 5),
    "40,000 nodes, 4 columns": lambda random: made(random, 40_000, 120_000, 4, 3),
    "100,000 nodes, 500,000 edges": lambda random: made(random, 100_000, 500_000, 32, 10),
    "70 classes, 20,000 nodes": lambda random: made(random, 20_000, 80_000, 100, 70),
    "40 classes, 60,000 nodes, 128 columns": lambda random: made(random, 60_000, 400_000, 128, 40),
    "18 classes, 300 columns": lambda random: made(random, 15_000, 60_000, 300, 18),
    "3,000 words": words,
    "hubs, 519,000 edges": hubs,
    "numbers, 50,000 nodes": lambda random: numbers(random, 50_000, 150_000),
    "numbers, dense graph of 4,000 nodes": lambda random: numbers(random, 4_000, 200_000),
}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--graphs", nargs="*", choices=list(GRAPHS), default=list(GRAPHS))
parser.add_argument("--budgets", nargs="*", type=float, default=[10.0, 30.0])
parser.add_argument("--cpu", action="store_true")
parser.add_argument("--verbose", action="store_true")
parser.add_argument("--out", required=True)
args = parser.parse_args()
if args.cpu:
    torch.set_num_threads(1)
    clock.now = time.process_time


def report(name, done, total, seconds):
    if args.verbose:
        print(f"  {seconds:6.1f} s  {name}", flush=True)


for name in args.graphs:
    X, y, pairs = GRAPHS[name](np.random.default_rng(0))
    known = np.random.default_rng(1).random(len(y)) < 0.75
    regression = y.dtype.kind == "f"
    kind = ws.AutoRegressor if regression else ws.AutoClassifier
    for budget in args.budgets:
        graph = ws.Graph.from_edge_index(torch.from_numpy(pairs), len(y))  # nothing is known of it yet
        began = clock.now()
        model = kind(budget=budget, random_state=0, callback=report)
        model.fit(X, np.where(known, y, np.nan if regression else -1), graph)
        seconds = clock.now() - began
        guess = model.transduction_[~known]
        off = ((guess - y[~known]) ** 2).mean() / y.var() if regression else (guess != y[~known]).mean()
        record = {"graph": name, "budget": budget, "seconds": round(seconds, 1), "ratio": round(seconds / budget, 2),
                  "members": len(model.members_), "test": round(float(1 - off), 4),
                  "clock": "cpu" if args.cpu else "wall", "threads": torch.get_num_threads()}  # fmt: skip
        with open(args.out, "a") as file:
            file.write(json.dumps(record) + "\n")
        print(record, flush=True)
