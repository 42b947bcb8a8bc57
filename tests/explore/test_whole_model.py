"""The whole model's influence is what autograd gives directly, and of a blend what small changes of features do."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from walksum.explore.member_outputs import has_derivatives, member_outputs, reads_no_features
from walksum.explore.whole_model import WholeModel
from walksum.graph import Graph
from walksum.portfolio.blend import Blend
from walksum.portfolio.columns import Standard, own_and_degree, surroundings
from walksum.portfolio.deep import DeepBank, DeepBanks, fit_deep, fit_words
from walksum.portfolio.fit import ELSEWHERE, Portfolio
from walksum.portfolio.labels import LabelPropagation
from walksum.portfolio.networks import Networks
from walksum.portfolio.problem import Problem
from walksum.portfolio.schedule import Member
from walksum.portfolio.spread import Operator
from walksum.portfolio.stacked import StackedNetworks, _read
from walksum.portfolio.tabular import boosting, fit_tabular, linear
from walksum.workflow.auto import as_portfolio_problem
from walksum.workflow.prepare import as_table

pytest.importorskip("dash_cytoscape")


def direct(trained, node):
    """The gradient of the log-odds of the predicted class ``[N, F]``, written out."""
    x = trained.x.clone().requires_grad_()
    probability = (trained.model(x, trained.graph) / trained.encoding.temperature).softmax(-1)[node]
    p = probability[int(trained.prediction[node])]
    return torch.autograd.grad((p / (1 - p)).log(), x)[0].double()


def test_of_a_network_it_is_the_gradient(small):
    whole = WholeModel(small)
    for node in (3, 40, 3):  # the forward pass is kept and asked again
        found, gradient = whole.influence(node), direct(small, node)
        assert np.allclose(found.size, gradient.abs().sum(1), rtol=1e-3, atol=1e-6)
        moved = (gradient * (small.x - small.x.mean(0))).sum(1)
        assert np.allclose(found.adds, moved, rtol=1e-3, atol=1e-5)
        assert found.share.sum() == pytest.approx(1)
        assert (found.covered, found.left_out) == (1.0, ())
    assert WholeModel(small).influence(59).share[59] == pytest.approx(1)  # the last house stands alone


def test_a_number_moves_in_its_own_units(numbers):
    """A network that adds up its two first features, of a target whose logarithm is learned."""

    class Sum(torch.nn.Module):
        def forward(self, x, edges):
            return x[:, :1] + 2 * x[:, 1:2]

    trained = numbers[1]
    encoding = replace(trained.encoding, target_transform="log", target_knots=[1.0, 1e3],
                       target_mean=1.0, target_scale=0.5)  # fmt: skip
    found = WholeModel(replace(trained, model=Sum(), encoding=encoding)).influence(7)
    value = float(trained.x[7, 0] + 2 * trained.x[7, 1])
    slope = (encoding.in_units(value + 1e-3) - encoding.in_units(value - 1e-3)) / 2e-3
    assert found.size[7] == pytest.approx(3 * float(slope), rel=1e-4)
    assert np.flatnonzero(found.size).tolist() == [7]
    cut = replace(encoding, target_ends=[None, float(encoding.in_units(value))])
    at_an_end = WholeModel(replace(trained, model=Sum(), encoding=cut)).influence(7)
    assert at_an_end.size[7] == pytest.approx(found.size[7])


def networks(width, operators, where, classes, count, draw):
    """So many random networks of one shape."""
    shapes = {"first": (width, count, 8), "first_bias": (count, 8), "last": (count, 8, classes)}
    shapes |= {"last_bias": (count, 1, classes), "gamma": (count, len(operators))}
    if where == "hidden":
        shapes["last"] = (count, 8 * len(operators), classes)
    parameters = {name: 0.5 * torch.randn(shape, generator=draw) for name, shape in shapes.items()}
    return Networks(operators, where, torch.ones(count, len(operators), dtype=torch.bool), parameters)


def stack(problem, inputs, where, classes, members=2, folds=2):
    draw = torch.Generator().manual_seed(1)
    columns = _read(inputs, problem, problem.known, None)
    standard = None if inputs in ("raw", "rows") else Standard.of(columns)
    operators = [Operator(0.0), Operator(0.9), Operator(-0.5, loops=True)]
    made = networks(columns.shape[1], operators, where, classes, members * folds, draw)
    return StackedNetworks(inputs, [standard], [made], folds)


def deep(problem, classes):
    torch.manual_seed(2)
    columns = own_and_degree(problem)
    models = [DeepBank(columns.shape[1], classes, 2, 8, 0.0).eval() for _ in range(2)]
    return DeepBanks(models, Standard.of(columns), 2, 8)


def portfolio_problem(trained, directed=False):
    known = replace(trained.problem, y=trained.known_y)
    made = as_portfolio_problem(trained.model, known, trained.x, trained.encoding)
    if directed:
        made.arcs, made.unit = trained.graph.edges.numpy(), 1.0
    made.folds = [(made.known, made.known)] * 2
    return made


def changed(problem, x, shift):
    return replace(problem, X=as_table(x + shift), kept={}, basis=problem.basis)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("inputs", ["raw", "rows", "x", "surroundings", "surroundings + labels"])
def test_outputs_of_members_as_functions_of_the_features(numbers, inputs, directed):
    trained = numbers[1]
    problem = portfolio_problem(trained, directed)
    where = "hidden" if inputs == "x" else "outputs"
    models = [stack(problem, inputs, where, 1)]
    if inputs not in ("raw", "rows"):
        models.append(fit_tabular(problem, inputs, linear, np.inf)[1])
    if inputs == "x":
        models.append(deep(problem, 1))
    draw = np.random.default_rng(0)
    for model in models:
        x = trained.x.clone().requires_grad_()
        out = member_outputs(model, 0, problem, x)
        assert np.allclose(out.detach(), model.outputs(problem)[0], atol=1e-4)
        weight = torch.from_numpy(draw.normal(size=out.shape))
        gradient = torch.autograd.grad((weight * out).sum(), x)[0]
        shift = 1e-3 * gradient.sign()  # all changes add up
        moved = [(weight.numpy() * model.outputs(changed(problem, trained.x, s * shift))[0]).sum() for s in (1, -1)]
        assert float((gradient * shift).sum()) == pytest.approx((moved[0] - moved[1]) / 2, rel=0.03, abs=1e-4)


def blend_of(trained, models, powers, classes):
    """A portfolio of these members, equally heavy, with the residuals of the run."""
    count = len(models)
    members = [Member(f"member {k}", np.zeros((2, 1, 1)), True, False, 0.0, m) for k, m in enumerate(models)]
    blend = Blend(np.ones(count, bool), np.full(count, 1 / count), np.array(powers))
    return replace(trained, model=replace_portfolio(trained.model, members, blend), residuals=None)


def replace_portfolio(portfolio, members, blend):
    return Portfolio(portfolio.problem, members, {ELSEWHERE: blend}, {ELSEWHERE: 1.0}, {}, {})


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_of_a_blend_it_is_the_gradient_of_the_members_that_have_one(numbers, classes, kind):
    trained = numbers[1] if kind == "numbers" else classes
    outputs = 1 if kind == "numbers" else 2
    problem = portfolio_problem(trained)
    trees = fit_tabular(problem, "surroundings", boosting, np.inf)[1]
    smooth = [stack(problem, "surroundings", "outputs", outputs), deep(problem, outputs), LabelPropagation([0.9])]
    if outputs == 2:
        smooth.append(fit_tabular(problem, "x", linear, np.inf)[1])
    mixed = blend_of(trained, [*smooth, trees], [1.0, 2.0, 0.5, 1.4, 1.0][: len(smooth) + 1], outputs)
    found = WholeModel(mixed).influence(44)
    assert found.covered == pytest.approx(len(smooth) / (len(smooth) + 1))
    assert found.left_out == ((f"member {len(smooth)}", pytest.approx(1 / (len(smooth) + 1))),)
    # without the trees, what the run answers moves as the gradient says
    alone = blend_of(trained, smooth, [1.0, 2.0, 0.5, 1.4][: len(smooth)], outputs)
    gradient = WholeModel(alone).influence(44)
    shift = 2e-3 * (trained.x - trained.x.mean(0))
    ends = [alone.answer(trained.x + s * shift, trained.problem)[44].double() for s in (1, -1)]
    if outputs == 2:
        ends = [torch.log(p[int(alone.prediction[44])] / (1 - p[int(alone.prediction[44])])) for p in ends]
    assert 2e-3 * gradient.adds.sum() == pytest.approx(float(ends[0] - ends[1]) / 2, rel=0.05, abs=2e-4)
    assert (gradient.covered, gradient.left_out) == (pytest.approx(1), ())


def test_a_deep_bank_reads_every_column_of_a_wide_table():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(60, 90)), random.integers(0, 2, 60).astype(float)
    graph = Graph.from_edge_index(torch.from_numpy(random.integers(0, 60, (2, 90))), 60)
    problem = Problem(X, graph, y, 2, [(np.arange(40), np.arange(40, 60))], wide=True)
    out, model, _ = fit_deep(problem, 2, lambda out, y: 0.0, np.inf, epochs=1, width=8)
    assert model.models[0].embed.in_features == 91  # not 64 directions of them
    found = member_outputs(model, 0, problem, torch.from_numpy(X)).detach()
    np.testing.assert_allclose(found, out, atol=1e-5)
    out, model, _ = fit_words(problem, 0.5, lambda out, y: 0.0, np.inf, seeds=2, epochs=[3, 3], width=8)
    x = torch.from_numpy(X).requires_grad_()
    found = member_outputs(model, 0, problem, x)
    np.testing.assert_allclose(found.detach(), out, atol=1e-5)
    assert torch.autograd.grad(found[0, :, 0].sum(), x)[0].any()


def test_what_trees_make_of_a_column_is_what_they_answer_without_it(numbers, classes):
    from walksum.explore.member_outputs import column_names
    from walksum.portfolio.columns import COLUMNS

    for trained, outputs in ((numbers[1], 1), (classes, 2)):
        problem = portfolio_problem(trained, directed=True)
        for name, columns in COLUMNS.items():
            if not name.startswith("place"):
                assert len(column_names(trained, problem, name)) == columns(problem, problem.known).shape[1]
        problem = portfolio_problem(trained)
        trees = fit_tabular(problem, "surroundings + labels", boosting, np.inf)[1]
        alone = blend_of(trained, [trees], [1.0], outputs)
        first = WholeModel(alone).columns(44)[0]
        names = column_names(trained, problem, "surroundings + labels")
        X = COLUMNS["surroundings + labels"](problem, problem.known)[[44, 44]]
        X[1, names.index(first.name)] = COLUMNS["surroundings + labels"](problem, problem.known).mean(0)[
            names.index(first.name)
        ]
        assert first.value == X[0, names.index(first.name)]
        if outputs == 1:
            there, without = np.mean([model(X) for model in trees.models], 0)[:, 0] * trained.encoding.target_scale
        else:
            own = int(alone.prediction[44])
            there, without = np.mean([(p + 1e-4) / (1 + 2e-4) for p in (m(X) for m in trees.models)], 0)[:, own]
        assert first.effect == pytest.approx(there - without, rel=1e-3)
    assert WholeModel(replace(numbers[1], model=torch.nn.Identity())).columns(3) == []


def test_which_members_have_derivatives(numbers):
    problem = portfolio_problem(numbers[1])
    assert not has_derivatives(fit_tabular(problem, "x", boosting, np.inf)[1])
    assert has_derivatives(fit_tabular(problem, "x", linear, np.inf)[1])
    assert reads_no_features(LabelPropagation([0.9]))
    assert not reads_no_features(deep(problem, 1))
    assert surroundings(problem).shape[0] == problem.num_nodes
