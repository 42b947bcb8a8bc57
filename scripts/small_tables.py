"""AutoRegressor and AutoClassifier beside usual choices on small tables of places.

    pip install libpysal && python scripts/small_tables.py tables small.npz        # and counties/ of WALKSUM_DATA
    python scripts/small_tables.py run small.npz --splits 2000 2001 2002 --jobs 16 --out results/auto/small.jsonl
    python scripts/small_tables.py show results/auto/small.jsonl

Tables have 49 to 262 rows, of which 60 % have a known target in a split, or 3,234 counties, of which 160 have; the
others test. Each of the usual estimators learns from own columns and from own columns with neighbour means; "chosen"
is the one of these that 5-fold cross-validation prefers. Classes are thirds of the target.
"""

import argparse
import json
import os
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree
from sklearn import ensemble, gaussian_process, linear_model
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

KNOWN_COUNTIES = 160
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


def usual(columns, classes):
    """Name -> estimator; all that is not stated is scikit-learn's default."""
    kind, state = ("Classifier" if classes else "Regressor"), {"random_state": 0}
    process = ConstantKernel() * RBF(np.ones(columns), (0.1, 1e3))
    if classes:
        linear = linear_model.LogisticRegressionCV(max_iter=2000)
        process = gaussian_process.GaussianProcessClassifier(process)
    else:
        linear = linear_model.RidgeCV(np.logspace(-3, 3, 13))
        process = gaussian_process.GaussianProcessRegressor(process + WhiteKernel(), normalize_y=True)
    return {
        "linear": make_pipeline(StandardScaler(), linear),
        "Gaussian process": make_pipeline(StandardScaler(), process),
        "random forest": getattr(ensemble, f"RandomForest{kind}")(300, **state),
        "extra trees": getattr(ensemble, f"ExtraTrees{kind}")(300, **state),
        "boosting": getattr(ensemble, f"HistGradientBoosting{kind}")(**state),
    }


def with_means(X, edges):
    A = np.zeros((len(X), len(X)))
    A[edges[0], edges[1]] = A[edges[1], edges[0]] = 1
    np.fill_diagonal(A, 0)
    return np.hstack([X, A @ X / np.maximum(A.sum(1), 1)[:, None]])


def measure(path, name, split, classes, budget):
    import torch

    import walksum as ws

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    stored = np.load(path)
    X, y, edges = (stored[f"{name}/{part}"] for part in ("X", "y", "edges"))
    rows = np.random.default_rng(split).permutation(np.nonzero(~np.isnan(y))[0])
    count = KNOWN_COUNTIES if "counties" in name else int(0.6 * len(rows))
    known, test = rows[:count], rows[count:]
    truth = np.digitize(y, np.quantile(y[rows], [1 / 3, 2 / 3])) if classes else y
    scores, judged = {}, {}
    for table, columns in (("", X), (", neighbour means", with_means(X, edges))):
        for kind, estimator in usual(columns.shape[1], classes).items():
            judged[kind + table] = cross_val_score(clone(estimator), columns[known], truth[known], cv=5).mean()
            scores[kind + table] = estimator.fit(columns[known], truth[known]).score(columns[test], truth[test])
    scores["chosen"] = scores[max(judged, key=judged.get)]
    hidden = np.full(len(y), -1 if classes else np.nan)
    hidden[known] = truth[known]
    auto = (ws.AutoClassifier if classes else ws.AutoRegressor)(budget, random_state=split).fit(X, hidden, edges)
    found = {"table": name, "split": split, "classes": classes, "known": count, "budget": budget}
    if classes:
        scores["auto"] = float((auto.predict(X)[test] == truth[test]).mean())
    else:
        mean, deviation = auto.predict(X, return_std=True)
        error = (mean - y)[test]
        scores["auto"] = float(1 - (error**2).sum() / ((y[test] - y[test].mean()) ** 2).sum())
        found["coverage"] = float((np.abs(error) <= 1.96 * deviation[test]).mean())
    return found | {"seconds": auto.seconds_, "complete": auto.complete_, "scores": scores}


def run(path, splits, budget, jobs, out):
    names = sorted({key.split("/")[0] for key in np.load(path).files})
    asked = [(path, name, split, kind, budget) for split in splits for name in names for kind in (False, True)]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool, open(out, "a") as file:
        for done in as_completed([pool.submit(measure, *each) for each in asked]):
            print(json.dumps(done.result()), file=file, flush=True)


def show(path):
    """Means over splits; the last row is the mean over tables."""
    records = [json.loads(line) for line in Path(path).read_text().splitlines()]
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("tables", "run", "show"))
    parser.add_argument("path")
    parser.add_argument("--splits", type=int, nargs="+", default=[2000])
    parser.add_argument("--budget", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", default="small.jsonl")
    asked = parser.parse_args()
    if asked.action == "run":
        run(asked.path, asked.splits, asked.budget, asked.jobs, asked.out)
    else:
        {"tables": write_tables, "show": show}[asked.action](asked.path)
