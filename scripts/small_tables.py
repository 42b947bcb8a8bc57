"""AutoRegressor and AutoClassifier beside usual choices on small tables of places and on real graphs.

    pip install libpysal && python scripts/small_tables.py tables small.npz        # and counties/ of WALKSUM_DATA
    python scripts/small_tables.py run small.npz --splits 2000 2001 2002 --jobs 16 --out results/auto/small.jsonl
    python scripts/small_tables.py show results/auto/small.jsonl

Tables have 49 to 262 rows, of which 60 % have a known target in a split, or 3,234 counties, of which 160 have; the
others test. Each of the usual estimators learns from own columns and from own columns with neighbour means; "chosen"
is the one of these that 5-fold cross-validation prefers. Classes are thirds of the target.

    python scripts/small_tables.py run real.npz --splits 4000 4001 --budget 20 --cpu --out results/auto/real.jsonl

Graphs of scripts/real_graphs.py have their own share of known rows, classes where they say so, and further rivals:
label propagation, GCN, GraphSAGE and GAT of PyG, for which a fifth of the known rows chooses. The same fifth chooses
"chosen" there; estimators are fitted again to all known rows, networks and label propagation are not.
"""

import argparse
import json
import os
import time
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from real_graphs import GRAPHS
from scipy.spatial import cKDTree
from sklearn import ensemble, gaussian_process, linear_model
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

KNOWN_COUNTIES = 160
LARGEST_PROCESS, LARGEST_FOREST, MOST_COLUMNS = 300, 3000, 200
NETWORK_SECONDS = 10  # of all settings of one network
SETTINGS = ((0.01, 0.5), (0.01, 0.1), (0.003, 0.3))  # learning rate, dropout
BALTIMORE = "NROOM DWELL NBATH PATIO FIREPL AC BMENT NSTOR GAR AGE CITCOU LOTSZ SQFT"
GEORGIA = "TotPop90 PctRural PctEld PctFB PctBlack"
SOURCES = (  # name, file, target, columns, neighbours: a file of them, or the columns of places
    ("baltimore price", "baltim/baltim.dbf", "PRICE", BALTIMORE, ["X", "Y"]),
    ("georgia degrees", "georgia/GData_utm.csv", "PctBach", f"{GEORGIA} PctPov", ["X", "Y"]),
    ("georgia poverty", "georgia/GData_utm.csv", "PctPov", f"{GEORGIA} PctBach", ["X", "Y"]),
    ("columbus crime", "columbus/columbus.dbf", "CRIME", "INC HOVAL OPEN PLUMB DISCBD", "columbus/columbus.gal"),
    ("sids rate", "sids2/sids2.dbf", "SIDR79", "BIR74 SIDR74 NWR74 NWR79 BIR79", "sids2/sids2.gal"),
    ("sids nonwhite", "sids2/sids2.dbf", "NWR79", "BIR74 BIR79 SIDR79", "sids2/sids2.gal"),
    ("st louis homicides", "stl/stl_hom.dbf", "HR8893", "PE87 RDAC90 PO8893 PE82", "stl/stl.gal"),
    ("st louis deprivation", "stl/stl_hom.dbf", "RDAC90", "PE87 PO8893 HR8893", "stl/stl.gal"),
    ("tokyo unemployment", "tokyo/Tokyomortality.csv", "UNEMP", "OCC_TEC OWNH POP65", ["X_CENTROID", "Y_CENTROID"]),
)


def write_tables(path):
    """One archive of ``name/X``, ``name/y`` and ``name/edges``."""
    import libpysal
    import pandas as pd

    folder, arrays = Path(libpysal.__path__[0]) / "examples", {}
    for name, file, target, columns, near in SOURCES:
        if file.endswith(".csv"):
            table = pd.read_csv(folder / file)
        else:
            rows = libpysal.io.open(str(folder / file))
            table = pd.DataFrame(list(rows), columns=rows.header)
        if isinstance(near, list):
            places = table[near].to_numpy(float)
            others = cKDTree(places).query(places, 6)[1][:, 1:]
            edges = np.stack([np.repeat(np.arange(len(places)), 5), others.ravel()])
        else:
            weights = libpysal.io.open(str(folder / near)).read()
            place = {key: row for row, key in enumerate(weights.id_order)}
            edges = np.array([(place[i], place[j]) for i in weights.id_order for j in weights.neighbors[i]]).T
        arrays |= {f"{name}/X": table[columns.split()].to_numpy(float), f"{name}/y": table[target].to_numpy(float)}
        arrays[f"{name}/edges"] = edges
    counties = Path(os.environ["WALKSUM_DATA"]) / "counties"
    nodes, pairs = pd.read_csv(counties / "nodes.csv"), pd.read_csv(counties / "edges.csv")
    place = {key: row for row, key in enumerate(nodes.iloc[:, 0])}
    edges = pairs.iloc[:, :2].map(place.get).dropna().to_numpy(int).T
    numbers = nodes.iloc[:, 1:].select_dtypes("number")
    for target in ("bachelor_rate", "unemployment_rate", "election_margin"):
        X = numbers.drop(columns=target)
        name = f"few counties, {target.replace('_', ' ')}"
        arrays |= {f"{name}/X": X.fillna(X.median()).to_numpy(float), f"{name}/y": numbers[target].to_numpy(float)}
        arrays[f"{name}/edges"] = edges
    np.savez_compressed(path, **arrays)


def usual(columns, classes, known=0):
    """Name -> estimator; all that is not stated is scikit-learn's default."""
    kind, state = ("Classifier" if classes else "Regressor"), {"random_state": 0}
    process = ConstantKernel() * RBF(np.ones(columns), (0.1, 1e3))
    if classes:
        linear = linear_model.LogisticRegressionCV(max_iter=2000)
        process = gaussian_process.GaussianProcessClassifier(process)
    else:
        linear = linear_model.RidgeCV(np.logspace(-3, 3, 13))
        process = gaussian_process.GaussianProcessRegressor(process + WhiteKernel(), normalize_y=True)
    trees = 300 if known <= LARGEST_FOREST else 100
    found = {
        "linear": make_pipeline(StandardScaler(), linear),
        "Gaussian process": make_pipeline(StandardScaler(), process),
        "random forest": getattr(ensemble, f"RandomForest{kind}")(trees, **state),
        "extra trees": getattr(ensemble, f"ExtraTrees{kind}")(trees, **state),
        "boosting": getattr(ensemble, f"HistGradientBoosting{kind}")(**state),
    }
    if known > LARGEST_PROCESS or (classes and columns > MOST_COLUMNS):
        del found["Gaussian process"]
    if classes and columns > MOST_COLUMNS and known > LARGEST_PROCESS:
        del found["boosting"]
    return found


def with_means(X, edges):
    A = np.zeros((len(X), len(X)))
    A[edges[0], edges[1]] = A[edges[1], edges[0]] = 1
    np.fill_diagonal(A, 0)
    return np.hstack([X, A @ X / np.maximum(A.sum(1), 1)[:, None]])


def known_rows(y, name, split):
    """Rows of which the target is known, and the others."""
    rows = np.random.default_rng(split).permutation(np.nonzero(~np.isnan(y))[0])
    share = GRAPHS[name][2] if name in GRAPHS else 0.6
    if share >= 1:
        known = np.sort(np.concatenate([rows[y[rows] == each][:share] for each in np.unique(y)]))
        return known, np.setdiff1d(rows, known)
    count = KNOWN_COUNTIES if "counties" in name else int(share * len(rows))
    return rows[:count], rows[count:]


def usual_scores(X, truth, edges, known, test, classes):
    """Of the estimators, and what cross-validation chose of them."""
    scores, judged = {}, {}
    for table, columns in (("", X), (", neighbour means", with_means(X, edges))):
        for kind, estimator in usual(columns.shape[1], classes).items():
            judged[kind + table] = cross_val_score(clone(estimator), columns[known], truth[known], cv=5).mean()
            scores[kind + table] = estimator.fit(columns[known], truth[known]).score(columns[test], truth[test])
    return scores | {"chosen": scores[max(judged, key=judged.get)]}


def rival_scores(X, truth, edges, weight, known, test, classes, split):
    """The same on a graph, where a fifth of the known rows chooses, and networks of PyG and label propagation."""
    from made_kinds import Rivals, neighbour_mean, score
    from torch_geometric.nn import GAT, GCN, GraphSAGE

    metric = "accuracy" if classes else "r2"
    cut = np.random.default_rng(split + 1).permutation(known)
    val, train = np.split(cut, [len(cut) // 5])
    X = np.where(np.isnan(X), np.nanmedian(X[known], 0), X)
    degree = np.bincount(edges.ravel(), minlength=len(X))[:, None]
    tables = {"": X, ", neighbour means": np.hstack([X, neighbour_mean(edges, len(X), weight) @ X, degree])}
    scores, judged = {}, {}
    for table, columns in tables.items():
        for kind, estimator in usual(columns.shape[1], classes, len(known)).items():
            judged[kind + table] = clone(estimator).fit(columns[train], truth[train]).score(columns[val], truth[val])
            scores[kind + table] = estimator.fit(columns[known], truth[known]).score(columns[test], truth[test])
    rivals = Rivals(X, truth, edges, weight, train, val, metric, split, NETWORK_SECONDS)
    for name, out in (("GCN", GCN), ("GraphSAGE", GraphSAGE), ("GAT", GAT), ("label propagation", None)):
        answer = rivals.network(out, SETTINGS) if out else rivals.labels()
        judged[name], scores[name] = (score(answer[rows], truth[rows], metric) for rows in (val, test))
    return scores | {"chosen": scores[max(judged, key=judged.get)]}


def measure(path, name, split, classes, budget, cpu=False, who="both"):
    import torch

    import walksum as ws
    from walksum.portfolio import clock

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    if cpu:
        clock.now = time.process_time
    stored = np.load(path)
    X, y, edges = (stored[f"{name}/{part}"] for part in ("X", "y", "edges"))
    weight = stored.get(f"{name}/weight")
    known, test = known_rows(y, name, split)
    truth = y
    if classes and name not in GRAPHS:
        truth = np.digitize(y, np.quantile(y[~np.isnan(y)], [1 / 3, 2 / 3]))
    scores, found = {}, {"table": name, "split": split, "classes": classes, "known": len(known), "budget": budget}
    if who != "auto" and name in GRAPHS:
        scores = rival_scores(X, truth, edges, weight, known, test, classes, split)
    elif who != "auto":
        scores = usual_scores(X, truth, edges, known, test, classes)
    if who == "rivals":
        return found | {"scores": scores}
    hidden = np.full(len(y), -1 if classes else np.nan)
    hidden[known] = truth[known]
    graph = edges
    if weight is not None:
        graph = sp.coo_matrix((weight, edges), (len(y), len(y))).tocsr()
    start = time.process_time()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        auto = (ws.AutoClassifier if classes else ws.AutoRegressor)(budget, random_state=split).fit(X, hidden, graph)
    found["cpu"] = round(time.process_time() - start, 1)
    if classes:
        share = auto.label_distributions_
        scores["auto"] = float((auto.transduction_[test] == truth[test]).mean())
        judged = auto.portfolio_.here().value[known].argmax(1) == np.searchsorted(auto.classes_, truth[known])
        likely = share[test, np.searchsorted(auto.classes_, truth[test])]
        found |= {"judged": float(judged.mean()), "log loss": float(-np.log(likely + 1e-12).mean())}
    else:
        mean, deviation = auto.transduction_, auto.std_
        error = (mean - y)[test]
        scores["auto"] = float(1 - (error**2).sum() / ((y[test] - y[test].mean()) ** 2).sum())
        found["judged"] = float(1 - ((mean - y)[known] ** 2).sum() / ((y[known] - y[known].mean()) ** 2).sum())
        found["coverage"] = float((np.abs(error) <= 1.96 * deviation[test]).mean())
    found |= {"members": [[m["member"], round(m["weight"], 3), round(m["validation"], 4)] for m in auto.members_[:6]]}
    found["warnings"] = [str(each.message)[:200] for each in said]
    return found | {"seconds": auto.seconds_, "complete": auto.complete_, "scores": scores}


def run(path, splits, budget, jobs, out, cpu, who, only):
    names = sorted({key.split("/")[0] for key in np.load(path).files})
    names = [name for name in GRAPHS if name in names] or names
    names = [name for name in names if not only or any(word in name for word in only)]
    asked = [(path, name, split, kind, budget, cpu, who) for split in splits for name in names
             for kind in ([GRAPHS[name][1]] if name in GRAPHS else [False, True])]  # fmt: skip
    if jobs == 1:
        for each in asked:
            with open(out, "a") as file:
                print(json.dumps(measure(*each)), file=file)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool, open(out, "a") as file:
        for done in as_completed([pool.submit(measure, *each) for each in asked]):
            print(json.dumps(done.result()), file=file, flush=True)


def show(path):
    """Means over splits; the last row is the mean over tables."""
    records = [json.loads(line) for line in Path(path).read_text().splitlines()]
    if records[0]["table"] in GRAPHS:
        return show_graphs(records)
    for classes in (False, True):
        tables = defaultdict(list)
        for record in records:
            if record["classes"] == classes:
                tables[record["table"]].append(record)
        methods = list(records[0]["scores"])
        means = {name: [np.mean([r["scores"][m] for r in of]) for m in methods] for name, of in sorted(tables.items())}
        print("| |", " | ".join(methods), "|" if classes else "| coverage |")
        for name, row in (means | {"mean": np.mean(list(means.values()), 0)}).items():
            of = tables.get(name) or [r for r in records if r["classes"] == classes]
            coverage = [] if classes else [np.mean([r["coverage"] for r in of])]
            print(f"| {name} |", " | ".join(f"{value:.3f}" for value in [*row, *coverage]), "|")


def show_graphs(records):
    """Of each graph AutoX, what validation chose of the rivals and the best of these after the fact, over splits."""
    joined = {}
    for record in records:
        key = record["table"], record["split"]
        before = joined.get(key, {"scores": {}})
        joined[key] = before | record | {"scores": before["scores"] | record["scores"]}
    records = [record for record in joined.values() if "auto" in record["scores"] and len(record["scores"]) > 1]
    print("| graph | known | AutoX | chosen rival | best rival | AutoX - best, by split | coverage | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for name in [name for name in GRAPHS if any(record["table"] == name for record in records)]:
        of = [record for record in records if record["table"] == name]
        means = {method: np.mean([r["scores"][method] for r in of]) for method in of[0]["scores"]}
        best = max((method for method in means if method not in ("auto", "chosen")), key=means.get)
        gains = " ".join(f"{r['scores']['auto'] - r['scores'][best]:+.3f}" for r in of)
        cover = "" if of[0]["classes"] else f"{np.mean([r['coverage'] for r in of]):.3f}"
        shown = f"{means['auto']:.3f} | {means['chosen']:.3f} | {means[best]:.3f} ({best}) | {gains} | {cover}"
        print(f"| {name} | {of[0]['known']} | {shown} | {max(r['cpu'] for r in of):.0f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("tables", "run", "show"))
    parser.add_argument("path")
    parser.add_argument("--splits", type=int, nargs="+", default=[2000])
    parser.add_argument("--budget", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cpu", action="store_true", help="the budget counts this process's own time")
    parser.add_argument("--who", choices=("both", "auto", "rivals"), default="both", help="show joins their records")
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    parser.add_argument("--out", default="small.jsonl")
    asked = parser.parse_args()
    if asked.action == "run":
        run(asked.path, asked.splits, asked.budget, asked.jobs, asked.out, asked.cpu, asked.who, asked.only)
    else:
        {"tables": write_tables, "show": show}[asked.action](asked.path)
