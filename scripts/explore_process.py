"""What other settings of a Gaussian process give on the counties.

    python scripts/explore_process.py education election --splits 1000 1001 >> results/auto/process.txt

R^2 at the known rows, each by a fold that did not learn from it; splits from 1000 on, which no table counts. With
--folds 2 only the rows of the first two folds judge, which takes half the time.
The first 32 lines of the record are of the script's first form, which predicted each known row from all others, but
with parameters that had been fitted to it too: those numbers are too large. Lines 33 to 43 are of all five folds.
"""

import argparse
import math
import time
from dataclasses import replace

import numpy as np
import torch
from sklearn.model_selection import KFold, cross_val_predict

from walksum.estimators.auto.regressor import AutoRegressor
from walksum.paper.portfolio_bench import COUNTIES, counties
from walksum.portfolio import process
from walksum.portfolio.blend import r_squared
from walksum.portfolio.columns import neighbours
from walksum.portfolio.tabular import boosting

NOW = {name: getattr(process, name) for name in ("POWERS", "SCALES", "MIDDLE", "ROWS")} | {"WIDTH": 0.25}
FOUR = {
    "WIDTH": 0.15,
    "SCALES": (0.5, 0.8, 0.95, 0.995),
    "POWERS": (1, 1, 2, 2),
    "MIDDLE": (0.25, 0.7, 0.5, 0.3, *4 * [0.3], *4 * [0.17]),
}
VARIANTS = {
    "powers 1, 1, 1": {"POWERS": (1, 1, 1), "WIDTH": 0.5},
    "powers 1, 2, 2": {"WIDTH": 0.5},
    "powers 1, 2, 2, 1200 rows": {"WIDTH": 0.5, "ROWS": 1200},
    "powers 1, 2, 2, narrow priors": {},
    "narrower priors": {"WIDTH": 0.15},
    "narrowest priors": {"WIDTH": 0.1},
    "narrow priors, 1200 rows": {"ROWS": 1200},
    "narrower priors, 1200 rows": {"WIDTH": 0.15, "ROWS": 1200},
    "narrow priors, four scales": FOUR | {"WIDTH": 0.25},
    "narrower priors, four scales": FOUR,
    "narrowest priors, four scales": FOUR | {"WIDTH": 0.1},
    "narrower priors, five scales": {
        "WIDTH": 0.15,
        "SCALES": (0.3, 0.6, 0.85, 0.96, 0.995),
        "POWERS": (1, 1, 1, 2, 2),
        "MIDDLE": (0.25, 0.7, 0.5, 0.3, *5 * [0.27], *5 * [0.155]),
    },
    "narrower priors, farther scales": {"WIDTH": 0.15, "SCALES": (0.8, 0.97, 0.999)},
    "narrow priors, missing cells told": {},
    "narrow priors, after boosting": {},
}


def with_missing(problem, empty):
    """One more column for each pattern of empty cells."""
    told = np.unique(empty[:, empty.any(0)], axis=1).astype(float)
    return replace(problem, X=np.concatenate([problem.X, told], 1), kept={})


def after_boosting(problem, columns):
    """Boosting, whose residuals at its training rows come from folds of them, and a process of those residuals."""
    X, out = neighbours(problem), []
    for train, test in problem.folds:
        y = problem.y[train]
        left = y - cross_val_predict(boosting(0, 0), X[train], y, cv=KFold(5, shuffle=True, random_state=0))
        mean, unit = boosting(0, 0).fit(X[train], y).predict(X), left.std()
        target = np.full_like(problem.y, np.nan)
        target[train] = left / unit
        part = replace(problem, y=np.where(np.isnan(target) & ~np.isnan(problem.y), 0.0, target), folds=[(train, test)],
                       kept=problem.kept)  # fmt: skip
        out.append(mean[:, None] + unit * process.fit_process(part, columns, math.inf)[0][0])
    return np.stack(out)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("targets", nargs="*", default=list(COUNTIES))
parser.add_argument("--splits", nargs="*", type=int, default=[1000, 1001])
parser.add_argument("--variants", nargs="*", choices=list(VARIANTS), default=list(VARIANTS))
parser.add_argument("--folds", type=int, default=5)
args = parser.parse_args()
torch.set_num_threads(1)
for target in args.targets:
    X, y, pairs = counties(COUNTIES[target])
    empty = np.isclose(X, X.mean(0), rtol=1e-12, atol=0)  # cells that had no number hold the mean of the others
    known = np.nonzero(~np.isnan(y))[0]
    for seed in args.splits:
        order = known[np.argsort(np.random.PCG64(seed).random_raw(len(known)), kind="stable")]
        train = order[: len(order) * 6 // 10]
        shown = np.full(len(y), np.nan)
        shown[train] = y[train]
        whole = AutoRegressor(20, members=("linear x",), random_state=seed).fit(X, shown, pairs).portfolio_.problem
        for name in args.variants:
            for setting, value in (NOW | VARIANTS[name]).items():
                setattr(process, setting, value)
            problem = replace(whole, folds=whole.folds[: args.folds], kept={})
            problem = with_missing(problem, empty) if "missing" in name else problem
            start = time.process_time()
            fit = after_boosting if "boosting" in name else lambda *given: process.fit_process(*given, math.inf)[0]
            out = fit(problem, "neighbours")
            truth = np.concatenate([problem.y[test] for _, test in problem.folds])
            guess = np.concatenate([each[test] for each, (_, test) in zip(out, problem.folds, strict=True)])
            print(
                f"{target:13} split {seed}  {name}  R^2 out of fold {r_squared(guess, truth):.4f}"
                f"  ({args.folds} folds, {time.process_time() - start:.0f} s)", flush=True,
            )  # fmt: skip
