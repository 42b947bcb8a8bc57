"""Training, judging and searching, without the command around them."""

import math
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import Data as PyGData

import walksum as ws
from walksum.data.problem import from_data
from walksum.data.splits import Split
from walksum.training import Data, Recipe, fit
from walksum.workflow import comparisons
from walksum.workflow.baselines import boosting
from walksum.workflow.fit import SMOOTHING, Job, edges_for, fit_model, fit_once, predict, prepare_data, with_smoothing
from walksum.workflow.job import compared_config, load_model, save_model
from walksum.workflow.search import Random, SearchPlan, best_sampler, search


@pytest.fixture(scope="module")
def rings():
    """Two rings of 40; the features say faintly which."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(80) // 40
    node = torch.arange(80)
    ring = torch.stack([node, 40 * y + (node + 1) % 40])
    x = torch.randn(80, 4, generator=draw) + 0.5 * y.unsqueeze(1)
    return from_data("rings", PyGData(x=x, edge_index=ring, y=y))


def model_of(prepared, width=8):
    torch.manual_seed(0)
    return ws.GLT(prepared.x.size(1), width, 1, 2, design="diagonally-dominant", learned=False)


def test_training_keeps_the_best_weights_and_stops_by_patience(rings):
    prepared = prepare_data(Job(), rings)
    model, split = model_of(prepared), prepared.split
    outcome = fit(model, Data(prepared.x, rings.graph, prepared.y, split), Recipe(lr=1e-2, patience=4, max_epochs=60))
    hit = model(prepared.x, rings.graph).argmax(1) == rings.y
    assert float(hit[split.val].float().mean()) == pytest.approx(outcome.best.val_score)
    assert outcome.best.val_score == max(e.val_score for e in outcome.history)
    assert len(outcome.history) in (60, outcome.best.number + 4)


def test_training_twice_gives_the_same_numbers(rings):
    prepared = prepare_data(Job(), rings)

    def once():
        data = Data(prepared.x, rings.edge_index, prepared.y, prepared.split)
        return fit(model_of(prepared), data, Recipe(max_epochs=3)).history

    assert once() == once()


def test_without_validation_nodes_every_epoch_is_trained_and_the_last_kept(rings):
    prepared = prepare_data(Job(), rings)
    nothing = torch.zeros(0, dtype=torch.long)
    split = Split(prepared.split.train, nothing, nothing)
    outcome = fit(model_of(prepared), Data(prepared.x, rings.graph, rings.y, split), Recipe(patience=1, max_epochs=7))
    assert [epoch.number for epoch in outcome.history] == list(range(1, 8))
    assert outcome.best == outcome.history[-1]
    assert math.isnan(outcome.best.val_score)


def test_an_unknown_task_is_refused(rings):
    prepared = prepare_data(Job(), rings)
    with pytest.raises(ValueError, match="task='ranking'; known: 'classification', 'regression'"):
        fit(model_of(prepared), Data(prepared.x, rings.graph, rings.y, prepared.split, task="ranking"))


def test_an_interrupted_job_keeps_what_it_has(rings):
    def stop(name, epoch, best, recipe):
        if epoch.number == 3:
            raise KeyboardInterrupt

    result = fit_once(Job(hidden=8), rings, stop)
    assert result.interrupted
    assert set(result.scores) == {"GLT"}


def test_ctrl_c_during_the_comparisons_keeps_the_model(rings):
    def stop(name, epoch, best, recipe):
        if name == "MLP":
            raise KeyboardInterrupt

    result = fit_once(Job(hidden=8, max_epochs=5), rings, stop)
    assert result.interrupted
    assert not result.outcome.interrupted
    assert {"GLT", "gradient boosting"} < set(result.scores)  # what was done before stays
    assert "MLP" not in result.scores


@pytest.mark.parametrize("sampler", [Random(0), None])
def test_a_search_returns_its_best_trial(rings, sampler):
    found = search(Job(max_epochs=4), rings, SearchPlan(4), sampler=sampler)
    assert len(found.trials) == 4
    assert found.trials[0].job == Job(max_epochs=4)
    assert found.fitted[1].best.val_score == max(trial.val_score for trial in found.trials)
    assert found.job in [trial.job for trial in found.trials]


def test_trials_are_asked_for_in_rounds_and_told_in_their_order(rings):
    words = []

    class Sampler(Random):
        def ask(self, start):
            words.append("ask")
            return super().ask(start)

        def tell(self, val_score):
            words.append("tell")

    one, two = (search(Job(max_epochs=2), rings, SearchPlan(5, workers=n), sampler=Sampler(0)) for n in (1, 2))
    assert " ".join(words) == 4 * "ask tell " + "ask tell ask ask tell tell ask tell"
    assert [trial.job for trial in one.trials] == [trial.job for trial in two.trials]


@pytest.mark.filterwarnings("ignore::walksum.solvers.base.SolveWarning")
def test_a_training_that_diverged_is_told(rings):
    with pytest.raises(ValueError, match=r"training diverged.*lr=1e\+30; take a smaller one"):
        fit_once(Job(max_epochs=3, lr=1e30), rings)


@pytest.mark.filterwarnings("ignore::walksum.solvers.base.SolveWarning")
def test_a_search_goes_on_after_a_trial_that_diverged(rings):
    found = search(Job(max_epochs=4, lr=1e30), rings, SearchPlan(3), sampler=Random(0))
    assert found.job.lr < 1


def test_without_optuna_the_search_is_random(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert best_sampler(0).name == "random search"


def test_boosting_on_neighbours_works_where_no_known_target_is_next_to_another(rings):
    prepared = prepare_data(Job(), rings)
    learn = torch.tensor([0, 10, 20, 30, 40, 50, 60, 70])
    assert boosting(prepared, learn, "targets").shape == (80, 2)


def test_a_compared_network_gets_the_time_that_the_model_took(rings):
    job, trained = Job(hidden=8, max_epochs=20, budget=0.01), []
    model, outcome = fit_model(job, prepare_data(job, rings))

    def count(name, epoch, best, recipe):
        if name == "MLP":
            trained.append(epoch.number)

    fit_once(job, rings, count, (model, replace(outcome, seconds=0.0)))
    hurried = max(trained, default=0)  # the budget may be spent before its turn
    trained.clear()
    fit_once(job, rings, count, (model, replace(outcome, seconds=60.0)))
    assert hurried < 20 <= max(trained)


def test_compared_rows_that_were_stopped_are_named(monkeypatch):
    now = [0.0]

    def slow(row):
        now[0] = row.until + 1

    rows = [("MLP", True, slow), ("mean", True, lambda row: None)]
    monkeypatch.setattr(comparisons.clock, "now", lambda: now[0])
    monkeypatch.setattr(comparisons, "_methods", lambda *_: rows)
    found = SimpleNamespace(seconds={}, notes=[], add=lambda *_: None)
    comparisons.compare(Job(budget=60), None, found, learn=torch.arange(3))
    assert found.seconds == {"MLP": 6.0, "mean": 0.0}
    assert found.notes == [
        "compared rows that a larger budget might improve, since they were stopped after 5 s each: MLP"
    ]


def noisy_blocks(sign):
    """Two blocks of 60 in which each node has six neighbours of its own class, or of the other."""
    draw = torch.Generator().manual_seed(1)
    y = torch.arange(120) % 2
    source = torch.arange(120).repeat_interleave(6)
    other = 2 * torch.randint(0, 60, (720,), generator=draw) + (y[source] if sign > 0 else 1 - y[source])
    x = torch.randn(120, 3, generator=draw) + 0.8 * y.unsqueeze(1)
    return from_data("blocks", PyGData(x=x, edge_index=torch.stack([source, other]), y=y))


class Faint(torch.nn.Module):
    """A network that reads a node's own columns only."""

    def forward(self, x, edges):
        return torch.stack([-x.sum(1), x.sum(1) - 2.4], 1)


def test_probabilities_are_propagated_where_validation_nodes_are_better_for_it():
    job = Job()
    alike, unlike = (prepare_data(job, noisy_blocks(sign)) for sign in (1, -1))
    smoother = with_smoothing(job, alike, Faint())
    assert smoother.encoding.smoothing in SMOOTHING[1:]
    assert with_smoothing(job, unlike, Faint()).encoding.smoothing == 0
    assert with_smoothing(replace(job, model="mlp"), alike, Faint()).encoding.smoothing == 0

    def right(prepared):
        shares = predict(Faint(), prepared.x, prepared.problem, prepared.encoding)
        assert torch.allclose(shares.sum(1), torch.ones(120))
        return (shares.argmax(1) == prepared.y)[prepared.split.test].double().mean()

    assert right(smoother) > right(alike) + 0.05


def test_a_run_that_propagates_probabilities_reads_back_and_answers_alike(tmp_path, monkeypatch):
    """Its predictions, a saved run and its gradients all know of it."""
    from walksum.explore.whole_model import WholeModel
    from walksum.workflow.predict import predict_nodes
    from walksum.workflow.run import run_of
    from walksum.workflow.trained_run import TrainedRun

    monkeypatch.setattr("walksum.workflow.fit.SMOOTHING", (0.9,))
    problem = noisy_blocks(1)
    result = fit_once(Job(model="gcn", hidden=8, max_epochs=5, budget=1.0), problem)
    encoding = result.prepared.encoding
    alone = result.model(result.prepared.x, edges_for(result.model, problem)).softmax(-1)
    spread = ws.Propagate(0.9)(alone, problem.graph)
    assert torch.allclose(result.output, (spread.log() / encoding.temperature).softmax(-1), atol=1e-6)
    run = run_of([result])
    assert run.metrics["calibration"]["smoothing"] == 0.9
    again = ws.open_run(run.save(tmp_path / "run").folder)
    found = predict_nodes(again, problem).table[["probability_0", "probability_1"]].to_numpy(copy=True)
    assert torch.allclose(torch.from_numpy(found).float(), result.output, atol=1e-6)
    trained = TrainedRun.of_prepared(result.job, result.prepared, result.model)
    gradient = WholeModel(trained).influence(3)
    shift = 1e-2 * (trained.x - trained.x.mean(0))
    ends = [trained.answer(trained.x + s * shift, problem)[3].double() for s in (1, -1)]
    odds = [torch.log(p.max() / p.min()) for p in ends]
    own = 1 if ends[0].argmax() == trained.prediction[3] else -1
    assert 1e-2 * gradient.adds.sum() == pytest.approx(own * float(odds[0] - odds[1]) / 2, rel=0.05, abs=1e-4)


def test_compared_models_read_both_directions_of_a_table_as_a_glt_does(tmp_path):
    """GCN on edges that a table lists once learned from the sources of a node's edges alone."""
    i = torch.arange(39)
    x, y = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40) // 20
    problem = from_data("path", PyGData(x=x, y=y, edge_index=torch.stack([i, i + 1])))
    job = Job(model="gcn", hidden=8, max_epochs=3)
    result = fit_once(job, problem)
    edges = edges_for(result.model, problem)
    assert edges.size(1) == 78
    assert edges_for(result.model, problem) is edges
    config = compared_config(job, 3, 2, 40)
    save_model(result.model, tmp_path, config)
    assert torch.equal(edges_for(load_model(tmp_path), problem), edges)
    del config["as_listed"]
    save_model(result.model, tmp_path, config)  # as 0.1.0 wrote it
    assert torch.equal(edges_for(load_model(tmp_path), problem), problem.edge_index)
