"""What simpler methods reach with the same labels: the rows beside the trained model."""

from __future__ import annotations

import warnings
from dataclasses import replace

import torch
from torch import Tensor

from walksum.data.problem import Problem
from walksum.data.splits import Split
from walksum.graph import Graph
from walksum.training.metrics import Score, score_classes, score_numbers
from walksum.workflow.fit import Job, OnEpoch, PreparedData, fit_model, predict, score

ALPHAS = (0.2, 0.5, 0.8, 0.9, 0.95, 0.99)
SPREADING_LIMIT = 3000  # nodes up to which LabelSpreading, which is dense, is run beside


def compare(job: Job, prepared: PreparedData, on_epoch: OnEpoch | None) -> dict[str, Score]:
    """Test scores by method: features without the graph, the graph without features, the target's distribution."""
    problem, split, scores = prepared.problem, prepared.split, {}
    if job.model != "mlp":
        scores["MLP"] = _mlp(job, prepared, on_epoch)
    if not problem.regression and problem.num_nodes <= SPREADING_LIMIT:
        guess = label_spreading(problem.graph, problem.y, split)
        scores["LabelSpreading"] = score_classes(guess[split.test], problem.y[split.test])
    return scores | _constant(problem, split)


def _mlp(job: Job, prepared: PreparedData, on_epoch: OnEpoch | None) -> Score:
    model, outcome = fit_model(replace(job, model="mlp", lr=None, patience=None), prepared, on_epoch)
    if outcome.interrupted:
        raise KeyboardInterrupt
    return score(predict(model, prepared.x, prepared.problem, prepared.encoding), prepared.problem, prepared.split)


def _constant(problem: Problem, split: Split) -> dict[str, Score]:
    truth, known = problem.y[split.test], problem.y[split.train]
    if problem.regression:
        return {"mean": score_numbers(known.mean().expand_as(truth), truth)}
    return {"majority class": score_classes(torch.full_like(truth, int(torch.bincount(known).argmax())), truth)}


def label_spreading(graph: Graph, y: Tensor, split: Split) -> Tensor:
    """Classes by scikit-learn's LabelSpreading on the same graph and labels, alpha chosen on validation.

    Edge weights count where none is negative, as the method asks.
    """
    from sklearn.semi_supervised import LabelSpreading

    adjacency = _adjacency(graph)
    known = torch.full_like(y, -1)
    known[split.train] = y[split.train]
    best, chosen = -1.0, y
    for alpha in ALPHAS:
        spread = LabelSpreading(kernel=lambda X, Y: adjacency.numpy(), alpha=alpha, max_iter=1000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a part of the graph without labels divides by zero there
            guess = torch.from_numpy(spread.fit(adjacency.numpy(), known.numpy()).transduction_)
        right = (guess == y)[split.val].double().mean().item()
        if right >= best:
            best, chosen = right, guess
    return chosen


def _adjacency(graph: Graph) -> Tensor:
    weight = graph.edge_weight
    values = torch.ones(graph.num_edges) if weight is None or bool((weight < 0).any()) else weight.float()
    adjacency = torch.zeros(graph.num_nodes, graph.num_nodes)
    i, j = graph.edges
    adjacency[i, j] = adjacency[j, i] = values
    return adjacency
