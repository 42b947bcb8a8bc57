"""The attention kernels against a dense float64 twin: on a GPU, or through Triton's interpreter without one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

pytest.importorskip("triton")

from walksum.baselines import attention, passes
from walksum.baselines.distance import NUM_BUCKETS
from walksum.baselines.fused import fused_attention
from walksum.baselines.graphormer import Graphormer
from walksum.baselines.passes import Block
from walksum.baselines.sat import SAT
from walksum.baselines.tiles import NOWHERE, Tiles

CUDA = pytest.param(
    "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
)
INTERPRETED = pytest.param(
    "cpu", marks=pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="TRITON_INTERPRET is not 1")
)
# the interpreter computes with numpy, which warns of -inf - -inf in rows beyond the last node
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(params=[CUDA, INTERPRETED])
def device(request):
    return request.param


@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels run on the GPU itself")
def test_these_tests_pass_in_the_interpreter():
    # in a process of its own: Triton reads the switch once, when it is first imported
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "cpu", __file__]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def random_buckets(num_nodes):
    some = torch.randint(0, NUM_BUCKETS, (num_nodes, num_nodes)).to(torch.uint8)
    return torch.minimum(some, some.T)


def random_problem(device, batch, heads, num_nodes, width, biased):
    """query, key, value, table in float32, the buckets, and weights that make a loss of the output."""
    states = [torch.randn(batch, heads, num_nodes, width, dtype=torch.float32) for _ in range(4)]
    table = torch.randn(batch, heads, NUM_BUCKETS if biased else 0, dtype=torch.float32)
    bucket = random_buckets(num_nodes).to(device) if biased else None
    query, key, value, weight, table = (t.to(device) for t in (*states, table))
    return (query, key, value, table), bucket, weight


def tiled(bucket):
    return None if bucket is None else Tiles.of(bucket)


def twin(query, key, value, table, bucket):
    score = query @ key.mT / query.size(-1) ** 0.5
    if bucket is not None:
        score = score + table[..., bucket.long()]
    return score.softmax(-1) @ value


def with_gradients(attend, inputs, weight):
    inputs = [t.detach().requires_grad_() for t in inputs]
    out = attend(*inputs)
    return out, *torch.autograd.grad((out * weight).sum(), inputs, materialize_grads=True)


def assert_near(found, expected, tol=1e-3):
    """Within tol of a float64 result, in norm."""
    assert found.shape == expected.shape
    assert (found.double() - expected).norm() <= tol * expected.norm()


def compare(inputs, bucket, weight, tol=1e-3):
    found = with_gradients(lambda *x: fused_attention(*x, tiled(bucket)), inputs, weight)
    doubles = [t.double() for t in inputs]
    expected = with_gradients(lambda *x: twin(*x, bucket), doubles, weight.double())
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == torch.float32
        assert_near(a, b, tol)


SHAPES = [(1, 1, 37, 8), (2, 1, 130, 64), (2, 8, 37, 8), (1, 1, 128, 20), (1, 1, 3, 1)]


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_output_and_gradients_equal_the_dense_twin(device, shape, biased):
    compare(*random_problem(device, *shape, biased))


@pytest.mark.parametrize("block", [Block(128, 64, warps=8), Block(64, 128), Block(128, 128, 8, stages=1)])
def test_any_block_does(device, monkeypatch, block):
    monkeypatch.setattr(passes, "BLOCKS", dict.fromkeys(passes.BLOCKS, block))
    for biased in (False, True):
        inputs, bucket, weight = random_problem(device, 1, 1, 150, 8, biased)
        if biased:  # of a path, so that tiles hold some buckets and not others
            nodes = torch.arange(150, device=device)
            bucket = ((nodes[:, None] - nodes).abs() // 8).to(torch.uint8)
        compare(inputs, bucket, weight)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_size_of_values_and_gradients_does_not_matter(device, scale, biased):
    (query, key, value, table), bucket, weight = random_problem(device, 1, 2, 37, 8, biased)
    compare((query / 1e3, 1e3 * key, value * scale, table), bucket, weight * scale)


def test_sharp_attention(device):
    """Scores of hundreds: nearly all probability on one key."""
    (query, key, value, table), bucket, _ = random_problem(device, 1, 1, 70, 8, True)
    out = fused_attention(30 * query, 30 * key, value, table, tiled(bucket))
    # the scores themselves are off by 1e-3 of their size
    assert_near(out, twin(30 * query.double(), 30 * key.double(), value.double(), table.double(), bucket), 0.1)


def test_zeros(device):
    (query, key, value, table), bucket, weight = random_problem(device, 1, 1, 40, 8, True)
    compare((query, key, torch.zeros_like(value), table), bucket, weight)
    compare((torch.zeros_like(query), key, value, table), bucket, weight)
    compare((query, key, value, table), bucket, torch.zeros_like(weight))


def test_nan_stays_nan(device):
    (query, key, value, table), bucket, _ = random_problem(device, 1, 1, 40, 8, True)
    for at in range(4):
        inputs = [t.clone() for t in (query, key, value, table)]
        inputs[at].view(-1)[3] = float("nan")
        assert fused_attention(*inputs, tiled(bucket)).isnan().any()


def test_a_gradient_without_any_layout(device):
    (query, key, value, table), bucket, _ = random_problem(device, 2, 2, 37, 8, True)
    compare((query, key, value, table), bucket, torch.ones((), device=device).expand_as(query))
    transposed = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in (query, key, value)]
    compare((*transposed, table), bucket, query)


@pytest.mark.parametrize("biased", [False, True])
def test_vmap_of_grad_is_one_launch_for_all(device, biased, monkeypatch):
    inputs, bucket, weight = random_problem(device, 3, 2, 37, 8, biased)
    tiles, batches = tiled(bucket), []
    inner = passes.attention
    monkeypatch.setattr(passes, "attention", lambda query, *rest: batches.append(len(query)) or inner(query, *rest))

    def loss(query, key, value, table, weight):
        parts = (part.unsqueeze(0) for part in (query, key, value, table))
        return (fused_attention(*parts, tiles).squeeze(0) * weight).sum()

    found = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2, 3)))(*inputs, weight)
    assert batches == [3]
    doubles = [t.double() for t in inputs]
    expected = with_gradients(lambda *x: twin(*x, bucket), doubles, weight.double())[1:]
    for a, b in zip(found, expected, strict=True):
        assert_near(a, b)


def test_backward_through_vmap_with_a_shared_table(device):
    (query, key, value, table), bucket, weight = random_problem(device, 3, 2, 37, 8, True)
    tiles = tiled(bucket)

    def member(query, key, value, table):
        return fused_attention(*(part.unsqueeze(0) for part in (query, key, value, table)), tiles).squeeze(0)

    found = with_gradients(
        torch.func.vmap(member, in_dims=(0, 0, 0, None)), (query, key, value, table[0]), weight
    )  # fmt: skip
    doubles = (query.double(), key.double(), value.double(), table[0].double())
    expected = with_gradients(lambda *x: twin(*x, bucket), doubles, weight.double())
    for a, b in zip(found, expected, strict=True):
        assert_near(a, b)


def ring(num_nodes):
    nodes = torch.arange(num_nodes)
    return torch.cat([torch.stack([nodes, nodes.roll(1)]), torch.stack([nodes.roll(1), nodes])], dim=1)


@pytest.mark.parametrize("kind", [SAT, Graphormer])
def test_models_with_fused_attention_equal_those_in_float64(device, kind, monkeypatch):
    monkeypatch.setattr(attention, "fusible", lambda device, dtype: dtype != torch.float64)
    monkeypatch.setattr("walksum.baselines.graphormer.fusible", lambda device, dtype: dtype != torch.float64)
    exact = kind(6, 3, dropout=0.0, hidden_channels=16, heads=(2, 1)).to(device)
    rough = kind(6, 3, dropout=0.0, hidden_channels=16, heads=(2, 1)).to(device, torch.float32)
    rough.load_state_dict(exact.state_dict())
    x, edges = torch.randn(40, 6, device=device), ring(40).to(device)
    for model, features in ((exact, x), (rough, x.float())):
        out = model(features, edges)
        (out * out.detach().cos()).sum().backward()
    assert_near(rough(x.float(), edges), exact(x, edges), 1e-3)
    for (name, a), b in zip(rough.named_parameters(), exact.parameters(), strict=True):
        assert torch.allclose(a.grad.double(), b.grad, rtol=0, atol=5e-3 * float(b.grad.abs().max()) + 1e-6), name


@pytest.mark.gpu
def test_stacked_models_train_on_a_gpu():
    torch.set_default_dtype(torch.float32)
    x, edges = torch.randn(40, 6, device="cuda"), ring(40).cuda()
    for kind in (SAT, Graphormer):
        models = [kind(6, 3, dropout=0.0).cuda() for _ in range(3)]
        parameters, buffers = torch.func.stack_module_state(models)

        def member(values, model=models[0], buffers=buffers):
            return torch.func.functional_call(model, (values, {}), (x, edges))

        stacked = torch.func.vmap(member)(parameters)
        alone = torch.stack([model(x, edges) for model in models])
        assert_near(stacked, alone.double(), 5e-3)
        stacked.square().sum().backward()
        assert all(value.grad.isfinite().all() for value in parameters.values())


@pytest.mark.parametrize("num_nodes", [1, 37, 130])
def test_tiles_hold_the_buckets_in_another_order(num_nodes):
    bucket = random_buckets(num_nodes)
    tiles = Tiles.of(bucket)
    order = tiles.order[:num_nodes].long()
    assert torch.equal(order.sort().values, torch.arange(num_nodes))
    assert torch.equal(tiles.bucket[:num_nodes, :num_nodes], bucket[order][:, order])
    assert torch.equal(tiles.plain(num_nodes), bucket)
    assert (tiles.bucket[num_nodes:] == NOWHERE).all()
    assert (tiles.bucket[:, num_nodes:] == NOWHERE).all()
    assert tiles.bucket.size(0) % 128 == 0
    for row in range(0, num_nodes, 64):
        for col in range(0, num_nodes, 64):
            tile = tiles.bucket[row : row + 64, col : col + 64]
            assert tiles.low[row // 64, col // 64] == tile.min()
            assert tiles.high[row // 64, col // 64] >= tile[tile != NOWHERE].max()


def test_second_derivatives_are_refused(device):
    (query, key, value, table), bucket, _ = random_problem(device, 1, 1, 5, 8, True)
    query.requires_grad_()
    (first,) = torch.autograd.grad(
        fused_attention(query, key, value, table, tiled(bucket)).sum(), query, create_graph=True
    )
    with pytest.raises(NotImplementedError, match="no second derivative"):
        torch.autograd.grad(first.sum(), query)
