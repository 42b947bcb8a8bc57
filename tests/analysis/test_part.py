import numpy as np
import pytest
import torch

from gallery import binary_tree, cycle, islands, path, problem, random_graph, star, weighted
from walksum.analysis.part import ball, largest_piece, restrict, typical_node


def test_a_ball_is_made_of_whole_hops():
    assert ball(path(9), 4, 5).tolist() == [2, 3, 4, 5, 6]
    assert ball(star(6), 1, 2).tolist() == [0, 1]
    assert ball(islands(), 4, 10).tolist() == [4, 5]
    assert ball(cycle(5), 0, 99).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match=r"node=5.*0 to 4"):
        ball(cycle(5), 5, 3)


@pytest.mark.parametrize("graph", [random_graph(15, 40), weighted(), islands()])
def test_restriction_is_a_submatrix(graph):
    J, _ = problem(graph, "learned diagonally dominant", heads=2)
    nodes = torch.tensor([4, 0, 5, 2])
    part = restrict(J, nodes)
    np.testing.assert_array_equal(part.to_dense(), J.to_dense()[:, nodes][:, :, nodes])


def test_fanout_leaves_room_beside_hubs():
    graph = star(50)
    assert ball(graph, 0, 99, fanout=3).numel() == 4
    tree = binary_tree(15)  # beside 3 are two leaves, and 1 with two more neighbours
    assert ball(tree, 3, 2, fanout=1).tolist() == [1, 3]


def test_the_largest_piece_and_a_typical_node():
    assert largest_piece(islands()).tolist() == [0, 1, 2]
    assert typical_node(star(6)) == 1
    assert typical_node(path(1)) == 0
