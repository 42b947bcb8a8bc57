import functools
from dataclasses import replace

import pytest
import torch
from benchmarks.ablation import VARIANTS, row_normalised, runs_of, variant_of
from stubs import Inline
from toy_cell import data_of

from benchmarks import ablation
from walksum.paper.sweep.store import read_records

PN, DD, FIXED = "glt-pairwise-normal-learned", "glt-diagonally-dominant-learned", "glt-pairwise-normal-fixed"


@pytest.fixture(autouse=True)
def toy(monkeypatch):
    monkeypatch.setattr(ablation, "cell_data", lambda specs, device, root: data_of(specs))


def trained(name, model=PN, runs=1, epochs=2, batched=None):
    records = []
    specs = runs_of(name, model, "cora", runs, max_epochs=epochs)
    ablation.train_variants(specs, batched=batched, on_record=records.append)
    return records


@functools.cache
def as_in_the_table(model):
    (record,) = trained("as in the table", model)
    return record


SUITED = [(name, model) for name in VARIANTS for model in (PN, DD, FIXED, "cgnn", "gde") if VARIANTS[name].suits(model)]


@pytest.mark.parametrize(("name", "model"), SUITED)
def test_every_variant_trains_alone_and_stacked(name, model):
    alone, stacked = (trained(name, model, 2, batched=batched) for batched in (False, True))
    assert [r.outcome for r in alone + stacked] == ["ok"] * 4
    assert ({r.batch for r in alone}, {r.batch for r in stacked}) == ({1}, {2})
    assert not any(r.message for r in stacked)  # which would say why the stack was given up
    assert {variant_of(r.spec) for r in alone} == {name}


def test_variants_are_runs_of_their_own():
    keys = [run.key for name in VARIANTS for run in runs_of(name, PN, "cora", 2)]
    assert len(set(keys)) == len(keys)


# the rest change what is learned from the second epoch on, or nothing that three epochs show
AT_ONCE = ["features row-normalised", "Glorot initialisation", "one layer", "one head of 64"]
AT_ONCE += ["8 heads of 64", "8 heads of 64, averaged", "no norm before mixing"]
AT_ONCE += ["no residual around mixing", "h without activation"]
AT_ONCE += ["couplings times 0.9", "couplings halved", "epsilon 0.9999", "J not normalised", "no dropout"]
AT_ONCE += ["dropout on the input alone", "no dropout on the input"]
LATER = ["learning rate 1e-2", "learning rate 3e-3", "no gradient through J"]


@pytest.mark.parametrize(("name", "epoch"), [(name, 0) for name in AT_ONCE] + [(name, 1) for name in LATER])
def test_a_variant_changes_the_loss(name, epoch):
    plain, (other,) = as_in_the_table(PN), trained(name)
    assert abs(plain.curve[epoch][1] - other.curve[epoch][1]) > 1e-9
    if epoch:
        assert plain.curve[0][1] == pytest.approx(other.curve[0][1], rel=1e-12)


BASELINES = [("cgnn", "end time 1"), ("cgnn", "end time 2"), ("gde", "edges made undirected")]


@pytest.mark.parametrize(("model", "name"), BASELINES)
def test_a_variant_changes_a_baseline(model, name, monkeypatch):
    def one_way(specs, device, root):
        data = data_of(specs)
        return replace(data, edges=data.edges[:, : data.edges.size(1) // 2])

    monkeypatch.setattr(ablation, "cell_data", one_way)
    (plain,), (other,) = trained("as in the table", model), trained(name, model)
    assert abs(plain.curve[0][1] - other.curve[0][1]) > 1e-9


def test_the_papers_gabp_gives_the_same_solution_and_says_its_steps():
    (plain,), (other,) = trained("as in the table"), trained("solved by the paper's GaBP")
    assert plain.curve[0][1] == pytest.approx(other.curve[0][1], rel=1e-4)
    assert other.solves[0].steps[0] > 5


@pytest.mark.parametrize("model", [PN, FIXED])
def test_couplings_times_a_factor_are_epsilon_times_it(model, monkeypatch):
    from benchmarks.ablation import Variant

    from benchmarks import ablation_changes as changes

    monkeypatch.setitem(VARIANTS, "epsilon 0.891", Variant(model=changes.on_designs(epsilon=0.891)))
    (one,), (other,) = trained("couplings times 0.9", model), trained("epsilon 0.891", model)
    assert one.curve[1][1:3] == pytest.approx(other.curve[1][1:3], rel=1e-9)


def test_rows_sum_to_one_or_nothing():
    x = row_normalised(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))
    assert x.tolist() == [[0.25, 0.75], [0.0, 0.0]]


def test_the_command_keeps_its_records(tmp_path, monkeypatch, capsys):
    arguments = ["--runs", "2", "--variant", "one layer", "--dataset", "cora", "--max-epochs", "2"]
    monkeypatch.setattr("sys.argv", ["ablation", *arguments, "--out", str(tmp_path)])
    monkeypatch.setattr(ablation, "LocalEngine", Inline)
    ablation.main()
    first = read_records(tmp_path)
    ablation.main()  # nothing is left to do
    assert read_records(tmp_path) == first
    assert len(first) == 4
    assert f"| cora | {PN} | one layer |" in capsys.readouterr().out
    assert all(replace(r.spec, seed=0).max_epochs == 2 for r in first)


@pytest.mark.parametrize(("flags", "together"), [([], 2), (["--no-batch"], 1)])
def test_runs_are_trained_one_at_a_time_where_asked(flags, together, tmp_path, monkeypatch):
    arguments = ["--runs", "2", "--variant", "one layer", "--dataset", "cora", "--model", PN, "--max-epochs", "2"]
    monkeypatch.setattr("sys.argv", ["ablation", *arguments, *flags, "--out", str(tmp_path)])
    monkeypatch.setattr(ablation, "LocalEngine", Inline)
    ablation.main()
    assert {record.batch for record in read_records(tmp_path)} == {together}
