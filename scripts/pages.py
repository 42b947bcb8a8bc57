"""Write the tables of docs/results.md, docs/longrange.md and docs/tables.md from the records under results.

    python scripts/pages.py

Records: results/table1 (``walksum bench table1``); results/longrange (``walksum bench longrange``) and results/links
(``python scripts/link_records.py``); results/tables (``python -m benchmarks.tables``, also with --coverage, and
``python -m benchmarks.points``). Pages with more to them have a script of their own: NAME_page.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from walksum.paper import rows
from walksum.paper.longrange.bench import TITLES, Key, read_records, rows_of, timing
from walksum.paper.longrange.contestants import CAP
from walksum.paper.longrange.tasks import TASKS
from walksum.paper.report.document import fill_marks, markdown_table
from walksum.paper.rows import DATASETS, ROWS
from walksum.paper.sweep.record import cells_of
from walksum.paper.sweep.spec import paper_spec
from walksum.paper.sweep.store import read_records as read_runs

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
BESIDE = ["gcn", "gprgnn", "graphormer", "mlp"]  # others that one should know before choosing a GLT
MODELS = [*(name for name, row in ROWS.items() if row.group == "glt"), *BESIDE]
RUNS = 30
SKLEARN = ("logistic regression", "ridge regression", "gradient boosting", "boosting on neighbour means",
           "boosting on neighbour means and targets")  # fmt: skip
SHORT = {"boosting on neighbour means and targets": "boosting on neighbours' columns and targets"}


def read(name: str) -> list[dict[str, Any]]:
    """The lines of a record, none where it is missing."""
    path = RESULTS / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def accuracies() -> str:
    """The six designs, and others beside them: our mean of 30 runs, and the paper's in brackets."""
    specs = [paper_spec(model, data, seed) for model in MODELS for data in DATASETS for seed in range(RUNS)]
    cells = cells_of(specs, read_runs(RESULTS / "table1"))
    lines = (
        [ROWS[model].title, *(f"{cells[model, d].mean:.1f}{_paper(model, d)}" for d in DATASETS)] for model in MODELS
    )
    return markdown_table(["", *DATASETS], lines)


def _paper(model: str, data: str) -> str:
    cell = rows.TABLE1.get(model, {}).get(data)
    return "" if cell is None else f" ({cell[0]:.1f})"


def links() -> str:
    """Test AUC of each encoder, mean and deviation over splits."""
    records = read("links/cora.jsonl")
    lines = []
    for name in dict.fromkeys(record["encoder"] for record in records):
        mine = [record for record in records if record["encoder"] == name]
        val, test = (np.array([record[part] for record in mine]) for part in ("validation", "test"))
        lines.append([name, f"{val.mean():.3f}", f"{test.mean():.3f} ± {test.std(ddof=1):.3f}"])
    return markdown_table(["encoder", "validation AUC", "test AUC"], lines, right=True)


def long_range(records: Mapping[Key, dict[str, Any]]) -> str:
    """All tables as Markdown."""
    parts = []
    for task in TASKS:
        sizes, found = rows_of(records, task)
        if sizes:
            guess = ("guessing", [f"{100 * _chance(task, size):.0f}" for size in sizes])
            parts.append(_table(TITLES[task], [f"{size:,}" for size in sizes], [*found, guess]))
    took = timing(records)
    if took is not None:
        heads = [*(f"{size:,}" for size in took["sizes"]), "exponent"]
        lines = [
            (name, [*(f"{1000 * each:.1f}" for each in took[key]), f"{took[slope]:.2f}"])
            for key, slope, name in (
                ("first", "exponent_first", "first pass on a graph"),
                ("later", "exponent", "every later pass"),
            )
        ]
        parts.append(_table("CPU milliseconds of one layer, forward and backward, by length", heads, lines))
    return "\n".join(parts) + f"\n(In brackets: more than {CAP} hops; the answer cannot depend on the question.)\n"


def _table(title: str, heads: list[str], rows: list[tuple[str, list[str]]]) -> str:
    table = markdown_table(["", *heads], ([name, *cells] for name, cells in rows), right=True)
    return f"### {title}\n\n{table}\n"


def _chance(task: str, size: int) -> float:
    return {"chain": 0.5, "ring": 0.2, "tree": 0.5**size}[task]


def train_table() -> str:
    """One row per problem: the last run of each with no option but the tables and the metric."""
    runs = {each["problem"]: each for each in read("tables/train.jsonl") if "--budget" not in each["options"]}
    lines, classes = [], []
    for name, run in runs.items():
        scores = {method: each["mean"] for method, each in run["test"].items()}
        best = max((method for method in scores if method in SKLEARN), key=lambda method: scores[method])
        numbers = f"{scores['auto']:.3f}", f"{scores[best]:.3f}, {SHORT.get(best, best)}"
        lines.append([_spaced(name), run["score"], *numbers, run["graph"]["verdict"], f"{run['seconds']:.0f}"])
        if "rare_recall" in run["parts"]["test"]["auto"]:
            classes.append(_of_classes(name, run["parts"]["test"]["auto"]))
    head = ["table", "metric", "portfolio", "best scikit-learn row", "the graph", "seconds"]
    return "\n\n".join([markdown_table(head, lines), *classes])


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _of_classes(name: str, found: dict[str, float]) -> str:
    recall, precision = 100 * found["rare_recall"], 100 * found["rare_precision"]
    return (
        f"{name.capitalize()}: accuracy {100 * found['accuracy']:.1f} %, recall {recall:.0f} % and precision "
        f"{precision:.0f} % of the rarest class, expected calibration error {found['calibration_error']:.3f}."
    )


def coverage_table() -> str:
    """Mean share of test nodes in their intervals, over all splits on record."""
    covered: dict[str, list[float]] = {}
    for each in read("tables/coverage.jsonl"):
        covered.setdefault(each["problem"], []).append(each["intervals"]["coverage"])
    lines = []
    for name, values in covered.items():
        mean, least, most = (f"{100 * share:.1f} %" for share in (fmean(values), min(values), max(values)))
        lines.append([_spaced(name), mean, str(len(values)), least, most])
    return markdown_table(["95 % intervals", "cover", "splits", "least", "most"], lines)


def points_table() -> str:
    """Mean test R^2 over splits, and the error of the synthetic field beside its best predictor's."""
    methods = ("portfolio", "boosting", "kriging", "kriging of all columns", "best predictor")
    lines, ratio = [], list[float]()
    found = read("tables/points.jsonl")
    for name in dict.fromkeys(each["table"] for each in found):
        mine = [each for each in found if each["table"] == name]
        means = ["" if m not in mine[0]["r2"] else f"{fmean(each['r2'][m] for each in mine):.3f}" for m in methods]
        lines.append([f"{name}, {mine[0]['rows']} rows", str(len(mine)), *means])
        if "best predictor" in mine[0]["rmse"]:
            ratio = [each["rmse"]["portfolio"] / each["rmse"]["best predictor"] for each in mine]
    said = f"On the field the error is {fmean(ratio):.3f} times that of the best predictor (at most {max(ratio):.3f})."
    return f"{markdown_table(['table', 'splits', *methods], lines)}\n\n{said}"


PAGES: dict[str, dict[str, Callable[[], str]]] = {  # page -> mark in it -> what stands there
    "docs/results.md": {"accuracy": accuracies},
    "docs/longrange.md": {"long range": lambda: long_range(read_records(RESULTS / "longrange")), "links": links},
    "docs/tables.md": {"train": train_table, "coverage": coverage_table, "points": points_table},
}


def updated(text: str, page: str) -> str:
    """The page with every table between its marks made anew."""
    for mark, table in PAGES[page].items():
        text = fill_marks(text, mark, table())
    return text


if __name__ == "__main__":
    for name in PAGES:
        path = ROOT / name
        path.write_text(updated(path.read_text(encoding="utf-8"), name), encoding="utf-8")
