"""AutoClassifier with its default budget beside usual choices, on made graphs of kinds that the datasets do not have.

    python scripts/made_graphs.py --splits 0 1 2 --out results/auto/made.jsonl

text: words in a row with dependency edges, 300 embedding columns, 18 roles told by a word's kind and its neighbours'.
social: hubs, 519,000 edges that join alike people, ten columns, two classes; the score is the ROC AUC.
topics: 60,000 papers, 400,000 edges, 128 noisy columns, 40 topics of which 60 % of edges keep one.
Half of the nodes train, a quarter judges, a quarter tests. GraphSAGE (two layers of 128, PyG) has the same budget of
seconds and its best validation epoch of two learning rates; boosting learns from both halves' labels.
"""

import argparse
import json
import time

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as nnf
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch_geometric.nn import GraphSAGE
from torch_geometric.utils import to_undirected

import walksum as ws


def text(random, n=22_000, words=600, kinds=12, classes=18, columns=300):
    kind = random.integers(0, kinds, words)
    vectors = 0.35 * random.normal(size=(kinds, columns))[kind] + random.normal(size=(words, columns))
    follows, rows = random.dirichlet(np.full(kinds, 0.35), kinds), np.zeros(n, int)
    for k in range(1, n):
        rows[k] = random.choice(kinds, p=follows[rows[k - 1]])
    chosen = np.array([random.choice(np.nonzero(kind == k)[0]) for k in rows])
    head = np.clip(np.arange(n) + random.choice([-4, -3, -2, 2, 3, 4], n), 0, n - 1)
    some = random.random(n) < 0.5
    edges = np.concatenate([[np.arange(n - 1), np.arange(1, n)], [np.nonzero(some)[0], head[some]]], 1)
    near = np.zeros((n, kinds), int)
    for a, b in (edges, edges[::-1]):
        near[a, rows[b]] = 1
    role = random.integers(0, classes, (kinds, 2, 2, 2))
    y = role[rows, near[:, 0], near[:, 3], near[np.arange(n), (5 * rows) % kinds]]
    y = np.where(random.random(n) < 0.05, random.integers(0, classes, n), y)
    return vectors[chosen] + 0.3 * random.normal(size=(n, columns)), y, edges


def social(random, n=11_700, m=519_000, columns=10):
    hidden, fame = random.normal(size=(n, 3)), random.pareto(1.5, n) + 0.2
    a, met = (random.choice(n, size, p=fame / fame.sum()) for size in (m, (m, 4)))
    b = met[np.arange(m), ((hidden[met] - hidden[a][:, None]) ** 2).sum(-1).argmin(1)]
    friends = neighbour_mean(np.stack([a, b]), n) @ hidden[:, 1]
    y = (0.8 * hidden[:, 0] + 2 * friends + 0.5 * random.normal(size=n) > 1).astype(int)
    X = random.normal(size=(n, columns))
    X[:, 0] += hidden[:, 0]
    return X, y, np.stack([a, b])


def topics(random, n=60_000, m=400_000, columns=128, classes=40):
    y = random.integers(0, classes, n)
    order, source = np.argsort(y, kind="stable"), random.integers(0, n, m)
    first, last = (np.searchsorted(y[order], y[source], side) for side in ("left", "right"))
    alike = order[first + ((last - first) * random.random(m) ** 2).astype(int)]
    target = np.where(random.random(m) < 0.6, alike, (n * random.random(m) ** 2).astype(int))
    X = 0.25 * random.normal(size=(classes, columns))[y] + random.normal(size=(n, columns))
    return X, y, np.stack([source, target])


def neighbour_mean(edges, n):
    A = sp.coo_matrix((np.ones(2 * edges.shape[1]), np.concatenate([edges, edges[::-1]], 1)), (n, n)).tocsr()
    return sp.diags(1 / np.maximum(np.asarray(A.sum(1)).ravel(), 1)) @ A


def portfolio(X, y, edges, train, val, budget, seed, metric):
    known = np.where(np.isin(np.arange(len(y)), [*train, *val]), y, -1)
    graph = ws.Graph.from_edge_index(torch.from_numpy(edges), len(y))
    model = ws.AutoClassifier(budget=budget, random_state=seed, metric=metric)
    return model.fit(X, known, graph, validation=val).predict_proba(X)


def sage(X, y, edges, train, val, budget, seed, metric):
    x = torch.from_numpy(StandardScaler().fit_transform(X)).float()
    both, truth = to_undirected(torch.from_numpy(edges)), torch.from_numpy(y)
    best, found = -np.inf, np.zeros(0)
    for rate in (0.01, 0.003):
        torch.manual_seed(seed)
        model = GraphSAGE(x.size(1), 128, 2, int(y.max()) + 1, dropout=0.3)
        optimiser, end = torch.optim.Adam(model.parameters(), lr=rate), time.monotonic() + budget / 2
        while time.monotonic() < end:
            for _ in range(2):
                optimiser.zero_grad()
                nnf.cross_entropy(model.train()(x, both)[train], truth[train]).backward()
                optimiser.step()
            with torch.no_grad():
                shares = model.eval()(x, both).softmax(1).numpy()
            if (now := score(shares[val], y[val], metric)) > best:
                best, found = now, shares
    return found


def boosting(X, y, edges, train, val, budget, seed, metric):
    both = np.concatenate([train, val])
    columns = np.concatenate([X, neighbour_mean(edges, len(y)) @ X], 1)
    return HistGradientBoostingClassifier(random_state=seed).fit(columns[both], y[both]).predict_proba(columns)


def logistic(X, y, edges, train, val, budget, seed, metric):
    both = np.concatenate([train, val])
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    return model.fit(X[both], y[both]).predict_proba(X)


def score(shares, y, metric):
    return roc_auc_score(y, shares[:, 1]) if metric == "roc_auc" else float((shares.argmax(1) == y).mean())


GRAPHS = {"text": (text, "accuracy"), "social": (social, "roc_auc"), "topics": (topics, "accuracy")}
METHODS = {
    "AutoClassifier": portfolio,
    "GraphSAGE": sage,
    "boosting on neighbour means": boosting,
    "logistic": logistic,
}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--graphs", nargs="*", choices=list(GRAPHS), default=list(GRAPHS))
parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS))
parser.add_argument("--splits", nargs="*", type=int, default=[0])
parser.add_argument("--budget", type=float, default=60.0)
parser.add_argument("--out", required=True)
args = parser.parse_args()
for split in args.splits:
    for name in args.graphs:
        make, metric = GRAPHS[name]
        X, y, edges = make(np.random.default_rng(split))
        order = np.random.default_rng(1000 + split).permutation(len(y))
        train, val, test = np.split(order, [len(y) // 2, 3 * len(y) // 4])
        for method in args.methods:
            began = time.monotonic()
            shares = METHODS[method](X, y, edges, train, val, args.budget, split, metric)
            record = {"graph": name, "split": split, "method": method, "metric": metric, "budget": args.budget,
                      "test": round(score(shares[test], y[test], metric), 4),
                      "seconds": round(time.monotonic() - began, 1), "threads": torch.get_num_threads()}  # fmt: skip
            with open(args.out, "a") as file:
                file.write(json.dumps(record) + "\n")
            print(record, flush=True)
