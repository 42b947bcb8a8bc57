"""AutoClassifier and AutoRegressor beside simple models on made graphs of many kinds, each with its story.

    python scripts/made_kinds.py --seeds 0 1 --budget 20 --out results/auto/kinds.jsonl

Training rows are learned from and validation rows choose (epochs, rounds, penalties, scales, weights), for all alike.
"""

import argparse
import json
import time
import warnings

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as nnf
from scipy.sparse.linalg import splu
from scipy.spatial import cKDTree
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import average_precision_score, r2_score
from sklearn.preprocessing import StandardScaler
from torch_geometric.nn import GCN, GraphSAGE
from torch_geometric.utils import to_undirected

import walksum as ws
from walksum.portfolio import clock


def joined(random, group, m, share):
    """m edges, of which a share joins nodes of one group and the others any two."""
    n, order = len(group), np.argsort(group, kind="stable")
    source = random.integers(0, n, m)
    first, last = (np.searchsorted(group[order], group[source], side) for side in ("left", "right"))
    alike = order[first + ((last - first) * random.random(m)).astype(int)]
    target = np.where(random.random(m) < share, alike, random.integers(0, n, m))
    edges = np.stack([source, target])
    return edges[:, source != target]


def near(place, k):
    """Each point with its k nearest."""
    _, other = cKDTree(place).query(place, k + 1)
    return np.stack([np.repeat(np.arange(len(place)), k), other[:, 1:].ravel()])


def ratings(random, n=6000):
    """Products bought together: 600 niches of a smooth quality; five ordinal ratings of a noisy quality, 50 columns."""
    niche = random.integers(0, 600, n)
    level = random.normal(size=600)[niche]
    X = random.normal(size=(n, 50)) + 0.15 * level[:, None] * random.normal(size=50)
    X += 0.6 * random.normal(size=(600, 50))[niche]
    quality = level + 0.8 * random.normal(size=n)
    return X, np.digitize(quality, np.quantile(quality, [0.1, 0.3, 0.6, 0.85])), joined(random, niche, 5 * n, 0.8)


def fraud(random, n=8000):
    """Accounts: 3 % are fraudulent, most in rings; twelve heavy-tailed columns, few of which tell."""
    ring = random.integers(0, 400, n)
    bad = random.random(n) < np.where(random.random(400) < 0.06, 0.4, 0.006)[ring]
    X = np.exp(random.normal(size=(n, 12)) * 1.5)
    X[:, 0] *= np.where(bad, 2.5, 1)
    X[:, 1] *= np.where(bad & (X[:, 2] > 1), 4, 1)
    return X, bad.astype(int), joined(random, ring, 4 * n, 0.6)


def weights(random, n=2000):
    """Four teams: strong ties join colleagues, weak ones anyone; three weak columns."""
    y = random.integers(0, 4, n)
    strong, weak = joined(random, y, n, 0.9), random.integers(0, n, (2, 8 * n))
    weak = weak[:, weak[0] != weak[1]]
    X = random.normal(size=(n, 3)) + 0.5 * np.eye(4)[y][:, :3]
    size = np.r_[random.gamma(5, 2, strong.shape[1]), random.gamma(1, 0.3, weak.shape[1])]
    return X, y, np.concatenate([strong, weak], 1), size


def second(random, n=3000):
    """Readers and books: 60 circles; a circle's readers share a label, its books another, unrelated to each other."""
    circle, reader = random.integers(0, 60, n), np.arange(n) < n // 2
    y = np.where(reader, random.integers(0, 4, 60)[circle], random.integers(0, 4, 60)[circle])
    edges = joined(random, circle, 14 * n, 0.8)
    return random.normal(size=(n, 6)) + 0.3 * reader[:, None], y, edges[:, reader[edges[0]] != reader[edges[1]]]


def forty(random, n=4000):
    """Forty subjects, five labels each to learn from; 60 % of links stay within one; 32 noisy columns."""
    y = random.integers(0, 40, n)
    return 0.45 * random.normal(size=(40, 32))[y] + random.normal(size=(n, 32)), y, joined(random, y, 4 * n, 0.6)


def tiny(random, n=60):
    """Sixty sites on a map, three kinds by place and column."""
    place = random.random((n, 2))
    kind = 2 * np.sin(4 * place[:, 0]) + place[:, 1] + 0.3 * random.normal(size=n)
    X = np.stack([kind + random.normal(size=n), *random.normal(size=(3, n))], 1)
    return X, np.digitize(kind, np.quantile(kind, [0.33, 0.66])), near(place, 4)


def road(random, n=4000):
    """Crossings of a road network; traffic is a smooth hidden field along roads plus a little of two columns."""
    side = int(n**0.5)
    i = np.arange(side * side).reshape(side, side)
    edges = np.concatenate([[i[:-1].ravel(), i[1:].ravel()], [i[:, :-1].ravel(), i[:, 1:].ravel()]], 1)
    edges = edges[:, random.random(edges.shape[1]) < 0.75]
    n = side * side
    _, part = sp.csgraph.connected_components(sp.coo_matrix((np.ones(edges.shape[1]), edges), (n, n)))
    main = part == np.bincount(part).argmax()
    edges, n = (np.cumsum(main) - 1)[edges[:, main[edges[0]]]], int(main.sum())
    A = sp.coo_matrix((np.ones(2 * edges.shape[1]), np.concatenate([edges, edges[::-1]], 1)), (n, n)).tocsr()
    L = sp.diags(np.asarray(A.sum(1)).ravel() + 0.01) - A
    field = splu(L.tocsc()).solve(random.normal(size=n))
    X = random.normal(size=(n, 2))
    return X, field / field.std() + 0.3 * X[:, 0] + 0.3 * random.normal(size=n), edges


def heavy(random, n=3000):
    """Incomes: the exponential of own columns, neighbours' columns and a regional level, so some are enormous."""
    place = random.random((n, 2))
    edges = near(place, 5)
    X = random.normal(size=(n, 5))
    level = np.sin(5 * place[:, 0]) + np.cos(6 * place[:, 1])
    log = 0.8 * X[:, 0] + 0.8 * (neighbour_mean(edges, n) @ X[:, 1]) + level + 0.5 * random.standard_t(4, n)
    return X, np.exp(log), edges


def structure(random, n=3000):
    """Useless columns; the label is told by a node's degree and by which of twelve communities it lies in."""
    community = random.integers(0, 12, n)
    busy = random.random(n) < 0.5
    edges = joined(random, community, 10 * n, 0.85)
    edges = edges[:, (busy[edges[0]] & busy[edges[1]]) | (random.random(edges.shape[1]) < 0.25)]
    y = random.integers(0, 5, (12, 2))[community, busy.astype(int)]
    return random.normal(size=(n, 8)), y, edges


def noise(random, n=3000):
    """Edges at random; three classes by products of ten columns: the graph must not hurt."""
    X = random.normal(size=(n, 10))
    score = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.5 * X[:, 3] + 0.3 * random.normal(size=n)
    return X, np.digitize(score, np.quantile(score, [0.33, 0.66])), joined(random, np.zeros(n, int), 5 * n, 0)


def isolated(random, n=3000):
    """Six topics; a third of the nodes has no edge and is told by twenty columns alone."""
    y = random.integers(0, 6, n)
    edges = joined(random, y, 4 * n, 0.75)
    alone = random.random(n) < 0.33
    X = 0.5 * random.normal(size=(6, 20))[y] + random.normal(size=(n, 20))
    return X, y, edges[:, ~alone[edges].any(0)]


def large(random, n=30_000):
    """Sensors on a map: a number by products of a column and neighbours' mean of another, a hidden field, noise."""
    place = random.random((n, 2))
    edges, X = near(place, 4), random.normal(size=(n, 8))
    mean = neighbour_mean(edges, n) @ X
    y = X[:, 0] * 2 * mean[:, 1] + np.sin(X[:, 2]) + 2 * np.sin(20 * place[:, 0]) * np.sin(17 * place[:, 1])
    return X, y + 0.5 * random.normal(size=n), edges


def arrows(random, n=4000):
    """Pages that link: the class is told by where a page's links go and, otherwise, by who links to it."""
    hidden = random.integers(0, 5, n)
    X = 0.8 * np.eye(5)[hidden] + 0.5 * random.normal(size=(n, 5))
    edges = random.integers(0, n, (2, 6 * n))
    out = sp.coo_matrix((np.ones(6 * n), edges), (n, n)).tocsr()
    to, by = (np.eye(5)[hidden][:, 0], np.eye(5)[hidden][:, 1])
    y = 2 * (out @ to > 1) + (out.T @ by > 1)
    return X, y.astype(int), edges


def holes(random, n=3000):
    """Patients joined by wards: 30 % of cells are empty, and that a test was not done says much itself."""
    ward, X = random.integers(0, 100, n), random.normal(size=(n, 8))
    ill = 1.2 * X[:, 0] + random.normal(size=100)[ward] + 0.7 * random.normal(size=n) + X[:, 1] * X[:, 2]
    empty = random.random((n, 8)) < 0.25
    empty[:, 5] = random.random(n) < 1 / (1 + np.exp(2 * ill))
    return np.where(empty, np.nan, X), (ill > 0.5).astype(int), joined(random, ward, 4 * n, 0.8)


def sizes(random, n=2500):
    """Firms that trade: columns are sizes over six orders of magnitude; a number by their logarithms and partners'."""
    size = random.normal(size=(n, 4)) * 2.5
    sector = random.integers(0, 40, n)
    edges = joined(random, sector, 4 * n, 0.8)
    y = np.sin(0.6 * size[:, 0]) + 0.3 * (neighbour_mean(edges, n) @ size[:, 1]) + 0.7 * random.normal(size=40)[sector]
    return np.exp(size), y + 0.4 * random.normal(size=n), edges


def neighbour_mean(edges, n, weight=None):
    weight = np.ones(edges.shape[1]) if weight is None else weight
    A = sp.coo_matrix((np.tile(weight, 2), np.concatenate([edges, edges[::-1]], 1)), (n, n)).tocsr()
    return sp.diags(1 / np.maximum(np.asarray(A.sum(1)).ravel(), 1e-9)) @ A


def score(out, y, metric):
    if metric == "r2":
        return r2_score(y, out)
    if metric == "mae":
        return -float(np.abs(y - out).mean())
    if metric == "average_precision":
        return average_precision_score(y, out[:, 1])
    return float((out.argmax(1) == y).mean())


class Rivals:
    """Each gives outputs of all rows; the columns are those of the graph, empty cells filled by the median."""

    def __init__(self, X, y, edges, weight, train, val, metric, seed, seconds):
        self.raw, self.y, self.edges, self.train, self.val, self.metric = X, y, edges, train, val, metric
        self.X = np.where(np.isnan(X), np.nanmedian(X, 0), X)
        self.numbers, self.seed, self.seconds = metric in ("r2", "mae"), seed, seconds
        self.weight, self.mean = weight, neighbour_mean(edges, len(y), weight)

    def best(self, tried):
        return max(tried, key=lambda out: score(out[self.val], self.y[self.val], self.metric))

    def boosting(self, X):
        kind = HistGradientBoostingRegressor if self.numbers else HistGradientBoostingClassifier
        model = kind(max_iter=300, learning_rate=0.06, max_leaf_nodes=15, early_stopping=False, random_state=self.seed)
        if not self.numbers and self.y.max() > 10:
            model.set_params(max_iter=60)
        model.fit(X[self.train], self.y[self.train])
        stages = model.staged_predict(X[self.val]) if self.numbers else model.staged_predict_proba(X[self.val])
        scores = [score(self.wide(model, out), self.y[self.val], self.metric) for out in stages]
        model.set_params(max_iter=int(np.argmax(scores)) + 1).fit(X[self.train], self.y[self.train])
        return model.predict(X) if self.numbers else self.wide(model, model.predict_proba(X))

    def wide(self, model, out):
        if self.numbers:
            return out
        full = np.zeros((len(out), int(self.y.max()) + 1))
        full[:, model.classes_] = out
        return full

    def columns(self):
        return self.boosting(self.raw)

    def means(self):
        degree = np.bincount(self.edges.ravel(), minlength=len(self.y))
        return self.boosting(np.concatenate([self.raw, self.mean @ self.X, degree[:, None]], 1))

    def linear(self):
        X, tried = StandardScaler().fit_transform(self.X), []
        for penalty in (0.01, 0.1, 1, 10):
            model = (
                Ridge(penalty * len(self.train) / 10) if self.numbers else LogisticRegression(C=penalty, max_iter=300)
            )
            model.fit(X[self.train], self.y[self.train])
            tried.append(model.predict(X) if self.numbers else self.wide(model, model.predict_proba(X)))
        return self.best(tried)

    def labels(self):
        n = len(self.y)
        known = np.isin(np.arange(n), self.train).astype(float)[:, None]
        Y = self.y[:, None] * known if self.numbers else np.eye(int(self.y.max()) + 1)[self.y] * known
        prior, tried = Y.sum(0) / known.sum(), []
        for keep in (0.5, 0.9, 0.99):
            total, mass = Y.astype(float), known
            for _ in range(60):
                total, mass = (
                    keep * (self.mean @ total) + (1 - keep) * Y,
                    keep * (self.mean @ mass) + (1 - keep) * known,
                )
            out = (total + 1e-4 * prior) / (mass + 1e-4)
            tried.append(out[:, 0] if self.numbers else out)
        return self.best(tried)

    def network(self, kind, settings=((0.01, 0.3), (0.003, 0.3))):
        """Of two layers; validation chooses the learning rate, the dropout and the epoch."""
        x = torch.from_numpy(StandardScaler().fit_transform(self.X)).float()
        both = to_undirected(torch.from_numpy(self.edges), num_nodes=len(self.y))
        extra = {}
        if self.weight is not None and kind is GCN:
            both, w = to_undirected(torch.from_numpy(self.edges), torch.from_numpy(self.weight).float(), len(self.y))
            extra = {"edge_weight": w}
        middle, size = (self.y[self.train].mean(), self.y[self.train].std()) if self.numbers else (0, 1)
        truth = torch.from_numpy((self.y - middle) / size).float() if self.numbers else torch.from_numpy(self.y)
        best, found = -np.inf, np.zeros(0)
        for rate, dropout in settings:
            torch.manual_seed(self.seed)
            model = kind(x.size(1), 64, 2, 1 if self.numbers else int(self.y.max()) + 1, dropout=dropout)
            optimiser, since = torch.optim.Adam(model.parameters(), lr=rate, weight_decay=5e-4), 0
            end = clock.now() + self.seconds / len(settings)
            while clock.now() < end and since < 40:
                for _ in range(2):
                    optimiser.zero_grad()
                    out = model.train()(x, both, **extra)[self.train]
                    loss = (
                        nnf.mse_loss(out[:, 0], truth[self.train])
                        if self.numbers
                        else nnf.cross_entropy(out, truth[self.train])
                    )
                    loss.backward()
                    optimiser.step()
                with torch.no_grad():
                    out = model.eval()(x, both, **extra)
                out = out[:, 0].numpy() * size + middle if self.numbers else out.softmax(1).numpy()
                since += 1
                if (now := score(out[self.val], self.y[self.val], self.metric)) > best:
                    best, found, since = now, out, 0
        return found

    def sage(self):
        return self.network(GraphSAGE)

    def gcn(self):
        return self.network(GCN)


def portfolio(X, y, edges, weight, train, val, metric, seed, budget):
    numbers, kind = metric in ("r2", "mae"), ws.AutoRegressor if metric in ("r2", "mae") else ws.AutoClassifier
    known = np.where(np.isin(np.arange(len(y)), np.r_[train, val]), y, np.nan if numbers else -1)
    if weight is not None:
        graph = ws.Graph.from_edge_index(torch.from_numpy(edges), len(y), edge_weight=torch.from_numpy(weight))
    else:
        graph = sp.coo_matrix((np.ones(edges.shape[1]), edges), (len(y),) * 2).tocsr()
        graph.data[:] = 1
        graph = graph if metric == "directed" else graph.maximum(graph.T)
    model = kind(budget=budget, random_state=seed, metric=None if metric == "directed" else metric)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(X, known, graph, validation=val)
    return model, [str(each.message)[:200] for each in said]


# story, metric, shares that train and judge
KINDS = {
    "ratings": (ratings, "accuracy", 0.5, 0.25),
    "fraud": (fraud, "average_precision", 0.4, 0.2),
    "weights": (weights, "accuracy", 0.3, 0.2),
    "second": (second, "accuracy", 0.4, 0.2),
    "forty": (forty, "accuracy", 0.05, 0.05),
    "tiny": (tiny, "accuracy", 0.5, 0.2),
    "road": (road, "r2", 0.4, 0.2),
    "heavy": (heavy, "r2", 0.4, 0.2),
    "heavy, mae": (heavy, "mae", 0.4, 0.2),
    "structure": (structure, "accuracy", 0.4, 0.2),
    "noise": (noise, "accuracy", 0.4, 0.2),
    "isolated": (isolated, "accuracy", 0.3, 0.2),
    "large": (large, "r2", 0.5, 0.25),
    "arrows": (arrows, "directed", 0.4, 0.2),
    "holes": (holes, "accuracy", 0.4, 0.2),
    "sizes": (sizes, "r2", 0.4, 0.2),
}
METHODS = ("columns", "means", "linear", "labels", "sage", "gcn")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="*", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--methods", nargs="*", choices=("portfolio", *METHODS), default=("portfolio", *METHODS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1])
    parser.add_argument("--budget", type=float, default=20.0)
    parser.add_argument("--cpu", action="store_true", help="the budget counts this process's own time")
    parser.add_argument("--show", action="store_true", help="the portfolio's members")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    if args.cpu:
        torch.set_num_threads(1)
        clock.now = time.process_time
    for seed in args.seeds:
        for name in args.kinds:
            make, metric, learn, judge = KINDS[name]
            X, y, edges, *weight = make(np.random.default_rng(seed))
            weight = weight[0] if weight else None
            order = np.random.default_rng(1000 + seed).permutation(len(y))
            train, val, test = np.split(order, [int(learn * len(y)), int((learn + judge) * len(y))])
            plain = "accuracy" if metric == "directed" else metric
            for method in args.methods:
                began, more = time.monotonic(), {}
                cpu = time.process_time()
                if method == "portfolio":
                    model, said = portfolio(X, y, edges, weight, train, val, metric, seed, args.budget)
                    out = model.transduction_ if plain in ("r2", "mae") else model.label_distributions_
                    more = {
                        "members": len(model.members_),
                        "complete": model.complete_,
                        "warnings": said,
                        "gain": None if model.graph_gain_ is None else np.round(model.graph_gain_, 3).tolist(),
                    }
                    if args.show:
                        more["top"] = [
                            (m["member"], round(m["weight"], 3), round(m["validation"], 4), round(m["seconds"], 1))
                            for m in model.members_
                        ]
                else:
                    out = getattr(Rivals(X, y, edges, weight, train, val, plain, seed, args.budget), method)()
                took = time.monotonic() - began
                record = {"kind": name, "seed": seed, "method": method, "metric": plain,
                          "val": round(score(out[val], y[val], plain), 4),
                          "test": round(score(out[test], y[test], plain), 4),
                          "seconds": round(took, 1), "cpu": round(time.process_time() - cpu, 1),
                          "budget": args.budget, **more}  # fmt: skip
                with open(args.out, "a") as file:
                    file.write(json.dumps(record) + "\n")
                print({k: v for k, v in record.items() if k != "top"}, flush=True)
                for line in more.get("top", []):
                    print("     ", *line, flush=True)


if __name__ == "__main__":
    main()
