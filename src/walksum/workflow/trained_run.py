"""TrainedRun: a trained model with the graph it was trained on, as figures and the explorer look at it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from walksum.analysis.convergence import Curve, layer_systems, residual_curves
from walksum.analysis.hops import Hops, hop_shares
from walksum.data.encoding import Encoding
from walksum.data.problem import Problem
from walksum.designs import DESIGNS
from walksum.graph import Graph
from walksum.nn import GLT
from walksum.precision import Precision
from walksum.training import TASKS
from walksum.workflow.fit import Job, PreparedData, edges_for, make_model, predict
from walksum.workflow.models import AUTO_NAME
from walksum.workflow.run import Run

UNKNOWN = "?"
MOST_MATCHES = 8


@dataclass(frozen=True)
class TrainedRun:
    """A trained model with its graph; nothing in it changes.

    Attributes:
        title: for the head of a page.
        problem: graph, ids and labels.
        x: encoded features.
        encoding: how the target is scaled.
        model: the trained model.
        training: the nodes whose labels it learned from, where that is known.
        job: how it was trained, where that is known.
        prepared: what it was trained on; None where the nodes have no labels.
    """

    title: str
    problem: Problem
    x: Tensor
    encoding: Encoding
    model: nn.Module
    training: frozenset[int] | None = None
    job: Job | None = None
    prepared: PreparedData | None = None

    @classmethod
    def of_prepared(cls, job: Job, prepared: PreparedData, model: Any) -> TrainedRun:
        """A model fresh from its training."""
        nodes = frozenset(prepared.split.train.tolist())
        return cls(job.title, prepared.problem, prepared.x, prepared.encoding, model, nodes, job, prepared)

    @property
    def graph(self) -> Graph:
        return self.problem.graph

    @property
    def num_nodes(self) -> int:
        return self.problem.num_nodes

    @property
    def edges(self) -> Any:
        """What the model is called with beside x."""
        return edges_for(self.model, self.problem)

    @property
    def design(self) -> str:
        assert self.job is not None
        return f"{'learned' if self.job.learned else 'fixed'} {DESIGNS[self.job.design].title}"

    # ---- what the model predicts ----

    @cached_property
    def output(self) -> Tensor:
        """Probabilities ``[N, C]``, or predicted numbers ``[N]``."""
        return predict(self.model, self.x, self.problem, self.encoding)

    @cached_property
    def prediction(self) -> np.ndarray:
        """Class numbers, or numbers."""
        found = self.output if self.problem.regression else self.output.argmax(1)
        return found.numpy()

    def predicted(self, node: int) -> str:
        value = self.prediction[node]
        return f"{float(value):.4g}" if self.problem.regression else self.problem.classes[int(value)]

    def probability(self, node: int) -> float | None:
        """Of the predicted class; None for a number."""
        return None if self.problem.regression else float(self.output[node].max())

    # ---- what its layers solve ----

    @cached_property
    def precisions(self) -> list[Precision]:
        """J of every layer as trained, in float64."""
        assert isinstance(self.model, GLT)
        return [J.detach().to(torch.float64) for J in self.model.precisions(self.x, self.graph)]

    def untrained(self, layer: int = 0) -> Precision | None:
        """J of the same layer with the weights training began with; None where they are not known."""
        if self.job is None or not self.job.learned or self.prepared is None:
            return None
        fresh = make_model(self.job, self.problem, self.prepared.encoding).eval()
        assert isinstance(fresh, GLT)
        return fresh.precisions(self.x, self.graph)[layer].detach().to(torch.float64)

    def loss(self, output: Tensor) -> Tensor:
        """What training descended; without labels the size of the output, for something to differentiate."""
        if self.prepared is None:
            return output.square().mean()
        known = self.prepared.split.train
        return TASKS[self.problem.task].loss(output[known], self.prepared.y[known])

    def hops(self, nodes: Tensor | None = None) -> Hops:
        """How far the model looks, at ``nodes`` or at some drawn from a fixed seed."""
        return hop_shares(self.model, self.x, self.edges, self.graph, nodes)

    def curves(self, layer: int = 0) -> list[Curve]:
        """Residuals of every solver on the systems of one training pass."""
        system = layer_systems(self.model, self.x, self.edges, self.loss)[layer]
        return residual_curves(system.J, system.h, system.grad)

    # ---- its nodes ----

    @cached_property
    def _nodes(self) -> dict[str, int]:
        return {str(name): node for node, name in enumerate(self.problem.ids)}

    def name(self, node: int) -> str:
        return str(self.problem.ids[node])

    def node(self, name: str) -> int:
        """The node of that id; a ValueError that says what to try otherwise."""
        found = self._nodes.get(name.strip())
        if found is None:
            last = self.name(self.num_nodes - 1)
            raise ValueError(
                f"No node has the id {name.strip()!r}. There are {self.num_nodes} nodes, "
                f"from {self.name(0)!r} to {last!r}."
            )
        return found

    def search(self, text: str) -> list[int]:
        """The node of exactly that id; else those whose ids begin with the text or hold it, the former first."""
        text = text.strip()
        if text in self._nodes:
            return [self._nodes[text]]
        wanted = text.lower()
        if not wanted:
            return []
        holding = [
            (not name.lower().startswith(wanted), node) for name, node in self._nodes.items() if wanted in name.lower()
        ]
        return [node for _, node in sorted(holding)[:MOST_MATCHES]]

    def label(self, node: int) -> str:
        """The true target in words."""
        y = self.problem.y[node]
        if self.problem.regression:
            return UNKNOWN if bool(y.isnan()) else f"{float(y):.4g}"
        return UNKNOWN if int(y) < 0 else self.problem.classes[int(y)]

    def is_training(self, node: int) -> bool:
        return self.training is not None and node in self.training

    @cached_property
    def suggestions(self) -> list[tuple[str, int]]:
        """Nodes worth a first look, and why."""
        found = [("most neighbours", int(self.graph.degree.argmax()))]
        if self.problem.regression:
            return found
        known = np.flatnonzero(self.problem.y.numpy() >= 0)
        known = np.array([node for node in known if not self.is_training(int(node))], dtype=np.int64)
        if known.size:
            top = self.output.max(1).values.numpy()[known]
            right = self.prediction[known] == self.problem.y.numpy()[known]
            if right.any():
                found.append(("least sure, yet right", int(known[right][top[right].argmin()])))
            if (~right).any():
                found.append(("surest of the wrong ones", int(known[~right][top[~right].argmax()])))
        return found


def check_explorable(run: Run) -> None:
    """Before a large file is read."""
    name = run.config["job"]["model"]
    if name != "glt":
        raise ValueError(
            f"{run.folder} holds the model {name!r}, which has no precision matrix J to look at; "
            "explore a run of 'walksum train --model glt'"
        )


def open_trained_run(run: Run, problem: Problem, title: str, prepared: PreparedData | None = None) -> TrainedRun:
    """A run and the graph it was trained on (or another with the same columns)."""
    if run.job.model == AUTO_NAME:
        raise ValueError(
            f"{run.folder} holds a portfolio, which has neither epochs nor a J to draw: see its report.html, or "
            "train with --model glt"
        )
    x = run.encoding.encode(problem.features)
    known = _training_nodes(run, problem)
    return TrainedRun(title, problem, x, run.encoding, run.model, known, run.job, prepared)


def _training_nodes(run: Run, problem: Problem) -> frozenset[int] | None:
    """Of the graph the run was trained on, where its split can be drawn again; tables do not tell how they were cut."""
    from walksum.data.problem_split import split_problem

    trained = run.metrics["data"]
    same = (trained["nodes"], trained["edges"], trained["labelled_nodes"])
    if problem.data is None or same != (problem.num_nodes, problem.graph.num_edges, problem.labelled.numel()):
        return None
    return frozenset(split_problem(problem, run.job.split, run.job.seed).train.tolist())
