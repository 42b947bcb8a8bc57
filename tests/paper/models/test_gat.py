import torch
import torch.nn.functional as F
from toy_graph import randomise

from walksum.paper.models.message_passing import GAT


def dense_layer(conv, x, adjacency):
    """Velickovic et al., equation 4, written over all pairs and masked."""
    h = conv.lin(x).unflatten(-1, (conv.heads, -1))
    source, target = (h * conv.att_src).sum(-1), (h * conv.att_dst).sum(-1)
    score = F.leaky_relu(target[:, None] + source[None], 0.2)
    score = score.masked_fill(adjacency[..., None] == 0, -torch.inf)
    return torch.einsum("ijh,jhd->ihd", score.softmax(1), h).flatten(1) + conv.bias


def test_equals_masked_dense_attention(toy):
    model = randomise(GAT(6, 3))
    looped = toy.dense() + torch.eye(toy.num_nodes)
    h = F.elu(dense_layer(model.first, toy.x, looped))
    h = F.elu(dense_layer(model.second, h, looped))
    assert torch.allclose(model(toy.x, toy.edge_index), model.readout(h))


def test_eight_heads_of_eight_then_one_of_sixty_four():
    model = GAT(6, 3)
    assert (model.first.heads, model.first.out_channels) == (8, 8)
    assert (model.second.heads, model.second.out_channels) == (1, 64)
