import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import walksum as ws
from gallery import CHANNELS, DESIGNS, FEATURES, GALLERY, islands, make_design, path, random_graph, weighted

FIXED = [name for name in DESIGNS if name.startswith("fixed")]
LEARNED = [name for name in DESIGNS if name.startswith("learned")]


def inputs(graph, heads=1, dtype=torch.double):
    x = torch.randn(graph.num_nodes, FEATURES, dtype=dtype)
    return x, torch.randn(heads, graph.num_nodes, CHANNELS, dtype=dtype)


def dense_adjacency(graph):
    A = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.double)
    i, j = graph.edges
    A[i, j] = A[j, i] = 1.0 if graph.edge_weight is None else graph.edge_weight.double()
    return A


def cosines(x):
    x = torch.nn.functional.normalize(x, dim=-1)
    return x @ x.transpose(-1, -2)


def normalise(J):
    d = J.diagonal(dim1=-2, dim2=-1).rsqrt()
    return d.unsqueeze(-1) * J * d.unsqueeze(-2)


# --- each design against its formula on dense matrices


@pytest.mark.parametrize(("coupling", "sign"), [("attractive", -1), ("repulsive", 1)])
def test_fixed_diagonally_dominant_is_its_formula(coupling, sign):
    graph = weighted()
    A = dense_adjacency(graph)
    expected = torch.diag(1 + A.sum(1)) + sign * A
    torch.testing.assert_close(ws.FixedDiagonallyDominant(coupling)(graph, h=inputs(graph)[1]).to_dense()[0], expected)


@pytest.mark.parametrize(("coupling", "sign"), [("attractive", -1), ("repulsive", 1)])
def test_fixed_laplacian_is_its_formula(coupling, sign):
    graph = GALLERY["random"]
    A = dense_adjacency(graph)
    d = A.sum(1).clamp_min(1).rsqrt()
    expected = torch.eye(graph.num_nodes) + sign * 0.9 * d[:, None] * A * d
    J = ws.FixedLaplacian(0.9, coupling)(graph, h=inputs(graph)[1])
    torch.testing.assert_close(J.to_dense()[0], expected)


@pytest.mark.parametrize(("coupling", "sign"), [("attractive", -1), ("repulsive", 1)])
def test_fixed_pairwise_normal_is_its_formula(coupling, sign):
    graph = path(4)
    x, _ = inputs(graph)
    A = dense_adjacency(graph)
    expected = normalise(torch.diag(A.sum(1)) + sign * 0.8 * A * cosines(x))
    torch.testing.assert_close(ws.FixedPairwiseNormal(0.8, coupling)(graph, x).to_dense()[0], expected)


def test_learned_pairwise_normal_is_its_formula():
    graph = weighted()
    _, h = inputs(graph, heads=2)
    design = ws.LearnedPairwiseNormal(CHANNELS, heads=2, epsilon=0.7).double()
    A = dense_adjacency(graph)
    A = A / A.max()
    own, other = h @ design.own, h @ design.other
    a = torch.nn.functional.softplus(own + other.transpose(1, 2) + design.bias[:, :, None]) + 1e-8
    b = 0.7 * (a * a.transpose(1, 2)).sqrt() * cosines(h) * A
    diag = (a * A).sum(2)
    diag[diag == 0] = 1
    torch.testing.assert_close(design(graph, h=h).to_dense(), normalise(b + torch.diag_embed(diag)))


def test_learned_diagonally_dominant_is_its_formula():
    graph = weighted()
    x, h = inputs(graph, heads=2)
    design = ws.LearnedDiagonallyDominant(FEATURES, heads=2).double()
    off = dense_adjacency(graph) * cosines(h)
    confidence = torch.nn.functional.softplus(design.confidence(x)).t() + 1e-8
    expected = normalise(off + torch.diag_embed(1.001 * off.abs().sum(2) + confidence))
    torch.testing.assert_close(design(graph, x, h).to_dense(), expected)


def test_learned_laplacian_is_its_formula():
    graph = GALLERY["grid"]
    x, h = inputs(graph, heads=2)
    design = ws.LearnedLaplacian(FEATURES, heads=2, similarity_channels=3).double()
    s = torch.nn.functional.leaky_relu(design.project(x)).view(-1, 2, 3).transpose(0, 1)
    A = dense_adjacency(graph) * torch.exp(-0.5 * torch.cdist(s, s) ** 2)
    d = A.sum(2).rsqrt()
    off = -0.99 * design.gate.sigmoid()[:, :, None] * d[:, :, None] * A * d[:, None, :]
    diag = 1 + 0.1 * torch.sigmoid(design.confidence(x)).t()
    torch.testing.assert_close(design(graph, x, h).to_dense(), normalise(off + torch.diag_embed(diag)))


# --- the contract, for all of them


@pytest.mark.parametrize("name", DESIGNS)
def test_nodes_without_edges_keep_their_observation(name):
    graph = islands()
    x, h = inputs(graph)
    J = make_design(name, 1).double()(graph, x, h)
    assert J.diag[0, [3, 6]].tolist() == [1.0, 1.0]
    torch.testing.assert_close(ws.solve(J, h)[:, [3, 6]], h[:, [3, 6]])


@pytest.mark.parametrize("graph", ["random", "islands", "weighted"])
@pytest.mark.parametrize("name", LEARNED)
def test_gradients_reach_every_parameter_and_the_inputs(name, graph):
    graph = GALLERY[graph]
    x, h = (t.requires_grad_() for t in inputs(graph, heads=3))
    design = make_design(name, 3).double()
    values = dict(design.named_parameters())

    def solved(h, x, *parameters):
        named = dict(zip(values, parameters, strict=True))
        return ws.solve(torch.func.functional_call(design, named, (graph, x, h)), h, "dense")

    arguments = (h, x, *values.values())
    assert torch.autograd.gradcheck(solved, arguments, fast_mode=True)
    gradients = torch.autograd.grad(solved(*arguments).square().sum(), arguments, allow_unused=True)
    unread = {1} if name == "learned pairwise normal" else set()  # reads h only
    assert all((g is None) == (k in unread) for k, g in enumerate(gradients))
    assert all(g.abs().sum() > 0 for k, g in enumerate(gradients) if k not in unread)


@pytest.mark.parametrize("name", FIXED)
def test_fixed_designs_are_built_once_for_a_graph(name):
    graph = random_graph(20, 40)
    x, h = inputs(graph)
    first, second = (make_design(name, 1)(graph, x, h) for _ in range(2))
    assert first is second
    x.add_(1.0)
    if name == "fixed pairwise normal":
        assert make_design(name, 1)(graph, x, h) is not first


@pytest.mark.parametrize("name", DESIGNS)
def test_relabelling_the_nodes_relabels_the_matrix(name):
    graph = GALLERY["weighted"]
    x, h = inputs(graph)
    order = torch.randperm(graph.num_nodes)
    place = torch.argsort(order)
    relabelled = ws.Graph.from_edge_index(place[graph.edges], graph.num_nodes, graph.edge_weight)
    design = make_design(name, 1).double()
    expected = design(graph, x, h).to_dense()[:, order][:, :, order]
    torch.testing.assert_close(design(relabelled, x[order], h[:, order]).to_dense(), expected)


EXTREME = st.sampled_from(np.float32([0, 1, -1, 1e-45, 1e-30, -1e-20, 1e-8, 0.3, 7, 1e8, -1e19, 1e30, 3e38]).tolist())


@st.composite
def cases(draw):
    n = draw(st.integers(1, 9))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=24))
    edge_index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    weight = None
    if draw(st.booleans()):
        values = st.sampled_from([0.0, 1e-40, 1e-12, 1e-3, 0.5, 1.0, 3.0, 1e6])
        weight = torch.tensor(draw(st.lists(values, min_size=len(pairs), max_size=len(pairs))))
    numbers = st.one_of(EXTREME, st.floats(-100, 100, width=32))
    flat = torch.from_numpy(draw(arrays(np.float32, n * (FEATURES + 2 * CHANNELS), elements=numbers)))
    x = flat[: n * FEATURES].view(n, FEATURES)
    h = flat[n * FEATURES :].view(2, n, CHANNELS)
    return ws.Graph.from_edge_index(edge_index, n, weight), x, h, draw(st.integers(0, 2**16))


@pytest.mark.parametrize("name", DESIGNS)
def test_walk_summable_for_every_finite_input(name):
    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(cases(), st.sampled_from(["attractive", "repulsive"]), st.sampled_from([0.1, 1.0, 30.0]))
    def check(case, coupling, size):
        graph, x, h, seed = case
        torch.manual_seed(seed)
        design = make_design(name, 2, coupling=coupling)
        with torch.no_grad():
            for parameter in design.parameters():
                parameter.normal_(std=size)
            J = design(graph, x, h)
        assert bool(torch.isfinite(J.diag).all() & torch.isfinite(J.off).all())
        assert bool((J.diag > 0).all())
        assert J.is_walk_summable, J.walk_summability()

    check()


# --- similarities, weights and wrong use


@pytest.mark.parametrize("name", [n for n in DESIGNS if n not in ("fixed diagonally dominant", "fixed laplacian")])
@pytest.mark.parametrize(
    "similarity",
    ["cosine", "gaussian", "dot", lambda a, b: (a * b).sum(-1), lambda a, b: 5 * a[..., 0] - b[..., 1]],
    ids=["cosine", "gaussian", "dot", "symmetric function", "asymmetric function"],
)
def test_any_similarity_gives_a_symmetric_walk_summable_matrix(name, similarity):
    graph = GALLERY["complete"]
    x, h = inputs(graph, heads=2)
    design = make_design(name, 2, similarity=similarity).double()
    J = design(graph, x, h)
    assert J.is_walk_summable
    # numbered from the other end, every edge is read the other way round
    torch.testing.assert_close(design(graph, x.flip(0), h.flip(1)).to_dense(), J.to_dense().flip(1, 2))


@pytest.mark.parametrize("name", ["fixed laplacian", "learned laplacian"])
def test_laplacians_refuse_negative_weights(name):
    graph = ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]]), 3, torch.tensor([1.0, -2.0]))
    with pytest.raises(ValueError, match=r"negative value -2; .*Laplacian divides.*edge_weight.abs\(\)"):
        make_design(name, 1).double()(graph, *inputs(graph))


@pytest.mark.parametrize("name", [n for n in DESIGNS if "laplacian" not in n])
def test_other_designs_take_negative_weights_as_the_opposite_sign(name):
    edge_index, weight = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([1.0, -2.0, 0.5])
    graph, mirrored = (ws.Graph.from_edge_index(edge_index, 3, w) for w in (weight, -weight))
    x, h = inputs(graph)
    design = make_design(name, 1).double()
    J, K = design(graph, x, h), design(mirrored, x, h)
    assert J.is_walk_summable
    torch.testing.assert_close(J.off, -K.off)
    torch.testing.assert_close(J.diag, K.diag)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ws.FixedLaplacian(coupling="none"), r"coupling='none'; known: 'repulsive', 'attractive'"),
        (lambda: ws.FixedLaplacian(scale=1.0), r"scale=1.0; expected a number strictly between 0 and 1"),
        (lambda: ws.FixedPairwiseNormal(epsilon=-1), r"epsilon=-1"),
        (lambda: ws.LearnedDiagonallyDominant(3, margin=0.0), r"margin=0.0"),
        (lambda: ws.LearnedLaplacian(3, confidence=-1.0), r"confidence=-1.0"),
        (lambda: ws.FixedPairwiseNormal(similarity="euclid"), r"known: 'cosine', 'gaussian', 'dot'"),
        (lambda: ws.FixedPairwiseNormal()(path(3)), r"FixedPairwiseNormal reads x; pass x="),
        (lambda: ws.LearnedPairwiseNormal(2)(path(3)), r"LearnedPairwiseNormal reads h"),
        (lambda: ws.FixedPairwiseNormal()(path(3), torch.ones(4, 2)), r"x has 4 rows but the graph has 3 nodes"),
        (lambda: ws.FixedPairwiseNormal()(path(3), torch.ones(3)), r"x has shape \(3,\); expected \[N, F\]"),
        (
            lambda: ws.LearnedPairwiseNormal(2)(path(3), h=torch.ones(3, 2)),
            r"h has shape \(3, 2\); expected \[H, N, F\]",
        ),
        (lambda: ws.LearnedPairwiseNormal(0), r"channels=0"),
        (lambda: ws.LearnedLaplacian(2, heads=0), r"heads=0"),
        (lambda: ws.FixedPairwiseNormal()(path(3), torch.full((3, 2), torch.nan)), r"x contains NaN"),
        (lambda: ws.FixedPairwiseNormal()(path(3), torch.ones(3, 2, device="meta")), r"x is on meta but the graph"),
        (
            lambda: ws.FixedPairwiseNormal(similarity=lambda a, b: a)(path(3), torch.ones(3, 2)),
            r"similarity returned shape \(1, 2, 2\)",
        ),
    ],
)
def test_bad_input_says_what_to_do(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", DESIGNS)
def test_huge_weights_are_scaled_or_refused(name):
    graph = path(4).with_weight(torch.full((3,), 3e38))
    x, h = torch.randn(4, FEATURES), torch.randn(1, 4, CHANNELS)
    if name == "fixed diagonally dominant":
        with pytest.raises(ValueError, match=r"edge_weight sums to more than 3.4e\+38 around a node"):
            make_design(name, 1)(graph, x, h)
        return
    J = make_design(name, 1)(graph, x, h)
    assert J.diag.isfinite().all()
    assert J.off.isfinite().all()
    assert (J.off != 0).all()  # the couplings are not lost beside an infinite sum


@pytest.mark.parametrize("name", DESIGNS)
def test_a_batch_of_edge_weights_by_vmap(name):
    edge_index, x = torch.tensor([[0, 1, 2, 3, 1], [1, 2, 3, 0, 0]]), torch.randn(4, 3, dtype=torch.double)
    kind, design = name.split(" ", 1)
    conv = ws.GLTConv(3, 2, design=design.replace(" ", "-"), learned=kind == "learned").double()
    weight = torch.rand(3, 5, dtype=torch.double)
    expected = torch.stack([conv(x, edge_index, each) for each in weight])
    found = torch.func.vmap(lambda each: conv(x, edge_index, each))(weight)
    torch.testing.assert_close(found, expected)
    weight[1, 2] = torch.nan
    with pytest.raises(ValueError, match=r"edge_weight\[1, 2\] is nan"):
        torch.func.vmap(lambda each: conv(x, edge_index, each))(weight)


@pytest.mark.parametrize("learned", [False, True])
def test_negative_weights_are_refused_under_vmap_too(learned):
    conv, edge_index, x = ws.GLTConv(3, 2, learned=learned), torch.tensor([[0, 1], [1, 2]]), torch.randn(3, 3)
    with pytest.raises(ValueError, match="edge_weight has the negative value -2"):
        torch.func.vmap(lambda each: conv(x, edge_index, each))(torch.tensor([[1.0, 1], [1, -2]]))


@pytest.mark.parametrize("name", LEARNED)
def test_a_changed_J_changes_no_later_one(name):
    graph, design = path(6), make_design(name, 1).double()
    given = inputs(graph)
    first = design(graph, *given)
    before = first.to_dense().clone()
    first.diag.data.mul_(5)  # unseen by version counters
    torch.testing.assert_close(design(graph, *given).to_dense(), before, rtol=0, atol=0)
