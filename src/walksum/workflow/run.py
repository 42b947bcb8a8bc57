"""Run: a trained model with its settings, scores and predictions; in memory, or in a folder."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
import warnings
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from walksum._files import finite_or_none, whole_folder, write_file
from walksum._torch import cpu_by_default
from walksum.data.encoding import Encoding
from walksum.data.problem import REGRESSION
from walksum.workflow.fit import Result
from walksum.workflow.job import AUTO_NAME, GLT_NAME, NETWORK_SETTINGS, Job, compared_config, load_model, save_model
from walksum.workflow.metrics import chosen, graph_text, metrics_of, ranked
from walksum.workflow.predict import predict_nodes, prediction_table, read_predictions, write_predictions, write_table
from walksum.workflow.problem import Source, problem_of_run
from walksum.workflow.search import SearchResult

FORMAT, SEVERAL = "walksum.run/1", "walksum.runs/1"
CONFIG, METRICS, PREDICTIONS, MODEL, REPORT = "config.json", "metrics.json", "predictions.csv", "model", "report.html"
IMPORTANCE = "importance.csv"


@dataclasses.dataclass(repr=False, eq=False)
class Run:
    """A trained model, made by :func:`walksum.workflow.fit_tables` or read by :func:`open_run`.

    Attributes:
        folder: where it is kept; None before :meth:`save`.
        config: settings, columns and encoding, as config.json holds them.
        metrics: scores, sizes, solver, notes and history, as metrics.json holds them.
        result: the training itself; None for a run that was read from a folder.

    Example:
        >>> import pandas as pd, walksum as ws
        >>> nodes = pd.DataFrame({"id": range(60), "size": [k % 7 for k in range(60)], "kind": ["a", "b"] * 30})
        >>> edges = pd.DataFrame({"source": range(58), "target": range(2, 60)})
        >>> run = ws.fit_tables(nodes, edges, "kind", model="glt", max_epochs=3)
        >>> run.metrics["data"]["nodes"], list(run.predictions.columns)[:2]
        (60, ['id', 'split'])
    """

    folder: Path | None
    config: dict[str, Any]
    metrics: dict[str, Any]
    result: Result | None = None

    @property
    def job(self) -> Job:
        """How it was trained."""
        return Job(**self.config["job"])

    @cached_property
    def encoding(self) -> Encoding:
        """How columns become features."""
        return Encoding(**self.config["encoding"])

    @cached_property
    def model(self) -> Any:
        """The trained model: a network in evaluation mode, or a portfolio."""
        return load_model(self._home / MODEL) if self.result is None else self.result.model

    @property
    def used_settings(self) -> dict[str, Any]:
        """The settings with the values that were used where the job left them open."""
        settings = dataclasses.asdict(self.job)
        if self.job.model == AUTO_NAME:
            settings = {name: value for name, value in settings.items() if name not in NETWORK_SETTINGS}
        else:
            recipe = self.job.recipe()
            settings |= {"lr": recipe.lr, "patience": recipe.patience}
        settings["split"] = self.config["columns"].get("split") or settings["split"]
        return {name: value for name, value in settings.items() if value is not None}

    @property
    def scores(self) -> pd.DataFrame:
        """Test scores, one row per method, the best first: with a 95 % interval (one seed) or a spread (several)."""
        rows = {name: {**record, "seeds": len(record["values"])} for name, record in self.metrics["test"].items()}
        table = pd.DataFrame.from_dict(rows, orient="index").drop(columns="values")
        table = table.sort_values("mean", ascending=not self.metrics.get("higher_is_better", True))
        return table.rename(columns={"mean": self.metrics["score"]}).rename_axis("method")

    @property
    def all_scores(self) -> pd.DataFrame:
        """All metrics, one row per part of the split and method.

        Rows that learned from validation nodes too (see :attr:`notes`) say nothing new about those; the portfolio's
        own are by members that did not learn from the node.
        """
        parts = {(part, name): row for part, rows in self.metrics["parts"].items() for name, row in rows.items()}
        return pd.DataFrame.from_dict(parts, orient="index").rename_axis(["split", "method"])

    @property
    def notes(self) -> list[str]:
        """What was noticed while reading and training."""
        return self.metrics["notes"]

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the training early; the weights are the best until then."""
        return self.metrics["interrupted"]

    @cached_property
    def predictions(self) -> pd.DataFrame:
        """One row per node of its own graph: id, split, truth, prediction and its interval, or probabilities."""
        if self.result is None:
            nodes = self.metrics["data"]["nodes"]
            return read_predictions(self._home / PREDICTIONS, self.config["task"] == REGRESSION, nodes)
        result = self.result
        split, encoding = result.prepared.split, result.prepared.encoding
        return prediction_table(result.problem, result.output, encoding, result.low, result.high, split)

    def importance(self) -> pd.DataFrame:
        """Permutation importance: by how much the metric falls on held-out nodes when a column is shuffled.

        The most important first, each with the standard error over those nodes. Empty where it was not measured: of
        tables of more than 200 columns, and of trainings that were interrupted.
        """
        names = ["column", "importance", "standard_error", "permutations"]
        return pd.DataFrame(self.metrics.get("importance") or [], columns=names)

    def predict(
        self,
        nodes: Any = None,
        edges: Any = None,
        *,
        graph: str | PathLike[str] | None = None,
        device: str = "auto",
        drop_unknown: bool = False,
        encoding: str = "utf-8",
    ) -> pd.DataFrame:
        """Predict for the nodes of new tables; without arguments for those the run was trained on.

        The columns are found and encoded as in training. Values that were filled in are reported by warnings.

        Args:
            nodes, edges: DataFrames or paths, with the columns of the training tables; the target is not needed, but a
                portfolio reads it where it is known.
            graph: or one file, GraphML or a PyG Data as .pt.
            device: "auto", "cpu" or "cuda".
            drop_unknown: leave out edges to unknown ids.
            encoding: of text tables.
        """
        if nodes is None and edges is None and graph is None:
            return self.predictions.copy()
        source = Source(nodes=nodes, edges=edges, graph=None if graph is None else Path(graph), encoding=encoding)
        labels = self.job.model == AUTO_NAME
        found = predict_nodes(self, problem_of_run(self, source, drop_unknown, labels), device)
        for note in found.notes:
            warnings.warn(note, stacklevel=2)
        return found.table

    def report(self, path: str | PathLike[str] | None = None) -> str:
        """The page of the run, as the text of one HTML file that needs nothing else; also written to ``path``."""
        page = self._page()
        if path is not None:
            write_file(path, page)
        return page

    def save(self, path: str | PathLike[str], force: bool = False) -> Run:
        """Write the run folder, as a whole or not at all; ``force`` overwrites a run there. Returns the run itself."""
        folder = free_folder(Path(path), "", force, "path")
        with whole_folder(folder, overwrite=force) as scratch:
            self.write(scratch)
        self.folder = folder
        return self

    @cpu_by_default
    def write(self, folder: Path, page: bool = True) -> None:
        """Write the run into an existing folder; without ``page``: all but the report and its pictures.

        One that was read from a folder is copied as it is.
        """
        if self.result is None:
            shutil.copytree(self._home, folder, dirs_exist_ok=True)
            return
        result, job = self.result, self.result.job
        shape = {}
        if job.model not in (GLT_NAME, AUTO_NAME):
            shape = compared_config(job, result.prepared.x.size(1), result.problem.outputs, result.problem.num_nodes)
        save_model(result.model, folder / MODEL, shape)
        (folder / CONFIG).write_text(json.dumps(self.config, indent=2))
        (folder / METRICS).write_text(json.dumps(self.metrics, indent=2))
        write_predictions(folder / PREDICTIONS, self.predictions)
        if self.metrics["importance"] is not None:
            write_table(folder / IMPORTANCE, self.importance())
        if page:
            from walksum.workflow.page import write_page

            write_page(result, self.metrics, folder / REPORT, self.used_settings)

    @cpu_by_default
    def _page(self) -> str:
        if self.result is None:
            file = self._home / REPORT
            if not file.is_file():
                raise ValueError(f"{self._home} holds no {REPORT}; it was written without one")
            try:
                page = file.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                page = ""
            if not page.rstrip().endswith("</html>"):
                raise ValueError(f"{file} is damaged: it ends in the middle; train again")
            return page
        from walksum.workflow.page import write_page

        with tempfile.TemporaryDirectory() as scratch:
            write_page(self.result, self.metrics, Path(scratch, REPORT), self.used_settings)
            return Path(scratch, REPORT).read_text(encoding="utf-8")

    @property
    def _home(self) -> Path:
        assert self.folder is not None
        return self.folder

    def __repr__(self) -> str:
        metrics, data, split = self.metrics, self.metrics["data"], self.metrics["split"]
        seeds = len(metrics["seeds"])
        lines = [
            f"Run: {metrics['model']} predicts {data['target']!r} of {data['name']} ({data['task']})",
            f"  {data['nodes']} nodes, {data['edges']} edges; {split['train']} training, {split['val']} validation and "
            f"{split['test']} test nodes",
            f"  test {metrics['score']}: "
            + ", ".join(_score_text(name, metrics["test"][name]) for name in ranked(metrics)),
            f"  {self.job.settings}; {_how_long(metrics)}, {metrics['seconds']:.1f} s"
            + (f", {seeds} seeds" if seeds > 1 else ""),
        ]
        if metrics.get("graph") is not None or metrics.get("portfolio"):
            lines.append(f"  {graph_text(metrics)}")
        if self.notes:
            lines.append(f"  {len(self.notes)} note{'s' * (len(self.notes) != 1)}: see .notes")
        if self.interrupted:
            lines.append("  interrupted: the best weights until then")
        lines.append("  not saved yet: .save(path)" if self.folder is None else f"  in {self.folder}")
        return "\n".join(lines)


def _how_long(metrics: dict[str, Any]) -> str:
    if metrics.get("portfolio"):
        return f"{metrics['portfolio']['count']} members"
    return f"best epoch {metrics['best_epoch']['number']} of {metrics['epochs']}"


def _score_text(name: str, record: dict[str, Any]) -> str:
    beside = f" [{record['low']:.3f}, {record['high']:.3f}]" if "low" in record else f" ± {record['spread']:.3f}"
    return f"{name} {record['mean']:.3f}{beside}"


def open_run(path: str | PathLike[str]) -> Run:
    """Read the run in a folder that :meth:`Run.save` or ``walksum train`` wrote.

    Example:
        >>> import tempfile
        >>> import pandas as pd, walksum as ws
        >>> nodes = pd.DataFrame({"id": range(60), "size": [k % 7 for k in range(60)], "kind": ["a", "b"] * 30})
        >>> edges = pd.DataFrame({"source": range(58), "target": range(2, 60)})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = ws.fit_tables(nodes, edges, "kind", model="glt", max_epochs=3).save(f"{folder}/run")
        ...     ws.open_run(f"{folder}/run").metrics["model"]
        'GLT'
    """
    folder = Path(path)
    config = _read(folder, CONFIG)
    if isinstance(config, dict) and config.get("format") == SEVERAL:
        inside = ", ".join(str(folder / place) for place in config["targets"].values())
        raise ValueError(f"{folder} holds the runs of several targets; open one of {inside}")
    metrics = _read(folder, METRICS)
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        found = config.get("format") if isinstance(config, dict) else None
        raise ValueError(
            f"{folder} is of format {found!r}, not {FORMAT}: a newer walksum wrote it, or something else; "
            "use that version, or train again"
        )
    return Run(folder, config, metrics)


def _read(folder: Path, name: str) -> Any:
    file = folder / name
    if not file.is_file():
        raise ValueError(f"{folder} is not a run of 'walksum train': it holds no {name}")
    try:
        return json.loads(file.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is damaged: {error}") from error


def run_of(results: list[Result], search: SearchResult | None = None) -> Run:
    """Make a run of one result per seed; it keeps the model that is best on its validation nodes."""
    result = chosen(results)
    problem = result.problem
    config = {
        "format": FORMAT,
        "name": problem.name,
        "task": problem.task,
        "target": problem.target,
        "classes": problem.classes,
        "columns": problem.columns,
        "job": dataclasses.asdict(result.job),
        "encoding": result.prepared.encoding.to_json(),
    }
    return Run(None, config, finite_or_none(metrics_of(results, search)), result)


def free_folder(out: Path | None, name: str, force: bool = False, argument: str = "out") -> Path:
    """``out``, or the first of runs/NAME, runs/NAME-2, ... that is free; ``force``: a run may be overwritten.

    ``argument`` is what messages call ``out``.
    """
    if force:
        out = Path("runs", name) if out is None else out
        if out.exists() and not (out / CONFIG).is_file():
            raise ValueError(f"{argument}={out} is no run of 'walksum train', so force=True does not overwrite it")
        return out
    if out is not None:
        if out.exists():
            raise ValueError(
                f"{argument}={out} already exists; name a new folder, or pass force=True to overwrite the run"
            )
        return out
    folder, number = Path("runs", name), 1
    while folder.exists():
        number += 1
        folder = Path("runs", f"{name}-{number}")
    return folder
