"""What version 0.1.0 wrote is read by this one, and means the same; what a newer one writes is refused in words."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import walksum as ws
from walksum.paper.sweep.store import Store, StoreError, read_records
from walksum.workflow import open_run

GOLDEN = Path(__file__).parents[1] / "golden" / "0.1.0"


@pytest.mark.parametrize("kind", ["glt", "gcn"])
def test_a_run_folder_of_0_1_0_opens_and_predicts(kind):
    run = open_run(GOLDEN / kind)
    frame = run.predictions
    assert frame["id"].tolist() == [f"c{k}" for k in range(24)]
    found = run.predict(GOLDEN / "nodes.csv", GOLDEN / "edges.csv")
    for name in frame.columns.intersection(found.columns):
        if frame[name].dtype == np.float64:  # six digits were written
            assert np.abs(frame[name] - found[name]).max() < 2e-5
        elif name not in ("split", "truth"):
            assert frame[name].tolist() == found[name].tolist()
    assert "test" in repr(run)
    assert len(run.scores)


def test_its_predictions_are_those_its_own_command_wrote():
    then = pd.read_csv(GOLDEN / "glt-predicted.csv")
    now = open_run(GOLDEN / "glt").predict(GOLDEN / "nodes.csv", GOLDEN / "edges.csv")
    assert then["prediction"].tolist() == now["prediction"].tolist()
    for name in [name for name in then.columns if name.startswith("probability_")]:
        assert np.abs(then[name] - now[name]).max() < 2e-6


def test_a_model_of_0_1_0_loads():
    assert isinstance(ws.load(GOLDEN / "glt" / "model"), ws.GLT)


def test_a_store_of_0_1_0_is_read_and_its_runs_count_as_done(tmp_path):
    lines = (GOLDEN / "store" / "records.jsonl").read_text().splitlines()
    records = read_records(GOLDEN / "store")
    assert len(records) == len(lines)
    assert [record.key for record in records] == [json.loads(line)["key"] for line in lines]
    assert [round(r.test_accuracy, 6) for r in records] == [round(json.loads(x)["test_accuracy"], 6) for x in lines]
    shutil.copytree(GOLDEN / "store", tmp_path / "store")
    store = Store(tmp_path / "store")
    store.refresh()
    assert store.missing([record.spec for record in records]) == []


def changed(tmp_path, file, **values):
    folder = tmp_path / "copy"
    shutil.copytree(GOLDEN / "glt", folder)
    config = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**config, **values}))
    return folder


@pytest.mark.parametrize("version", ["walksum.run/2", "walksum.run/10", "something else", None, 7])
def test_a_run_folder_of_a_newer_version_is_refused(tmp_path, version):
    with pytest.raises(ValueError, match=r"walksum\.run/1") as caught:
        open_run(changed(tmp_path, "config.json", format=version))
    if str(version).startswith("walksum.run"):
        assert f"{version}" in str(caught.value)
        assert "newer" in str(caught.value)


@pytest.mark.parametrize("version", ["walksum.GLT/2", "walksum.baseline/2", "walksum.portfolio/2"])
def test_a_model_of_a_newer_version_is_refused(tmp_path, version):
    folder = changed(tmp_path, "model/config.json", format=version)
    with pytest.raises(ValueError, match="newer version"):
        ws.load(folder / "model")
    with pytest.raises(ValueError, match="newer version"):
        _ = open_run(folder).model


def test_a_record_of_a_newer_version_is_refused(tmp_path):
    line = json.loads((GOLDEN / "store" / "records.jsonl").read_text().splitlines()[0])
    line["spec"]["colour"] = "red"
    (tmp_path / "records.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(StoreError, match="newer walksum"):
        read_records(tmp_path)
