"""Same settings, same machine: the same bits, at one thread and at two."""

import numpy as np
import pandas as pd
import pytest
import torch

import walksum as ws
from walksum import backends
from walksum.backends import reference
from walksum.backends.cpu import threads
from walksum.solvers import column_factor, factor


@pytest.fixture(autouse=True)
def every_block_in_a_thread(monkeypatch):
    """However small: at two threads there are two."""
    for module in (threads, factor, column_factor):
        monkeypatch.setattr(module, "WORTH_A_THREAD", 0)


def at_each_number_of_threads(action):
    """What an action gives with 1, 2, and again 1 threads."""
    before, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 1):
            torch.set_num_threads(count)
            found.append(action())
    finally:
        torch.set_num_threads(before)
    return found


def same(found):
    assert all(torch.equal(found[0], other) for other in found[1:])


def lattice(n=12):
    i = torch.arange(n * n).view(n, n)
    pairs = [(i[:, :-1], i[:, 1:]), (i[:-1], i[1:])]
    return ws.Graph.from_edge_index(torch.cat([torch.stack([a.flatten(), b.flatten()]) for a, b in pairs], 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("heads", [1, 9])
@pytest.mark.parametrize(
    "solver", ["auto", "direct", "cg", "hybrid", "chebyshev", "gabp", ws.CG(preconditioner="jacobi")]
)
def test_solves_and_their_gradients(solver, heads, dtype):
    draw = torch.Generator().manual_seed(0)
    graph = lattice()
    off = -torch.rand(heads, graph.num_edges, generator=draw, dtype=dtype) / 5
    diag = torch.ones(heads, graph.num_nodes, dtype=dtype)
    h, weight = torch.randn(2, heads, graph.num_nodes, 70, generator=draw, dtype=dtype)

    def solve():
        leaves = [t.clone().requires_grad_() for t in (diag, off, h)]
        mu = ws.solve(ws.Precision(graph, *leaves[:2]), leaves[2], solver)
        (mu * weight).sum().backward()
        return torch.cat([mu.detach().flatten(), *(t.grad.flatten() for t in leaves)])

    same(at_each_number_of_threads(solve))


def test_auto_without_numba(monkeypatch):
    """No LAPACK there either: two columns of 20 nodes are enough for other bits."""
    monkeypatch.setattr(backends, "_numba", lambda: reference)
    monkeypatch.setattr(backends, "has_numba", lambda: False)
    draw, graph = torch.Generator().manual_seed(0), lattice(5)
    off = -torch.rand(graph.num_edges, generator=draw, dtype=torch.float64) / 5
    h = torch.randn(graph.num_nodes, 2, generator=draw, dtype=torch.float64)
    diag = torch.ones(graph.num_nodes, dtype=torch.float64)
    same(at_each_number_of_threads(lambda: ws.solve(ws.Precision(graph, diag, off), h)))


def test_sums_over_many_nodes():
    """torch cuts a sum with a single result into as many parts as there are threads."""
    path = torch.arange(40_000)
    J = ws.FixedDiagonallyDominant()(ws.Graph.from_edge_index(torch.stack([path[:-1], path[1:]])))
    h = torch.randn(40_000, 1, generator=torch.Generator().manual_seed(0))

    def ask():
        fresh = ws.Precision(J.graph, J.diag.clone(), J.off.clone())
        mu = ws.solve(fresh, h, ws.CG(preconditioner="jacobi", max_steps=3), on_nonconverged="ignore")
        return torch.cat([mu.flatten().double(), ws.logdet(fresh).double()])

    same(at_each_number_of_threads(ask))


def test_fields():
    J = ws.CAR()(lattice()).detach()

    def ask():
        fresh = ws.Precision(J.graph, J.diag.clone(), J.off.clone())
        S = ws.selected_inverse(fresh)
        given = ws.GaussianField(fresh).condition([0, 5], [1.0, 2.0], noise=0.1)
        parts = ws.logdet(fresh), *S, ws.sample(fresh, (3,), seed=1), given.mean, given.variance
        return torch.cat([part.flatten() for part in parts])

    same(at_each_number_of_threads(ask))


def test_estimates_with_a_seed():
    J = ws.CAR()(lattice()).detach()
    settings = ws.field.Estimate(seed=3)

    def ask():
        fresh = ws.Precision(J.graph, J.diag.clone(), J.off.clone())
        return torch.cat([part.flatten() for part in (ws.logdet(fresh, "estimated", settings),)])

    same(at_each_number_of_threads(ask))


# LearnedPairwiseNormal is not among them: its batched product is torch's, whose bits change with the number of threads
@pytest.mark.parametrize(
    "design",
    [
        ws.FixedPairwiseNormal(),
        ws.FixedDiagonallyDominant(),
        ws.LearnedDiagonallyDominant(16, 8),
        ws.FixedLaplacian(),
        ws.LearnedLaplacian(16, 8),
    ],
    ids=lambda design: type(design).__name__,
)
def test_designs_and_their_gradients(design):
    graph, draw = lattice(50), torch.Generator().manual_seed(0)
    x, h = torch.randn(2500, 16, generator=draw), torch.randn(8, 2500, 8, generator=draw)

    def build():
        design.zero_grad()
        leaf = x.clone().requires_grad_()
        J = design(graph, leaf, h)
        weight = torch.Generator().manual_seed(1)
        parts = [J.diag, J.off]
        loss = sum((part * torch.randn(part.shape, generator=weight)).sum() for part in parts)
        if loss.requires_grad:
            loss.backward()
        gradients = [t.grad for t in (leaf, *design.parameters()) if t.grad is not None]
        return torch.cat([part.detach().flatten() for part in (*parts, *gradients)])

    same(at_each_number_of_threads(build))


def test_training_steps_of_a_model():
    """At one number of threads all of it; over different ones what is ours: docs/promise.md names what is torch's."""
    graph, draw = lattice(), torch.Generator().manual_seed(0)
    x, y = torch.randn(144, 6, generator=draw), torch.randint(3, (144,), generator=draw)

    def train(steps):
        torch.manual_seed(0)
        model = ws.GLT(6, 16, 2, 3, design="laplacian", learned=True)
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(steps):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(x, graph), y).backward()
            optimiser.step()
        return model

    def parameters(model, only=""):
        return torch.cat([p.detach().flatten() for name, p in model.named_parameters() if only in name])

    same([found for _ in range(2) for found in [parameters(train(4))]])
    same(at_each_number_of_threads(lambda: parameters(train(1), "mix.")))
    one, _, again = at_each_number_of_threads(lambda: parameters(train(4)))
    same([one, again])


def tables(count=60):
    draw = np.random.default_rng(0)
    kind = np.arange(count) % 2
    nodes = pd.DataFrame(
        {"id": np.arange(count), "size": draw.normal(size=count) + kind, "rent": draw.normal(size=count)}
    )
    nodes["colour"] = np.where(kind, "red", "blue")
    ends = draw.integers(0, count, (2, 3 * count))
    return nodes, pd.DataFrame({"source": ends[0], "target": ends[1]})


@pytest.mark.usefixtures("two_settings")
@pytest.mark.parametrize("count", [60, 66])
def test_a_training_from_tables(count):
    def fit():
        run = ws.fit_tables(*tables(count), "colour", max_epochs=6, hidden=8, layers=1)
        return torch.from_numpy(run.predictions.filter(like="probability_").to_numpy().copy())

    # at another number of threads torch's own operations may differ in the last bit, which the split of 60 nodes shows
    one, two, again = at_each_number_of_threads(fit)
    same([one, again] if count == 60 else [one, two, again])
    torch.testing.assert_close(two, one, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_a_whole_portfolio_twice():
    """All members, a random_state, and a budget that cuts nothing short."""
    nodes, edges = tables()
    X, y = nodes[["size", "rent"]].to_numpy(), (nodes["colour"] == "red").to_numpy().astype(int)
    shown = np.where(np.arange(len(y)) % 3, y, -1)
    graph = ws.Graph.from_edge_index(torch.from_numpy(edges.to_numpy().T.copy()), len(y))

    def fit():
        model = ws.AutoClassifier(budget=3600, random_state=0)
        model.fit(X, shown, graph, validation=np.nonzero(shown >= 0)[0][::3])
        assert model.complete_
        assert len(model.members_) > 30
        return torch.from_numpy(model.label_distributions_)

    same([fit(), fit()])


@pytest.mark.gpu
def test_deterministic_algorithms_on_a_gpu():
    """With torch's switch on, equal runs give equal bits on a GPU, and nothing that cannot is taken in silence."""
    graph = lattice(20).to("cuda")
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(400, 6, generator=draw).cuda(), torch.randint(3, (400,), generator=draw).cuda()

    def train():
        torch.manual_seed(0)
        model = ws.GLT(6, 16, 2, 3, design="laplacian", learned=True).cuda()
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(10):  # more than the six after which a J that stays may be inverted
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(x, graph), y).backward()
            optimiser.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(train(), train())
        J, h = ws.FixedLaplacian()(graph), torch.randn(400, 8, generator=draw).cuda()
        same([ws.solve(J, h) for _ in range(10)])  # the solver does not change on the way
    finally:
        torch.use_deterministic_algorithms(False)
