"""The pictures of docs/figures.md, and the numbers that its text states (results/figures.txt).

    python scripts/figures.py

The numbers are the paper's readings of its figures, measured on Wisconsin. Needs that dataset ($WALKSUM_DATA, or the
network) and a few minutes.
"""

import contextlib
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr

import walksum as ws
from walksum.analysis.correlation import correlation
from walksum.analysis.inverse import apply_inverse, units
from walksum.analysis.spectrum import response
from walksum.data import load
from walksum.data.problem import from_data
from walksum.designs import NAMES
from walksum.paper.figures import count_steps, of_paper, train_design
from walksum.workflow.figures import COMPARED, Listener, compared_hops
from walksum.workflow.fit import Job, predict

SEEDS = (0, 1, 2)
EPOCHS = 30  # of training by message passing
ROOT = Path(__file__).parents[1]
EDGES = [[0, 1, 1, 2, 3, 4, 0], [1, 2, 3, 3, 4, 5, 2]]  # of the small graph whose J is drawn
LEFT_OUT = ("figure-5-heads", "figure-6-heads", "figure-7-heads")


def draw(problem):
    images = ROOT / "docs" / "images"
    for figure in of_paper(problem):
        if figure.name not in LEFT_OUT:
            ws.plot.save(figure.draw("light"), images / f"{figure.name}.png", dpi=100)
    ws.plot.save(ws.plot.layer(), images / "layer.png", dpi=100)
    graph = ws.Graph.from_edge_index(torch.tensor(EDGES))
    ws.plot.save(ws.plot.how_J_is_made(graph), images / "how-J-is-made.png", dpi=100)


def measure(trained):
    """One design after training, heads averaged."""
    J, graph = trained.precisions[0], trained.problem.graph
    count = J.num_nodes
    matrix = correlation(J).numpy()
    other = ~np.eye(count, dtype=bool)
    edge = np.zeros((count, count), dtype=bool)
    i, j = graph.edges.numpy()
    edge[i, j] = edge[j, i] = True
    off = matrix[:, other]
    covariance = apply_inverse(J, units(count)).numpy()
    strength = J.normalised().off.abs().double().numpy()
    around = np.zeros((J.heads, count))
    for head in range(J.heads):
        np.add.at(around[head], i, strength[head])
        np.add.at(around[head], j, strength[head])
    degree = graph.degree.numpy()
    diag = np.diagonal(covariance, axis1=1, axis2=2)
    outward = np.abs(covariance).sum(2) - diag
    found = response(J)
    gain, values = found.gain.mean(0), found.eigenvalues
    output = predict(trained.model, trained.x, trained.problem, trained.prepared.encoding)
    test = trained.prepared.split.test
    own = trained.prepared.scorer.score(output[test], trained.problem.y[test])
    return {
        "test accuracy": own.value,
        "mean |correlation|": np.abs(off).mean(),
        "negative pairs": (off < 0).mean(),
        "share of |correlation| on edges": np.abs(matrix[:, edge]).sum() / np.abs(off).sum(),
        "repulsive couplings": float((J.off > 0).double().mean()),
        "negative entries of corrcoef(J^-1)": np.mean([(np.corrcoef(each)[other] < 0).mean() for each in covariance]),
        "gain smooth (> 0.5)": float(gain[values > 0.5].mean()),
        "gain middle": float(gain[values.abs() <= 0.5].mean()),
        "gain alternating (< -0.5)": float(gain[values < -0.5].mean()),
        "part that leaves the eigenvector, over the gain, median": float((found.spread / found.gain).mean(0).median()),
        "rank corr. confidence, outward influence": mean_rank(1 / diag, outward),
        "rank corr. degree, coupling per edge": mean_rank(np.broadcast_to(degree, around.shape), around / degree),
        "kind": found.kind,
    }


def by_hop(hops):
    return f"mean hops {hops.reach:.2f}, beyond two hops {float(hops.mean[3:].sum()):.3f}"


def message_passing(trained):
    """Steps of the paper's algorithm: by its own absolute rule in training, and to 1e-6 at the same scale."""
    history = count_steps(trained, EPOCHS, Listener())
    curves = trained.curves()
    for way in ("forward", "backward"):
        counts = [getattr(epoch, f"{way}_steps") for epoch in history]
        curve = next(c for c in curves if c.direction == way and "the paper's" in c.name)
        to = next((s for s, r in zip(curve.steps, curve.residuals, strict=True) if r <= 1e-6), None)
        print(f"  {way}: {min(counts)} to {max(counts)} steps by the paper's rule; residual 1e-6 after {to}")
    for curve in curves:
        end = f"{curve.steps[-1]} steps, {curve.residuals[-1]:.1e}, {curve.status.name}"
        print(f"  {curve.direction}, {curve.name}: {end}")


def mean_rank(a, b):
    return float(np.mean([spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)]))


def measure_all(problem):
    for learned in (False, True):
        for design in NAMES[::-1]:
            seeds = SEEDS if learned else SEEDS[:1]
            jobs = [Job(design=design, learned=learned, seed=seed) for seed in seeds]
            subjects = [train_design(job, problem, Listener()) for job in jobs]
            rows = [measure(trained) for trained in subjects]
            print(f"{'learned' if learned else 'fixed'} {design}, seeds {[*SEEDS][: len(rows)]}")
            for name in rows[0]:
                print(f"  {name}: {', '.join(row[name] if name == 'kind' else f'{row[name]:.4g}' for row in rows)}")
            print(f"  influence: {by_hop(subjects[0].hops())}")
            message_passing(subjects[0])
    for name, hops in compared_hops(COMPARED, subjects[0], lambda name: Job(model=name), Listener()).items():
        print(f"{name}\n  influence: {by_hop(hops)}")


def main():
    torch.set_num_threads(1)
    problem = from_data("wisconsin", load("wisconsin"))
    draw(problem)
    with (ROOT / "results" / "figures.txt").open("w") as file, contextlib.redirect_stdout(file):
        measure_all(problem)


if __name__ == "__main__":
    main()
