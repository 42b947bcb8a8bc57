import pytest
import torch

import walksum as ws
from gallery import grid, problem, random_graph
from walksum.solvers import cost


def system(graph, design="fixed laplacian", columns=16):
    J, _ = problem(graph, design, 1)
    return J, torch.randn(1, graph.num_nodes, columns, dtype=torch.double)


def test_a_tree_is_eliminated():
    tree = ws.Graph.from_edge_index(torch.stack([torch.arange(1, 500), (torch.arange(1, 500) - 1) // 2]))
    choice = ws.explain_solver(*system(tree))
    assert isinstance(choice.solver, ws.Direct)
    assert "fills in little" in str(choice)
    assert "predicted: direct" in str(choice)


def test_a_dense_random_graph_is_iterated_on():
    choice = ws.explain_solver(*system(random_graph(3000, 60000)))
    assert isinstance(choice.solver, ws.CG)


def test_the_choice_is_what_solve_uses():
    J, h = system(grid(12, 12))
    seen = []
    ws.solve(J, h, observe=seen.append)
    assert seen[0].solver == ws.explain_solver(J, h).solver.name


def test_columns_of_shared_heads_count():
    J, _ = system(grid(5, 5))
    h = torch.randn(4, 25, 8, dtype=torch.double)
    assert ws.explain_solver(J, h) == ws.explain_solver(J, h.transpose(0, 1).reshape(1, 25, 32))


def test_a_learned_matrix_pays_for_its_preparation():
    graph = random_graph(1200, 4000)
    fixed, learned = (cost.of_graph(graph, 1, 16, kind) for kind in (False, True))
    assert all(learned[name].seconds(cost.STEPS) >= fixed[name].seconds(cost.STEPS) for name in learned)
    assert learned["hybrid"].once > fixed["hybrid"].once


@pytest.mark.data
def test_real_graphs():
    from walksum.data import load

    expected = {"texas": ws.Direct, "cora": ws.Direct, "citeseer": ws.Direct, "pubmed": ws.Hybrid}
    for name, solver in expected.items():
        data = load(name)
        graph = ws.Graph.from_edge_index(data.edge_index, data.num_nodes)
        J = ws.FixedLaplacian()(graph)
        learned = ws.Precision(graph, J.diag.clone().requires_grad_(), J.off)
        assert isinstance(ws.explain_solver(learned, torch.empty(1, data.num_nodes, 64)).solver, solver)


def test_steps_are_estimated_from_the_couplings():
    graph = grid(30, 30)
    mild, stiff = (
        cost.estimated_steps(ws.Precision(graph, graph.degree.double() + extra, -torch.ones(graph.num_edges).double()))
        for extra in (4.0, 0.01)
    )
    assert cost.LEAST <= mild < 8 < 40 < stiff <= cost.MOST


def test_only_a_choice_that_depends_on_the_steps_asks_for_them():
    cheap, dear = cost.Cost(ws.Direct(), 1.0, 0.0), cost.Cost(ws.Direct(), 1e9, 0.0)
    iterating = cost.Cost(ws.CG(), 0.5, 0.05)
    assert cost.depends_on_steps({"cg": iterating, "direct": cheap})
    assert not cost.depends_on_steps({"cg": iterating, "direct": dear})
    assert not cost.depends_on_steps({"cg": iterating})


def test_a_stiff_matrix_is_eliminated_where_a_mild_one_is_iterated_on(monkeypatch):
    costs = {"cg": cost.Cost(ws.CG(), 0.0, 0.05), "direct": cost.Cost(ws.Direct(), 1.0, 0.0)}
    monkeypatch.setattr(cost, "of_graph", lambda *_: costs)
    graph = grid(30, 30)
    off, h = -torch.ones(graph.num_edges).double(), torch.ones(1, 900, 1).double()
    chosen = [
        type(ws.explain_solver(ws.Precision(graph, graph.degree.double() + extra, off), h).solver)
        for extra in (4.0, 0.01)
    ]
    assert chosen == [ws.CG, ws.Direct]


def squared_laplacian(rows, ridge):
    """An SPDE precision with alpha = 2, which is not walk-summable."""
    J = ws.designs.fields.Matern(kappa=ridge**0.5, nu=2).double()(grid(rows, rows))
    return J.detach(), torch.randn(rows * rows, 2, dtype=torch.double)


def test_an_iteration_that_runs_out_of_steps_is_followed_by_elimination(monkeypatch):
    monkeypatch.setattr(cost, "of_graph", lambda *_: {"cg": cost.Cost(ws.CG(max_steps=3), 0.0, 0.05)})
    J, h = squared_laplacian(12, 0.05)
    seen, h = [], h.requires_grad_()
    mu = ws.solve(J, h, observe=seen.append)
    torch.testing.assert_close(mu, torch.linalg.solve(J.to_dense()[0], h))
    mu.sum().backward()
    assert [(s.solver, s.converged, s.direction) for s in seen] == [
        ("Direct", True, "forward"),
        ("Direct", True, "backward"),
    ]
    assert torch.equal(mu, ws.solve(J, h))
    with pytest.warns(ws.SolveWarning, match="CG did not reach"):  # a solver that is named is never replaced
        ws.solve(J, h.detach(), solver=ws.CG(max_steps=3))
    monkeypatch.setattr(cost.Direct.__init__, "__defaults__", (0, None, 1.0))
    with pytest.warns(ws.SolveWarning, match="CG did not reach"):  # where elimination is too much
        ws.solve(J, h.detach())


def test_elimination_is_considered_for_a_stiff_matrix_of_many_edges(monkeypatch):
    monkeypatch.setattr(cost, "TRY_DIRECT", 100)
    J, h = squared_laplacian(25, 0.05)
    mild = ws.Precision(J.graph, 100 + J.diag, J.off)
    assert [type(ws.explain_solver(K, h).solver) for K in (J, mild)] == [ws.Direct, ws.CG]


def test_a_solve_takes_the_factor_of_a_field(monkeypatch):
    J, h = squared_laplacian(12, 0.05)
    ws.GaussianField(J, method="elimination")
    monkeypatch.setattr(ws.Direct, "prepare", lambda *_: pytest.fail("factorised again"))
    ws.solve(J, h, solver="direct")
