"""What coefficients that vary over the graph, and more fitted rows, give a Gaussian process on the counties.

    python scripts/explore_process.py education election --splits 1000 1001 > results/auto/process.txt

R^2 at the known rows, each predicted from all others; splits from 1000 on, which no table counts.
"""

import argparse

import numpy as np
import torch

from walksum.estimators.auto.bench import COUNTIES, counties
from walksum.estimators.auto.regressor import AutoRegressor
from walksum.portfolio import process
from walksum.portfolio.blend import r_squared

VARIANTS = {"coefficients fixed, 500 rows": (1e-6, 500), "coefficients fixed, 800 rows": (1e-6, 800),
            "coefficients vary, 500 rows": (0.2, 500), "coefficients vary, 800 rows": (0.2, 800)}  # fmt: skip

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("targets", nargs="*", default=list(COUNTIES))
parser.add_argument("--splits", nargs="*", type=int, default=[1000, 1001])
args = parser.parse_args()
torch.set_num_threads(1)
for target in args.targets:
    X, y, pairs = counties(COUNTIES[target])
    known = np.nonzero(~np.isnan(y))[0]
    for seed in args.splits:
        order = known[np.argsort(np.random.PCG64(seed).random_raw(len(known)), kind="stable")]
        train = order[: len(order) * 6 // 10]
        shown = np.full(len(y), np.nan)
        shown[train] = y[train]
        model = AutoRegressor(20, members=("linear x",), random_state=seed).fit(X, shown, pairs)
        problem = model.portfolio_.problem
        rows = problem.labelled
        for name, (middle, count) in VARIANTS.items():
            process.ROWS, process.MIDDLE = count, (*process.MIDDLE[:7], *3 * [middle])
            table = process._Table(problem, "neighbours")
            out = table.predict(table.fit(rows, problem.seed, None), rows)
            print(f"{target:13} split {seed}  {name}  R^2 {r_squared(out[rows], problem.y[rows]):.4f}", flush=True)
