import dataclasses
import json
import math
from pathlib import Path

import pytest

from walksum.paper import rows
from walksum.paper.rows import ROWS, row_of
from walksum.paper.sweep.record import RunRecord, Solves
from walksum.paper.sweep.spec import RunSpec, paper_spec

RECORDS = Path(__file__).parents[2] / "results/table1/records.jsonl"


def test_a_key_is_the_same_everywhere():
    # written down once: a changed key would orphan every record
    assert paper_spec("glt-laplacian-fixed", "cora", 3).key == "ccea4225105aa3ce"


@pytest.mark.skipif(not RECORDS.exists(), reason="needs the checkout")
def test_the_records_of_table_1_load_with_the_keys_they_were_written_under():
    lines = RECORDS.read_text().splitlines()
    records = [RunRecord.from_line(line) for line in lines[::10]]
    assert len(records) == 450
    for line, record in zip(lines[::10], records, strict=True):
        assert json.loads(line)["key"] == record.key == record.spec.key
        assert record.commit is None
        assert record.seeds == ()


@pytest.mark.parametrize("change", [{"seed": 1}, {"dropout": 0.5}, {"protocol": "one-split"}, {"options": (("k", 2),)}])
def test_every_setting_is_in_the_key(change):
    spec = paper_spec("gcn", "texas")
    assert dataclasses.replace(spec, **change).key != spec.key


def test_runs_of_a_cell_share_it():
    assert paper_spec("gcn", "texas", 7).cell == paper_spec("gcn", "texas", 2).cell


def test_a_record_comes_back_from_its_line():
    spec = paper_spec("gcn", "texas", options=(("k", 2),))
    solves = (Solves(0, "forward", (1, 2.5, 4), 1e-7, {"converged": 3}),)
    record = RunRecord(spec, "ok", 0.5, 0.25, 1.5, solves=solves, curve=((1, 2.0, 3.0, 0.5, 0.25),))
    assert RunRecord.from_line(record.to_line()) == record


def test_nan_survives_as_null():
    record = RunRecord(paper_spec("gcn", "texas"), "diverged")
    assert "null" in record.to_line()
    assert math.isnan(RunRecord.from_line(record.to_line()).test_accuracy)


def test_a_record_of_other_settings_is_refused():
    line = RunRecord(paper_spec("gcn", "texas"), "ok").to_line().replace('"seed":0', '"seed":1')
    with pytest.raises(ValueError, match="does not fit its own settings"):
        RunRecord.from_line(line)


def test_unknown_models_and_outcomes_are_named():
    with pytest.raises(ValueError, match="model='gnc' is unknown; choose one of gcn, gat"):
        row_of("gnc")
    with pytest.raises(ValueError, match="outcome='fine'; known: 'ok'"):
        RunRecord(paper_spec("gcn", "texas"), "fine")
    with pytest.raises(ValueError, match="select='f1'; known"):
        RunSpec("gcn", "texas", select="f1")


def test_all_rows_of_the_paper_can_be_run():
    assert set(rows.TABLE1) <= set(ROWS)
    assert set(rows.TABLE2) == {name for name, row in ROWS.items() if row.group == "glt"}
