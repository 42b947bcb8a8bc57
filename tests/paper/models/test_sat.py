import pytest
import torch
from toy_graph import randomise

from walksum.paper.models.attention import SAT, Subtree, attend_by_heads
from walksum.paper.models.structure import gcn_edges


@pytest.mark.parametrize("heads", [1, 2, 8])
def test_attention_equals_an_explicit_softmax(heads):
    query, key, value = torch.randn(3, 20, 16).unbind()
    width = 16 // heads
    expected = []
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        score = query[:, part] @ key[:, part].T / width**0.5
        expected.append(score.softmax(1) @ value[:, part])
    assert torch.allclose(attend_by_heads(query, key, value, heads), torch.cat(expected, dim=1))


def batch_norm(z, norm):
    return (z - z.mean(0)) / (z.var(0, unbiased=False) + norm.eps).sqrt() * norm.weight + norm.bias


@pytest.mark.parametrize("training", [True, False])
def test_subtree_extractor_equals_the_formula(toy, training):
    phi = randomise(Subtree(6, hops=2)).train(training)
    states = [toy.x]
    for conv in phi.convs:
        states.append((toy.gcn() @ states[-1] @ conv.lin.weight.T + conv.bias).relu())
    expected = phi.out(batch_norm(torch.cat(states, dim=1), phi.norm))
    edges = gcn_edges(toy.edge_index, toy.num_nodes, torch.float64)
    assert torch.allclose(phi(toy.x, edges), expected)


def test_layer_is_post_norm_with_values_from_the_plain_state(toy):
    model = randomise(SAT(6, 3, heads=(4,)))
    layer = model.layers[0]
    h = model.embed(toy.x)
    edges = gcn_edges(toy.edge_index, toy.num_nodes, torch.float64)
    query, key = (layer.extractor(h, edges) @ layer.query_key.weight.T).split(64, dim=1)
    out = layer.out(attend_by_heads(query, key, h @ layer.value.weight.T, heads=4))
    h = layer.norms[0](h + out)
    h = layer.norms[1](h + layer.narrow(layer.wide(h).relu()))
    expected = model.readout(model.hidden(h).relu())
    assert torch.allclose(model(toy.x, toy.edge_index), expected)
