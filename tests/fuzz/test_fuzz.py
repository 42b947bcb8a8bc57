"""A few seconds of ``make fuzz``: the numbers that once failed, and a fixed set of new ones."""

import json
from pathlib import Path

import properties
import pytest
import run

CORPUS = [int(seed) for seed in json.loads((Path(__file__).parent / "corpus.json").read_text())["seeds"]]


@pytest.mark.parametrize("seeds", [CORPUS, range(40)], ids=["corpus", "first forty"])
def test_no_answer_is_wrong_in_silence(seeds):
    ledger = properties.Ledger()
    for seed in seeds:
        properties.try_system(seed, ledger)
    assert ledger.violations == []
    assert ledger.systems["all"] == len(seeds)
    assert sum(count for name, count in ledger.outcomes.items() if name.endswith("converged")) > len(seeds) / 4


def test_a_wrong_answer_would_be_found(monkeypatch):
    """The properties are able to fail: a solver that is off by one part in a million."""
    solve = properties.ws.solve
    monkeypatch.setattr(properties.ws, "solve", lambda *a, **k: solve(*a, **k) * (1 + 1e-6))
    ledger = properties.Ledger()
    for seed in range(20):
        properties.try_system(seed, ledger)
    assert any("converged with a backward error" in violation["why"] for violation in ledger.violations)


def test_a_run_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "CHUNK", 2)
    done = []

    def one(first, count, folder):
        done.append(first)
        counts = {"systems": {"all": count}, "checks": {}, "outcomes": {}}
        return {**counts, "violations": [], "processor seconds": 1.0}

    def inline(record, todo, counts, start, seconds, processes, out, folder, device):
        run._add(record, todo[0], one(todo[0], counts[todo[0]], folder), 1.0)
        run._write(record, out)
        return todo[1:]

    monkeypatch.setattr(run, "_in_pool", inline)
    run.run(0, 4, float("inf"), 1, tmp_path / "fuzz.json")
    record = run.run(0, 7, float("inf"), 1, tmp_path / "fuzz.json")
    assert done == [0, 2, 4, 6]
    assert record["systems"]["all"] == 7
    run.run(8, 4, float("inf"), 1, tmp_path / "other.json")
    assert run.merge(tmp_path / "fuzz.json", [tmp_path / "other.json"])["systems"]["all"] == 11
    with pytest.raises(ValueError, match="both hold the chunk of system 0"):
        run.merge(tmp_path / "fuzz.json", [tmp_path / "fuzz.json"])


def test_what_is_mended_is_written_where_nothing_is_left_to_try(tmp_path, monkeypatch):
    broken = {"seed": 3, "where": "solve cg", "why": "wrong"}
    record = {**run._empty(0), "done": [0], "violations": [broken]}
    (tmp_path / "fuzz.json").write_text(json.dumps(record))
    monkeypatch.setattr(run, "_try_again", lambda record, device: record.update(violations=[], mended=[broken]))
    run.run(0, run.CHUNK, float("inf"), 1, tmp_path / "fuzz.json")
    after = json.loads((tmp_path / "fuzz.json").read_text())
    assert (after["violations"], after["mended"]) == ([], [broken])


def test_a_record_with_other_chunks_is_not_added_to(tmp_path):
    (tmp_path / "fuzz.json").write_text(json.dumps({"chunk": 7}))
    with pytest.raises(ValueError, match="chunks of 7, not 100"):
        run.run(0, 4, float("inf"), 1, tmp_path / "fuzz.json")


def test_the_ledger_of_a_chunk_is_json(tmp_path):
    ledger = json.loads(json.dumps(run.work(0, 3, str(tmp_path))))
    assert ledger["systems"]["all"] == 3
    assert all(isinstance(count, int) for part in ("systems", "checks", "outcomes") for count in ledger[part].values())
    assert list(tmp_path.iterdir()) == []
