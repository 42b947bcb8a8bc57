"""Training steps as CUDA graphs; without a GPU only that they do nothing else there."""

import math
import warnings

import pytest
import torch
from torch.nn.functional import cross_entropy

import walksum as ws
from walksum.nn.layer_norm import LayerNorm
from walksum.training.recipe import Recipe, make_optimiser


def task(device, learned=True, dropout=0.5, **knobs):
    torch.manual_seed(0)
    graph = ws.Graph.from_edge_index(torch.randint(0, 80, (2, 200)), 80).to(device)
    x, y, nodes = torch.randn(80, 12).to(device), torch.randint(0, 3, (80,)).to(device), torch.arange(40).to(device)
    model = ws.GLT(12, 16, 2, 3, heads=(4, 1), learned=learned, dropout=dropout, **knobs).to(device).train()
    return model, lambda: cross_entropy(model(x, graph).index_select(0, nodes), y[:40])


def adam(model, **kind):
    return torch.optim.Adam(model.parameters(), lr=1e-2, **kind)


def test_a_step_on_a_cpu_is_the_step_itself():
    model, loss = task("cpu", dropout=0.0)
    twin, twin_loss = task("cpu", dropout=0.0)
    step, optimiser = ws.TrainingStep(loss, adam(model)), adam(twin)
    for _ in range(6):
        optimiser.zero_grad()
        expected = twin_loss()
        expected.backward()
        optimiser.step()
        assert step() == pytest.approx(expected.item(), rel=1e-6)
    assert not step.captured
    assert "not on a CUDA device" in step.reason


@pytest.mark.parametrize("fused_norms", [True, False])
@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.gpu
def test_a_captured_training_is_the_eager_one(learned, fused_norms, monkeypatch):
    if not fused_norms:  # only a captured step has them, and they round differently
        monkeypatch.setattr(LayerNorm, "_fused", lambda norm, x: False)
    model, loss = task("cuda", learned, dropout=0.0)
    twin, twin_loss = task("cuda", learned, dropout=0.0)
    step = ws.TrainingStep(loss, adam(model, capturable=True))
    optimiser = adam(twin, capturable=True)
    for _ in range(12):
        optimiser.zero_grad()
        expected = twin_loss()
        expected.backward()
        optimiser.step()
        assert step() == pytest.approx(expected.item(), rel=1e-3)
    assert step.captured, step.reason
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3)
    for layer, other in zip(model.mixers, twin.mixers, strict=True):
        assert layer.last_solve.converged
        if not fused_norms:  # the last steps of a solve follow rounding
            assert layer.last_solve.steps == other.last_solve.steps > 0
            assert layer.last_backward_solve.steps == other.last_backward_solve.steps


@pytest.mark.gpu
def test_dropout_draws_anew_in_every_replay():
    model, loss = task("cuda", dropout=0.5)
    step = ws.TrainingStep(loss, torch.optim.Adam(model.parameters(), lr=0.0, capturable=True))
    losses = [step() for _ in range(10)]
    assert step.captured
    assert len(set(losses)) == 10


@pytest.mark.gpu
def test_a_replay_warns_of_a_solve_that_did_not_converge():
    model, loss = task("cuda", solver=ws.CG(max_steps=1))
    step = ws.TrainingStep(loss, adam(model, capturable=True))
    for _ in range(6):
        with pytest.warns(ws.SolveWarning, match="did not reach its tolerance"):
            step()
    assert step.captured


@pytest.mark.gpu
@pytest.mark.parametrize("knobs", [{"solver": "gabp"}, {"on_nonconverged": "raise"}])
def test_what_cannot_be_captured_goes_on_as_it_is(knobs):
    model, loss = task("cuda", **knobs)
    step = ws.TrainingStep(loss, adam(model, capturable=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ws.SolveWarning)
        losses = [step() for _ in range(6)]
    assert not step.captured
    assert step.reason
    assert all(math.isfinite(value) for value in losses)


@pytest.mark.gpu
def test_a_loss_that_looks_at_numbers_is_left_uncaptured_with_a_warning():
    model, loss = task("cuda")

    def looking():
        value = loss()
        return value if value.item() > 0 else -value

    step = ws.TrainingStep(looking, adam(model, capturable=True))
    for _ in range(3):
        step()
    with pytest.warns(RuntimeWarning, match="not captured"):
        step()
    assert all(math.isfinite(step()) for _ in range(3))  # dropout and all


@pytest.mark.gpu
def test_an_optimiser_that_cannot_be_captured_is_told():
    model, loss = task("cuda")
    step = ws.TrainingStep(loss, adam(model))
    step()
    assert "capturable=True" in step.reason


def test_the_trainer_asks_for_a_capturable_optimiser_only_on_a_gpu():
    model, _ = task("cpu")
    assert not make_optimiser(model, Recipe()).defaults["capturable"]
