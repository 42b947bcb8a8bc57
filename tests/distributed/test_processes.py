"""Four gloo processes, started once; every test reads what they found."""

import multiprocessing
import socket
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp

from distributed import workers

PRELOADED = ["walksum.distributed", "walksum.nn", "walksum.data"]  # imported once, by the process that forks the others


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    multiprocessing.set_forkserver_preload(PRELOADED)
    arguments = (free_port(), str(folder))
    mp.start_processes(workers.run, arguments, nprocs=workers.PROCESSES, start_method="forkserver")
    return [torch.load(Path(folder) / f"{rank}.pt") for rank in range(workers.PROCESSES)]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


both = pytest.mark.parametrize("processes", [2, 4])


@both
def test_solutions_and_gradients_are_those_of_one_process(found, processes):
    for rank in found[:processes]:
        for name, (output, gradient) in rank[processes]["models"].items():
            assert output < 1e-9, name
            assert gradient < 1e-9, name


@pytest.mark.data
def test_pubmed_in_four_processes_is_pubmed_in_one(found):
    assert all(max(rank["pubmed"]) < 1e-6 for rank in found)


@both
def test_reports_are_of_the_whole_and_the_same_everywhere(found, processes):
    reports = [rank[processes]["reports"] for rank in found[:processes]]
    assert {tuple(r["steps"]) for r in reports} == {tuple(reports[0]["steps"])}
    assert all(r["status"] == ["converged"] * 2 for r in reports)
    for r in reports:
        assert r["residual"] == pytest.approx(r["true"], rel=0.01)
        assert r["residual"] <= 1e-10
        assert r["product"] < 1e-12


@both
def test_bytes_are_those_predicted(found, processes):
    for rank in found[:processes]:
        report = rank[processes]["reports"]
        assert report["sent"] == report["predicted"] > 0
        steps = sum(report["steps"])
        assert steps < report["exchanges"] <= 1.1 * steps + 6  # one per step, one per look at the true residual


@both
@pytest.mark.parametrize("name", ["dominant", "laplacian", "not"])
def test_estimates_are_those_of_one_process(found, processes, name):
    for rank in found[:processes]:
        apart, same_reports, error, standard_error = rank[processes]["estimates"][name]
        assert apart < 1e-6
        assert same_reports
        assert error < 4 * standard_error  # of the exact value


@both
def test_estimates_have_gradients_samples_without_a_seed_and_refusals(found, processes):
    for rank in found[:processes]:
        estimates = rank[processes]["estimates"]
        assert estimates["gradient"] < 1e-6
        assert estimates["spread"] < 0.15  # of the variances of 4,000 samples
        assert "method='dense' works in one process" in estimates["refused"]["dense"]
        assert "method='gabp' works in one process" in estimates["refused"]["gabp"]
        assert "a field has all nodes" in estimates["refused"]["field"]
        assert "not positive definite" in estimates["refused"]["gaussian"]


def test_training_is_that_of_one_process(found):
    for rank in found:
        single, together = (torch.tensor(rank["training"][name]) for name in ("single", "together"))
        assert torch.allclose(single, together, rtol=1e-6)
    assert found[-1]["training"]["trained on"] == 0  # though one process has no training node


def test_a_restart_continues_to_the_same_result(found):
    for rank in found:
        # after its first step DDP orders its buckets anew, and with them the sums of more than two gradients
        assert rank["training"]["resumed"] < 1e-10
        assert rank["training"]["epochs"] == [4, 4]


def test_a_checkpoint_of_another_graph_is_refused(found):
    assert all("is of another graph; choose another folder" in rank["training"]["message"] for rank in found)


def test_all_processes_see_a_failure_of_one(found):
    expected = ["nonfinite", "not_positive_definite", "max_steps_reached", "max_steps_reached", "nonfinite"]
    assert [rank["statuses"] for rank in found] == [expected] * 4


def test_parts_are_read_as_they_were_cut(found):
    assert all(rank["files"] for rank in found)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("parts", "cut into 5 parts but there are 4 processes"),
        ("devices", "process 1 is on meta but process 0 on cpu"),
        ("partition", "was cut by another partition"),
        ("graph", "process 1 holds a part of another graph"),
        ("rank", "process 1 holds part 0"),
        ("solver", "solver='direct' works in one process"),
        ("rows", "x has 90 rows but GraphPart"),
        ("layer", "is a GCNConv, which sees the nodes of one process alone"),
        ("norm", "is a BatchNorm, whose means are over the nodes of one process"),
    ],
)
def test_wrong_use_is_told_by_every_process(found, name, words):
    assert all(words in rank["refusals"][name] for rank in found), found[0]["refusals"][name]
