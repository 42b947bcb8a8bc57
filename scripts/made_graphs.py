"""AutoClassifier with its default budget beside usual choices, on made graphs of kinds that the datasets do not have.

    python scripts/made_graphs.py --splits 0 1 2 --out results/auto/made.jsonl

text: words in a row with dependency edges, 300 embedding columns, 18 roles told by a word's kind and its neighbours'.
social: hubs, 519,000 edges that join alike people, ten columns, two classes; the score is the ROC AUC.
topics: 60,000 papers, 400,000 edges, 128 noisy columns, 40 topics of which 60 % of edges keep one.
purchases: 7,650 products, 119,000 pairs bought together at hubs, 745 words, eight kinds, 20 labels each.
articles: 11,701 articles, 216,000 links, 300 columns, ten subjects, 5 % labels.
authors: 18,333 authors, 82,000 joint papers, 6,805 words, 15 fields, 20 labels each.
Half of the nodes train, a quarter judges, a quarter tests; of the last three as many train as said, 30 more of each
class (of articles 10 %) judge. GraphSAGE and GCN (two layers of 128, PyG) have the same budget of processor seconds and
their best validation epoch of two recipes; boosting and the logistic regression learn from all known labels.
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
from torch_geometric.nn import GCN, GraphSAGE
from torch_geometric.utils import to_undirected

import walksum as ws
from walksum.portfolio import clock


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


def linked(random, y, m, share, tail):
    """m edges between nodes of unequal fame, of which a share is kept within a class."""
    n, fame = len(y), random.pareto(tail, len(y)) + 0.3
    order = np.argsort(y, kind="stable")
    total, first = np.cumsum(fame[order]), np.searchsorted(y[order], np.arange(y.max() + 2))
    ends = np.concatenate([[0], total])
    a, any_one = random.choice(n, (2, m), p=fame / fame.sum())
    low, high = ends[first[y[a]]], ends[first[y[a] + 1]]
    alike = order[np.minimum(np.searchsorted(total, low + (high - low) * random.random(m)), n - 1)]
    edges = np.stack([a, np.where(random.random(m) < share, alike, any_one)])
    return edges[:, edges[0] != edges[1]]


def bags(random, y, words, length, share):
    """Words of each node ``[N, words]``: a share of them is drawn from those of its class."""
    usual = 1 / np.arange(2, words + 2) ** 0.8
    usual /= usual.sum()
    own, table = random.dirichlet(60 * usual + 1e-3, y.max() + 1), np.zeros((len(y), words), np.float32)
    for i, count in enumerate(np.maximum(3, random.poisson(length, len(y)))):
        mine = random.binomial(count, share)
        table[i, random.choice(words, mine, p=own[y[i]])] = 1
        table[i, random.choice(words, count - mine, p=usual)] = 1
    return table


def purchases(random, n=7650):
    y = random.choice(8, n, p=random.dirichlet(np.full(8, 4.0)))
    return bags(random, y, 745, 60, 0.2), y, linked(random, y, 119_000, 0.5, 1.5)


def articles(random, n=11_701):
    y = random.choice(10, n, p=random.dirichlet(np.full(10, 2.0)))
    X = 0.12 * random.normal(size=(10, 300))[y] + random.normal(size=(n, 300))
    return X, y, linked(random, y, 216_000, 0.35, 1.5)


def authors(random, n=18_333):
    y = random.choice(15, n, p=random.dirichlet(np.full(15, 2.0)))
    return bags(random, y, 6805, 45, 0.15), y, linked(random, y, 82_000, 0.6, 2.5)


def rows_of(random, y, known):
    """Rows that train, judge and test; ``known``: of how many labels per class, or of which share of all."""
    order = random.permutation(len(y))
    if known == 0.5:
        return np.split(order, [len(y) // 2, 3 * len(y) // 4])
    if known < 1:
        return np.split(order, [int(known * len(y)), int(3 * known * len(y))])
    train, val = (np.concatenate([order[y[order] == c][part] for c in range(y.max() + 1)])
                  for part in (slice(known), slice(known, known + 30)))  # fmt: skip
    return train, val, np.setdiff1d(order, [*train, *val])


def neighbour_mean(edges, n):
    A = sp.coo_matrix((np.ones(2 * edges.shape[1]), np.concatenate([edges, edges[::-1]], 1)), (n, n)).tocsr()
    return sp.diags(1 / np.maximum(np.asarray(A.sum(1)).ravel(), 1)) @ A


def portfolio(X, y, edges, train, val, budget, seed, metric):
    known = np.where(np.isin(np.arange(len(y)), [*train, *val]), y, -1)
    graph = ws.Graph.from_edge_index(torch.from_numpy(edges), len(y))
    model = ws.AutoClassifier(budget=budget, random_state=seed, metric=metric)
    return model.fit(X, known, graph, validation=val).predict_proba(X)


def sage(X, y, edges, train, val, budget, seed, metric, kind=GraphSAGE):
    words = np.isin(X[:100], (0, 1)).all()
    x = torch.from_numpy(X if words else StandardScaler().fit_transform(X)).float()
    both, truth = to_undirected(torch.from_numpy(edges)), torch.from_numpy(y)
    best, found = -np.inf, np.zeros(0)
    few = ((0.01, 0.5, 5e-4), (0.003, 0.5, 0.0))
    for rate, dropout, decay in few if len(train) < len(y) / 4 else ((0.01, 0.3, 0.0), (0.003, 0.3, 0.0)):
        torch.manual_seed(seed)
        model = kind(x.size(1), 128, 2, int(y.max()) + 1, dropout=dropout)
        optimiser = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=decay)
        end = time.process_time() + budget / 2
        while time.process_time() < end:
            for _ in range(2):
                optimiser.zero_grad()
                nnf.cross_entropy(model.train()(x, both)[train], truth[train]).backward()
                optimiser.step()
            with torch.no_grad():
                shares = model.eval()(x, both).softmax(1).numpy()
            if (now := score(shares[val], y[val], metric)) > best:
                best, found = now, shares
    return found


def gcn(*asked):
    return sage(*asked, kind=GCN)


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


GRAPHS = {
    "text": (text, "accuracy", 0.5), "social": (social, "roc_auc", 0.5), "topics": (topics, "accuracy", 0.5),
    "purchases": (purchases, "accuracy", 20), "articles": (articles, "accuracy", 0.05),
    "authors": (authors, "accuracy", 20),
}  # fmt: skip
METHODS = {
    "AutoClassifier": portfolio,
    "GraphSAGE": sage,
    "GCN": gcn,
    "boosting on neighbour means": boosting,
    "logistic": logistic,
}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--graphs", nargs="*", choices=list(GRAPHS), default=list(GRAPHS))
parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS))
parser.add_argument("--splits", nargs="*", type=int, default=[0])
parser.add_argument("--budget", type=float, default=60.0)
parser.add_argument("--cpu", action="store_true", help="AutoClassifier's budget counts this process's own time too")
parser.add_argument("--out", required=True)
args = parser.parse_args()
if args.cpu:
    torch.set_num_threads(1)
    clock.now = time.process_time
for split in args.splits:
    for name in args.graphs:
        make, metric, known = GRAPHS[name]
        X, y, edges = make(np.random.default_rng(split))
        train, val, test = rows_of(np.random.default_rng(1000 + split), y, known)
        for method in args.methods:
            began, used = time.monotonic(), time.process_time()
            shares = METHODS[method](X, y, edges, train, val, args.budget, split, metric)
            record = {"graph": name, "split": split, "method": method, "metric": metric, "budget": args.budget,
                      "test": round(score(shares[test], y[test], metric), 4),
                      "seconds": round(time.monotonic() - began, 1),
                      "cpu_seconds": round(time.process_time() - used, 1),
                      "threads": torch.get_num_threads()}  # fmt: skip
            with open(args.out, "a") as file:
                file.write(json.dumps(record) + "\n")
            print(record, flush=True)
