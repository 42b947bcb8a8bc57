import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils.influence import jacobian_l1

import walksum as ws
from gallery import path, random_graph
from walksum.analysis.hops import hop_shares, jacobian_size, sample
from walksum.training.models import model_by_name


def both_ways(graph):
    return torch.cat([graph.edges, graph.edges.flip(0)], 1)


def make(name, graph, x):
    torch.manual_seed(0)
    if name == "glt":
        return ws.GLT(x.size(1), 8, 1, 3, design="laplacian", learned=False).to(x.dtype)
    return model_by_name(name).make(x.size(1), 3, num_nodes=graph.num_nodes, hidden_channels=8).to(x.dtype)


@pytest.mark.parametrize("name", ["glt", "gcn", "gat", "appnp"])
def test_influence_is_pygs_where_pyg_sees_the_whole_graph(name):
    graph = path(6)
    x = torch.randn(6, 4, dtype=torch.double)
    model = make(name, graph, x).eval()
    edges = both_ways(graph)
    theirs = jacobian_l1(model, Data(x=x, edge_index=edges), max_hops=6, node_idx=1, device="cpu", vectorize=False)
    np.testing.assert_allclose(jacobian_size(model, x, edges, 1), theirs, rtol=1e-8, atol=1e-12)


def test_influence_is_the_jacobian_by_differences():
    graph, x = random_graph(7, 12), torch.randn(7, 3, dtype=torch.double)
    model = make("glt", graph, x).eval()
    found = jacobian_size(model, x, graph, 2)
    step, expected = 1e-6, torch.zeros(7, dtype=torch.double)
    for u in range(7):
        for f in range(3):
            moved = x.clone()
            moved[u, f] += step
            expected[u] += ((model(moved, graph)[2] - model(x, graph)[2]) / step).detach().abs().sum()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(("name", "reach"), [("glt", 9), ("gcn", 2), ("gat", 2), ("appnp", 9), ("mlp", 0)])
def test_shares_sum_to_one_and_end_where_the_model_does(name, reach):
    graph, x = path(12), torch.randn(12, 4)
    shares = hop_shares(make(name, graph, x), x, both_ways(graph), graph, torch.tensor([0, 1]), most=9)
    np.testing.assert_allclose(shares.shares.sum(1), 1, rtol=1e-12)
    assert bool((shares.mean[: reach + 1] > 0).all())
    assert bool((shares.mean[reach + 1 :] == 0).all())
    assert shares.reach == pytest.approx(float((shares.mean * torch.arange(10)).sum()))
    assert (shares.reach == 0) is (name == "mlp")


def test_what_is_far_is_one_column():
    graph, x = path(12), torch.randn(12, 4)
    model = make("glt", graph, x)
    fine, coarse = (hop_shares(model, x, graph, graph, torch.tensor([0]), most=k).mean for k in (11, 3))
    assert float(coarse[3]) == pytest.approx(float(fine[3:].sum()))


def test_large_inputs_are_asked_for_fewer_nodes():
    assert sample(torch.empty(10, 3)).numel() == 10
    assert sample(torch.empty(100, 3)).numel() == 32
    assert sample(torch.empty(20000, 500)).numel() == 6
    assert sample(torch.empty(100, 3)).tolist() == sample(torch.empty(100, 3)).tolist()


def test_a_model_that_diverged_is_told():
    graph, x = path(4), torch.randn(4, 2)
    model = make("gcn", graph, x)
    with torch.no_grad():
        model.first.lin.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match="node 1's output holds NaN"):
        hop_shares(model, x, both_ways(graph), graph, torch.tensor([1]))
