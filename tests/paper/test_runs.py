import os
import warnings

import pytest
import torch
from toy_cell import cell, data_of

import walksum.training.loop as loop
from walksum.paper import runs
from walksum.paper.rows import ROWS
from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.spec import paper_spec
from walksum.training.loop import DivergedTogether
from walksum.training.seeds import Progress, SeedTrainer

GLT = [name for name, row in ROWS.items() if row.group == "glt"]


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setattr(runs, "cell_data", lambda specs, device, root: data_of(specs))


def run(specs, **options):
    records = []
    runs.train_runs(specs, on_record=records.append, **options)
    return {record.spec.seed: record for record in records}


def assert_same_runs(together, apart, tolerance=1e-7):
    assert together.keys() == apart.keys()
    for seed, record in together.items():
        other = apart[seed]
        assert (record.outcome, record.epochs, record.best_epoch) == ("ok", other.epochs, other.best_epoch)
        assert record.split == other.split
        assert record.message == ""
        assert record.test_accuracy == pytest.approx(other.test_accuracy)
        for row, twin in zip(record.curve, other.curve, strict=True):
            assert row == pytest.approx(twin, abs=tolerance)


@pytest.mark.parametrize("model", [*GLT, "gcn", "gat", "sage", "cgnn-weights"])
def test_a_batch_is_its_runs(toy, model):
    specs = cell(model, runs=4, max_epochs=15, lr=1e-3, dropout=0.0)
    together, apart = run(specs, batched=True), run(specs, batched=False)
    assert_same_runs(together, apart)
    assert {record.batch for record in together.values()} == {4}


def test_runs_leave_the_batch_as_they_finish(toy):
    specs = cell("glt-laplacian-fixed", runs=7, max_epochs=60, patience=6, lr=3e-3, dropout=0.0)
    arrived = []
    runs.train_runs(specs, batched=True, on_record=arrived.append)
    epochs = [record.epochs for record in arrived]
    assert epochs == sorted(epochs)
    assert len(set(epochs)) > 2
    assert_same_runs({record.spec.seed: record for record in arrived}, run(specs, batched=False))


def test_looking_seldom_and_shrinking_in_steps_changes_nothing(toy, monkeypatch):
    specs = cell("glt-diagonally-dominant-fixed", runs=7, max_epochs=47, patience=6, lr=3e-3, dropout=0.0)
    apart = run(specs, batched=False)
    monkeypatch.setattr(
        loop, "sync_interval", lambda device, runs, keep_weights: (loop.SYNC_EVERY, loop.SIZES)
    )  # as on a GPU
    assert_same_runs(run(specs, batched=True), apart)


def test_dropout_differs_between_members_and_learns_as_well(toy):
    specs = cell("glt-diagonally-dominant-fixed", runs=8, max_epochs=60)
    together, apart = run(specs, batched=True), run(specs, batched=False)
    means = [sum(record.val_accuracy for record in runs.values()) / 8 for runs in (together, apart)]
    assert means[0] == pytest.approx(means[1], abs=0.1)


def test_a_batch_is_repeatable_and_leaves_the_generator_alone(toy):
    specs = cell("glt-pairwise-normal-learned", runs=3, max_epochs=10)
    torch.manual_seed(5)
    first = run(specs, batched=True)
    drawn = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(3))
    second = run(specs, batched=True)
    assert [r.curve for r in first.values()] == [r.curve for r in second.values()]


def test_progress_tells_how_far_it_is(toy):
    seen = []
    specs = cell("glt-laplacian-fixed", runs=3, max_epochs=5)
    runs.train_runs(specs, batched=False, on_record=lambda record: None, on_progress=seen.append)
    assert isinstance(seen[-1], Progress)
    assert (seen[-1].done, seen[-1].running, seen[-1].epoch) == (3, 0, 5)
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert 0 <= seen[-1].best <= 1


@pytest.fixture
def trouble(monkeypatch):
    """Lets a check of the seeds raise before their batch is made; returns the seeds of every batch that was tried."""
    whole, tried = SeedTrainer.batch, []

    def install(check):
        def batch(self, seeds):
            tried.append(list(seeds))
            check(seeds)
            return whole(self, seeds)

        monkeypatch.setattr(SeedTrainer, "batch", batch)
        return tried

    return install


def test_a_batch_without_room_is_halved(toy, trouble):
    def crowded(seeds):
        if len(seeds) > 2:
            raise torch.OutOfMemoryError("no room")

    tried = trouble(crowded)
    records = run(cell("gcn", runs=5, max_epochs=2), batched=True)
    assert [len(seeds) for seeds in tried] == [5, 3, 2, 1, 2]
    assert [records[seed].outcome for seed in range(5)] == ["ok"] * 5
    assert [records[seed].batch for seed in range(5)] == [2, 2, 1, 2, 2]
    assert [records[seed].seeds for seed in range(5)] == [(0, 1), (0, 1), (2,), (3, 4), (3, 4)]


def test_a_run_without_room_is_oom_and_a_broken_one_failed(toy, trouble):
    def fails(seeds):
        if 1 in seeds:
            raise torch.OutOfMemoryError("no room")
        if 2 in seeds:
            raise RuntimeError("a layer refused\nand said more")

    trouble(fails)
    records = run(cell("gcn", runs=4, max_epochs=2), batched=True)
    assert [records[seed].outcome for seed in range(4)] == ["ok", "oom", "failed", "ok"]
    assert "a layer refused" in records[2].message
    assert records[1].split
    assert "a layer refused" in records[3].message  # it was trained alone for that reason


def test_a_batch_that_diverged_together_is_taken_apart(toy, trouble):
    def spreads(seeds):
        if len(seeds) > 1 and 2 in seeds:
            raise DivergedTogether

    trouble(spreads)
    records = run(cell("gcn", runs=4, max_epochs=2), batched=True)
    assert [records[seed].batch for seed in range(4)] == [2, 2, 1, 1]


@pytest.mark.parametrize("batched", [True, False])
def test_steps_too_long_diverge_and_are_recorded(toy, batched):
    records = run(cell("glt-laplacian-learned", runs=3, max_epochs=30, lr=1e250), batched=batched)
    assert [record.outcome for record in records.values()] == ["diverged"] * 3


def test_an_interrupt_leaves_no_record_of_runs_in_flight(toy, trouble):
    def interrupted(seeds):
        raise KeyboardInterrupt

    trouble(interrupted)
    records = []
    with pytest.raises(KeyboardInterrupt):
        runs.train_runs(cell("gcn", runs=2), batched=True, on_record=records.append)
    assert records == []


def test_an_error_of_the_caller_is_not_a_failed_run(toy):
    def full(record: RunRecord):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        runs.train_runs(cell("gcn", runs=2, max_epochs=2), batched=True, on_record=full)


@pytest.mark.gpu
@pytest.mark.parametrize("model", ["glt-laplacian-fixed", "glt-diagonally-dominant-learned", "gcn", "cgnn-weights"])
def test_a_gpu_trains_the_same_runs(model):
    specs = cell(model, runs=7, max_epochs=12, lr=1e-3, dropout=0.0)
    found = []
    for device in ("cuda", "cpu"):
        data, records = data_of(specs, device), []
        runs.train_cell(specs, data, runs.model_factory(specs[0], data), batched=True, on_record=records.append)
        found.append({record.spec.seed: record for record in records})
    there, here = found
    for seed, record in there.items():
        assert record.peak_memory > 0
        for row, twin in zip(record.curve, here[seed].curve, strict=True):
            assert row == pytest.approx(twin, abs=1e-6)


@pytest.mark.skipif("WALKSUM_DATA" not in os.environ, reason="needs the published files")
def test_texas():
    specs = [paper_spec("glt-laplacian-fixed", "texas", seed, dropout=0.0, max_epochs=30) for seed in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_same_runs(run(specs, batched=True), run(specs, batched=False), 1e-4)


def test_short_operations_get_one_thread_and_the_caller_all_of_them_back(toy):
    before, during = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        specs = cell("mlp", runs=2, max_epochs=2)
        runs.train_runs(specs, on_record=lambda record: during.append(torch.get_num_threads()))
        assert during == [1, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_record_is_complete(toy):
    specs = cell("glt-diagonally-dominant-learned", runs=1, max_epochs=12, solver="chebyshev")
    (record,) = run(specs).values()
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
    assert record.split == data_of(specs).split(0).digest()
    assert record.seconds > 0
    assert (record.batch, record.seeds) == (1, (0,))
    assert record.parameters > 0
    assert record.device
    assert record.finished
    assert set(record.versions) == {"walksum", "torch", "python"}
    again = RunRecord.from_line(record.to_line())  # numbers keep six digits
    assert again.val_loss == pytest.approx(record.val_loss, rel=1e-5)
    assert RunRecord.from_line(again.to_line()) == again


def test_a_record_knows_its_commit(toy, monkeypatch):
    from walksum.paper.sweep.record import commit

    monkeypatch.setenv("WALKSUM_COMMIT", "0123abc")
    commit.cache_clear()
    (record,) = run(cell("mlp", runs=1, max_epochs=1)).values()
    commit.cache_clear()
    assert RunRecord.from_line(record.to_line()).commit == "0123abc"


def test_a_long_curve_is_thinned_and_keeps_the_best_and_the_last_epoch():
    numbers = runs._shown(777, best=502)
    assert len(numbers) <= 101
    assert {1, 502, 777} <= set(numbers)
    assert numbers == sorted(numbers)


def test_specs_of_several_cells_or_a_seed_twice_are_refused():
    specs = [*cell("gcn", runs=1), *cell("mlp", runs=1)]
    with pytest.raises(ValueError, match="several cells"):
        runs.train_runs(specs, on_record=print)
    with pytest.raises(ValueError, match="a seed twice"):
        runs.train_runs(cell("gcn", runs=1) * 2, on_record=print)
