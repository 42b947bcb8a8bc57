"""Points without an edge table: the portfolio beside gradient boosting and kriging, on ten random splits.

The tables come inside the package libpysal: prices of houses in Baltimore, the share of people with a degree in the
counties of Georgia, and the mortality of municipalities around Tokyo (deaths over expected deaths). "field" is a
synthetic draw whose best predictor is known: kriging with the parameters it was drawn with.

    python -m benchmarks.points             # measure what is missing, then print the table
    python -m benchmarks.points --print     # print the table alone
    python -m benchmarks.points --first 20  # ten other splits

Every contestant learns from the 60 + 20 % training and validation rows and is judged by the same 20 % test rows. One
line per table and seed goes to results/tables/points.jsonl.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import records

RECORDS = Path(__file__).parents[1] / "results" / "tables" / "points.jsonl"
FIRST, SPLITS = 30, 10  # splits 0 to 6 and 10 were seen while members were chosen: results/tables/points-seen.jsonl
BUDGET = 600.0  # seconds: enough, so that the record does not depend on who else uses the machine
MEMBERS = ("kriging", "linear", "extra trees", "boosting x", "label")  # those that take seconds; --all adds the others
FIELD = {"points": 600, "range": 0.2, "noise": 0.3}
Task = tuple[pd.DataFrame, str, str]  # table, target, coordinates


def baltimore(seed: int) -> Task:
    import geopandas
    import libpysal

    table = pd.DataFrame(geopandas.read_file(libpysal.examples.get_path("baltim.shp")).drop(columns="geometry"))
    return table.drop(columns="STATION"), "PRICE", "X,Y"


def georgia(seed: int) -> Task:
    import libpysal

    table = pd.read_csv(libpysal.examples.get_path("GData_utm.csv")).drop(columns=["AreaKey", "ID", "X", "Y"])
    return table, "PctBach", "Longitud,Latitude"


def tokyo(seed: int) -> Task:
    import libpysal

    table = pd.read_csv(libpysal.examples.get_path("Tokyomortality.csv"))
    table["mortality"] = table["db2564"] / table["eb2564"]
    return table.drop(columns=["IDnum0", "db2564", "eb2564"]), "mortality", "X_CENTROID,Y_CENTROID"


def field(seed: int) -> Task:
    draw = np.random.default_rng(1000 + seed)
    place = draw.uniform(size=(FIELD["points"], 2))
    K = true_covariance(place, place)
    u = np.linalg.cholesky(K + 1e-10 * np.eye(len(K))) @ draw.normal(size=len(K))
    value = u + FIELD["noise"] * draw.normal(size=len(K))
    return pd.DataFrame({"x": place[:, 0], "y": place[:, 1], "value": value}), "value", "x,y"


def true_covariance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    r = np.sqrt(3) * np.linalg.norm(a[:, None] - b[None], axis=2) / FIELD["range"]
    return (1 + r) * np.exp(-r)


TABLES: dict[str, Callable[[int], Task]] = {
    "baltimore": baltimore, "georgia": georgia, "tokyo": tokyo, "field": field,
}  # fmt: skip


REAL = {"baltimore": ("PRICE", "X,Y"), "georgia": ("PctBach", "Longitud,Latitude"),
        "tokyo": ("mortality", "X_CENTROID,Y_CENTROID")}  # fmt: skip


def from_folder(folder: Path, name: str) -> Callable[[int], Task]:
    """A table that was written as a CSV file, for machines without the package."""
    return lambda seed: (pd.read_csv(folder / f"{name}.csv"), *REAL[name])


def ours(problem: Any, job: Any, members: tuple[str, ...] | None) -> tuple[np.ndarray, dict[str, Any]]:
    """The model of ``walksum train`` with these members, without the rows it is compared with."""
    from walksum.portfolio.blend import r_squared
    from walksum.portfolio.fit import fit_portfolio
    from walksum.workflow.auto import output_of, portfolio_problem
    from walksum.workflow.fit import prepare_data

    prepared = prepare_data(job, problem)
    asked, _, _ = portfolio_problem(job, prepared)
    found = fit_portfolio(asked, r_squared, job.budget, members)
    table = found.table(r_squared)
    heaviest = {row["member"]: round(row["weight"], 3) for row in table[:4]}
    how = {"members": len(table), "complete": found.complete, "heaviest": heaviest}
    how["neighbours"] = problem.places.neighbours
    return output_of(found.here(), prepared.encoding, True).output.double().numpy(), how


def boosting(X: np.ndarray, place: np.ndarray, y: np.ndarray, learn: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(random_state=seed).fit(X[learn], y[learn]).predict(X)


def kriging(X: np.ndarray, place: np.ndarray, y: np.ndarray, learn: np.ndarray, seed: int) -> np.ndarray:
    """Of the coordinates alone: one covariance for all directions, parameters by maximum likelihood."""
    return _gaussian_process(place / place[learn].std(0).max(), y, learn, seed, 1.0)


def kriging_columns(X: np.ndarray, place: np.ndarray, y: np.ndarray, learn: np.ndarray, seed: int) -> np.ndarray:
    """Of all columns, each with a length scale of its own."""
    Z = (X - X[learn].mean(0)) / X[learn].std(0)
    return _gaussian_process(Z, y, learn, seed, np.ones(X.shape[1]))


def _gaussian_process(Z: np.ndarray, y: np.ndarray, learn: np.ndarray, seed: int, length: Any) -> np.ndarray:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    kernel = ConstantKernel() * Matern(length, (1e-2, 1e3), nu=1.5) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=2, random_state=seed)
    return model.fit(Z[learn], y[learn]).predict(Z)


def best(place: np.ndarray, y: np.ndarray, learn: np.ndarray) -> np.ndarray:
    """The conditional mean under the parameters that the field was drawn with."""
    K = true_covariance(place[learn], place[learn]) + FIELD["noise"] ** 2 * np.eye(len(learn))
    return true_covariance(place, place[learn]) @ np.linalg.solve(K, y[learn])


CONTESTANTS = {"boosting": boosting, "kriging": kriging, "kriging of all columns": kriging_columns}


def measure(name: str, seed: int, members: tuple[str, ...] | None = MEMBERS) -> dict[str, Any]:
    """One line of the record: R^2 and RMSE of each method on the test rows."""
    from walksum.data.problem_split import split_problem
    from walksum.data.user_files import Columns
    from walksum.workflow.prepare import with_neighbours
    from walksum.workflow.problem import Source
    from walksum.workflow.tables import make_job, names_in, read_problem

    table, target, coordinates = TABLES[name](seed)
    job = make_job(seed=seed, budget=BUDGET, device="cpu")
    start = time.monotonic()
    problem = read_problem(Source(nodes=table), Columns(target=target, coordinates=names_in(coordinates)))
    problem = with_neighbours(problem, job)
    split = split_problem(problem, None, seed)
    learn, test = np.sort(np.r_[split.train.numpy(), split.val.numpy()]), split.test.numpy()
    answers, how = {}, {}
    answers["portfolio"], how = ours(problem, job, members)
    seconds = {"portfolio": time.monotonic() - start}
    X, y = table.drop(columns=target).to_numpy(float), table[target].to_numpy(float)
    place = table[list(names_in(coordinates))].to_numpy(float)
    for method, contestant in CONTESTANTS.items():
        if name == "field" and method == "kriging of all columns":
            continue  # the same columns
        start = time.monotonic()
        answers[method] = contestant(X, place, y, learn, seed)
        seconds[method] = time.monotonic() - start
    if name == "field":
        answers["best predictor"] = best(place, y, learn)
    square = {method: float(((answer[test] - y[test]) ** 2).mean()) for method, answer in answers.items()}
    return {
        "table": name,
        "seed": seed,
        "rows": len(table),
        "tried": members or "all",
        "r2": {method: 1 - each / float(y[test].var()) for method, each in square.items()},
        "rmse": {method: each**0.5 for method, each in square.items()},
        "seconds": {method: round(each, 2) for method, each in seconds.items()},
        **how,
    }


def run(path: Path, tables: list[str], members: tuple[str, ...] | None, seeds: range) -> None:
    done = {(each["table"], each["seed"]) for each in records.read_lines(path)}
    for seed in seeds:
        for name in tables:
            if (name, seed) not in done:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of optimisers that stop at a bound
                    record = measure(name, seed, members)
                records.append_line(path, record)
                print(name, seed, {method: round(each, 3) for method, each in record["r2"].items()}, flush=True)


def show(found: list[dict[str, Any]]) -> None:
    """Means over seeds, and how often the portfolio was at or above each."""
    for name in TABLES:
        mine = [each for each in found if each["table"] == name]
        if not mine:
            continue
        print(f"{name}: {mine[0]['rows']} rows, {len(mine)} splits")
        for method in mine[0]["r2"]:
            score = np.array([each["r2"][method] for each in mine])
            rmse = np.array([each["rmse"][method] for each in mine])
            won = sum(each["r2"]["portfolio"] >= each["r2"][method] for each in mine)
            beside = "" if method == "portfolio" else f", portfolio at or above in {won} of {len(mine)}"
            spread = score.std(ddof=int(len(score) > 1))
            print(f"  {method:24} R^2 {score.mean():.3f} (spread {spread:.3f}), RMSE {rmse.mean():.4g}{beside}")
        if "best predictor" in mine[0]["rmse"]:
            ratio = [each["rmse"]["portfolio"] / each["rmse"]["best predictor"] for each in mine]
            print(f"  error over that of the best predictor: {np.mean(ratio):.4f}, at most {max(ratio):.4f}")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--print", action="store_true", dest="only_print", help="print what is recorded")
    options.add_argument("--tables", default=",".join(TABLES), help="which, a,b")
    options.add_argument("--all", action="store_true", help="all members, also networks: about a minute per table")
    options.add_argument("--first", type=int, default=FIRST, help="seed of the first of ten splits")
    options.add_argument("--splits", type=int, default=SPLITS, help="how many")
    options.add_argument("--folder", type=Path, help="read the tables as CSV files from here, not from the package")
    options.add_argument("--out", type=Path, default=RECORDS)
    chosen = options.parse_args()
    if chosen.folder is not None:
        TABLES |= {name: from_folder(chosen.folder, name) for name in REAL}
    if not chosen.only_print:
        run(
            chosen.out,
            chosen.tables.split(","),
            None if chosen.all else MEMBERS,
            range(chosen.first, chosen.first + chosen.splits),
        )
    show(records.read_lines(chosen.out))
