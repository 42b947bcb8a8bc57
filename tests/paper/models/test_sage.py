import torch
from toy_graph import randomise

from walksum.paper.models.message_passing import GraphSAGE


def test_mean_includes_the_node_itself(toy):
    model = randomise(GraphSAGE(6, 3))
    looped = toy.dense() + torch.eye(toy.num_nodes)
    mean = looped / looped.sum(1, keepdim=True)

    def layer(conv, h):
        return conv.lin_l(mean @ h) + conv.lin_r(h)

    expected = layer(model.second, layer(model.first, toy.x).relu())
    assert torch.allclose(model(toy.x, toy.edge_index), expected)
