"""Predictions of a trained model, as a table and as a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from walksum.analysis.variance import marginal_variance
from walksum.data.problem import Problem
from walksum.nn import GLT
from walksum.training.devices import available_device
from walksum.workflow.fit import predict
from walksum.workflow.models import check_graph_size

if TYPE_CHECKING:
    from walksum.workflow.run import Run

DIGITS = {"prediction": "{:.7g}", "confidence": "{:.6g}"}  # of numbers in a text file; probabilities: six places


@dataclass(frozen=True)
class Predictions:
    """One row per node, how its confidence was found, and what a reader should know."""

    table: pd.DataFrame
    confidence_by: str | None
    notes: list[str]


def predict_nodes(run: Run, problem: Problem, device: str = "auto") -> Predictions:
    """Ask the model of a run about every node of a graph."""
    check_graph_size(run.job.model, run.metrics["data"]["nodes"], problem.num_nodes)
    model, place = run.model, torch.device(available_device(device))
    x = run.encoding.encode(problem.features)
    try:
        output = predict(model.to(place), x.to(place), problem, run.encoding).cpu()
    finally:
        model.cpu()
    variance, by = marginal_variance(model.precisions(x, problem.graph)[-1]) if isinstance(model, GLT) else (None, None)
    notes = [*problem.notes, *run.encoding.notes(problem.features)]
    return Predictions(prediction_table(problem, output, variance), by, notes)


def prediction_table(problem: Problem, output: Tensor, variance: Tensor | None) -> pd.DataFrame:
    """One row per node: id, prediction, probability of each class, confidence (the marginal precision)."""
    columns = {"id": pd.Series(problem.ids, dtype=str)}
    if problem.regression:
        columns["prediction"] = pd.Series(output.double().numpy())
    else:
        best = np.array(problem.classes, dtype=object)[output.argmax(1).numpy()]
        columns["prediction"] = pd.Series(best, dtype=str)
        for k, name in enumerate(problem.classes):
            columns[f"probability_{name}"] = pd.Series(output[:, k].double().numpy())
    if variance is not None:
        columns["confidence"] = pd.Series((1 / variance).double().numpy())
    return pd.DataFrame(columns)


def write_predictions(path: Path, table: pd.DataFrame, suffix: str = ".csv") -> None:
    """Write as CSV, or as Parquet where ``suffix`` says so."""
    if suffix in (".parquet", ".pq"):
        try:
            table.to_parquet(path, index=False)
        except ImportError as error:
            raise ValueError("a Parquet file needs pyarrow: pip install 'walksum[parquet]'") from error
        return
    texts = {
        name: table[name].map(DIGITS.get(name, "{:.6f}").format)
        for name in table.columns
        if table[name].dtype == np.float64
    }
    table.assign(**texts).to_csv(path, index=False)


def read_predictions(path: Path, regression: bool) -> pd.DataFrame:
    """What :func:`write_predictions` wrote; ids and classes as text, also a class called NA."""
    text = {"id": str} if regression else {"id": str, "prediction": str}
    return pd.read_csv(path, dtype=text, keep_default_na=False)
