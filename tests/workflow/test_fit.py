"""Training, judging and searching, without the command around them."""

import math
import sys

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import walksum as ws
from walksum.analysis import variance
from walksum.data.problem import from_data
from walksum.data.splits import Split
from walksum.training import metrics
from walksum.training.loop import Recipe, train
from walksum.workflow.fit import Job, material_of, run
from walksum.workflow.search import Random, best_sampler, search


@pytest.fixture(scope="module")
def rings():
    """Two rings of 40; the features say faintly which."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(80) // 40
    node = torch.arange(80)
    ring = torch.stack([node, 40 * y + (node + 1) % 40])
    x = torch.randn(80, 4, generator=draw) + 0.5 * y.unsqueeze(1)
    return from_data("rings", Data(x=x, edge_index=ring, y=y))


def model_of(material, width=8):
    torch.manual_seed(0)
    return ws.GLT(material.x.size(1), width, 1, 2, design="diagonally-dominant", learned=False)


def test_training_keeps_the_best_weights_and_stops_by_patience(rings):
    material = material_of(Job(), rings)
    model, split = model_of(material), material.split
    outcome = train(model, material.x, rings.graph, material.y, split, Recipe(lr=1e-2, patience=4, max_epochs=60))
    hit = model(material.x, rings.graph).argmax(1) == rings.y
    assert float(hit[split.val].float().mean()) == pytest.approx(outcome.best.val_score)
    assert outcome.best.val_score == max(e.val_score for e in outcome.history)
    assert len(outcome.history) in (60, outcome.best.number + 4)


def test_training_twice_gives_the_same_numbers(rings):
    material = material_of(Job(), rings)

    def once():
        return train(model_of(material), material.x, rings.edge_index, material.y, material.split,
                     Recipe(max_epochs=3)).history  # fmt: skip

    assert once() == once()


def test_without_validation_nodes_every_epoch_is_trained_and_the_last_kept(rings):
    material = material_of(Job(), rings)
    nothing = torch.zeros(0, dtype=torch.long)
    split = Split(material.split.train, nothing, nothing)
    outcome = train(model_of(material), material.x, rings.graph, rings.y, split, Recipe(patience=1, max_epochs=7))
    assert [epoch.number for epoch in outcome.history] == list(range(1, 8))
    assert outcome.best == outcome.history[-1]
    assert math.isnan(outcome.best.val_score)


def test_an_unknown_task_is_refused(rings):
    material = material_of(Job(), rings)
    with pytest.raises(ValueError, match="task='ranking'; known: 'classification', 'regression'"):
        train(model_of(material), material.x, rings.graph, rings.y, material.split, task="ranking")


def test_an_interrupted_job_keeps_what_it_has(rings):
    def stop(name, epoch, best, recipe):
        if epoch.number == 3:
            raise KeyboardInterrupt

    result = run(Job(hidden=8), rings, stop)
    assert result.interrupted
    assert set(result.scores) == {"GLT"}


def test_ctrl_c_during_the_comparisons_keeps_the_model(rings):
    def stop(name, epoch, best, recipe):
        if name == "MLP":
            raise KeyboardInterrupt

    result = run(Job(hidden=8, max_epochs=5), rings, stop)
    assert result.interrupted
    assert not result.outcome.interrupted
    assert set(result.scores) == {"GLT"}


@pytest.mark.parametrize("sampler", [Random(0), None])
def test_a_search_returns_its_best_trial(rings, sampler):
    found = search(Job(max_epochs=4), rings, 4, sampler=sampler)
    assert len(found.trials) == 4
    assert found.trials[0].job == Job(max_epochs=4)
    assert found.fitted[1].best.val_score == max(trial.val_score for trial in found.trials)
    assert found.job in [trial.job for trial in found.trials]


@pytest.mark.filterwarnings("ignore::walksum.solvers.base.SolveWarning")
def test_a_training_that_diverged_is_told(rings):
    with pytest.raises(ValueError, match=r"training diverged.*take a smaller --lr than 1e\+30"):
        run(Job(max_epochs=3, lr=1e30), rings)


@pytest.mark.filterwarnings("ignore::walksum.solvers.base.SolveWarning")
def test_a_search_goes_on_after_a_trial_that_diverged(rings):
    found = search(Job(max_epochs=4, lr=1e30), rings, 3, sampler=Random(0))
    assert found.job.lr < 1


def test_without_optuna_the_search_is_random(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert best_sampler(0).name == "random search"


def test_wilson_is_the_interval_of_the_score_test():
    low, high = metrics.wilson(8, 10)
    z = 1.959963984540054
    for share in (low, high):  # it solves |p - share| = z sqrt(share (1 - share) / n)
        assert abs(0.8 - share) == pytest.approx(z * math.sqrt(share * (1 - share) / 10))
    assert metrics.wilson(0, 5)[0] == 0
    assert metrics.wilson(5, 5)[1] == 1


def test_the_mean_scores_zero():
    y = torch.tensor([1.0, 2.0, 3.0, 6.0])
    score = metrics.score_numbers(torch.full((4,), 3.0), y)
    assert score.value == pytest.approx(0)
    assert score.error == pytest.approx(1.5)
    assert score.low <= 0 <= score.high + 1e-12


def test_confidence_falls_back_to_gabp_where_elimination_fills_in(rings, monkeypatch):
    J = ws.FixedLaplacian(scale=0.5)(rings.graph).to(torch.float64)
    exact, by = variance.marginal_variance(J)
    assert by == "exact (Direct)"
    assert exact == pytest.approx(np.linalg.inv(J.to_dense()[0].numpy()).diagonal())
    monkeypatch.setattr(variance, "MOST_OPERATIONS", 1.0)
    approximate, by = variance.marginal_variance(ws.FixedLaplacian(scale=0.5)(rings.graph).to(torch.float64))
    assert by.startswith("approximate")
    assert approximate == pytest.approx(exact.numpy(), rel=1e-3)
