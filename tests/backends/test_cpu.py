"""The numba kernels against plain torch."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import torch

import walksum as ws
from walksum import backends
from walksum.backends import reference
from walksum.backends.cpu import products

GRAPHS = {
    "sparse": (60, 200),
    "dense": (12, 400),
    "isolated": (40, 10),
    "edgeless": (5, 0),
    "single": (1, 0),
}
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-13}


def make(name, heads, columns, dtype):
    torch.manual_seed(0)
    nodes, entries = GRAPHS[name]
    graph = ws.Graph.from_edge_index(torch.randint(0, nodes, (2, entries)), num_nodes=nodes)
    values = torch.randn(heads, nodes, dtype=dtype), torch.randn(heads, graph.num_edges, dtype=dtype)
    return (
        graph,
        *values,
        torch.randn(heads, nodes, columns, dtype=dtype),
        torch.randn(heads, nodes, columns, dtype=dtype),
    )


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("columns", [1, 3, 8, 16, 33, 64])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("name", GRAPHS)
def test_equal_plain_torch(name, heads, columns, dtype):
    graph, diag, off, x, y = make(name, heads, columns, dtype)
    norm = reference.norm_inf(graph, diag, off)
    for kernel, args in (
        ("spmm", (diag, off, x)),
        ("edge_dot", (x, y)),
        ("norm_inf", (diag, off)),
        ("backward_error", (diag, off, x, y, norm)),
    ):
        fast, plain = (getattr(module, kernel)(graph, *args) for module in (products, reference))
        assert fast.dtype == plain.dtype
        assert fast.shape == plain.shape
        assert torch.allclose(fast, plain, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * 10), kernel


def test_strided_and_expanded_inputs():
    graph, diag, off, x, y = make("sparse", 3, 16, torch.float64)
    strided = x.transpose(1, 2).contiguous().transpose(1, 2)
    assert torch.equal(products.spmm(graph, diag, off, strided), products.spmm(graph, diag, off, x))
    assert torch.equal(products.edge_dot(graph, strided, y), products.edge_dot(graph, x, y))
    one = x[:1].expand(3, -1, -1)
    assert torch.allclose(products.spmm(graph, diag, off, one), reference.spmm(graph, diag, off, one))


def test_parameters_are_taken():
    graph, diag, off, x, _ = make("sparse", 1, 4, torch.float32)
    assert torch.equal(products.spmm(graph, diag, off, torch.nn.Parameter(x)), products.spmm(graph, diag, off, x))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("node", [0, 5, -1])
def test_nonfinite_survives_every_maximum(value, node):
    graph, diag, off, x, y = make("sparse", 1, 33, torch.float32)
    norm = products.norm_inf(graph, diag, off)
    x[0, node, 32] = value
    errors = products.backward_error(graph, diag, off, x, y, norm)
    assert not torch.isfinite(errors[0, 32])
    assert torch.isfinite(errors[0, :32]).all()
    diag[0, node] = value
    assert not torch.isfinite(products.norm_inf(graph, diag, off)).any()


def test_zero_over_zero_is_zero():
    graph, diag, off, x, _ = make("sparse", 1, 3, torch.float32)
    zero = torch.zeros_like(x)
    assert (products.backward_error(graph, diag, off, zero, zero, products.norm_inf(graph, diag, off)) == 0).all()


def test_same_bits_for_any_number_of_threads():
    torch.manual_seed(0)
    graph = ws.Graph.from_edge_index(torch.randint(0, 3000, (2, 40000)), num_nodes=3000)
    diag, off, x = torch.randn(1, 3000), torch.randn(1, graph.num_edges), torch.randn(1, 3000, 70)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append((products.spmm(graph, diag, off, x), products.edge_dot(graph, x, 2 * x)))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_other_dtypes_go_to_plain_torch():
    assert backends.backend(torch.zeros(1)) is products
    assert backends.backend(torch.zeros(1, dtype=torch.bfloat16)) is reference
    assert backends.find(torch.zeros(1, dtype=torch.bfloat16), "DIC") is None


def test_compiling_is_announced_once_and_a_warm_cache_is_silent(tmp_path):
    code = (
        "import torch; from walksum.graph import Graph; from walksum.backends.cpu import products;"
        "g = Graph.from_edge_index(torch.tensor([[0], [1]]));"
        "one = torch.ones(1, 2); products.norm_inf(g, one, one[:, :1]);"
        " products.norm_inf(g, one.double(), one[:, :1].double())"
    )
    source = str(pathlib.Path(ws.__file__).parents[1])
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": source}
    cold, warm = (
        subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stderr
        for _ in range(2)
    )
    assert cold.count("walksum: compiling kernels") == 1
    assert "compiling" not in warm


@pytest.mark.parametrize("columns", [1, 8, 24, 33, 64])
@pytest.mark.parametrize("heads", [1, 3])
def test_value_gradients_equal_the_reference(heads, columns):
    graph = ws.Graph.from_edge_index(torch.randint(40, (2, 90)), 40)
    g, mu = (torch.randn(heads, 40, columns, dtype=torch.double) for _ in range(2))
    for ours, theirs in zip(
        products.value_gradients(graph, g, mu), reference.value_gradients(graph, g, mu), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [0, 1, 7, 64])
def test_values_are_the_same_only_to_the_last_bit(count, dtype):
    diag, off = torch.randn(1, count, dtype=dtype), torch.randn(1, count + 1, dtype=dtype)
    off[0, 0] = torch.nan
    assert products.same_values(diag, off, diag.clone(), off.clone())
    for changed in range(2 * count + 1):
        other = [diag.clone(), off.clone()]
        flat = other[changed >= count].view(torch.int32 if dtype is torch.float32 else torch.int64).view(-1)
        flat[changed % count if changed < count else changed - count] ^= 1
        assert not products.same_values(diag, off, *other)
    assert not products.same_values(diag, off, diag, off.to(torch.float64 if dtype is torch.float32 else torch.float32))
    assert not products.same_values(diag, off, diag, torch.cat([off, off], 1))


def test_values_that_lie_apart_are_compared_too():
    diag, off = torch.randn(6, 2).t(), torch.randn(9, 2).t()
    assert products.same_values(diag, off, diag.clone(), off.contiguous())
    assert not products.same_values(diag, off, diag, off + 1)
