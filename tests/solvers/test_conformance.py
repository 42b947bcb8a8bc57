"""Every solver on every design, every gallery graph: one table. A new solver is one line."""

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import walksum as ws
from gallery import DESIGNS, GALLERY, dense_solve, path, problem, random_graph
from reference import true_residual

# tight: reaches 1e-9 in float64; loose: the tolerance asked for in float32
TIGHT = {
    "gabp": ws.GaBP(tol=1e-13, max_steps=20000),
    "gabp adaptive": ws.GaBP("adaptive", tol=1e-13, max_steps=20000),
    "gabp sequential": ws.GaBP(schedule="sequential", tol=1e-13, max_steps=20000),
    "cg": ws.CG(),
    "cg jacobi": ws.CG(preconditioner="jacobi"),
    "cg none": ws.CG(preconditioner="none"),
    "dense": ws.Dense(),
    "inverse": ws.Inverse(),
    "inverse half": ws.Inverse("half"),
    "direct": ws.Direct(),
    "hybrid": ws.Hybrid(max_degree=2),  # leaves a core on most of the gallery
    "chebyshev": ws.Chebyshev(),
    "multigrid": ws.Multigrid(),
    "auto": "auto",
}
ALL = {name: replace(each, tol=1e-6) if name.startswith("gabp") else each for name, each in TIGHT.items()}


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("solver", TIGHT)
def test_equals_the_dense_solve_with_exact_gradients(solver, design, heads):
    for name, graph in GALLERY.items():
        J, h = problem(graph, design, heads)
        seen = []
        mu = ws.solve(J, h, TIGHT[solver], observe=seen.append)
        torch.testing.assert_close(mu, dense_solve(J, h), rtol=1e-9, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")
        assert seen[0].converged
        assert seen[0].residual == pytest.approx(true_residual(J, mu, h), rel=0.5, abs=1e-14)

        def solve(diag, off, h, graph=graph):
            return ws.solve(ws.Precision(graph, diag, off), h, TIGHT[solver])

        values = [t.clone().requires_grad_() for t in (J.diag, J.off, h)]
        assert torch.autograd.gradcheck(solve, values, fast_mode=True), name
        if name == "random" or (heads, design) == (3, DESIGNS[1]):  # every pair of solver with design and with graph
            assert torch.autograd.gradgradcheck(solve, values, fast_mode=True), name


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("solver", TIGHT)
def test_float32_gradients_are_close_to_float64(solver, design):
    def gradients(dtype, method):
        J, h = problem(random_graph(40, 100), design, 2)
        values = [t.to(dtype).requires_grad_() for t in (J.diag, J.off, h)]
        mu = ws.solve(ws.Precision(J.graph, *values[:2]), values[2], method, on_nonconverged="ignore")
        target = torch.linspace(0, 1, mu.numel(), dtype=torch.double).view(mu.shape).to(dtype)
        return torch.autograd.grad((mu - target).square().sum(), values)

    float32 = replace(TIGHT[solver], tol=1e-7) if solver.startswith("gabp") else TIGHT[solver]
    for rough, exact in zip(gradients(torch.float32, float32), gradients(torch.double, "dense"), strict=True):
        assert float((rough - exact).abs().max() / exact.abs().max()) < 1e-4


@pytest.mark.parametrize("solver", TIGHT)
def test_relabelling_the_nodes_relabels_the_solution(solver):
    J, h = problem(GALLERY["random"], "learned pairwise normal", 2)
    order = torch.randperm(J.num_nodes)
    place = torch.argsort(order)
    graph = ws.Graph.from_edge_index(place[J.graph.edges], J.num_nodes, J.off[0])
    off = [ws.Graph.from_edge_index(place[J.graph.edges], J.num_nodes, o).edge_weight for o in J.off]
    K = ws.Precision(graph, J.diag[:, order], torch.stack(off))
    torch.testing.assert_close(ws.solve(K, h[:, order], TIGHT[solver]), ws.solve(J, h, TIGHT[solver])[:, order])


@pytest.mark.parametrize("solver", TIGHT)
@pytest.mark.parametrize("scale", [1e-30, 1e-4, 1e10, 1e30])
def test_the_scale_of_h_does_not_matter(solver, scale):
    J, h = problem(GALLERY["grid"], "fixed diagonally dominant", 1)
    J, h = J.to(torch.float32), h.float()
    of_scaled = ws.solve(J, h * scale, ALL[solver])
    torch.testing.assert_close(of_scaled / scale, ws.solve(J, h, ALL[solver]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("solver", ALL)
def test_a_mu_beyond_the_range_of_its_dtype_is_not_converged(solver):
    J, h = problem(GALLERY["grid"], "fixed diagonally dominant", 1)
    J, h = J.to(torch.float32), h.float()
    for of_J, of_h, status in ((1e-30, 1e20, ws.Status.overflow), (1e30, 1e-20, ws.Status.stalled)):
        seen = []
        K = ws.Precision(J.graph, J.diag * of_J, J.off * of_J)
        ws.solve(K, h * of_h, ALL[solver], observe=seen.append, on_nonconverged="ignore")
        assert seen[0].status is status
        assert not seen[0].residual < 0.5
        assert ("NaN" in seen[0].describe()) is False


@pytest.mark.parametrize("solver", ALL)
@pytest.mark.parametrize("columns", [0, 2])
def test_a_graph_without_nodes(solver, columns):
    J = ws.Precision(ws.Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), 0), torch.ones(0), torch.ones(0))
    values = [J.diag.clone().requires_grad_(), J.off.clone().requires_grad_()]
    mu = ws.solve(ws.Precision(J.graph, *values), torch.ones(0, columns), ALL[solver], on_nonconverged="raise")
    assert mu.shape == (0, columns)
    mu.sum().backward()
    assert values[0].grad.shape == (1, 0)


@pytest.mark.parametrize("solver", ALL)
@pytest.mark.parametrize("order", [(0, 2, 1), (1, 0, 2), (2, 1, 0)])
def test_how_h_lies_in_memory_does_not_matter(solver, order):
    J, _ = problem(GALLERY["grid"], "fixed diagonally dominant", 2)
    h = torch.randn(2, J.num_nodes, 16, dtype=torch.double)  # a whole block of columns is written in place
    lying = h.permute(order).contiguous().permute([order.index(k) for k in range(3)])
    assert not lying.is_contiguous()
    torch.testing.assert_close(ws.solve(J, lying, ALL[solver]), ws.solve(J, h, ALL[solver]))


@pytest.mark.parametrize("solver", ALL)
@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_float64_has_a_wider_range(solver, scale):
    J, h = problem(GALLERY["grid"], "fixed diagonally dominant", 1)
    solved = ws.solve(J, h * scale, ALL[solver], on_nonconverged="raise")
    torch.testing.assert_close(solved / scale, ws.solve(J, h, ALL[solver]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("solver", TIGHT)
def test_a_disjoint_union_is_solved_side_by_side(solver):
    (J, h), (K, k) = (problem(GALLERY[name], "fixed laplacian", 1) for name in ("grid", "star"))
    edges = torch.cat([J.graph.edges, K.graph.edges + J.num_nodes], 1)
    union = ws.Precision(
        ws.Graph(edges, J.num_nodes + K.num_nodes), torch.cat([J.diag, K.diag], 1), torch.cat([J.off, K.off], 1)
    )
    apart = torch.cat([ws.solve(J, h, TIGHT[solver]), ws.solve(K, k, TIGHT[solver])], 1)
    torch.testing.assert_close(ws.solve(union, torch.cat([h, k], 1), TIGHT[solver]), apart)


@pytest.mark.parametrize("solver", TIGHT)
def test_zero_columns_and_no_columns(solver):
    J, h = problem(GALLERY["grid"], "fixed laplacian", 1)
    h[..., 0] = 0
    mu = ws.solve(J, h, TIGHT[solver])
    assert mu[..., 0].abs().max() == 0
    torch.testing.assert_close(mu, dense_solve(J, h), rtol=1e-9, atol=1e-9)
    values = [t.clone().requires_grad_() for t in (J.diag, J.off)]
    nothing = ws.solve(ws.Precision(J.graph, *values), h[..., :0], TIGHT[solver])
    assert nothing.shape == (1, J.num_nodes, 0)
    for gradient, value in zip(torch.autograd.grad(nothing.sum(), values), values, strict=True):
        assert torch.equal(gradient, torch.zeros_like(value))


@pytest.mark.parametrize("solver", TIGHT)
@pytest.mark.parametrize("place", ["diag", "off", "h"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_reported(solver, place, value):
    J, h = problem(GALLERY["grid"], "fixed laplacian", 1)
    values = {"diag": J.diag.clone(), "off": J.off.clone(), "h": h.clone()}
    values[place].view(-1)[3] = value
    broken = ws.Precision(J.graph, values["diag"], values["off"])
    seen = []
    ws.solve(broken, values["h"], TIGHT[solver], observe=seen.append, on_nonconverged="ignore")
    assert seen[0].status is ws.Status.nonfinite


@pytest.mark.parametrize("solver", TIGHT)
def test_an_indefinite_matrix_is_reported(solver):
    J = ws.Precision(path(4), torch.ones(4).double(), torch.full((3,), 2.0).double())
    seen = []
    ws.solve(J, torch.randn(4, 2).double(), TIGHT[solver], observe=seen.append, on_nonconverged="ignore")
    assert seen[0].status in (ws.Status.not_positive_definite, ws.Status.diverged)


def test_definite_but_not_walk_summable_is_solved_or_reported():
    graph = GALLERY["complete"]
    J = ws.Precision(graph, torch.ones(5).double(), torch.full((10,), 0.4).double())
    h = torch.randn(5, 2).double()
    assert not J.is_walk_summable
    for solver in TIGHT:
        seen = []
        mu = ws.solve(J, h, TIGHT[solver], observe=seen.append, on_nonconverged="ignore")
        if seen[0].converged:
            torch.testing.assert_close(mu, dense_solve(J, h.unsqueeze(0))[0], rtol=1e-8, atol=1e-8)
        else:
            assert solver == "chebyshev" or solver.startswith("gabp")
            assert seen[0].status is ws.Status.diverged


@st.composite
def systems(draw):
    n = draw(st.integers(1, 8))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    graph = ws.Graph.from_edge_index(torch.randint(n, (2, draw(st.integers(0, 20))), generator=generator), n)
    heads, dtype = draw(st.sampled_from([1, 2])), draw(st.sampled_from([torch.float32, torch.double]))
    off = torch.randn(heads, graph.num_edges, generator=generator, dtype=torch.double) * draw(st.sampled_from([0.1, 1]))
    diag = torch.rand(heads, n, generator=generator, dtype=torch.double) * draw(st.sampled_from([0.1, 1, 3]))
    if draw(st.booleans()):  # dominant, by a margin that may be tiny
        i, j = graph.edges
        diag = draw(st.sampled_from([1e-6, 1e-2, 1])) + diag.zero_().index_add(1, i, off.abs()).index_add(
            1, j, off.abs()
        )
    h = torch.randn(heads, n, 2, generator=generator, dtype=torch.double) * draw(st.sampled_from([1e-20, 1, 1e20]))
    return ws.Precision(graph, diag.to(dtype), off.to(dtype)), h.to(dtype)


@pytest.mark.parametrize("solver", [name for name in TIGHT if name != "auto"])
def test_never_converged_with_a_residual_above_tolerance(solver):
    @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(systems())
    def check(system):
        J, h = system
        solution = ALL[solver].prepare(J)(h)
        tol = 1e-6 if solver.startswith("gabp") else 32 * torch.finfo(h.dtype).eps
        if solution.converged:
            assert true_residual(J, solution.value, h) <= tol * 1.01 + 4 * torch.finfo(h.dtype).eps
        else:
            assert solution.status is not ws.Status.converged

    check()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ws.GaBP(tol=0), r"tol=0; expected a positive"),
        (lambda: ws.GaBP(tol=-1e-3), r"tol=-0.001"),
        (lambda: ws.GaBP(max_steps=0), r"max_steps=0"),
        (lambda: ws.GaBP(damping=0), r"damping=0; expected 'adaptive' or a weight in \(0, 1\]"),
        (lambda: ws.GaBP(damping=1.5), r"damping=1.5"),
        (lambda: ws.GaBP(damping="strong"), r"damping='strong'"),
        (lambda: ws.GaBP(damping=float("nan")), r"damping=nan"),
        (lambda: ws.GaBP(stop="never"), r"stop='never'; known: 'residual', 'messages'"),
        (lambda: ws.GaBP(schedule="random"), r"schedule='random'"),
        (lambda: ws.GaBP("adaptive", schedule="sequential"), r"schedule='sequential' with damping='adaptive'"),
        (lambda: ws.GaBP(stop="messages", schedule="sequential"), r"schedule='sequential' with .* stop='messages'"),
        (lambda: ws.CG(tol=-1.0), r"tol=-1.0"),
        (lambda: ws.CG(max_steps=0), r"max_steps=0"),
        (lambda: ws.CG(tol=float("nan")), r"tol=nan"),
        (lambda: ws.CG(tol="small"), r"tol='small'; expected a positive"),
        (lambda: ws.CG(max_steps=2.5), r"max_steps=2.5; expected a positive whole number"),
        (lambda: ws.Hybrid(max_degree=2.5), r"max_degree=2.5"),
        (lambda: ws.Hybrid(max_degree=0), r"max_degree=0"),
        (lambda: ws.Hybrid(inner="cg"), r"inner='cg'"),
        (lambda: ws.Hybrid(tol=-1), r"tol=-1"),
        (lambda: ws.Direct(refine=-1), r"refine=-1"),
        (lambda: ws.Direct(refine=0.5), r"refine=0.5"),
        (lambda: ws.Direct(tol=0.0), r"tol=0.0"),
        (lambda: ws.Direct(max_operations=-1), r"max_operations=-1"),
        (lambda: ws.Inverse("quarter"), r"storage='quarter'; known: 'full', 'half'"),
        (lambda: ws.Inverse(max_steps=0), r"max_steps=0"),
        (lambda: ws.Multigrid(coarsening="fast"), r"coarsening='fast'"),
        (lambda: ws.Chebyshev(bounds=(0.0, 1.0)), r"bounds="),
        (lambda: ws.Chebyshev(bounds=(2.0, 1.0)), r"bounds="),
        (lambda: ws.Chebyshev(bounds=(0.5, float("inf"))), r"bounds="),
        (lambda: ws.CG(preconditioner="ilu"), r"preconditioner='ilu'; known:"),
        (lambda: ws.Unrolled(steps=3, last=4), r"last=4; expected between 1 and steps=3"),
    ],
)
def test_bad_knobs_are_refused_at_construction(make, message):
    with pytest.raises(ValueError, match=message):
        make()
