"""The portfolio on published data: one command, one configuration, records that can be resumed.

    walksum bench auto texas cora counties --splits 30 --jobs 8

One line of a file per dataset and split: scores of the blend, of every member and of the baselines
(networks without edges with equally many members, models without edges, trees on neighbour means, label propagation),
all on the same split and under the same clock. Choices are made on validation rows; test rows are only counted.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from walksum._files import append_lines

RANDOM = ("texas", "wisconsin", "cornell", "cora", "citeseer", "pubmed")
PUBLIC = ("chameleon", "squirrel", "minesweeper")
PUBLISHED = 10  # splits of those
COUNTIES = {
    "income": "median_income",
    "education": "bachelor_rate",
    "unemployment": "unemployment_rate",
    "election": "election_margin",
}
DATASETS = (*RANDOM, *PUBLIC, *(f"counties-{name}" for name in COUNTIES))
BASELINES = {  # members whose name starts so, blended by the same rule
    "without edges": ("mlp x", "mlp raw", "mlp rows", "boosting x", "extra trees x", "linear x"),
    "mlp": ("mlp x", "mlp raw", "mlp rows"),
    "boosting x": ("boosting x",),
    "boosting surroundings": ("boosting surroundings",),
    "label propagation": ("label propagation",),
    "predict then propagate": ("smooth",),
    "banks": ("bank", "hidden"),
    "tabular": ("boosting", "extra trees", "linear", "directed"),
}


NETWORKS = ("mlp x", "mlp raw", "mlp rows")
REFIT = ", validation labels learned"  # rows of blends whose members learned again, now from all labels that are known


def run(name: str, seed: int, budget: float, device: str, members: tuple[str, ...] | None, dump: Path | None) -> dict:
    """One record: fit on one split, count once on its test rows."""
    import torch

    from walksum.paper.sweep.record import commit

    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.empty_cache()  # other processes share the GPU
    start, used = time.time(), time.process_time()
    make = _numbers if name.startswith("counties-") else _classes
    record = make(name, seed, budget, device, members, dump)
    about = {"dataset": name, "seed": seed, "budget": budget, "device": device, "commit": commit() or "unknown"}
    took = {"total_seconds": round(time.time() - start, 1), "cpu_seconds": round(time.process_time() - used, 1)}
    return about | record | took


def _classes(name: str, seed: int, budget: float, device: str, members: Any, dump: Path | None) -> dict:
    import scipy.sparse as sp

    from walksum.data import load, make_split
    from walksum.estimators.auto.classifier import AutoClassifier
    from walksum.portfolio.blend import METRICS, softmax
    from walksum.portfolio.members import tasks
    from walksum.portfolio.schedule import run_tasks

    data = load(name)
    split = make_split(data, "random" if name in RANDOM else "public", seed, name=name)
    train, val, test = (part.numpy() for part in (split.train, split.val, split.test))
    y = np.full(data.num_nodes, -1)
    truth = data.y.numpy()
    y[train], y[val] = truth[train], truth[val]
    X = data.x.numpy()
    X = sp.csr_matrix(X) if (X != 0).mean() < 0.25 and X.shape[1] > 200 else X
    metric_name = "roc_auc" if name == "minesweeper" else "accuracy"
    metric = METRICS[metric_name]
    model = AutoClassifier(budget, metric_name, members, device=device, random_state=seed)
    model.fit(X, y, data.edge_index, validation=val)
    problem, found = model.portfolio_.problem, model.portfolio_.members
    known = {label: k for k, label in enumerate(model.classes_)}
    codes = np.array([known.get(label, -1) for label in truth])  # a class that no labelled row has is never right

    def count(shares: np.ndarray, some: list) -> dict:
        out = np.log(shares + 1e-12)
        return {"val": metric(out[val], codes[val]), "test": metric(out[test], codes[test]), "members": len(some)}

    def rows(label: str, some: list, refit: bool) -> dict:
        if not some:
            return {label: None}
        blended = _blended(problem, some, metric)
        row = {label: count(blended.here().value, some)}
        if refit:
            row[label + REFIT] = {**count(blended.refit(), some), "val": None}
        return row

    now = time.time()
    blends = rows("auto", found, True)
    seconds = {"refit": round(time.time() - now, 1)}
    for label, prefixes in BASELINES.items():
        blends |= rows(label, [member for member in found if member.name.startswith(prefixes)], False)
    if members is None:
        now = time.time()
        many = tasks(problem, metric, NETWORKS, repeat=-(-len(found) // 12))
        networks, _, _ = run_tasks(many, problem, metric, budget)
        blends |= rows("mlp, equally many", networks, True)
        seconds["mlp, equally many"] = round(time.time() - now, 1)
    if dump is not None:
        which = np.concatenate([val, test])
        shares = np.stack([softmax(m.outputs[0])[which] for m in found]).astype(np.float16)
        _dump(dump / f"{name}-{seed}.npz", found, val=len(val), y=codes[which], shares=shares)
    table = _member_table(model.portfolio_, lambda m: [metric(m.outputs[0][part], codes[part]) for part in (val, test)])
    return {"metric": metric_name, "split": split.digest(), "blends": blends, "members": table,
            "graph_gain": model.graph_gain_, "complete": model.complete_, "seconds": round(model.seconds_, 1),
            "other_seconds": seconds}  # fmt: skip


def _member_table(portfolio: Any, scores: Callable[[Any], list[float]]) -> list[dict]:
    """One row per member; ``scores`` gives those of its validation and test rows."""
    weighted = zip(portfolio.members, portfolio.blends["here"].weights, strict=True)
    return [
        {"name": m.name, **dict(zip(("val", "test"), scores(m), strict=True)), "seconds": round(m.seconds, 2),
         "weight": round(float(weight), 4)}
        for m, weight in weighted
    ]  # fmt: skip


def _dump(path: Path, members: list, **arrays: Any) -> None:
    """Members' outputs, so that other rules to blend them can be tried without training again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, names=[member.name for member in members], **arrays)


def _blended(problem: Any, members: list, metric: Any) -> Any:
    """Some members as a portfolio of their own, weighted by the same rule."""
    from walksum.portfolio.blend import even_weights, fit_blends
    from walksum.portfolio.fit import HERE, Portfolio, judged

    everyone = np.ones(len(members), dtype=bool)
    outputs, y = judged(problem, members), problem.y[problem.judged]
    even = even_weights([member.family for member in members])
    (blend,) = fit_blends(outputs, y, problem.classes, metric, [everyone], even)
    return Portfolio(problem, members, {HERE: blend}, {}, {}, {})


def _numbers(name: str, seed: int, budget: float, device: str, members: Any, dump: Path | None) -> dict:
    from walksum.estimators.auto.regressor import AutoRegressor
    from walksum.field.fit import LEVEL_95
    from walksum.portfolio.blend import least_squares_weights, r_squared

    X, y, pairs = counties(COUNTIES[name.removeprefix("counties-")])
    known = np.nonzero(~np.isnan(y))[0]
    order = known[np.argsort(np.random.PCG64(seed).random_raw(len(known)), kind="stable")]
    train, test = order[: len(order) * 6 // 10], order[len(order) * 6 // 10 :]
    shown = np.full(len(y), np.nan)
    shown[train] = y[train]
    model = AutoRegressor(budget, members=members, device=device, random_state=seed).fit(X, shown, pairs)
    middle, spread = y[train].mean(), y[train].std()
    z = (y - middle) / spread
    problem, everyone = model.portfolio_.problem, model.portfolio_.members
    rows = problem.judged

    def count(guess: np.ndarray) -> float:
        return r_squared(guess[test, None], y[test])

    def blend(prefixes: tuple[str, ...]) -> dict | None:
        found = [member for member in everyone if member.name.startswith(prefixes)]
        if not found:
            return None
        judged = np.stack([problem.out_of_fold(member.outputs)[rows, 0] for member in found])
        weights = least_squares_weights(judged, z[rows])
        out = np.tensordot(weights, np.stack([member.outputs.mean(0)[:, 0] for member in found]), 1)
        return {"val": r_squared((weights @ judged)[:, None], z[rows]), "test": count(middle + spread * out),
                "members": len(found)}  # fmt: skip

    inside = np.abs(y[test] - model.transduction_[test]) <= LEVEL_95 * model.std_[test]
    field = model.field_
    blends: dict[str, Any] = {
        "auto": {"val": r_squared(model.transduction_[rows, None], y[rows]), "test": count(model.transduction_),
                 "coverage": float(inside.mean()), "members": len(everyone)}
    }  # fmt: skip
    blends["blend without field"] = blend(("",))
    blends |= {label: blend(prefixes) for label, prefixes in BASELINES.items()}
    if dump is not None:
        val = np.stack([problem.out_of_fold(m.outputs)[rows, 0] for m in everyone]).astype(np.float32)
        _dump(dump / f"{name}-{seed}.npz", everyone, y=z[rows], val=val)

    def scores(member: Any) -> list[float]:
        guess = middle + spread * member.outputs.mean(0)[:, 0]
        return [r_squared(problem.out_of_fold(member.outputs)[rows], z[rows]), count(guess)]

    table = _member_table(model.portfolio_, scores)
    return {"metric": "r2", "blends": blends, "members": table, "graph_gain": model.graph_gain_,
            "complete": model.complete_, "seconds": round(model.seconds_, 1),
            "field": None if field is None else {"a": field.a, "noise": field.noise, "gain": field.gain,
                                                 "calibration": field.calibration}}  # fmt: skip


def counties(target: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The other columns, the target, the borders ``[2, M]`` of the US counties under $WALKSUM_DATA."""
    import pandas as pd

    from walksum.data.cache import data_root

    folder = data_root(None) / "counties"
    nodes, edges = (
        pd.read_csv(folder / f"{part}.csv", dtype={"fips": str, "source": str, "target": str})
        for part in ("nodes", "edges")
    )
    place = {fips: k for k, fips in enumerate(nodes["fips"])}
    pairs = np.stack([edges["source"].map(place), edges["target"].map(place)]).astype(np.int64)
    columns = [name for name in nodes.columns if name not in ("fips", "county", target)]
    X = nodes[columns].to_numpy(dtype=np.float64)
    X = np.where(np.isnan(X), np.nanmean(X, 0), X)
    return X, nodes[target].to_numpy(dtype=np.float64), pairs


def _work(job: tuple) -> tuple[str, bool]:
    """One fit, recorded: a line of text, and whether it failed."""
    name, seed, *rest, path = job
    try:
        record = run(name, seed, *rest)
    except Exception as error:  # one failure must not end the others
        return f"{name} {seed} failed: {error!r}", True
    append_lines(path, [json.dumps(record, default=float)])
    blends = {k: round(100 * v["test"], 2) for k, v in record["blends"].items() if v}
    return f"{name} {seed}: {blends} {record['total_seconds']} s", False


def read(path: Path) -> list[dict]:
    """The records; a line that a kill cut short is left out."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def done(path: Path) -> set[tuple[str, int]]:
    """What the records hold already."""
    return {(each["dataset"], each["seed"]) for each in read(path)}


def chosen(words: list[str]) -> list[str]:
    """Datasets by name or by their first word; all where none is named."""
    names = [part.strip() for word in words for part in word.split(",") if part.strip()] or list(DATASETS)
    found = []
    for word in names:
        some = [name for name in DATASETS if word in ("all", name) or name.startswith(f"{word}-")]
        if not some:
            raise ValueError(f"dataset {word!r} is unknown; choose of {', '.join(DATASETS)}, counties, all")
        found += some
    return list(dict.fromkeys(found))


def measure(
    names: list[str], seeds: range, out: Path, jobs: int, budget: float, device: str,
    members: tuple[str, ...] | None = None, dump: Path | None = None,
) -> Iterator[tuple[str, bool]]:  # fmt: skip
    """Fit what the records do not hold yet, several at a time; of each a line of text, and whether it failed."""
    out.parent.mkdir(parents=True, exist_ok=True)
    known = done(out)
    todo = [
        (name, seed, budget, device, members, dump, out)
        for seed in seeds
        for name in names
        if (name, seed) not in known and (name not in PUBLIC or seed < PUBLISHED)
    ]
    if jobs == 1:
        yield from map(_work, todo)
        return
    # spawn: a forked process cannot use CUDA
    with multiprocessing.get_context("spawn").Pool(min(jobs, max(1, len(todo)))) as pool:
        yield from pool.imap_unordered(_work, todo)
