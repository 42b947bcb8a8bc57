"""Predict a column of the US counties from the others and from the neighbours, with intervals that can be trusted.

    python examples/counties_field.py data/counties election_margin

A regression explains what the other columns can; a Gaussian field on the map of borders, fitted to its residuals by
exact evidence, adds what the neighbours know. Ten random splits: 60 % of the counties known, 40 % predicted.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib import pyplot as plt
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from sklearn.pipeline import make_pipeline

import walksum as ws
from walksum.plot.layout import whole_layout

folder, target, *rest = sys.argv[1:] if len(sys.argv) > 2 else sys.exit(__doc__)
picture = Path(rest[0] if rest else f"counties-{target}.png")
nodes = pd.read_csv(Path(folder, "nodes.csv"), dtype={"fips": str})
edges = pd.read_csv(Path(folder, "edges.csv"), dtype=str)
ends = [pd.Index(nodes["fips"]).get_indexer(edges[end]) for end in ("source", "target")]
graph = ws.Graph.from_edge_index(torch.tensor(np.stack(ends)), len(nodes))
X, y = nodes.drop(columns=["fips", "county", target]).to_numpy(), nodes[target].to_numpy()

print(f"{'split':>5} {'R2 alone':>9} {'R2 + field':>11} {'95 % covers':>12} {'a':>6} {'noise':>9}")
covered = []
for split in range(10):
    order = np.random.default_rng(split).permutation(np.flatnonzero(np.isfinite(y)))
    train, test = np.split(order, [int(0.6 * len(order))])
    guess = make_pipeline(SimpleImputer(), LinearRegression()).fit(X[train], y[train]).predict(X)
    residual = (y - guess)[train]  # of a model that could overfit: out of fold, as the test counties will be

    field, fit = ws.fit_residual_field(graph, train, residual)
    given = field.condition(train, residual, fit.noise)
    mean = guess + given.mean[0].numpy()
    deviation = (fit.scale * (given.variance + fit.noise).sqrt())[0].numpy()

    covered.append(np.mean(np.abs(y - mean)[test] <= 1.96 * deviation[test]))
    alone, both = r2_score(y[test], guess[test]), r2_score(y[test], mean[test])
    print(f"{split:>5} {alone:>9.3f} {both:>11.3f} {covered[-1]:>12.1%} {fit.a.item():>6.3f} {fit.noise.item():>9.2g}")
print(f"the intervals cover {np.mean(covered):.1%} on average, {min(covered):.1%} to {max(covered):.1%}")

figure, axes = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
x, z = whole_layout(graph).T  # the files have no coordinates: the borders alone place the counties
for axis, values, title in zip(axes, (mean, deviation), (f"{target}: mean", "standard deviation"), strict=True):
    low, high = np.quantile(values, [0.02, 0.95])
    points = axis.scatter(x, z, c=values, s=6, cmap="viridis", vmin=low, vmax=high)
    figure.colorbar(points, ax=axis, shrink=0.8)
    axis.set_title(title)
    axis.set_axis_off()
figure.savefig(picture, dpi=110)
