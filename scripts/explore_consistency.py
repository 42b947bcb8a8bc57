"""How predict-then-propagate networks gain from agreeing over draws of the dropout, on citation graphs.

Splits 100 and later, which no table counts. Each network stops by one half of the validation rows and is counted on the
other half; test rows are not looked at.

    python scripts/explore_consistency.py cora citeseer --device cuda --splits 30
"""

from __future__ import annotations

import argparse

import numpy as np

from walksum.data import load, make_split
from walksum.graph import Graph
from walksum.portfolio.columns import by_row
from walksum.portfolio.input import Input
from walksum.portfolio.problem import Problem
from walksum.portfolio.spread import Operator
from walksum.portfolio.stack import Config, Stack, StackRecipe

NEAR, MIDDLE = (Operator(0.8, loops=True),), (Operator(0.9, loops=True),)
AGREE = {"consistency": 1.0}
FIRST = {"where": "first", "node_dropout": 0.5, "input_dropout": 0.5, "dropout": 0.5}
PLANS = {  # name: operators, weight decay, rows summing to one, recipe
    "smooth .9, raw, decay 2e-2": (MIDDLE, 2e-2, False, {}),
    "smooth .9, rows, decay 5e-3": (MIDDLE, 5e-3, True, {}),
    "consistent .9, raw, decay 2e-2": (MIDDLE, 2e-2, False, AGREE),
    "consistent .9, raw, decay 5e-3": (MIDDLE, 5e-3, False, AGREE),
    "consistent .9, raw, decay 2e-2, nodes dropped": (MIDDLE, 2e-2, False, AGREE | {"node_dropout": 0.3}),
    "consistent .8, raw, decay 2e-2": (NEAR, 2e-2, False, AGREE),
    "consistent .9, raw, twice the weight": (MIDDLE, 2e-2, False, {"consistency": 2.0}),
    "consistent .9, rows, decay 1e-3": (MIDDLE, 1e-3, True, AGREE),
    "consistent first .9, raw, decay 2e-2": (MIDDLE, 2e-2, False, AGREE | FIRST),
    "first .9, raw, decay 2e-2": (MIDDLE, 2e-2, False, FIRST),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--splits", type=int, default=30)
    arguments = parser.parse_args()
    for name in arguments.datasets:
        data = load(name)
        graph = Graph.from_edge_index(data.edge_index, data.num_nodes).to(arguments.device)
        y, raw = data.y.numpy(), data.x.numpy()
        inputs = {rows: Input(by_row(raw) if rows else raw, arguments.device) for rows in (False, True)}
        folds, counted = [], []
        for seed in range(100, 100 + arguments.splits):
            split = make_split(data, "random", seed, name=name)
            half = np.random.default_rng(seed).permutation(split.val.numpy())
            folds.append((split.train.numpy(), half[: len(half) // 2]))
            counted.append(half[len(half) // 2 :])
        problem = Problem(raw, graph, y.astype(float), int(y.max()) + 1, folds, device=arguments.device)
        for label, (operators, decay, rows, how) in PLANS.items():
            stack = Stack(problem, inputs[rows], graph, [Config(label, operators, decay)], StackRecipe(**how))
            out = stack.train().outputs[0]  # [splits, N, C]
            hits = [(each.argmax(1) == y)[rest].mean() for each, rest in zip(out, counted, strict=True)]
            print(
                f"{name:9s} {label:46s} {100 * np.mean(hits):.2f} +- {100 * np.std(hits) / len(hits) ** 0.5:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
