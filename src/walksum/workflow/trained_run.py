"""TrainedRun: a trained model with the graph it was trained on, as figures and the explorer look at it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from walksum.analysis.convergence import Curve, layer_systems, residual_curves
from walksum.analysis.hops import Hops, hop_shares
from walksum.data.encoding import Encoding
from walksum.data.frames import short
from walksum.data.numerals import written
from walksum.data.problem import Problem
from walksum.designs import DESIGNS
from walksum.field.fit import LEVEL_95
from walksum.graph import Graph
from walksum.nn import GLT
from walksum.portfolio.fit import Portfolio
from walksum.precision import Precision
from walksum.training import TASKS
from walksum.workflow.auto import ask, output_of
from walksum.workflow.fit import edges_for, make_model, predict
from walksum.workflow.job import Job, smoothed
from walksum.workflow.operators import ModelOperator, operators_of
from walksum.workflow.predict import known_residuals, rows_of, same_truth
from walksum.workflow.prepare import PreparedData
from walksum.workflow.run import Run

UNKNOWN = "?"
MOST_MATCHES = 8
NAME_COLUMNS = ("name", "title")  # of a nodes table, in this order


@dataclass(frozen=True)
class TrainedRun:
    """A trained model with the graph it was trained on; immutable.

    Attributes:
        title: for the head of a page.
        problem: graph, ids and labels.
        x: encoded features.
        encoding: how the target is scaled.
        model: the trained model.
        training: the nodes whose labels it learned from, where that is known.
        job: how it was trained, where that is known.
        prepared: what it was trained on; None where the nodes have no labels.
        hidden: nodes whose targets the model never read: those it was tested on.
        stored: the predictions of the run, for the nodes of this graph, where they were kept.
        residuals: of a portfolio, out-of-fold residuals of nodes that training knew, standardised.
        metrics: of the run.
        table: the user's table of nodes as it came, one row per node.
    """

    title: str
    problem: Problem
    x: Tensor
    encoding: Encoding
    model: nn.Module | Portfolio
    training: frozenset[int] | None = None
    job: Job | None = None
    prepared: PreparedData | None = None
    hidden: frozenset[int] = frozenset()
    stored: pd.DataFrame | None = None
    residuals: np.ndarray | None = None
    metrics: dict[str, Any] | None = None
    table: pd.DataFrame | None = None

    @classmethod
    def of_prepared(cls, job: Job, prepared: PreparedData, model: Any) -> TrainedRun:
        """A model fresh from its training."""
        nodes, table = frozenset(prepared.split.train.tolist()), prepared.problem.features
        table = table if isinstance(table, pd.DataFrame) else None
        return cls(job.title, prepared.problem, prepared.x, prepared.encoding, model, nodes, job, prepared, table=table)

    @property
    def graph(self) -> Graph:
        return self.problem.graph

    @property
    def num_nodes(self) -> int:
        return self.problem.num_nodes

    @property
    def edges(self) -> Any:
        """What the model is called with beside x."""
        assert isinstance(self.model, nn.Module)
        return edges_for(self.model, self.problem)

    @property
    def design(self) -> str:
        assert self.job is not None
        return f"{'learned' if self.job.learned else 'fixed'} {DESIGNS[self.job.design].title}"

    def kind(self, layer: int) -> str:
        """The name of a layer's J in figures."""
        return self.design if isinstance(self.model, GLT) else self.operators[layer].name

    # ---- what the model predicts ----

    @cached_property
    def output(self) -> Tensor:
        """Probabilities ``[N, C]``, or predicted numbers ``[N]``: the kept ones, or as the model answers now."""
        if self.stored is None or not isinstance(self.model, Portfolio):
            return self.answer(self.x, self.problem)
        # kept ones of a portfolio are from folds that did not learn from the node
        classes = [f"probability_{name}" for name in self.problem.classes]
        columns = "prediction" if self.problem.regression else classes
        return torch.tensor(self.stored[columns].to_numpy(np.float64), dtype=torch.float32)

    def answer(self, x: Tensor, problem: Problem, changed: Collection[int] = ()) -> Tensor:
        """The model's output for other features or edges of these nodes.

        A portfolio reads known targets, except those of ``changed`` nodes, which belong to other features.
        """
        if isinstance(self.model, Portfolio):
            y = self.known_y.clone()
            y[sorted(changed)] = torch.nan if problem.regression else -1
            known = replace(problem, y=y)
            found = ask(self.model, known, x, self.encoding, self.residuals)
            return output_of(found, self.encoding, problem.regression).output
        return predict(self.model, x, problem, self.encoding)

    @cached_property
    def known_y(self) -> Tensor:
        """Targets that the model may read: those of test nodes are hidden."""
        y = self.problem.y.clone()
        y[sorted(self.hidden)] = torch.nan if self.problem.regression else -1
        return y

    @cached_property
    def deviation(self) -> np.ndarray | None:
        """Standard deviation of each predicted number ``[N]``; None where none was kept."""
        if self.stored is None or "low" not in self.stored:
            return None
        return (self.stored["high"] - self.stored["low"]).to_numpy() / (2 * LEVEL_95)

    @cached_property
    def error(self) -> np.ndarray:
        """Of numbers prediction minus truth; of classes one minus the true class's probability; NaN if not known."""
        y = self.problem.y.numpy()
        if self.problem.regression:
            return self.prediction.astype(np.float64) - y
        share = self.output.double().numpy()[np.arange(len(y)), np.maximum(y, 0)]
        return np.where(y >= 0, 1 - share, np.nan)

    @cached_property
    def prediction(self) -> np.ndarray:
        """Class numbers, or numbers."""
        return self.output.numpy() if self.problem.regression else self.decided(self.output).numpy()

    def decided(self, shares: Tensor) -> Tensor:
        """The class of each row of probabilities ``[N, C]``, by the run's class weights."""
        return self.encoding.weighed(shares).argmax(1)

    def predicted(self, node: int) -> str:
        value = self.prediction[node]
        return written(float(value)) if self.problem.regression else self.problem.classes[int(value)]

    def probability(self, node: int) -> float | None:
        """Of the predicted class; None for a number."""
        return None if self.problem.regression else float(self.output[node, int(self.prediction[node])])

    # ---- what its layers solve ----

    @cached_property
    def operators(self) -> list[ModelOperator]:
        """Every linear operator of the model; none of a model that has no J."""
        y = self.known_y.double().numpy()
        targets = y if self.problem.regression else np.where(y < 0, np.nan, y)
        return operators_of(self.model, self.x, self.graph, targets, self.residuals, scale=self.encoding.target_scale)

    @property
    def precisions(self) -> list[Precision]:
        """J of every operator as trained, in float64."""
        return [operator.J for operator in self.operators]

    def untrained(self, layer: int = 0) -> Precision | None:
        """J of the same layer with the weights training began with; None where they are not known."""
        if self.job is None or not self.job.learned or self.prepared is None or not isinstance(self.model, GLT):
            return None
        fresh = make_model(self.job, self.problem, self.prepared.encoding).eval()
        assert isinstance(fresh, GLT)
        return fresh.precisions(self.x, self.graph)[layer].detach().to(torch.float64)

    def loss(self, output: Tensor) -> Tensor:
        """The training loss; without labels the mean square of the output, to have something to differentiate."""
        if self.prepared is None:
            return output.square().mean()
        known = self.prepared.split.train
        return TASKS[self.problem.task].loss(output[known], self.prepared.y[known])

    def hops(self, nodes: Tensor | None = None) -> Hops:
        """Influence by hop, at ``nodes`` or at some drawn with a fixed seed."""
        assert isinstance(self.model, nn.Module)
        return hop_shares(smoothed(self.model, self.encoding.smoothing), self.x, self.edges, self.graph, nodes)

    def curves(self, layer: int = 0) -> list[Curve]:
        """Residuals of every solver on the systems of one training pass."""
        return residual_curves(*layer_systems(self.model, self.x, self.edges, self.loss)[layer])

    # ---- its nodes ----

    @cached_property
    def _nodes(self) -> dict[str, int]:
        return {str(name): node for node, name in enumerate(self.problem.ids)}

    def name(self, node: int) -> str:
        return str(self.problem.ids[node])

    @cached_property
    def name_column(self) -> str | None:
        """The column of the user's table that holds names: called so, or of words that nearly all differ."""
        if self.table is None:
            return None
        called = {str(column).lower(): str(column) for column in self.table.columns}
        for name in NAME_COLUMNS:
            if name in called:
                return called[name]
        for column in self.table.columns:
            words = self.table[column]
            if not pd.api.types.is_numeric_dtype(words) and words.nunique() > 0.9 * len(words):
                return str(column)
        return None

    def title_of(self, node: int) -> str:
        """The node's id, with its name where the user's table has one."""
        return self._titles[node]

    @cached_property
    def _titles(self) -> list[str]:
        ids, names = [str(name) for name in self.problem.ids], self.problem.names
        if names is None and self.table is not None and self.name_column is not None:
            names = self.table[self.name_column].to_numpy(dtype=object)
        said = ids if names is None else [str(name) for name in names]
        kept = (name in ("nan", "None", "", each) for each, name in zip(ids, said, strict=True))
        return [each if alone else f"{each}, {name}" for each, name, alone in zip(ids, said, kept, strict=True)]

    def values(self, node: int) -> list[tuple[str, Any]]:
        """The node's columns, as they came."""
        frame = self.problem.features if self.table is None else self.table
        return [] if isinstance(frame, Tensor) else [(str(name), value) for name, value in frame.iloc[node].items()]

    def node(self, name: str) -> int:
        """The node of that id; a ValueError that says what to try otherwise."""
        found = self._nodes.get(name, self._nodes.get(name.strip()))  # an id may begin or end with a space
        if found is None:
            first, last = (short(self.name(k)) for k in (0, -1))
            raise ValueError(
                f"No node has the id {short(name.strip())}. There are {self.num_nodes} nodes, from {first} to {last}."
            )
        return found

    def search(self, text: str) -> list[int]:
        """The node of exactly that id; else those whose ids or names hold the text, first those that begin with it."""
        for exact in (text, text.strip()):
            if exact in self._nodes:
                return [self._nodes[exact]]
        wanted = text.strip().lower()
        if not wanted:
            return []
        titles = ((title.lower(), node) for node, title in enumerate(self._titles))
        holding = [(not title.startswith(wanted), node) for title, node in titles if wanted in title]
        return [node for _, node in sorted(holding)[:MOST_MATCHES]]

    def label(self, node: int) -> str:
        """The true target in words."""
        y = self.problem.y[node]
        if self.problem.regression:
            return UNKNOWN if bool(y.isnan()) else written(float(y))
        return UNKNOWN if int(y) < 0 else self.problem.classes[int(y)]

    def is_training(self, node: int) -> bool:
        return self.training is not None and node in self.training

    @cached_property
    def suggestions(self) -> list[tuple[str, int]]:
        """Nodes worth a first look and why, the most useful first."""
        most = ("most neighbours", int(self.graph.degree.argmax()))
        known = np.flatnonzero(~np.isnan(self.error))
        known = np.array([node for node in known if not self.is_training(int(node))], dtype=np.int64)
        if not known.size:
            return [most]
        if self.problem.regression:
            off = np.abs(self.error[known])
            return [("largest error", int(known[off.argmax()])), ("smallest error", int(known[off.argmin()])), most]
        found = []
        top = self.output.numpy()[known, self.prediction[known]]
        right = self.prediction[known] == self.problem.y.numpy()[known]
        wrong = ~right & (self.graph.degree.numpy()[known] > 1)  # a node without neighbours has no sources to look at
        wrong = wrong if wrong.any() else ~right
        if wrong.any():
            found.append(("surest of the wrong ones", int(known[wrong][top[wrong].argmax()])))
        if right.any():
            found.append(("least sure, yet right", int(known[right][top[right].argmin()])))
        return [*found, most]


def open_trained_run(
    run: Run, problem: Problem, title: str, prepared: PreparedData | None = None, table: pd.DataFrame | None = None
) -> TrainedRun:
    """Combine a run with the graph it was trained on, or another one with the same columns.

    Another graph may have the same ids: by a target that the run did not know, or another number of edges, it is told.
    """
    x = run.encoding.encode(problem.features)
    rows = rows_of(run, problem)
    known = ~torch.isnan(problem.y).numpy() if problem.regression else (problem.y >= 0).numpy()
    own = "truth" in rows and bool(same_truth(rows, problem)[known].all())
    split = np.where(known, rows["split"].fillna(""), "") if own else np.full(problem.num_nodes, "")
    train, test = (frozenset(np.flatnonzero(split == part).tolist()) for part in ("train", "test"))
    model, residuals = run.model, None
    if isinstance(model, Portfolio) and problem.regression:
        residuals = known_residuals(run, model, problem)
    data = run.metrics["data"]
    own = own and (data["nodes"], data["edges"]) == (problem.num_nodes, problem.graph.num_edges)
    stored = rows if own and not rows["prediction"].isna().any() else None
    return TrainedRun(
        title,
        problem,
        x,
        run.encoding,
        model,
        training=train or None,
        job=run.job,
        prepared=prepared,
        hidden=test,
        stored=stored,
        residuals=residuals,
        metrics=run.metrics,
        table=table,
    )
