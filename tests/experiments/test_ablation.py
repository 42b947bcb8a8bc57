from dataclasses import replace

import pytest
import torch
from toy_cell import bench_of

import walksum.experiments.ablation as ablation


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setattr(ablation, "workbench", lambda specs, device, root: bench_of(specs))


@pytest.mark.parametrize("name", ablation.VARIANTS)
def test_every_variant_trains_and_is_another_run(name):
    specs = [replace(s, max_epochs=2) for s in ablation.runs_of(name, "glt-pairwise-normal-learned", "cora", 1)]
    (record,) = ablation.train_variant(name, specs)
    assert record.outcome == "ok"
    assert dict(record.spec.options) == {"ablation": name}


def test_what_a_variant_changes():
    (spec,) = ablation.runs_of("8 heads of 64", "glt-pairwise-normal-learned", "cora", 1)
    (plain,) = ablation.runs_of("as in the table", "glt-pairwise-normal-learned", "cora", 1)
    sizes = [
        next(ablation.train_variant(n, [replace(s, max_epochs=1)])).parameters
        for n, s in (("8 heads of 64", spec), ("as in the table", plain))
    ]
    assert sizes[0] > sizes[1]
    x = ablation.row_normalised(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))
    assert x.tolist() == [[0.25, 0.75], [0.0, 0.0]]


def test_the_command_keeps_its_records(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ablation, "paper_spec", lambda *a, **k: replace(PAPER(*a, **k), max_epochs=2))
    monkeypatch.setattr("sys.argv", ["ablation", "--runs", "2", "--variant", "one layer", "--out", str(tmp_path)])
    ablation.main()
    first = (tmp_path / "cora.jsonl").read_text()
    ablation.main()  # nothing is left to do
    assert (tmp_path / "cora.jsonl").read_text() == first
    assert len(first.splitlines()) == 4
    assert "| one layer | glt-pairwise-normal-learned |" in capsys.readouterr().out


PAPER = ablation.paper_spec
