import pytest
import torch
from toy_graph import densify, randomise

from walksum.paper.models.sat import SAT, Subgraph, Subtree, attend_by_heads, ego_graphs
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


def test_subgraph_extractor_equals_a_loop_over_ego_graphs(toy):
    phi = randomise(Subgraph(6, hops=2))
    near = toy.dense() + torch.eye(toy.num_nodes)
    pooled = []
    for v in range(toy.num_nodes):
        members = ((near @ near)[v] > 0).nonzero().view(-1)
        looped = near[members][:, members]
        a = looped / (looped.sum(1)[:, None] * looped.sum(1)).sqrt()
        z = toy.x[members]
        for conv in phi.convs:
            z = (a @ z @ conv.lin.weight.T + conv.bias).relu()
        pooled.append(z.sum(0))
    expected = phi.out(batch_norm(torch.cat([toy.x, torch.stack(pooled)], dim=1), phi.norm))
    egos = ego_graphs(toy.edge_index, toy.num_nodes, torch.float64, hops=2)
    assert torch.allclose(phi(toy.x, egos), expected)


def test_ego_graphs_of_a_path():
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    egos = ego_graphs(path, 3, torch.float64, hops=1)
    members = [egos.node[egos.centre == v].tolist() for v in range(3)]
    assert members == [[0, 1], [0, 1, 2], [1, 2]]
    dense = densify((egos.edge_index, egos.weight), 7)
    assert (dense[egos.centre[:, None] != egos.centre] == 0).all()


@pytest.mark.parametrize("degree_scale", [False, True])
def test_layer_is_post_norm_with_values_from_the_plain_state(toy, degree_scale):
    model = randomise(SAT(6, 3, heads=(4,), degree_scale=degree_scale))
    layer = model.layers[0]
    h = model.embed(toy.x)
    edges = gcn_edges(toy.edge_index, toy.num_nodes, torch.float64)
    query, key = (layer.extractor(h, edges) @ layer.query_key.weight.T).split(64, dim=1)
    out = layer.out(attend_by_heads(query, key, h @ layer.value.weight.T, heads=4))
    if degree_scale:
        out = out / (1 + toy.dense().sum(1, keepdim=True)).sqrt()
    h = layer.norms[0](h + out)
    h = layer.norms[1](h + layer.narrow(layer.wide(h).relu()))
    expected = model.readout(model.hidden(h).relu())
    assert torch.allclose(model(toy.x, toy.edge_index), expected)


def test_subgraph_form_uses_ego_graphs(toy):
    model = randomise(SAT(6, 3, heads=(1,), extractor="subgraph"))
    layer, h = model.layers[0], model.embed(toy.x)
    expected = layer(h, ego_graphs(toy.edge_index, toy.num_nodes, torch.float64, hops=2), None)
    assert torch.allclose(model(toy.x, toy.edge_index), model.readout(model.hidden(expected).relu()))


def test_unknown_extractor_is_refused():
    with pytest.raises(ValueError, match="extractor='gin' is unknown"):
        SAT(6, 3, extractor="gin")
