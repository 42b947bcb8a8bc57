"""Subject: the graph, its labels and the trained model that are being looked at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from walksum.data.encoding import Encoding
from walksum.data.problem import Problem
from walksum.graph import Graph
from walksum.nn import GLT
from walksum.precision import Precision
from walksum.workflow.fit import predict
from walksum.workflow.run import Run

UNKNOWN = "?"
MOST_MATCHES = 8


@dataclass(frozen=True)
class Subject:
    """What one explorer shows; nothing in it changes while the page is open.

    Attributes:
        title: for the head of the page.
        problem: graph, ids and labels.
        x: encoded features.
        encoding: how the target is scaled.
        model: the trained model.
        training: the nodes whose labels it learned from, where that is known.
    """

    title: str
    problem: Problem
    x: Tensor
    encoding: Encoding
    model: GLT
    training: frozenset[int] | None = None

    @property
    def graph(self) -> Graph:
        return self.problem.graph

    @property
    def num_nodes(self) -> int:
        return self.problem.num_nodes

    @cached_property
    def output(self) -> Tensor:
        """Probabilities ``[N, C]``, or predicted numbers ``[N]``."""
        return predict(self.model, self.x, self.problem, self.encoding)

    @cached_property
    def prediction(self) -> np.ndarray:
        """Class numbers, or numbers."""
        found = self.output if self.problem.regression else self.output.argmax(1)
        return found.numpy()

    @cached_property
    def precisions(self) -> list[Precision]:
        """J of every layer as trained, in float64."""
        return [J.detach().to(torch.float64) for J in self.model.precisions(self.x, self.graph)]

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

    def predicted(self, node: int) -> str:
        value = self.prediction[node]
        return f"{float(value):.4g}" if self.problem.regression else self.problem.classes[int(value)]

    def probability(self, node: int) -> float | None:
        """Of the predicted class; None for a number."""
        return None if self.problem.regression else float(self.output[node].max())

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
            "explore a run of 'walksum train' with model='glt', the default"
        )


def subject_of_run(run: Run, problem: Problem, title: str) -> Subject:
    """A run and the graph it was trained on (or another with the same columns)."""
    model = run.model
    assert isinstance(model, GLT)
    x = run.encoding.encode(problem.features)
    return Subject(title, problem, x, run.encoding, model, _training_nodes(run, problem))


def _training_nodes(run: Run, problem: Problem) -> frozenset[int] | None:
    """Of the graph the run was trained on, where its split can be drawn again; tables do not tell how they were cut."""
    from walksum.data.problem_split import split_problem

    trained = run.metrics["data"]
    same = (trained["nodes"], trained["edges"], trained["labelled_nodes"])
    if problem.data is None or same != (problem.num_nodes, problem.graph.num_edges, problem.labelled.numel()):
        return None
    return frozenset(split_problem(problem, run.job.split, run.job.seed).train.tolist())
