"""One loop: a single run, stacked seeds, classes and numbers, the best epoch, the end of a run."""

import ast
import doctest
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch_geometric
from torch import nn

import walksum as ws
from walksum.data.splits import Split
from walksum.nn.mlp import MLP
from walksum.training import Data, Epoch, Recipe, fit
from walksum.training.data import TASKS, Subset
from walksum.training.devices import choose_device, pays_on_gpu
from walksum.training.history import History, rank
from walksum.training.recipe import make_optimiser

NODES = 48


def problem(task="classification", seeds=(0, 1, 2), validated=True):
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(3, (NODES,), generator=draw)
    x = torch.randn(NODES, 5, generator=draw, dtype=torch.float64)
    x[:, :3] += nn.functional.one_hot(y, 3)
    ring = torch.arange(NODES)
    graph = ws.Graph.from_edge_index(torch.stack([ring, ring.roll(-1)]), NODES)
    splits = {}
    for seed in seeds:
        order = torch.randperm(NODES, generator=draw)
        parts = order[:20].sort().values, order[20:34].sort().values, order[34:].sort().values
        splits[seed] = Split(*parts) if validated else Split(parts[0], order[:0], order[:0])
    return Data(x, graph, x[:, 0] + y if task == "regression" else y, splits, task)


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        ("regression", lambda y: y.unsqueeze(1), r"y has shape \(48, 1\); expected one target per node, \[N\]"),
        ("classification", lambda y: y.double(), r"y has type torch.float64.*use y.long\(\), or task='regression'"),
        ("classification", lambda y: y > 0, r"y has type torch.bool.*use y.long\(\)"),
    ],
)
def test_targets_of_another_kind_are_named(task, change, message):
    data = problem(task)
    with pytest.raises(ValueError, match=message):
        Data(data.x, data.edges, change(data.y), data.splits, task)


def factory(task="classification", dropout=0.0, **options):
    outputs = 1 if task == "regression" else 3
    return lambda seed: ws.GLT(5, 8, 1, outputs, learned=False, dropout=dropout, **options).double()


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_stacked_seeds_are_their_single_runs_weights_and_all(task):
    data, recipe = problem(task), Recipe(lr=1e-2, patience=5, max_epochs=40)
    together = fit(factory(task), data, recipe, seeds=[0, 1, 2], stack=3)
    apart = fit(factory(task), data, recipe, seeds=[0, 1, 2], stack=1)
    assert [outcome.seeds for outcome in together] == [(0, 1, 2)] * 3
    assert [outcome.seeds for outcome in apart] == [(0,), (1,), (2,)]
    for one, other in zip(together, apart, strict=True):
        assert (one.seed, one.best.number, len(one.history)) == (other.seed, other.best.number, len(other.history))
        assert one.best.val_loss == pytest.approx(other.best.val_loss, rel=1e-6)
        for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True):
            assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("stack", [1, 3])
def test_every_model_has_the_weights_of_its_best_epoch(stack):
    data = problem()
    for outcome in fit(factory(dropout=0.3), data, Recipe(lr=3e-2, patience=8), seeds=[0, 1, 2], stack=stack):
        part = data.split(outcome.seed).val
        with torch.no_grad():
            loss = TASKS["classification"].loss(outcome.model(data.x, data.edges)[part], data.y[part])
        assert float(loss) == pytest.approx(outcome.best.val_loss, rel=1e-6)
        assert outcome.best.number < len(outcome.history)
        assert not outcome.model.training
        assert all(parameter.requires_grad for parameter in outcome.model.parameters())


def test_a_module_is_trained_in_place_as_the_same_seed_is():
    data, recipe = problem(), Recipe(lr=1e-2, max_epochs=9)
    (made,) = fit(factory(), data, recipe, seeds=[1])
    torch.manual_seed(1)
    model = factory()(1)
    outcome = fit(model, Data(data.x, data.edges, data.y, data.split(1)), recipe)
    assert outcome.model is model
    assert outcome.history == made.history


@pytest.mark.parametrize("stack", [1, 2])
def test_without_validation_nodes_the_last_weights_count(stack):
    data = problem(validated=False)
    seen = []
    found = fit(
        factory(), data, Recipe(patience=1, max_epochs=4), seeds=[0, 1], stack=stack, on_epoch=lambda *e: seen.append(e)
    )
    assert [outcome.best.number for outcome in found] == [4, 4]
    assert all(math.isnan(outcome.best.val_score) for outcome in found)
    assert len(seen) == 8
    assert all(epoch is best for epoch, best in seen)


def test_test_nodes_are_scored_without_validation_nodes():
    data, whole = problem(validated=False), problem()
    split = Split(data.splits[0].train, data.splits[0].val, whole.splits[0].test)
    outcome = fit(factory()(0), replace(data, splits=split), Recipe(max_epochs=4))
    right = outcome.model(data.x, data.edges).argmax(1) == data.y
    assert outcome.best.test_score == pytest.approx(float(right[split.test].double().mean()))


@pytest.mark.parametrize("stack", [1, 3])
def test_ctrl_c_keeps_the_best_so_far_and_leaves_out_what_had_not_begun(stack):
    def stop(epoch, best):
        if epoch.number == 3:
            raise KeyboardInterrupt

    found = fit(factory(), problem(), Recipe(max_epochs=9), seeds=[0, 1, 2], stack=stack, on_epoch=stop)
    assert [outcome.seed for outcome in found] == list(range(stack))
    assert all(outcome.interrupted and len(outcome.history) == 3 for outcome in found)
    with pytest.raises(KeyboardInterrupt):  # nothing is there to keep
        fit(lambda seed: stop(Epoch(3, 0, 0, 0, 0), None), problem(), seeds=[0])


def history_of(rows, **settings):
    recipe, history = Recipe(**settings), History(0)
    for number, row in enumerate(rows, 1):
        if not history.ended:
            history.add(Epoch(number, *row), recipe)
    return history


def test_the_epoch_is_chosen_by_score_then_loss_or_by_loss_alone():
    rows = [(1, 0.9, 0.5, 0.1), (1, 0.5, 0.7, 0.2), (1, 0.4, 0.7, 0.3), (1, 0.3, 0.6, 0.4)]
    assert history_of(rows).best.number == 3
    assert history_of(rows, select="loss").best.number == 4
    assert rank(Epoch(1, 1, math.nan, 0.9, 0.9)) < rank(Epoch(1, 1, 9.0, 0.1, 0.1))


def test_patience_and_divergence_end_a_run():
    flat = [(1, 1.0, 0.5, 0.5)] * 10
    patient = history_of(flat, patience=4)
    assert (len(patient.epochs), patient.best.number, patient.ended) == (5, 1, "patience")
    fallen = history_of([flat[0], (math.nan, 1.0, 0.9, 0.5), flat[0]])
    assert (len(fallen.epochs), fallen.best.number, fallen.ended) == (2, 1, "diverged")


@pytest.mark.parametrize("nodes", [59, 500])
def test_equal_counts_are_equal_accuracies(nodes):
    y = torch.zeros(nodes, dtype=torch.int64)
    part = Subset.of([torch.arange(nodes), torch.arange(nodes - 9)], y, TASKS["classification"])
    right = torch.stack([torch.randperm(nodes - 9) < nodes // 2 for _ in range(200)])
    outputs = torch.stack([right, ~right], -1).float()
    outputs = torch.cat([outputs, torch.zeros(200, 9, 2)], 1)
    outputs[:, -9:, 1] = 1  # nodes that only the first run has, all wrong
    scores = torch.stack([part.scores(each.expand(2, -1, -1)) for each in outputs])
    assert scores.unique(dim=0).tolist() == [[pytest.approx(nodes // 2 / n) for n in (nodes, nodes - 9)]]


class Decaying(MLP):
    def parameter_groups(self, weight_decay):
        return [
            {"params": [self.first.weight, self.second.weight], "weight_decay": weight_decay},
            {"params": [self.first.bias, self.second.bias], "weight_decay": 0.0},
        ]


def test_a_model_says_what_decays_alone_and_stacked():
    groups = make_optimiser(Decaying(5, 3), Recipe(weight_decay=0.1, optimiser="adamw")).param_groups
    assert [(len(group["params"]), group["weight_decay"]) for group in groups] == [(2, 0.1), (2, 0.0)]
    data, recipe = problem(seeds=(0, 1), validated=False), Recipe(lr=0.1, weight_decay=0.5, max_epochs=5)
    for stack in (1, 2):
        plain = fit(lambda seed: MLP(5, 3, dropout=0).double(), data, recipe, seeds=[0, 1], stack=stack)
        other = fit(lambda seed: Decaying(5, 3, dropout=0).double(), data, recipe, seeds=[0, 1], stack=stack)
        assert not torch.allclose(plain[1].model.first.bias, other[1].model.first.bias)


def test_dropout_differs_between_stacked_runs():
    data, seeds = problem(seeds=(0, 1)), [0, 1]
    data = Data(data.x, data.edges, data.y, data.split(0))  # one split for all
    weights = factory()(0).state_dict()

    def same(seed):
        model = factory(dropout=0.5)(seed)
        model.load_state_dict(weights)
        return model

    first, second = fit(same, data, Recipe(max_epochs=1), seeds=seeds, stack=2)
    assert first.history[0].train_loss != second.history[0].train_loss


def test_seeds_leave_the_callers_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    fit(factory(dropout=0.5), problem(), Recipe(max_epochs=2), seeds=[0, 1])
    assert torch.equal(torch.rand(3), expected)


def calls(path):
    """(enclosing function, called method) of every call of a method in a file."""
    tree = ast.parse(path.read_text())
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    yield function.name, ast.unparse(node.func)


def test_one_function_descends_a_loss():
    source = Path(ws.__file__).parent
    found = {}
    for path in source.rglob("*.py"):
        for function, call in calls(path):
            found.setdefault((path.relative_to(source).as_posix(), function), set()).add(call.rpartition(".")[2])
    steppers = [place for place, methods in found.items() if {"backward", "step"} <= methods]
    assert steppers == [("training/recipe.py", "descend")]


def test_the_example_of_fit():
    import walksum.training.fitting

    assert doctest.testmod(walksum.training.fitting).failed == 0


def test_wrong_use_is_told():
    data = problem()
    with pytest.raises(ValueError, match=r"give seeds=\[0, 1, ...\], too"):
        fit(factory(), data)
    with pytest.raises(ValueError, match="seeds need a function"):
        fit(factory()(0), data, seeds=[0])
    with pytest.raises(ValueError, match=r"seeds=\[1, 1\] holds a seed twice"):
        fit(factory(), data, seeds=[1, 1])
    with pytest.raises(ValueError, match=r"seeds=3; expected one number per run: seeds=range\(3\)"):
        fit(factory(), data, seeds=3)
    with pytest.raises(ValueError, match="splits has none for seed 3; give one Split for all runs, or one per seed"):
        fit(factory(), data, seeds=range(4))
    with pytest.raises(ValueError, match="the split of seed 0 holds node 47, but y has 40 nodes"):
        fit(factory(), Data(data.x[:40], data.edges, data.y[:40], data.splits), seeds=[0])
    with pytest.raises(ValueError, match=r"data is a Data; expected walksum.training.Data\(x, edges, y, split\)"):
        fit(factory()(0), torch_geometric.data.Data(x=data.x))
    with pytest.raises(ValueError, match="device='abacus' cannot be used here; use 'cpu' or 'auto'"):
        fit(factory(), data, seeds=[0], device="abacus")
    with pytest.raises(ValueError, match="select='f1'; known: 'score', 'loss'"):
        Recipe(select="f1")
    with pytest.raises(ValueError, match="optimiser='sgd'; known: 'adam', 'adamw'"):
        Recipe(optimiser="sgd")
    with pytest.raises(ValueError, match="task='ranking'; known: 'classification', 'regression'"):
        Data(data.x, data.edges, data.y, data.splits, task="ranking")
    with pytest.raises(RuntimeError, match="seed 0: TypeError"):
        fit(lambda seed: nn.Linear(5, 3), data, seeds=[0])


def test_auto_asks_for_a_gpu_only_for_large_problems(monkeypatch):
    small = problem()
    large = Data(torch.zeros(1, 2_000_000), small.edges, small.y, small.splits)
    assert not pays_on_gpu(small)
    assert pays_on_gpu(large)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto", large) == torch.device("cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["glt", "mlp"])
def test_a_gpu_trains_the_same_run_captured_and_gives_the_model_back(kind):
    data, recipe = problem(), Recipe(lr=1e-2, max_epochs=12)
    make = factory() if kind == "glt" else (lambda seed: MLP(5, 3, dropout=0.0))
    found = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        model = make(0).float()  # in double precision a graph this small is factorised densely, which looks at numbers
        found.append(fit(model, Data(data.x.float(), data.edges, data.y, data.split(0)), recipe, device=device))
        assert next(model.parameters()).device.type == "cpu"
    assert found[1].captured, found[1].not_captured
    for here, there in zip(found[0].history, found[1].history, strict=True):
        assert here.train_loss == pytest.approx(there.train_loss, abs=1e-3)
