"""AutoClassifier beside usual choices where a few nodes per class are known and no rows are left to judge.

    python scripts/few_labels.py --known 1 2 3 5 --seeds 0 1 --budget 12 --cpu --out results/auto/few.jsonl

Every method is given the same labels and no validation rows; the rivals have one recipe each: label propagation (P_.9),
logistic regression on own columns and on S^2 X, PyG's GCN (two layers of 64, dropout .5, weight decay 5e-4, 200 steps)
and APPNP. ``--keep`` writes what each member says, for other rules of blending. Datasets are read from WALKSUM_DATA.
"""

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from published_kinds import KINDS
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import kneighbors_graph
from sklearn.preprocessing import StandardScaler, normalize
from torch_geometric.nn import APPNP, GCN

import walksum as ws
from walksum.data import load
from walksum.portfolio import clock
from walksum.portfolio.blend import softmax

TABLES = {"iris": datasets.load_iris, "wine": datasets.load_wine, "cancer": datasets.load_breast_cancer}
TABLES["digits"] = datasets.load_digits
REAL = ("cora", "citeseer", "pubmed", "texas", "wisconsin", "cornell", "chameleon", "squirrel")
MADE = ("club", "mail", "blogs", "fields", "actors", "syntax")


def blocks(random, sizes, inside, outside, columns=0, strength=0.0):
    """Communities of the given sizes, ties with these chances, and columns that tell a little."""
    y = np.repeat(np.arange(len(sizes)), sizes)
    chance = np.where(y[:, None] == y, inside, outside)
    edges = np.stack(np.nonzero(np.triu(random.random(chance.shape) < chance, 1)))
    X = random.normal(size=(len(y), columns)) + strength * random.normal(size=(len(sizes), columns))[y]
    return (X if columns else np.zeros((len(y), 1))), y, edges


BLOCKS = {
    "communities": lambda random: blocks(random, [60, 60, 60, 60], 0.15, 0.02),
    "uneven": lambda random: blocks(random, [300, 60, 30], 0.08, 0.015),
    "faint": lambda random: blocks(random, [150] * 3, 0.05, 0.02, 6, 0.7),
    "opposites": lambda random: blocks(random, [120] * 2, 0.01, 0.06, 4, 0.5),
    "columns alone": lambda random: blocks(random, [100] * 3, 0.03, 0.03, 8, 1.0),
}
ALL = (*TABLES, *REAL, *MADE, *BLOCKS)


def problem(name, seed):
    """Columns, classes and the adjacency matrix."""
    random = np.random.default_rng(seed)
    if name in TABLES:
        X, y = TABLES[name](return_X_y=True)
        X = StandardScaler().fit_transform(X)
        A = kneighbors_graph(X, 8)
        return X, y, ((A + A.T) > 0).astype(float).tocsr()
    if name in REAL:
        data = load(name, os.environ["WALKSUM_DATA"])
        X, y, edges = sp.csr_matrix(data.x.numpy().astype(np.float64)), data.y.numpy(), data.edge_index.numpy()
    else:
        X, y, edges = (BLOCKS[name] if name in BLOCKS else KINDS[name][0])(random)[:3]
    A = sp.coo_matrix((np.ones(edges.shape[1]), edges), (len(y), len(y)))
    A = ((A + A.T) > 0).astype(float).tolil()
    A.setdiag(0)
    return X, y, A.tocsr()


def few(random, y, count):
    """``count`` rows per class, or half of those that it has."""
    return np.concatenate([random.permutation(np.nonzero(y == k)[0])[: min(count, max(1, (y == k).sum() // 2))]
                           for k in np.unique(y)])  # fmt: skip


class Simple:
    def __init__(self, X, y, A, known, seed):
        self.X, self.A, self.known, self.seed, self.classes = X, A, known, seed, int(y.max()) + 1
        self.labels = y[known]
        loops = A + sp.eye(len(y))
        root = sp.diags(1 / np.sqrt(loops.sum(1).A1 if hasattr(loops.sum(1), "A1") else np.ravel(loops.sum(1))))
        self.S = (root @ loops @ root).tocsr()

    def labels_spread(self):
        Y = np.zeros((self.A.shape[0], self.classes))
        Y[self.known, self.labels] = 1
        F = Y
        for _ in range(50):
            F = 0.9 * (self.S @ F) + 0.1 * Y
        return F

    def _line(self, X):
        X = normalize(X) if sp.issparse(X) else StandardScaler().fit_transform(X)
        model = LogisticRegression(max_iter=1000).fit(X[self.known], self.labels)
        out = np.zeros((X.shape[0], self.classes))
        out[:, model.classes_] = model.predict_proba(X)
        return out

    def own(self):
        return self._line(self.X)

    def smoothed(self):
        return self._line(self.S @ (self.S @ self.X))

    def _network(self, name):
        torch.manual_seed(self.seed)
        X = self.X.toarray() if sp.issparse(self.X) else StandardScaler().fit_transform(self.X)
        if self.X.shape[1] == 1 and len(X) <= 5000:
            X = np.eye(len(X))
        X = torch.tensor(X, dtype=torch.float32)
        edges = torch.tensor(np.stack(self.A.nonzero()))
        if name == "gcn":
            net = GCN(X.shape[1], 64, 2, self.classes, dropout=0.5)
        else:
            net = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(X.shape[1], 64), torch.nn.ReLU(),
                                      torch.nn.Dropout(), torch.nn.Linear(64, self.classes))  # fmt: skip
        spread = APPNP(10, 0.1)
        run = (lambda: net(X, edges)) if name == "gcn" else (lambda: spread(net(X), edges))
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
        y = torch.tensor(self.labels)
        for _ in range(200):
            net.train()
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(run()[self.known], y).backward()
            optimizer.step()
        net.eval()
        with torch.no_grad():
            return run().softmax(1).numpy()

    def gcn(self):
        return self._network("gcn")

    def appnp(self):
        return self._network("appnp")


def auto(X, y, A, known, seed, budget, keep):
    target = np.full(len(y), -1)
    target[known] = y[known]
    model = ws.AutoClassifier(budget=budget, random_state=seed).fit(X, target, A)
    if keep is not None:
        found = model.portfolio_
        problem = found.problem
        rows = problem.judged
        out = np.stack([problem.out_of_fold(m.outputs) for m in found.members])  # [M, N, C]
        np.savez(
            keep,
            judged=softmax(out[:, rows]).astype(np.float32),
            yj=problem.y[rows],
            rest=np.stack([softmax(m.outputs).mean(0) for m in found.members]).astype(np.float16),
            y=y,
            known=known,
            names=[m.name for m in found.members],
            weights=found.blends["here"].weights,
            graph=[m.uses_graph for m in found.members],
        )
    out = np.zeros((len(y), int(y.max()) + 1))
    out[:, model.classes_] = model.label_distributions_
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="*", choices=ALL, default=list(ALL))
    parser.add_argument("--known", nargs="*", type=int, default=[1, 2, 3, 5])
    methods = ("auto", "labels_spread", "own", "smoothed", "gcn", "appnp")
    parser.add_argument("--methods", nargs="*", choices=methods, default=methods)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1])
    parser.add_argument("--budget", type=float, default=12.0)
    parser.add_argument("--cpu", action="store_true", help="budgets count this process's own time")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--sources", default="")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.cpu:
        torch.set_num_threads(1)
        clock.now = time.process_time
    for seed in args.seeds:
        for name in args.problems:
            X, y, A = problem(name, seed)
            for count in args.known:
                known = few(np.random.default_rng(100 * seed + count), y, count)
                rest = np.setdiff1d(np.arange(len(y)), known)
                for method in args.methods:
                    start, said = time.process_time(), {}
                    try:
                        if method == "auto":
                            kept = args.keep and args.keep / f"{name}-{count}-{seed}.npz"
                            out = auto(X, y, A, known, seed, args.budget, kept)
                        else:
                            out = getattr(Simple(X, y, A, known, seed), method)()
                        said["test"] = round(float((out.argmax(1) == y)[rest].mean()), 4)
                    except ValueError as error:
                        said["error"] = str(error)
                    record = {"sources": args.sources, "problem": name, "known": count, "seed": seed, "method": method,
                              **said, "rows": len(rest), "cpu": round(time.process_time() - start, 1)}  # fmt: skip
                    with open(args.out, "a") as file:
                        file.write(json.dumps(record) + "\n")
                    print(record, flush=True)


if __name__ == "__main__":
    main()
