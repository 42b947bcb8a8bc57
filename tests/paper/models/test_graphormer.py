import pytest
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import dijkstra
from toy_graph import randomise

from walksum.paper.models.attention import (
    NUM_BUCKETS,
    DistanceBias,
    Graphormer,
    attend,
    distance_buckets,
    geometry,
)
from walksum.paper.models.structure import neighbours


def cycle(num_nodes):
    nodes = torch.arange(num_nodes)
    return torch.cat([torch.stack([nodes, nodes.roll(1)]), torch.stack([nodes.roll(1), nodes])], dim=1)


@pytest.mark.parametrize("rows", [7, 256])
def test_distances_are_clipped_at_20_and_21_without_a_path(rows):
    # A cycle of 50 reaches distance 25; nodes 50 and 51 are a component of their own.
    edges = torch.cat([cycle(50), torch.tensor([[50, 51], [51, 50]])], dim=1)
    bucket = distance_buckets(edges, 52, rows)
    assert bucket.dtype == torch.uint8
    gap = (torch.arange(50)[:, None] - torch.arange(50)).abs()
    assert torch.equal(bucket[:50, :50].long(), torch.minimum(gap, 50 - gap).clamp(max=20))
    assert (bucket[:50, 50:] == 21).all()
    assert bucket[50:, 50:].tolist() == [[0, 1], [1, 0]]


def test_distances_equal_those_of_scipy():
    edges = neighbours(torch.randint(0, 80, (2, 90)), 80)  # several components, isolated nodes
    graph = sp.csr_matrix((torch.ones(edges.size(1)), edges), (80, 80))
    steps = torch.from_numpy(dijkstra(graph, unweighted=True))
    assert steps.isinf().any()
    assert torch.equal(distance_buckets(edges, 80).double(), steps.clamp(max=20).where(steps.isfinite(), 21))


def test_no_edges():
    assert torch.equal(
        distance_buckets(torch.empty(2, 0, dtype=torch.int64), 3), 21 * (1 - torch.eye(3)).to(torch.uint8)
    )


def test_pairs_at_the_same_distance_share_one_bias(toy):
    bucket = geometry(toy.edge_index, toy.num_nodes, torch.float64).bucket
    table = torch.randn(8, NUM_BUCKETS)
    bias = DistanceBias.apply(table, bucket)
    for steps in bucket.unique():
        values = bias[:, bucket == steps]
        assert (values == table[:, int(steps), None]).all()


def test_bias_gradient_adds_up_the_pairs(toy):
    bucket = geometry(toy.edge_index, toy.num_nodes, torch.float64).bucket
    table = torch.randn(2, NUM_BUCKETS, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: DistanceBias.apply(t, bucket), (table,))


def dense_attention(query, key, value, table, bucket):
    score = query @ key.mT / query.size(-1) ** 0.5 + table[:, bucket.long()]
    return score.softmax(-1) @ value


@pytest.mark.parametrize("max_scores", [1, 2 * 10 * 3, 10**6])
def test_chunked_attention_and_its_gradients_equal_the_dense_twin(toy, max_scores):
    bucket = geometry(toy.edge_index, toy.num_nodes, torch.float64).bucket
    inputs = [torch.randn(2, 10, 4) for _ in range(3)] + [torch.randn(2, NUM_BUCKETS)]
    inputs = [tensor.requires_grad_() for tensor in inputs]
    out, twin = attend(*inputs, bucket, max_scores), dense_attention(*inputs, bucket)
    assert torch.allclose(out, twin)
    weight = torch.randn_like(out)
    grads = zip(*(torch.autograd.grad((o * weight).sum(), inputs) for o in (out, twin)), strict=True)
    assert all(torch.allclose(a, b) for a, b in grads)


def test_chunks_do_not_store_the_scores():
    """Between forward and backward nothing of the size of the pairs may live but the distances themselves."""
    bucket = distance_buckets(cycle(64), 64)
    inputs = [torch.randn(2, 64, 4, requires_grad=True) for _ in range(3)]
    inputs.append(torch.randn(2, NUM_BUCKETS, requires_grad=True))
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        attend(*inputs, bucket, max_scores=2 * 64 * 8)
    given = {tensor.untyped_storage().data_ptr() for tensor in (*inputs, bucket)}
    extra = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in kept}
    assert sum(size for pointer, size in extra.items() if pointer not in given) < 64 * 64


def test_chunking_does_not_change_the_model(toy):
    whole = randomise(Graphormer(6, 3))
    chunked = Graphormer(6, 3, max_scores=100).eval()
    chunked.load_state_dict(whole.state_dict())
    for model in (whole, chunked):
        model(toy.x, toy.edge_index).square().sum().backward()
    for (key, a), b in zip(whole.named_parameters(), chunked.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad), key


def test_forward_equals_the_formula(toy):
    model = randomise(Graphormer(6, 3))
    graph = geometry(toy.edge_index, toy.num_nodes, torch.float64)
    assert torch.equal(graph.degree, toy.dense().sum(1).long())
    h = model.embed(toy.x) + model.degree_in.weight[graph.degree] + model.degree_out.weight[graph.degree]
    for layer, heads in zip(model.layers, (8, 1), strict=True):
        parts = layer.query_key_value(layer.norms[0](h)).split(64, dim=1)
        split = [part.view(10, heads, -1).transpose(0, 1) for part in parts]
        mixed = dense_attention(*split, model.distance[:heads], graph.bucket)
        h = h + layer.out(mixed.transpose(0, 1).flatten(1))
        h = h + layer.narrow(torch.nn.functional.gelu(layer.wide(layer.norms[1](h))))
    assert torch.allclose(model(toy.x, toy.edge_index), model.readout(model.norm(h)))


def test_starts_at_the_published_scale():
    model = Graphormer(500, 3)
    assert model.embed.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert model.degree_in.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert (model.embed.bias == 0).all()
