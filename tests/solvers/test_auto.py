import pytest
import torch

import walksum as ws
from gallery import grid, problem, random_graph


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
    J, h = system(random_graph(1200, 4000))
    learned = ws.Precision(J.graph, J.diag.clone().requires_grad_(), J.off)
    fixed_cost, learned_cost = (dict(ws.explain_solver(K, h).seconds) for K in (J, learned))
    assert all(learned_cost[name] >= fixed_cost[name] for name in learned_cost.keys() & fixed_cost.keys())


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
