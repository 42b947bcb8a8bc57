"""Predictions of a trained model, as a table and as a file."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from walksum._torch import cpu_by_default
from walksum.data.encoding import Encoding
from walksum.data.frames import name_list
from walksum.data.problem import Problem
from walksum.data.splits import Split
from walksum.portfolio.fit import ELSEWHERE, HERE, Portfolio
from walksum.training.devices import available_device
from walksum.training.scoring import metric_for
from walksum.workflow.auto import ask, output_of
from walksum.workflow.fit import interval_around, predict
from walksum.workflow.job import check_graph_size

if TYPE_CHECKING:
    from walksum.workflow.run import Run

PARQUET = (".parquet", ".pq")
DIGITS = {"prediction": "{:.7g}", "truth": "{:.7g}", "low": "{:.7g}", "high": "{:.7g}"}  # probabilities: six places


@dataclass(frozen=True)
class Predictions:
    """A table with one row per node, and notes for the reader."""

    table: pd.DataFrame
    notes: list[str]


@cpu_by_default
def predict_nodes(run: Run, problem: Problem, device: str = "auto") -> Predictions:
    """Predict every node of a graph by the model of a run."""
    check_graph_size(run.job.model, run.metrics["data"]["nodes"], problem.num_nodes)
    model, place = run.model, torch.device(available_device(device))
    x = run.encoding.encode(problem.features)
    notes = [*problem.notes, *run.encoding.notes(problem.features)]
    if isinstance(model, Portfolio):
        answer = ask(model, problem, x, run.encoding, known_residuals(run, model, problem), str(place))
        found = output_of(answer, run.encoding, problem.regression)
        table = prediction_table(problem, found.output, run.encoding, found.low, found.high)
        notes += _on_strange_targets(run, problem) + answer.notes + _without_bound(run, model, answer.blend)
        return Predictions(table, notes)
    try:
        output = predict(model.to(place), x.to(place), problem, run.encoding).cpu()
    finally:
        model.cpu()
    intervals = run.metrics.get("intervals")
    reach = intervals.get("reach") if intervals else None  # older runs did not keep it
    ends = () if reach is None else interval_around(output, run.encoding, reach)
    return Predictions(prediction_table(problem, output, run.encoding, *ends), notes)


def _on_strange_targets(run: Run, problem: Problem) -> list[str]:
    """A note where most known targets lie beyond those of training, as in another unit: predictions follow them."""
    if not problem.regression:
        return []
    truth, known = run.predictions["truth"], problem.y[~problem.y.isnan()].numpy()
    low, high = truth.min(), truth.max()
    beyond = int(((known < low) | (known > high)).sum())
    if 2 * beyond <= len(known):
        return []
    return [
        f"{beyond} of {len(known)} known targets lie beyond those of training, {low:g} to {high:g}, and predictions "
        "and intervals are made by them: give them in the unit of training, or leave them empty"
    ]


def _without_bound(run: Run, model: Portfolio, blend: str) -> list[str]:
    """A note on members that know the training graph alone: what their absence costs on validation nodes."""
    if not model.bound:
        return []
    metric = metric_for(run.job.metric, run.config["task"])
    with_, without = (model.validation.get(name) for name in (HERE, blend))
    cost = ""
    if with_ is not None and without is not None:
        cost = f" ({metric.title} of validation nodes {metric.sign * without:.4g}, with them {metric.sign * with_:.4g})"
    return [
        f"members that know the training graph alone are left out: {name_list(model.bound)}; the others are weighted "
        f"anew{cost}, so nodes of training get other numbers than in the run's own predictions"
    ]


def known_residuals(run: Run, model: Portfolio, problem: Problem) -> np.ndarray | None:
    """Out-of-fold residuals of nodes that training knew, found again by their ids and targets.

    Ids alone will not do: nodes of another graph may be numbered alike.
    """
    kept = model.residuals.get(ELSEWHERE)
    if kept is None:
        return None
    here = rows_of(run, problem, left=kept)
    return np.where(same_truth(here, problem), here["left"], np.nan)


def rows_of(run: Run, problem: Problem, **more: Any) -> pd.DataFrame:
    """The run's own predictions, one row per node of a problem, empty for ids it did not know."""
    return run.predictions.set_index("id").assign(**more).reindex([str(name) for name in problem.ids])


def same_truth(rows: pd.DataFrame, problem: Problem) -> np.ndarray:
    """Which nodes have the target that the run knew them by ``[N]``."""
    if not problem.regression:
        return (rows["truth"].to_numpy(object) == _truth(problem).to_numpy(object)) & (problem.y >= 0).numpy()
    return np.isclose(rows["truth"], problem.y.double().numpy(), rtol=1e-5, atol=0)  # a run's file keeps 7 digits


def prediction_table(
    problem: Problem,
    output: Tensor,
    encoding: Encoding,
    low: Tensor | None = None,
    high: Tensor | None = None,
    split: Split | None = None,
) -> pd.DataFrame:
    """One row per node: id, split and truth of a training, prediction, then low and high or a probability per class."""
    columns = {"id": pd.Series(problem.ids, dtype=str)}
    if problem.names is not None:
        columns["name"] = pd.Series(problem.names, dtype=str)
    if split is not None:
        part = np.full(problem.num_nodes, "", dtype=object)
        for name, nodes in (("train", split.train), ("val", split.val), ("test", split.test)):
            part[nodes.numpy()] = name
        columns["split"] = pd.Series(part, dtype=str)
        columns["truth"] = _truth(problem)
    if problem.regression:
        columns["prediction"] = pd.Series(output.double().numpy())
        if low is not None and high is not None:
            columns["low"], columns["high"] = (pd.Series(each.double().numpy()) for each in (low, high))
    else:
        best = np.array(problem.classes, dtype=object)[encoding.weighed(output).argmax(1).numpy()]
        columns["prediction"] = pd.Series(best, dtype=str)
        for k, name in enumerate(problem.classes):
            columns[f"probability_{name}"] = pd.Series(output[:, k].double().numpy())
    return pd.DataFrame(columns)


def _truth(problem: Problem) -> pd.Series:
    if problem.regression:
        return pd.Series(problem.y.double().numpy())
    return pd.Series(np.array([*problem.classes, ""], dtype=object)[problem.y.numpy()], dtype=str)


def check_suffix(out: Path) -> None:
    """Refuse a name that says another kind of file than the CSV or Parquet that would be in it."""
    if out.suffix.lower() not in ("", ".csv", ".txt", *PARQUET):
        raise ValueError(f"out={out} is neither .csv nor .parquet; predictions are written as one of these")


def write_predictions(path: Path, table: pd.DataFrame, suffix: str = ".csv") -> None:
    """Write the table as CSV, or as Parquet if ``suffix`` is .parquet or .pq."""
    if suffix in PARQUET:
        try:
            table.to_parquet(path, index=False)
        except ImportError as error:
            raise ValueError("a Parquet file needs pyarrow: pip install 'walksum[parquet]'") from error
        return
    texts = {
        name: table[name].map(DIGITS.get(name.rpartition(".")[2], "{:.6f}").format).where(table[name].notna(), "")
        for name in table.columns
        if table[name].dtype == np.float64
    }
    write_table(path, table.assign(**texts))


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write CSV in which no cell is a formula: a text that begins like one gets an apostrophe before it.

    Numbers stay as they are, also negative ones. :func:`read_predictions` takes the apostrophe away again.
    """
    texts = {name: table[name].map(escaped) for name in table.columns if table[name].dtype != np.float64}
    table.assign(**texts).to_csv(path, index=False)


def read_predictions(path: Path, regression: bool, nodes: int) -> pd.DataFrame:
    """Read what :func:`write_predictions` wrote for ``nodes`` nodes; ids and classes stay text, also a class NA."""
    text = ["id", "name", "split"] + ([] if regression else ["truth", "prediction"])
    empty = {"truth": [""]} if regression else {}
    try:
        content = path.read_bytes()
        table = pd.read_csv(io.BytesIO(content), dtype=dict.fromkeys(text, str), keep_default_na=False, na_values=empty)
    except (OSError, ValueError) as error:  # pandas' parser errors are ValueErrors
        raise ValueError(f"{path} cannot be read: {error}") from error
    if len(table) != nodes or not content.endswith(b"\n"):
        raise ValueError(f"{path} is damaged: it holds {len(table)} whole rows for {nodes} nodes; train again")
    return table.assign(**{name: table[name].map(plain) for name in text if name in table})


BEGINNINGS = ("=", "+", "-", "@", "\t", "\r", "'")  # of what a spreadsheet may execute, and of our own escape


def escaped(cell: Any) -> Any:
    """Put an apostrophe before a text that begins like a formula; numbers stay as they are."""
    if not isinstance(cell, str) or not cell.startswith(BEGINNINGS):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def plain(cell: Any) -> Any:
    """Undo :func:`escaped`."""
    return cell[1:] if isinstance(cell, str) and cell.startswith("'") else cell
