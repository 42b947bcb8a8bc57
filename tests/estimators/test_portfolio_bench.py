"""The bench of the portfolio: records that say what was done, and go on where they stopped."""

import json

import pytest

from walksum.estimators.auto.bench import _work, done, run, summary


@pytest.mark.data
@pytest.mark.parametrize("name", ["texas", "counties-income"])
def test_one_record(name, tmp_path):
    path = tmp_path / "records.jsonl"
    assert done(path) == set()
    line = _work((name, 100, 20.0, "cpu", ("linear", "label"), tmp_path / "dump", path))
    assert line.startswith(f"{name} 100: ")
    (record,) = map(json.loads, path.read_text().splitlines())
    assert done(path) == {(name, 100)}
    assert 0.3 < record["blends"]["auto"]["test"] <= 1
    assert record["blends"]["boosting x"] is None  # no such member was asked for
    assert {"name", "val", "test", "seconds"} <= set(record["members"][0])
    assert "auto" in summary(path)


@pytest.mark.data
def test_the_same_seed_gives_the_same_record():
    records = [run("texas", 100, 60.0, "cpu", ("linear", "label"), None) for _ in range(2)]
    assert records[0]["complete"]
    assert records[0]["blends"] == records[1]["blends"]


def test_a_failure_is_told_and_leaves_no_record(tmp_path):
    line = _work(("texas", 100, -1.0, "cpu", ("nobody",), None, tmp_path / "records.jsonl"))
    assert line.startswith("texas 100: ")
    assert "Error" in line
    assert not (tmp_path / "records.jsonl").exists()
