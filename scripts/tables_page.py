"""Measured numbers of docs/tables.md, from the records under results/tables.

    python scripts/tables_page.py

The records are made by ``python -m benchmarks.tables`` (train.jsonl; with --coverage, coverage.jsonl) and
``python benchmarks/points.py`` (points.jsonl).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from walksum.paper.report.document import fill_marks

HERE = Path(__file__).parents[1]
RECORDS, PAGE = HERE / "results" / "tables", HERE / "docs" / "tables.md"
SKLEARN = ("logistic regression", "ridge regression", "gradient boosting", "boosting on neighbour means",
           "boosting on neighbour means and targets")  # fmt: skip
SHORT = {"boosting on neighbour means and targets": "boosting on neighbours' columns and targets"}


def read(name: str) -> list[dict[str, Any]]:
    path = RECORDS / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def train_table() -> str:
    """One row per problem: the last run of each with no option but the tables and the metric."""
    runs = {each["problem"]: each for each in read("train.jsonl") if "--budget" not in each["options"]}
    lines = [
        "| table | metric | portfolio | best scikit-learn row | the graph | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for name, run in runs.items():
        scores = {method: each["mean"] for method, each in run["test"].items()}
        best = max((method for method in scores if method in SKLEARN), key=lambda method: scores[method])
        lines.append(
            f"| {name.replace('_', ' ')} | {run['score']} | {scores['auto']:.3f} | {scores[best]:.3f}, "
            f"{SHORT.get(best, best)} | {run['graph']['verdict']} | {run['seconds']:.0f} |"
        )
    for name, run in runs.items():
        if "rare_recall" in run["parts"]["test"]["auto"]:
            lines += ["", _of_classes(name, run["parts"]["test"]["auto"])]
    return "\n".join(lines)


def _of_classes(name: str, found: dict[str, float]) -> str:
    recall, precision = 100 * found["rare_recall"], 100 * found["rare_precision"]
    return (
        f"{name.capitalize()}: accuracy {100 * found['accuracy']:.1f} %, recall {recall:.0f} % and precision "
        f"{precision:.0f} % of the rarest class, expected calibration error {found['calibration_error']:.3f}."
    )


def coverage_table() -> str:
    """Mean share of test nodes in their intervals, over all splits on record."""
    covered: dict[str, list[float]] = {}
    for each in read("coverage.jsonl"):
        covered.setdefault(each["problem"], []).append(each["intervals"]["coverage"])
    if not covered:
        return "Not measured over several splits yet."
    lines = ["| 95 % intervals | cover | splits | least | most |", "|---|---|---|---|---|"]
    for name, values in covered.items():
        mean = 100 * sum(values) / len(values)
        lines.append(
            f"| {name.replace('_', ' ')} | {mean:.1f} % | {len(values)} | {100 * min(values):.1f} % | "
            f"{100 * max(values):.1f} % |"
        )
    return "\n".join(lines)


def points_table() -> str:
    """Mean test R^2 over splits, and the error of the synthetic field beside its best predictor's."""
    methods = ("portfolio", "boosting", "kriging", "kriging of all columns", "best predictor")
    lines = ["| table | splits | " + " | ".join(methods) + " |", "|---" * (2 + len(methods)) + "|"]
    ratio: list[float] = []
    found = read("points.jsonl")
    for name in dict.fromkeys(each["table"] for each in found):
        mine = [each for each in found if each["table"] == name]
        means = [_mean([each["r2"][method] for each in mine]) if method in mine[0]["r2"] else "" for method in methods]
        lines.append(f"| {name}, {mine[0]['rows']} rows | {len(mine)} | " + " | ".join(means) + " |")
        if "best predictor" in mine[0]["rmse"]:
            ratio = [each["rmse"]["portfolio"] / each["rmse"]["best predictor"] for each in mine]
    if ratio:
        mean = sum(ratio) / len(ratio)
        lines += [
            "",
            f"On the field the error is {mean:.3f} times that of the best predictor (at most {max(ratio):.3f}).",
        ]
    return "\n".join(lines)


def _mean(values: list[float]) -> str:
    return f"{sum(values) / len(values):.3f}"


def updated(text: str) -> str:
    """The page with every table between its marks made anew."""
    for name, table in (("train", train_table), ("coverage", coverage_table), ("points", points_table)):
        text = fill_marks(text, name, table())
    return text


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
