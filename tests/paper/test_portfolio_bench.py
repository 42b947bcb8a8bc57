"""The bench of the portfolio: records that say what was done, and go on where they stopped."""

import json

import pytest
from typer.testing import CliRunner

from walksum.cli import app
from walksum.paper import portfolio_bench
from walksum.paper.portfolio_bench import REFIT, _work, chosen, done, measure, read, run
from walksum.paper.report.portfolio import lines_of, mean_ranks, scores_of
from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.spec import paper_spec


@pytest.mark.data
@pytest.mark.parametrize("name", ["texas", "counties-income"])
def test_one_record(name, tmp_path):
    path = tmp_path / "records.jsonl"
    assert done(path) == set()
    line, failed = _work((name, 100, 20.0, "cpu", ("linear", "label"), tmp_path / "dump", path))
    assert line.startswith(f"{name} 100: ")
    assert not failed
    (record,) = map(json.loads, path.read_text().splitlines())
    assert done(path) == {(name, 100)}
    assert 0.3 < record["blends"]["auto"]["test"] <= 1
    assert record["blends"]["boosting x"] is None  # no such member was asked for
    assert {"name", "val", "test", "seconds", "weight"} <= set(record["members"][0])
    assert (tmp_path / "dump" / f"{name}-100.npz").exists()
    assert [*measure([name], range(100, 101), path, 1, 20.0, "cpu")] == []


@pytest.mark.data
def test_the_same_seed_gives_the_same_record():
    records = [run("texas", 100, 60.0, "cpu", ("linear", "label"), None) for _ in range(2)]
    assert records[0]["complete"]
    assert records[0]["blends"] == records[1]["blends"]


def test_a_failure_is_told_and_leaves_no_record(tmp_path):
    line, failed = _work(("texas", 100, -1.0, "cpu", ("nobody",), None, tmp_path / "records.jsonl"))
    assert line.startswith("texas 100 failed: ")
    assert "Error" in line
    assert failed
    assert not (tmp_path / "records.jsonl").exists()


def test_a_record_after_a_torn_one_is_kept(tmp_path, monkeypatch):
    """A line that a kill had cut short took the next record with it: both were measured again."""
    path = tmp_path / "records.jsonl"
    path.write_text('{"dataset": "texas", "se')
    record = {"dataset": "texas", "seed": 3, "blends": {}, "total_seconds": 1.0}
    monkeypatch.setattr(portfolio_bench, "run", lambda *asked: record)
    _work(("texas", 3, 1.0, "cpu", None, None, path))
    assert read(path) == [record]


def test_the_command_tells_a_failure_even_when_quiet(tmp_path):
    """A quiet run whose fits all failed printed an empty table, and exited as if all was well."""
    ask = ["bench", "auto", "texas", "--splits", "1", "--budget", "-1", "--out", str(tmp_path / "records.jsonl"), "-q"]
    found = CliRunner().invoke(app, ask)
    assert found.exit_code == 1
    assert "texas 0 failed: " in found.output


def test_datasets_by_name_and_first_word():
    assert chosen(["cora,texas", "texas"]) == ["cora", "texas"]
    assert len(chosen(["counties"])) == 4
    assert len(chosen([])) == 13
    with pytest.raises(ValueError, match="'nowhere' is unknown"):
        chosen(["nowhere"])


def records(count=6):
    """The portfolio two points above the networks on every split, and four above label propagation on half of them."""
    made = []
    for seed in range(count):
        auto = 0.8 + 0.01 * seed
        blends = {
            "auto": {"test": auto},
            "auto" + REFIT: {"test": auto + 0.1},
            "mlp, equally many": {"test": auto - 0.02},
            "banks": None,
        }
        if seed % 2:
            blends["label propagation"] = {"test": auto - 0.04}
        made.append({"dataset": "texas", "seed": seed, "split": f"s{seed}", "blends": blends})
    return made


def table1_record(seed, split, accuracy):
    return RunRecord(paper_spec("gcn", "texas", seed), "ok", test_accuracy=accuracy, split=split)


def test_ranks_and_tests_use_the_same_splits_alone():
    table1 = [table1_record(seed, f"s{seed}" if seed != 2 else "another", 0.9) for seed in range(6)]
    scores = scores_of(records(), table1)["texas"]
    assert set(scores["GCN"]) == {0, 1, 3, 4, 5}
    lines = {line.row: line for line in lines_of("texas", scores)}
    assert lines["auto"].mean == pytest.approx(82.5)
    assert lines["auto"].rank == 1
    assert lines["mlp, equally many"].rank == 2
    assert lines["GCN"].rank is None  # a split of the portfolio is missing
    assert lines["auto" + REFIT].rank is None  # learned from more labels
    test = lines["mlp, equally many"].test
    assert (test.pairs, test.difference) == (6, pytest.approx(2))
    assert test.p == pytest.approx(2 / 2**6)
    assert test.corrected == pytest.approx(min(1, 4 * test.p))
    assert lines["label propagation"].test.pairs == 3
    ranks = mean_ranks(lines_of("texas", scores))
    assert ranks == {"auto": (1.0, 1), "mlp, equally many": (2.0, 1)}


def test_the_command_shows_records_that_are_there(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in records()) + '{"dataset": "te')
    assert len(read(path)) == 6
    ask = ["bench", "auto", "texas", "--splits", "6", "--out", str(path), "--table1", str(tmp_path / "none")]
    shown = CliRunner().invoke(app, ask)
    assert shown.exit_code == 0, shown.stderr
    assert "82.50 ± 1.87" in shown.stdout
    assert "1. mean rank  1.00 over 1 datasets: auto" in shown.stdout
    found = json.loads(CliRunner().invoke(app, [*ask, "--json"]).stdout)
    assert found["mean_ranks"]["auto"] == [1.0, 1]
    assert CliRunner().invoke(app, ["bench", "auto", "nowhere"]).exit_code == 2
