import dataclasses
import json

import pytest
import torch

import walksum as ws
from walksum.data.splits import Split
from walksum.paper import table2
from walksum.paper.rows import row_of
from walksum.paper.solve_record import FILE, SolveRecord, append_solves, read_solves
from walksum.solvers.gabp.solver import Messages, PreparedGaBP
from walksum.training.data import Data

LEARNED, FIXED = "glt-laplacian-learned", "glt-diagonally-dominant-fixed"


@pytest.fixture(scope="module")
def training():
    draw = torch.Generator().manual_seed(0)
    graph = ws.Graph.from_edge_index(torch.randint(40, (2, 80), generator=draw), 40)
    y = torch.arange(40) % 3
    nothing = torch.arange(0)
    split = Split(torch.arange(12), nothing, nothing)
    return Data(torch.randn(40, 6, generator=draw), graph, y, split)


@pytest.fixture(scope="module")
def measured(training):
    records = []
    for model in (LEARNED, FIXED):
        table2.probe(row_of(model), "toy", training, [1, 3], 0, lambda epoch, found: records.extend(found))
    return records


@pytest.fixture(scope="module")
def systems(training):
    torch.manual_seed(0)
    model = table2._model(row_of(LEARNED), training).train()
    for layer in model.mixers:
        layer.keep_values = True
    with table2.record_systems(model) as found:
        model(training.x, training.edges)[:12].square().mean().backward()
    return model, found


def test_every_layer_direction_and_rule_is_there(measured):
    found = {(r.model, r.epoch, r.layer, r.direction, r.rule) for r in measured}
    assert len(found) == len(measured) == 2 * 2 * 2 * 5  # designs, epochs, layers; two rules ahead, three back
    assert {r.rule for r in measured if r.direction == "forward"} == {"messages", "residual"}


def test_the_systems_are_those_of_the_training_step(systems):
    model, found = systems
    assert [(s.layer, s.direction) for s in found] == [(0, "forward"), (1, "forward"), (1, "backward"), (0, "backward")]
    for system in found:
        mix = model.mixers[system.layer]
        last = mix.last_solve if system.direction == "forward" else mix.last_backward_solve
        assert torch.allclose(last.value, ws.solve(system.J, system.h), atol=1e-5)


def test_hooks_are_gone_afterwards(systems, training):
    model, found = systems
    before = len(found)
    model(training.x, training.edges).sum().backward()
    assert len(found) == before


def test_the_papers_steps_are_gabps(systems):
    for system in systems[1]:
        solution, met = table2.by_messages(system.J, system.h)
        plain = ws.GaBP(damping=0.5, tol=1e-6, max_steps=1000, stop="messages").prepare(system.J)(system.h)
        assert (solution.steps, met) == (plain.steps, True)


def test_the_fused_loop_takes_the_steps_of_the_plain_one(systems):
    for system in systems[1]:
        J, h = system.J.to(torch.float64), system.h.double()  # float32 stalls near the threshold
        assert PreparedGaBP(J, table2.PAPERS_GABP)(h).steps == table2.by_messages(J, h)[0].steps


def test_the_residual_rule_stops_at_the_first_good_step(systems):
    for system in systems[1]:
        solution, met = table2.by_residual(system.J, system.h)
        assert met
        assert solution.residual <= 1e-6
        short, met = table2.by_residual(system.J, system.h, longest=solution.steps - 1)
        assert not met
        assert short.residual > 1e-6
        assert short.status is ws.Status.max_steps_reached


def test_both_rules_follow_the_same_iteration(systems):
    system = systems[1][0]
    solution, _ = table2.by_residual(system.J, system.h)
    messages = Messages(system.J, system.h)
    for _ in range(solution.steps):
        messages.step(0.5)
    assert torch.allclose(messages.mean(), solution.value, atol=1e-6)


def test_the_residual_is_true(systems):
    for system in systems[1]:
        solution, _ = table2.by_messages(system.J, system.h)
        J, h, mu = system.J.to_dense().double(), system.h.double(), solution.value.double()
        gap = (h - J @ mu).abs().amax(1)
        size = J.abs().sum(-1).amax(-1)[:, None] * mu.abs().amax(1) + h.abs().amax(1)
        assert solution.residual == pytest.approx(float((gap / size).max()), rel=0.5, abs=3e-8)


def test_the_error_is_against_the_exact_solution(measured, systems):
    system = systems[1][0]
    truth = torch.linalg.solve(system.J.to_dense().double(), system.h.double())
    assert torch.allclose(table2.exact(system.J, system.h), truth, atol=1e-10)
    assert all(r.error <= r.worst_error + 1e-12 for r in measured)
    off = table2._measured({**about(), "train_nodes": 1}, system, "messages", truth, solution_of(truth * 1.01), True)
    assert off.error == pytest.approx(0.01, rel=1e-3)
    assert off.worst_error == pytest.approx(0.01, rel=1e-3)


def about():
    return {"model": FIXED, "dataset": "toy", "seed": 0, "epoch": 1}


def solution_of(value):
    return ws.Solution(value, ws.Status.converged, 1, 0.0)


def test_rescaled_gradients_have_the_size_of_h(measured):
    sizes = {(r.model, r.epoch, r.layer): r.size for r in measured if r.direction == "forward" and r.rule == "messages"}
    for r in measured:
        if r.rule == "rescaled":
            assert r.size == pytest.approx(sizes[r.model, r.epoch, r.layer], rel=1e-5)


def test_the_papers_rule_depends_on_the_size_and_the_residual_does_not(systems):
    system = systems[1][0]
    small = system.h * 1e-4
    assert table2.by_messages(system.J, small)[0].steps < table2.by_messages(system.J, system.h)[0].steps
    assert table2.by_messages(system.J, small)[0].residual > 1e-6
    assert table2.by_residual(system.J, small)[0].steps == table2.by_residual(system.J, system.h)[0].steps


def test_epochs_of_a_training():
    assert table2.up_to(100) == (1, 2, 5, 10, 20, 50, 100)
    assert table2.up_to(12) == (1, 2, 5, 10, 12)
    assert table2.up_to(1) == (1,)


@pytest.fixture
def toy(monkeypatch, training):
    monkeypatch.setattr(table2, "load_data", lambda *args: training)
    monkeypatch.setattr(table2, "names", lambda: ["toy"])


def plain(records):
    return sorted(r.to_line() for r in records)


def test_resume_adds_what_is_missing_and_changes_nothing(toy, tmp_path):
    at_once, in_parts = tmp_path / "a", tmp_path / "b"
    assert table2.measure(at_once, ("toy",), (FIXED,), (1, 2)) == 20
    assert table2.measure(in_parts, ("toy",), (FIXED,), (1,)) == 10
    assert table2.measure(in_parts, ("toy",), (FIXED,), (1, 2)) == 10
    assert table2.measure(in_parts, ("toy",), (FIXED,), (1, 2)) == 0
    assert plain(read_solves(in_parts)) == plain(read_solves(at_once))


def test_a_torn_end_is_skipped_and_measured_again(toy, tmp_path):
    table2.measure(tmp_path, ("toy",), (FIXED,), (1,))
    whole = read_solves(tmp_path)
    file = tmp_path / FILE
    file.write_bytes(file.read_bytes()[:300])  # inside the first line: a killed writer's
    assert read_solves(tmp_path) == []
    assert table2.measure(tmp_path, ("toy",), (FIXED,), (1,)) == 10
    assert plain(read_solves(tmp_path)) == plain(whole)


def test_a_probe_that_lost_records_is_measured_again(toy, tmp_path):
    table2.measure(tmp_path, ("toy",), (FIXED,), (1,))
    file = tmp_path / FILE
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:4]))
    assert table2.measure(tmp_path, ("toy",), (FIXED,), (1,)) == 10
    assert len(read_solves(tmp_path)) == 10


def test_bad_names_are_said(tmp_path):
    with pytest.raises(ValueError, match="model='gcn' solves nothing; choose among glt-"):
        table2.measure(tmp_path, ("texas",), ("gcn",))
    with pytest.raises(ValueError, match="dataset='tekas' is unknown; choose among"):
        table2.measure(tmp_path, ("tekas",))
    assert list(tmp_path.iterdir()) == []


def test_a_record_comes_back_from_its_line(measured, tmp_path):
    odd = dataclasses.replace(measured[0], residual=float("inf"))
    assert json.loads(odd.to_line())["residual"] is None
    assert SolveRecord.from_line(measured[0].to_line()) == measured[0]
    append_solves(tmp_path, measured[:2])
    append_solves(tmp_path, measured[1:3])
    assert read_solves(tmp_path) == measured[:3]
