"""What powers of the inverse, more fitted rows and other priors give a Gaussian process on the counties.

    python scripts/explore_process.py education election --splits 1000 1001 >> results/auto/process.txt

R^2 at the known rows, each by a fold that did not learn from it; splits from 1000 on, which no table counts.
The first 32 lines of the record are of the script's first form, which predicted each known row from all others, but
with parameters that had been fitted to it too: those numbers are too large.
"""

import argparse
import math

import numpy as np
import torch

from walksum.estimators.auto.bench import COUNTIES, counties
from walksum.estimators.auto.regressor import AutoRegressor
from walksum.portfolio import process
from walksum.portfolio.blend import r_squared

VARIANTS = {
    "powers 1, 1, 1": {"POWERS": (1, 1, 1), "WIDTH": 0.5, "ROWS": 800},
    "powers 1, 2, 2": {"POWERS": (1, 2, 2), "WIDTH": 0.5, "ROWS": 800},
    "powers 1, 2, 2, 1200 rows": {"POWERS": (1, 2, 2), "WIDTH": 0.5, "ROWS": 1200},
    "powers 1, 2, 2, narrow priors": {"POWERS": (1, 2, 2), "WIDTH": 0.25, "ROWS": 800},
}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("targets", nargs="*", default=list(COUNTIES))
parser.add_argument("--splits", nargs="*", type=int, default=[1000, 1001])
parser.add_argument("--variants", nargs="*", choices=list(VARIANTS), default=list(VARIANTS))
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
        for name in args.variants:
            for setting, value in VARIANTS[name].items():
                setattr(process, setting, value)
            problem.kept.pop("inverse columns", None)  # they depend on the powers
            out = process.fit_process(problem, "neighbours", math.inf)
            assert out is not None
            score = r_squared(problem.out_of_fold(out)[rows], problem.y[rows])
            print(f"{target:13} split {seed}  {name}  R^2 out of fold {score:.4f}", flush=True)
