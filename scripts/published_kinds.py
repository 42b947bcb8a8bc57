"""AutoClassifier and AutoRegressor beside usual choices on made graphs, each in the likeness of a published family.

    python scripts/published_kinds.py --seeds 0 1 --budget 20 --cpu --out results/auto/published.jsonl

The rivals are those of made_kinds.py and PyG's GAT and APPNP, a network without edges, a forest, and logistic or ridge
regression with neighbour means and on eigenvectors. Training rows are learned from and validation rows choose, for all
alike. Of published datasets the splits are 100 and on, which no table counts; --sources names the commit measured.
"""

import argparse
import json
import time
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from made_kinds import Rivals, joined, near, neighbour_mean, portfolio
from made_kinds import score as plain_score
from scipy.sparse.linalg import eigsh
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.metrics import roc_auc_score
from torch_geometric.nn import APPNP, GAT, MLP

from walksum.data import load, make_split
from walksum.portfolio import clock


def embedded(random, group, columns, strength):
    """Dense columns: the mean of a group, and noise."""
    mean = strength * random.normal(size=(group.max() + 1, columns))
    return mean[group] + random.normal(size=(len(group), columns))


def hubs(random, n, m, alike=None, share=0.0):
    """m edges between nodes of unequal fame; of a share the second end is the one of six that is most alike."""
    fame = random.pareto(1.6, n) + 0.2
    a, met = (random.choice(n, size, p=fame / fame.sum()) for size in (m, (m, 6)))
    b = met[:, 0]
    if alike is not None:
        closest = met[np.arange(m), ((alike[met] - alike[a][:, None]) ** 2).sum(-1).argmin(1)]
        b = np.where(random.random(m) < share, closest, b)
    return np.stack([a, b])[:, a != b]


def words(random, group, count, length, share):
    """Words of each node ``[N, count]``: a share of them is drawn from those of its group."""
    usual = 1 / np.arange(3, count + 3) ** 0.8
    usual /= usual.sum()
    own, rows, columns = random.dirichlet(50 * usual + 1e-3, group.max() + 1), [], []
    for i, k in enumerate(np.maximum(2, random.poisson(length, len(group)))):
        mine = random.binomial(k, share)
        found = np.r_[random.choice(count, mine, p=own[group[i]]), random.choice(count, k - mine, p=usual)]
        columns.append(np.unique(found))
        rows.append(np.full(len(columns[-1]), i))
    rows, columns = np.concatenate(rows), np.concatenate(columns)
    return sp.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), (len(group), count))


def syntax(random, n=4500):
    """Words in a row (as Roman empire): 18 roles by a word's own kind and its neighbours' kinds, 300 columns."""
    kinds, follows = np.zeros(n, int), random.dirichlet(np.full(12, 0.35), 12)
    for k in range(1, n):
        kinds[k] = random.choice(12, p=follows[kinds[k - 1]])
    head = np.clip(np.arange(n) + random.choice([-4, -3, 3, 4], n), 0, n - 1)
    some = (random.random(n) < 0.4) & (head != np.arange(n))
    edges = np.concatenate([[np.arange(n - 1), np.arange(1, n)], [np.nonzero(some)[0], head[some]]], 1)
    seen = np.zeros((n, 12), int)
    for a, b in (edges, edges[::-1]):
        seen[a, kinds[b]] = 1
    y = random.integers(0, 18, (12, 2, 2))[kinds, seen[:, 2], seen[np.arange(n), (5 * kinds) % 12]]
    y = np.where(random.random(n) < 0.08, random.integers(0, 18, n), y)
    return embedded(random, kinds, 300, 0.25), y, edges


def stars(random, n=5000):
    """Products bought together (as Amazon ratings): five ordinal marks of a smooth quality, 300 weak columns."""
    niche = random.integers(0, 500, n)
    level = random.normal(size=500)[niche]
    X = embedded(random, niche, 300, 0.3) + 0.12 * level[:, None] * random.normal(size=300)
    quality = level + 0.9 * random.normal(size=n)
    return X, np.digitize(quality, np.quantile(quality, [0.1, 0.3, 0.6, 0.85])), joined(random, niche, 5 * n, 0.8)


def workers(random, n=6000):
    """Workers on common tasks (as Tolokers): a fifth is banned, dense ties, ten columns of shares and yes or no."""
    task, care = random.integers(0, 60, n), random.normal(size=n)
    X = np.concatenate([1 / (1 + np.exp(-random.normal(size=(n, 6)))), random.random((n, 4)) < 0.3], 1)
    X[:, 0] = 1 / (1 + np.exp(-care - random.normal(size=n)))
    hard = random.normal(size=60)[task]
    edges = joined(random, task, 25 * n, 0.5)
    return X, (1.2 * care * (X[:, 7] > 0) + hard + random.normal(size=n) > 1.4).astype(int), edges


def questions(random, n=10_000):
    """Users who answer each other (as Questions): 3 % leave; 300 columns of interests, hubs; few columns tell."""
    topic = random.integers(0, 50, n)
    X = embedded(random, topic, 300, 0.5)
    edges = hubs(random, n, 3 * n)
    degree = np.bincount(edges.ravel(), minlength=n)
    odds = -4.6 + 0.8 * X[:, 3] - 0.8 * X[:, 10] + 1.2 * random.normal(size=50)[topic] - 0.3 * np.log1p(degree)
    return X, (random.random(n) < 1 / (1 + np.exp(-odds))).astype(int), edges


def actors(random, n=5000):
    """Actors on common pages (as Actor): 900 words tell a little of five kinds, edges nothing."""
    y = random.integers(0, 5, n)
    return words(random, y, 900, 8, 0.15), y, hubs(random, n, 4 * n)


def fields(random, n=8000):
    """Papers of 70 fields (as Cora full): 2,500 words, 20 labels per field."""
    y = random.choice(70, n, p=random.dirichlet(np.full(70, 4.0)))
    return words(random, y, 2500, 40, 0.15), y, joined(random, y, 4 * n, 0.55)


def club(random, n=34):
    """Zachary's karate club: two sides, four members known, no columns."""
    import networkx

    graph = networkx.karate_club_graph()
    y = np.array([graph.nodes[k]["club"] == "Officer" for k in range(n)]).astype(int)
    return np.zeros((n, 1)), y, np.array(graph.edges).T


def linked(random, group, m, share, tail=2.0):
    """m edges between nodes of unequal fame, of which a share joins nodes of one group."""
    fame = random.pareto(tail, len(group)) + 0.3
    a, b = random.choice(len(group), (2, m), p=fame / fame.sum())
    for k in range(group.max() + 1):
        mine, here = np.nonzero(group == k)[0], (group[a] == k) & (random.random(m) < share)
        b[here] = random.choice(mine, here.sum(), p=fame[mine] / fame[mine].sum())
    return np.stack([a, b])[:, a != b]


def mail(random, n=1000):
    """Mail within an institute (as email-Eu-core): 42 departments of unequal size, hubs, no columns."""
    y = random.choice(42, n, p=random.dirichlet(np.full(42, 1.5)))
    y = np.unique(y, return_inverse=True)[1]
    return np.zeros((n, 1)), y, linked(random, y, 12 * n, 0.4)


def blogs(random, n=4000):
    """Blogs that link (as BlogCatalog): eight circles, of which three hide in one label; hubs, no columns."""
    circle = random.integers(0, 8, n)
    return np.zeros((n, 1)), np.minimum(circle, 5), linked(random, circle, 5 * n, 0.45)


def influence(random, n=5000):
    """Accounts with hubs: reach by an own column and friends' activity, a product of two of their columns."""
    X = random.normal(size=(n, 8))
    edges = hubs(random, n, 6 * n, X[:, :1], 0.3)
    active = neighbour_mean(edges, n) @ np.maximum(X[:, 1] * X[:, 2], 0)
    y = np.sin(2 * X[:, 0]) + 3 * active * (X[:, 3] > 0) + 0.2 * np.log1p(np.bincount(edges.ravel(), minlength=n))
    return X, y + 0.3 * random.normal(size=n), edges


def atoms(random, molecules=500):
    """Atoms of 500 molecules (as quantum properties of atoms): a charge by kinds of near atoms and theirs."""
    sizes = random.integers(6, 18, molecules)
    n, ends = sizes.sum(), np.r_[0, np.cumsum(sizes)]
    pairs = [(low + random.integers(max(0, k - 3), k), low + k)
             for low, size in zip(ends, sizes, strict=False) for k in range(1, size)]  # fmt: skip
    rings = [(low, low + 5) for low, size in zip(ends, sizes, strict=False) if size > 8 and random.random() < 0.5]
    edges = np.array(pairs + rings).T
    kind, A = random.choice(6, n, p=[0.4, 0.2, 0.15, 0.1, 0.1, 0.05]), neighbour_mean(edges, n)
    pull = random.normal(size=6)
    first = np.tanh(A @ pull[kind] + random.normal(size=6)[kind])
    y = np.tanh(2 * (A @ first) - first) + 0.5 * pull[kind] * (A @ (kind == 1))
    return np.eye(6)[kind], y + 0.1 * random.normal(size=n), edges


def cases(random, n=4000):
    """Cases of an illness by district: counts of small rates, populations of three orders of magnitude."""
    place = random.random((n, 2))
    people, X = np.exp(1.5 * random.normal(size=n) + 6), random.normal(size=(n, 4))
    rate = np.exp(-5 + 0.5 * X[:, 0] + np.sin(6 * place[:, 0]) * np.cos(5 * place[:, 1]))
    return np.c_[people, X], random.poisson(people * rate).astype(float), near(place, 5)


def signed(random, n=2500):
    """Genes joined by correlations of either sign: two states; a negative tie joins unlike ones. Four weak columns."""
    y = random.integers(0, 2, n)
    edges = random.integers(0, n, (2, 6 * n))
    edges = edges[:, edges[0] != edges[1]]
    same = y[edges[0]] == y[edges[1]]
    sign = np.where(random.random(edges.shape[1]) < 0.3, random.choice([-1, 1], edges.shape[1]), np.where(same, 1, -1))
    return random.normal(size=(n, 4)) + 0.3 * (2 * y[:, None] - 1), y, edges, sign * random.gamma(3, 0.2, len(sign))


def viewers(random, n=3000, films=1000):
    """Viewers and films: a viewer's age by the kinds of films seen; films have columns, viewers hardly any."""
    kind = random.integers(0, 25, films)
    middle = random.normal(size=25)
    age = random.normal(size=n)
    near_kind = np.exp(-1.5 * (age[:, None] - middle) ** 2) + 0.02
    seen = [random.choice(25, 8, p=row / row.sum()) for row in near_kind]
    of = [np.nonzero(kind == k)[0] for k in range(25)]
    film = np.array([[random.choice(of[k]) for k in row] for row in seen])
    edges = np.stack([np.repeat(np.arange(n), 8), n + film.ravel()])
    X = np.zeros((n + films, 12))
    X[:n, 0], X[:n, 1], X[n:, 2:] = 1, random.normal(size=n), embedded(random, kind, 10, 1.0)
    return X, np.r_[age, np.full(films, np.nan)], edges


def score(out, y, metric):
    return roc_auc_score(y, out[:, 1]) if metric == "roc_auc" else plain_score(out, y, metric)


class More(Rivals):
    def __init__(self, X, *rest):
        super().__init__(X.toarray() if sp.issparse(X) else X, *rest)

    def best(self, tried):
        return max(tried, key=lambda out: score(out[self.val], self.y[self.val], self.metric))

    def spectral(self):
        """Logistic regression on the leading eigenvectors of the normalised adjacency."""
        n, ones = len(self.y), np.ones(self.edges.shape[1])
        A = sp.coo_matrix((ones, self.edges), (n, n)).tocsr()
        A = ((A + A.T) > 0).astype(float) + sp.eye(n)
        root = sp.diags(np.asarray(A.sum(1)).ravel() ** -0.5)
        own, tried = self.X, []
        vectors = eigsh(root @ A @ root, 64)[1][:, ::-1]
        for count in (16, 64):
            self.X = root @ vectors[:, :count]
            tried.append(self.linear())
        self.X = own
        return self.best(tried)

    def network(self, kind):
        """Where there are no columns each node is told its own number, as usual."""
        own = self.X
        self.X = np.eye(len(own)) if (own == own[0]).all() else own
        try:
            return super().network(kind)
        finally:
            self.X = own

    def forest(self):
        kind = RandomForestRegressor if self.numbers else RandomForestClassifier
        tried = []
        for leaf in (1, 5):
            model = kind(200, min_samples_leaf=leaf, max_features=0.3, random_state=self.seed)
            X = np.concatenate([self.X, self.mean @ self.X], 1)
            model.fit(X[self.train], self.y[self.train])
            tried.append(model.predict(X) if self.numbers else self.wide(model, model.predict_proba(X)))
        return self.best(tried)

    def linear_means(self):
        own, self.X = self.X, np.concatenate([self.X, self.mean @ self.X], 1)
        try:
            return self.linear()
        finally:
            self.X = own

    def gat(self):
        return self.network(partial(GAT, heads=4))

    def appnp(self):
        return self.network(Appnp)

    def mlp(self):
        return self.network(Alone)


class Alone(torch.nn.Module):
    def __init__(self, columns, hidden, layers, out, dropout):
        super().__init__()
        self.inner = MLP([columns, hidden, out], dropout=dropout, norm=None)

    def forward(self, x, edges):
        return self.inner(x)


class Appnp(Alone):
    def __init__(self, *sizes, dropout):
        super().__init__(*sizes, dropout)
        self.spread = APPNP(10, 0.1)

    def forward(self, x, edges):
        return self.spread(self.inner(x), edges)


# story, metric, shares that train and judge
KINDS = {
    "syntax": (syntax, "accuracy", 0.5, 0.25),
    "stars": (stars, "accuracy", 0.5, 0.25),
    "workers": (workers, "roc_auc", 0.5, 0.25),
    "questions": (questions, "roc_auc", 0.5, 0.25),
    "actors": (actors, "accuracy", 0.48, 0.32),
    "fields": (fields, "accuracy", 0.17, 0.17),
    "club": (club, "accuracy", 0.06, 0.06),
    "mail": (mail, "accuracy", 0.3, 0.2),
    "blogs": (blogs, "accuracy", 0.05, 0.05),
    "influence": (influence, "r2", 0.4, 0.2),
    "atoms": (atoms, "r2", 0.4, 0.2),
    "cases": (cases, "r2", 0.4, 0.2),
    "signed": (signed, "accuracy", 0.2, 0.1),
    "viewers": (viewers, "r2", 0.4, 0.2),
}
PUBLISHED = ("cora", "citeseer", "pubmed", "texas", "wisconsin")
ON_COLUMNS = ("columns", "means", "forest", "linear", "linear_means", "labels", "spectral")
METHODS = (*ON_COLUMNS, "mlp", "sage", "gcn", "gat", "appnp")


def published(name, seed):
    data = load(name)
    split = make_split(data, "random", 100 + seed, name=name)
    rows = [part.numpy() for part in (split.train, split.val, split.test)]
    return sp.csr_matrix(data.x.numpy()), data.y.numpy(), data.edge_index.numpy(), rows


def distributions(model, y):
    """One column per class, also of those that no known row has."""
    out = np.zeros((len(y), int(y.max()) + 1))
    out[:, model.classes_.astype(int)] = model.label_distributions_
    return out


def rows_of(random, y, learn, judge):
    order = random.permutation(np.nonzero(~np.isnan(y))[0])
    return np.split(order, [int(learn * len(order)), int((learn + judge) * len(order))])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="*", choices=[*KINDS, *PUBLISHED], default=list(KINDS))
    parser.add_argument("--methods", nargs="*", choices=("portfolio", *METHODS), default=("portfolio", *METHODS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1])
    parser.add_argument("--budget", type=float, default=20.0)
    parser.add_argument("--cpu", action="store_true", help="budgets count this process's own time")
    parser.add_argument("--show", action="store_true", help="the portfolio's members")
    parser.add_argument("--sources", default="")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    if args.cpu:
        torch.set_num_threads(1)
        clock.now = time.process_time
    for seed in args.seeds:
        for name in args.kinds:
            metric, weight = "accuracy", []
            if name in PUBLISHED:
                X, y, edges, (train, val, test) = published(name, seed)
            else:
                make, metric, learn, judge = KINDS[name]
                X, y, edges, *weight = make(np.random.default_rng(seed))
                train, val, test = rows_of(np.random.default_rng(1000 + seed), y, learn, judge)
            weight = weight[0] if weight else None
            for method in args.methods:
                cpu, more = time.process_time(), {}
                if method == "portfolio":
                    model, said = portfolio(X, y, edges, weight, train, val, metric, seed, args.budget)
                    out = model.transduction_ if metric == "r2" else distributions(model, y)
                    more = {"members": len(model.members_), "complete": model.complete_, "warnings": said}
                    if args.show:
                        more["top"] = [
                            (m["member"], round(m["weight"], 3), round(m["validation"], 4), round(m["seconds"], 1))
                            for m in model.members_
                        ]
                elif weight is not None and method in ("sage", "gat") and (weight < 0).any():
                    continue
                else:
                    rivals = More(X, y, edges, weight, train, val, metric, seed, args.budget / 2)
                    out = getattr(rivals, method)()
                record = {"sources": args.sources, "kind": name, "seed": seed, "method": method, "metric": metric,
                          "val": round(score(out[val], y[val], metric), 4),
                          "test": round(score(out[test], y[test], metric), 4), "rows": len(test),
                          "cpu": round(time.process_time() - cpu, 1), "budget": args.budget, **more}  # fmt: skip
                with open(args.out, "a") as file:
                    file.write(json.dumps(record) + "\n")
                print({k: v for k, v in record.items() if k != "top"}, flush=True)
                for line in more.get("top", []):
                    print("     ", *line, flush=True)


if __name__ == "__main__":
    main()
