import torch
from toy_graph import densify, randomise

from walksum.paper.models.heterophily import H2GCN, one_and_two_hops


def exact_hops(toy):
    near = toy.dense()
    reach = (near @ near > 0) & (near == 0)
    return near, reach.fill_diagonal_(False).double()


def normalised(adjacency):
    scale = adjacency.sum(1).rsqrt().nan_to_num(posinf=0)
    return scale[:, None] * adjacency * scale


def test_hops_are_exact_distances_without_the_ego(toy):
    # Loops and one direction in the input must not leak in.
    messy = torch.cat([toy.edge_index[:, :9], torch.arange(10).expand(2, -1)], dim=1)
    hops = one_and_two_hops(messy, toy.num_nodes, torch.float64)
    for edges, expected in zip(hops, exact_hops(toy), strict=True):
        dense = densify(edges, toy.num_nodes)
        assert torch.allclose(dense, normalised(expected))
        assert (dense.diagonal() == 0).all()
    assert densify(hops[1], toy.num_nodes)[0, 2] > 0  # 0-1-2
    assert densify(hops[1], toy.num_nodes)[0, 1] == 0  # 0-3-1, but also a neighbour


def test_equals_the_dense_formula(toy):
    model = randomise(H2GCN(6, 3))
    near, far = map(normalised, exact_hops(toy))
    states = [model.embed(toy.x).relu()]
    for _ in range(2):
        states.append(torch.cat([near @ states[-1], far @ states[-1]], dim=1))
    assert torch.allclose(model(toy.x, toy.edge_index), model.readout(torch.cat(states, dim=1)))
