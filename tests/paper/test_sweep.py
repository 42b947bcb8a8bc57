import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import stubs

from walksum.paper.sweep.local_engine import LocalEngine
from walksum.paper.sweep.record import RunRecord, cells_of
from walksum.paper.sweep.store import RUN_LOCKS, StoreError, read_records
from walksum.paper.sweep.sweep import Ended, Sweep, groups_of, plan
from walksum.paper.sweep.worker import WorkerSettings

HERE = Path(__file__).parent
SRC = str(HERE.parents[1] / "src")


def settings(store, trainer=stubs.good, **values):
    return WorkerSettings(str(store.folder), trainer=trainer, **values)


def seeds_of(engine):
    return sorted(spec.seed for group in engine.started for spec in group.specs)


def outcomes(store):
    return Counter(record.outcome for record in read_records(store.folder))


def test_the_longest_cells_come_first():
    specs = plan(["gcn", "sat"], ["texas", "pubmed"], range(2))
    assert [group.title for group in groups_of(specs)] == [
        *("sat on pubmed", "gcn on pubmed", "sat on texas", "gcn on texas")
    ]


@pytest.mark.parametrize(("workers", "sizes"), [(1, [7, 7]), (3, [7, 7]), (4, [4, 4, 3, 3]), (99, [1] * 14)])
def test_cells_are_cut_only_for_idle_workers(workers, sizes):
    groups = groups_of(plan(["gcn", "mlp"], ["texas"], range(7)), workers)
    assert sorted(len(group.specs) for group in groups) == sorted(sizes)
    assert all(len({spec.cell for spec in group.specs}) == 1 for group in groups)
    assert len({spec.key for group in groups for spec in group.specs}) == 14


def test_a_sweep_does_what_is_missing_and_no_more(store):
    store.append(RunRecord(plan(["gcn"], ["texas"], [2])[0], "ok"))
    store.append(RunRecord(plan(["gcn"], ["texas"], [3])[0], "interrupted"))
    engine = stubs.Inline(settings(store))
    sweep = Sweep(plan(["gcn"], ["texas"], range(5)), store, engine)
    sweep.run()
    assert seeds_of(engine) == [0, 1, 3, 4]
    assert sweep.trained == 4
    assert outcomes(store) == {"ok": 5}
    assert engine.stopped

    again = stubs.Inline(settings(store))
    Sweep(plan(["gcn"], ["texas"], range(5)), store, again).run()
    assert again.started == []


def test_an_interrupt_keeps_what_is_finished_and_a_rerun_goes_on(store):
    specs, engine = plan(["gcn", "mlp"], ["texas"], range(3)), stubs.Inline(settings(store))

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Sweep(specs, store, engine, on_tick=interrupt).run()
    assert engine.stopped
    assert outcomes(store) == {"ok": 3}
    again = stubs.Inline(settings(store))
    Sweep(specs, store, again).run()
    assert len(seeds_of(again)) == 3
    assert outcomes(store) == {"ok": 6}


@pytest.mark.parametrize(
    ("trainer", "message"), [(stubs.raising, "TypeError: no such thing"), (stubs.forgetful, "ended without a result")]
)
def test_a_training_that_breaks_off_is_recorded_as_failed(store, trainer, message):
    specs = plan(["gcn"], ["texas"], range(2))
    Sweep(specs, store, stubs.Inline(settings(store, trainer))).run()
    assert outcomes(store) == {"ok": 1, "failed": 1}
    assert message in read_records(store.folder)[-1].message


def test_failures_are_final_until_a_retry(store):
    specs = plan(["gcn"], ["texas"], range(2))
    Sweep(specs, store, stubs.Inline(settings(store, stubs.out_of_memory))).run()
    assert outcomes(store) == {"oom": 2}
    idle = stubs.Inline(settings(store))
    Sweep(specs, store, idle).run()
    assert idle.started == []
    since = store.size
    Sweep(specs, store, stubs.Inline(settings(store, since=since)), since=since).run()
    assert outcomes(store) == {"ok": 2}


def test_a_retry_that_fails_again_ends(store):
    specs = plan(["gcn"], ["texas"], range(2))
    for since in (0, 1, 2):
        store.refresh()
        since = store.size if since else 0
        engine = stubs.Inline(settings(store, stubs.out_of_memory, since=since))
        Sweep(specs, store, engine, since=since).run()
        assert len(engine.started) == 1


@pytest.mark.parametrize("trainer", [stubs.good, stubs.ignoring_errors])
def test_a_store_that_cannot_be_written_ends_the_sweep(store, trainer, monkeypatch):
    engine = stubs.Inline(settings(store, trainer))

    def full(*_):
        raise StoreError("the disk is full")

    monkeypatch.setattr(engine.store, "append", full)
    with pytest.raises(StoreError, match="the disk is full"):
        Sweep(plan(["gcn"], ["texas"], range(2)), store, engine).run()
    assert engine.stopped


def test_no_new_cell_after_the_time_limit(store):
    engine = stubs.Inline(settings(store))
    Sweep(plan(["gcn"], ["texas"], range(2)), store, engine, time_limit=0).run()
    assert engine.started == []


class Busy(stubs.Inline):
    """Another sweep has the first group it is given; it is killed when ``finishes`` is false."""

    finishes = True

    def end(self, group):
        if len(self.started) > 1:
            return super().end(group)
        if self.finishes:
            stubs.good(group.specs, on_record=self.store.append)
        return Ended(group, busy=group.specs)


@pytest.mark.parametrize(("finishes", "trained"), [(True, 0), (False, 3)])
def test_runs_of_another_sweep_are_waited_for_or_done_again(store, monkeypatch, finishes, trained):
    monkeypatch.setattr("walksum.paper.sweep.sweep.PATIENCE", 0.01)
    engine = Busy(settings(store))
    engine.finishes = finishes
    sweep = Sweep(plan(["gcn"], ["texas"], range(3)), store, engine)
    sweep.run()
    assert sweep.trained == trained
    assert outcomes(store) == {"ok": 3}


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_its_runs_are_tried_once_more(store, tmp_path):
    notes = []
    engine = LocalEngine(settings(store, stubs.dying_once_or_always, root=str(tmp_path)), 1)
    Sweep(plan(["gcn", "mlp"], ["texas"], range(3)), store, engine, on_note=notes.append).run()
    records = {model: [r for r in read_records(store.folder) if r.spec.model == model] for model in ("gcn", "mlp")}
    assert [record.outcome for record in records["gcn"]] == ["ok"] * 3
    assert [record.outcome for record in records["mlp"]] == ["failed"] * 3
    assert "its worker died twice (SIGKILL" in records["mlp"][0].message
    assert len(store.path.read_text().splitlines()) == 6
    assert sum("died (SIGKILL, out of memory?); what it had not finished is tried once more" in n for n in notes) == 2
    assert sum("the worker on mlp on texas died again" in note for note in notes) == 1


@pytest.mark.slow
def test_workers_that_cannot_start_end_the_sweep(store):
    engine = LocalEngine(settings(store), 1)
    (store.folder / RUN_LOCKS).unlink(missing_ok=True)
    sweep = Sweep(plan(["gcn"], ["texas"], range(3)), store, engine)
    (store.folder / RUN_LOCKS).unlink()
    (store.folder / RUN_LOCKS).mkdir()
    with pytest.raises(RuntimeError, match=r"a worker could not start \(exit code 1\)"):
        sweep.run()
    assert not store.path.read_text()


DRIVER = """
import sys, stubs
from walksum.paper.sweep.local_engine import LocalEngine
from walksum.paper.sweep.store import Store
from walksum.paper.sweep.sweep import Sweep, plan
from walksum.paper.sweep.worker import WorkerSettings

if __name__ == "__main__":
    store = Store(sys.argv[1])
    engine = LocalEngine(WorkerSettings(sys.argv[1], trainer=stubs.slow), 1)
    Sweep(plan(["gcn"], ["texas"], range(5000)), store, engine).run()
"""


@pytest.mark.slow
def test_workers_end_with_a_sweep_that_is_killed(store, tmp_path):
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    path = os.pathsep.join([SRC, str(HERE)])
    driver = subprocess.Popen([sys.executable, str(script), str(store.folder)], env={**os.environ, "PYTHONPATH": path})
    wait_for(lambda: store.path.stat().st_size > 0)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    # the locks come free when the worker is gone, so the rest can be locked by others
    locks = stubs.RunLocks(store.folder / RUN_LOCKS)
    last = plan(["gcn"], ["texas"], [4999])[0].key
    wait_for(lambda: locks.take([last]))
    store.make()
    assert set(outcomes(store)) == {"ok"}


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_cells_in_words():
    specs = plan(["gcn", "sat"], ["texas", "pubmed"], range(3))
    records = [RunRecord(spec, "ok", test_accuracy=0.5 + spec.seed / 10) for spec in specs if spec.model == "gcn"]
    records[0] = RunRecord(records[0].spec, "diverged")
    records += [RunRecord(spec, "oom") for spec in specs if spec.model == "sat" and spec.dataset == "pubmed"]
    records.append(RunRecord(plan(["gcn"], ["texas"], [9])[0], "ok", test_accuracy=1.0))  # not of this table
    cells = cells_of(specs, records)
    assert {place: str(cell) for place, cell in cells.items()} == {
        ("gcn", "texas"): "65.0 ± 7.1 (2)*",
        ("gcn", "pubmed"): "60.0 ± 10.0 (3)",
        ("sat", "texas"): "-",
        ("sat", "pubmed"): "3 oom",
    }
