"""Which figures a run and the paper have, by the library and without the command."""

import copy
import dataclasses
import math
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from gallery import random_graph
from walksum.data.problem import from_data
from walksum.paper.figures import of_paper, train_design
from walksum.training import Epoch
from walksum.workflow.figures import Listener, of_run, small_part
from walksum.workflow.fit import Job
from walksum.workflow.fit import fit_once as run_job
from walksum.workflow.page import page_figures
from walksum.workflow.run import open_run, run_of


@pytest.fixture(scope="module")
def problem():
    torch.manual_seed(0)
    graph, y = random_graph(60, 150), torch.arange(60) % 3
    edges = torch.cat([graph.edges, graph.edges.flip(0)], 1)
    return from_data("toy", Data(x=torch.eye(3)[y] + torch.randn(60, 3), edge_index=edges, y=y))


def fit(problem, **job):
    return run_job(Job(max_epochs=3, hidden=8, split="0.6,0.2,0.2", **job), problem)


@pytest.fixture(scope="module")
def learned(problem):
    return fit(problem, learned=True, design="laplacian", solver="gabp")


def test_a_learned_run_on_labelled_nodes_has_all_figures(problem, learned, tmp_path):
    run_of([learned]).write(tmp_path, page=False)
    doing, notes = [], []
    listener = Listener(doing.append, notes.append)
    drawings = {each.name: each for each in of_run(open_run(tmp_path), problem, ["gcn"], 1, listener)}
    names = "learning graphical-model correlation correlation-heads spectral-response convergence steps-by-epoch"
    assert [*drawings] == [*names.split(), "walk-sums", "influence-by-hop"]
    assert notes == []
    assert "training gcn" in doing
    assert all(each.draw("dark").axes for each in drawings.values())
    with pytest.raises(ValueError, match="layer=3; the model has layers 1 to 2"):
        list(of_run(open_run(tmp_path), problem, [], 3))


def test_history_is_read_back_as_it_was(learned, tmp_path):
    run_of([learned]).write(tmp_path, page=False)
    assert [Epoch.from_json(each) for each in open_run(tmp_path).metrics["history"]] == learned.outcome.history
    assert all(epoch.forward_steps > 0 and epoch.backward_steps > 0 for epoch in learned.outcome.history)
    old = {"number": 1, "train_loss": 0.5, "val_loss": None, "val_score": None, "test_score": None, "extra": 1}
    epoch = Epoch.from_json(old)
    assert dataclasses.replace(epoch, val_loss=0, val_score=0, test_score=0) == Epoch(1, 0.5, 0, 0, 0)
    assert math.isnan(epoch.val_loss)


def test_the_page_shows_them_and_stays_small(learned):
    shown = list(page_figures(learned))
    assert [title for title, _, _ in shown] == [
        "How it learned",
        "The graph as a Gaussian graphical model",
        "Which nodes move together",
        "What it lets pass",
        "How far it looks",
    ]
    assert all(len(pictures) == 2 for _, pictures, _ in shown)  # light and dark
    assert sum(len(address) for _, pictures, _ in shown for address in pictures) < 4e6
    assert not list(page_figures(dataclasses.replace(learned, interrupted=True)))  # who ends a training waits for it


def test_the_page_of_a_model_without_precision(problem):
    shown = [title for title, _, _ in page_figures(fit(problem, model="gcn"))]
    assert shown == ["How it learned", "How far it looks"]


@pytest.mark.filterwarnings("ignore::walksum.SolveWarning")
def test_a_training_that_diverged_still_has_its_page(problem, learned):
    broken = copy.deepcopy(learned.model)
    with torch.no_grad():
        broken.embed.weight.fill_(torch.nan)
    shown = {
        title: (pictures, text) for title, pictures, text in page_figures(dataclasses.replace(learned, model=broken))
    }
    assert len(shown["How it learned"][0]) == 2
    pictures, text = shown["Which nodes move together"]
    assert pictures == []
    assert text.startswith("could not be drawn")


@pytest.mark.filterwarnings("ignore::walksum.SolveWarning")
def test_the_paper_has_its_figures(problem, monkeypatch):
    from walksum.analysis import convergence

    monkeypatch.setattr(convergence, "DENSELY", 2)  # few points on a curve: which figures there are is asked here
    monkeypatch.setattr(convergence, "GROWTH", 6.0)
    monkeypatch.setattr("walksum.paper.figures.COUNTED", 1)
    small = dataclasses.replace(problem, data=None)
    drawings = {each.name: each for each in of_paper(small, 0, ["appnp"], max_epochs=2)}
    learned = [f"figure-{k}{end}" for k in (5, 6, 7) for end in ("", "-heads")]
    more = ["spectral-response", "influence-by-hop", "convergence", "steps-by-epoch", "walk-sums"]
    assert [*drawings] == ["figure-1", "figure-4", *learned, *more]
    assert len(drawings["figure-4"].draw("light").axes) == 7  # three designs, two rows, one colour bar


def test_a_small_part_is_small_and_connected_enough(learned):
    J = learned.model.precisions(learned.prepared.x, learned.problem.graph)[0]
    part, centre = small_part(J)
    assert part.num_nodes <= 25
    assert int(part.graph.degree[centre]) == int(part.graph.degree.max())
    assert part.is_walk_summable
    np.testing.assert_array_less(part.walk_summability()[0], J.walk_summability()[1] + 1e-6)


def test_the_numbers_of_the_figures_can_be_measured_again():
    """By the script that writes results/figures.txt."""
    y, nodes = torch.arange(60) % 3, torch.arange(60)
    problem = from_data("path", Data(x=torch.eye(3)[y], edge_index=torch.stack([nodes[1:], nodes[:-1]]), y=y))
    measure = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "figures.py"))["measure"]
    job = Job(design="laplacian", learned=True, hidden=16, max_epochs=2, split="0.6,0.2,0.2")
    found = measure(train_design(job, problem, Listener()))
    assert 0 <= found["test accuracy"] <= 1
    assert 0 < found["mean |correlation|"] < 1
    assert found["kind"].endswith(("pass", "stop", "flat"))
