"""One run, told from top to bottom by walksum.training.loop, against the loop that also trains teams."""

import math

import pytest
import torch
from toy_cell import bench_of, cell

import walksum.paper.training as training
from walksum.paper.journal import Journal
from walksum.paper.loop import Part, train_team
from walksum.paper.sparse_input import Sparse, SparseInput, _Product, use_sparse_input
from walksum.paper.sweep.record import RunRecord
from walksum.paper.workbench import make_model
from walksum.training.loop import Recipe, train


def records_of(bench, specs, stacked=False):
    return [event for event in train_team(bench, specs, stacked) if isinstance(event, RunRecord)]


@pytest.mark.parametrize("model", ["glt-laplacian-fixed", "glt-diagonally-dominant-learned", "gcn", "cgnn-weights"])
def test_a_run_is_the_one_train_makes(model):
    specs = cell(model, runs=1, max_epochs=15, lr=1e-3, dropout=0.0)
    bench = bench_of(specs)
    (record,) = records_of(bench, specs)
    torch.manual_seed(0)
    plain = make_model(specs[0], bench.x.size(1), bench.num_classes, bench.x.size(0)).double()
    recipe = Recipe(specs[0].lr, specs[0].weight_decay, specs[0].patience, specs[0].max_epochs)
    outcome = train(plain, bench.x, bench.edges, bench.y, bench.splits[0], recipe)
    assert record.outcome == "ok"
    assert (record.best_epoch, record.epochs) == (outcome.best.number, len(outcome.history))
    assert record.test_accuracy == pytest.approx(outcome.best.test_score)
    losses = {epoch.number: (epoch.train_loss, epoch.val_loss) for epoch in outcome.history}
    for number, train_loss, val_loss, *_ in record.curve:
        assert (train_loss, val_loss) == pytest.approx(losses[number], abs=1e-4)


def test_a_record_is_complete():
    specs = cell("glt-diagonally-dominant-learned", runs=1, max_epochs=12, solver="chebyshev")
    bench = bench_of(specs)
    (record,) = records_of(bench, specs)
    assert record.epochs == len(record.curve) == len(record.steps_by_epoch) == 12
    assert [(solve.layer, solve.direction) for solve in record.solves] == [
        (0, "forward"),
        (1, "forward"),
        (0, "backward"),
        (1, "backward"),
    ]
    for solve in record.solves:
        assert solve.steps[0] >= 1
        assert solve.residual < 1e-5
        assert sum(solve.status.values()) == 12
    assert all(forward >= 1 and backward >= 1 for _, forward, backward in record.steps_by_epoch)
    assert record.split == bench.splits[0].digest()
    assert record.seconds > 0
    assert record.batch == 1
    assert record.parameters > 0
    assert record.device
    assert record.finished
    assert set(record.versions) == {"walksum", "torch", "python"}
    again = RunRecord.from_line(record.to_line())  # numbers keep six digits
    assert again.val_loss == pytest.approx(record.val_loss, rel=1e-5)
    assert RunRecord.from_line(again.to_line()) == again


def journal_of(rows, **changes):
    (spec,) = cell("gcn", runs=1, **changes)
    journal = Journal(spec, "", [((), ())] * len(rows))
    for row in rows:
        if not journal.done:
            journal.take(row)
    return journal


def test_the_epoch_is_chosen_by_accuracy_then_loss_or_by_loss_alone():
    rows = [(1, 0.9, 0.5, 0.1), (1, 0.5, 0.7, 0.2), (1, 0.4, 0.7, 0.3), (1, 0.3, 0.6, 0.4)]
    assert journal_of(rows, max_epochs=4).best == 3
    assert journal_of(rows, max_epochs=4, select="loss").best == 4


@pytest.mark.parametrize("nodes", [59, 500])
def test_equal_counts_are_equal_accuracies(nodes):
    y = torch.zeros(nodes, dtype=torch.int64)
    part = Part.of([torch.arange(nodes), torch.arange(nodes - 9)], y)
    right = torch.stack([torch.randperm(nodes - 9) < nodes // 2 for _ in range(200)])
    outputs = torch.stack([right, ~right], -1).float()
    outputs = torch.cat([outputs, torch.zeros(200, 9, 2)], 1)
    outputs[:, -9:, 1] = 1  # nodes that only the first member has, all wrong
    scores = torch.stack([part.scores(each.expand(2, -1, -1)) for each in outputs])
    assert scores.unique(dim=0).tolist() == [[pytest.approx(nodes // 2 / n) for n in (nodes, nodes - 9)]]


def test_patience_and_divergence_end_a_run():
    flat = [(1, 1.0, 0.5, 0.5)] * 10
    patient = journal_of(flat, patience=4)
    assert (patient.epochs, patient.best, patient.outcome) == (5, 1, "ok")
    fallen = journal_of([flat[0], (math.nan, 1.0, 0.5, 0.5), flat[0]])
    assert (fallen.epochs, fallen.best, fallen.outcome) == (2, 1, "diverged")


def test_a_long_curve_is_thinned_and_keeps_the_best_and_the_last_epoch():
    rows = [(1, 1.0, 0.5, 0.5)] * 777
    rows[501] = (1, 1.0, 0.6, 0.5)
    curve = journal_of(rows, max_epochs=777, patience=777).record().curve
    numbers = [row[0] for row in curve]
    assert len(numbers) <= 101
    assert {1, 502, 777} <= set(numbers)
    assert numbers == sorted(numbers)


def sparse_features(rows=30, columns=40):
    torch.manual_seed(0)
    return (torch.rand(rows, columns) < 0.2) * torch.rand(rows, columns)


@pytest.mark.parametrize("channels", [16, 64, 128])
def test_sparse_input_is_the_dense_layer(channels):
    x, dense = sparse_features(), torch.nn.Linear(40, channels)
    sparse = SparseInput(Sparse.of(x), dense, 0.5).eval()
    assert torch.allclose(sparse(x), dense(x), atol=1e-5)
    grad = torch.randn(30, channels)
    dense(x).backward(grad), sparse(x).backward(grad)
    assert torch.allclose(sparse.weight.grad.t(), dense.weight.grad, atol=1e-4)


def test_sparse_input_drops_the_right_share_and_differentiates_what_it_dropped():
    x = sparse_features(200, 64)
    features, seed = Sparse.of(x), torch.tensor([7])
    weight = torch.eye(64).unsqueeze(0).requires_grad_()
    dropped = _Product.apply(weight, seed, features, 0.6)[0]
    kept = dropped != 0
    assert torch.allclose(dropped[kept], x[kept] / 0.4)
    assert kept[x != 0].float().mean().item() == pytest.approx(0.4, abs=0.04)
    grad = torch.randn(200, 64)
    dropped.backward(grad)
    assert torch.allclose(weight.grad[0], dropped.detach().t() @ grad, atol=1e-4)


def test_dense_features_and_other_models_keep_their_first_layer():
    (spec,) = cell("glt-laplacian-fixed", runs=1)
    x = torch.rand(30, 40)
    assert isinstance(use_sparse_input(make_model(spec, 40, 3, 30), x).embed, torch.nn.Linear)
    (spec,) = cell("mlp", runs=1)
    assert isinstance(use_sparse_input(make_model(spec, 40, 3, 30), sparse_features()).first, torch.nn.Linear)


def test_specs_of_several_cells_or_a_seed_twice_are_refused():
    specs = [*cell("gcn", runs=1), *cell("mlp", runs=1)]
    with pytest.raises(ValueError, match="several cells"):
        training.train_runs(specs, on_record=print)
    with pytest.raises(ValueError, match="a seed twice"):
        training.train_runs(cell("gcn", runs=1) * 2, on_record=print)
