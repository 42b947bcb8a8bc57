"""Private names of torch stand in one module, and walksum works where they are gone."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import walksum as ws
from gallery import random_graph
from walksum import _torch
from walksum._torch import is_functorch_wrapped, needs_grad, outside_transforms, unwrapped

SOURCE = Path(ws.__file__).parent
WITHOUT_PRIVATE_NAMES = """
import builtins
real = builtins.__import__
def without(name, scope=None, *rest):
    private = name.startswith("torch._") and (scope or {}).get("__name__") == "walksum._torch"
    if private:
        raise ImportError(name)
    return real(name, scope, *rest)
builtins.__import__ = without
import torch
import walksum as ws
from walksum import _torch
assert not _torch._KNOWN_FUNCTORCH and _torch._compiler is None

torch.manual_seed(0)
edges, x = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]), torch.randn(5, 3, dtype=torch.double)
def J_of(scale):
    graph = ws.Graph.from_edge_index(edges)
    return ws.Precision(graph, torch.ones(5, dtype=torch.double), -0.5 * scale * torch.ones(4, dtype=torch.double))
def exact(scale, h):
    return torch.linalg.solve(J_of(scale).to_dense()[0], h)
def ours(scale, h):
    return ws.solve(J_of(scale), h)
scale = torch.tensor(0.9, dtype=torch.double)
assert torch.allclose(ours(scale, x), exact(scale, x))
loss = lambda f: lambda s, h: f(s, h).square().sum()
for k in (0, 1):
    g, e = (torch.func.grad(loss(f), argnums=k)(scale, x) for f in (ours, exact))
    assert torch.allclose(g, e), k
s = scale.clone().requires_grad_()
assert torch.allclose(torch.autograd.grad(ours(s, x).square().sum(), s)[0], torch.func.grad(loss(exact))(scale, x))
h = torch.randn(4, 5, 3, dtype=torch.double)
batch = torch.func.vmap(lambda each: ours(scale, each))(h)
assert torch.allclose(batch, torch.stack([exact(scale, each) for each in h]))

layer = ws.GLTConv(3, 2, design="diagonally-dominant", learned=False).double()
first = torch.func.grad(lambda x: layer(x, edges).sum())(x)  # the graph is made, and kept, inside a transform
y = x.clone().requires_grad_()
layer(y, edges).sum().backward()
assert torch.allclose(first, y.grad)
with torch.inference_mode():
    other = edges.clone()
    layer(x, other)
layer(y, other).sum().backward()
print("done")
"""


def test_solve_grad_and_vmap_work_where_the_private_names_are_gone():
    done = subprocess.run([sys.executable, "-c", WITHOUT_PRIVATE_NAMES], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


FIRST_USED_IN_A_TRANSFORM = """
import io, torch, walksum as ws
edges, x = torch.tensor([[0, 1], [1, 2]]), torch.ones(3, 2)
J = ws.Precision(ws.Graph.from_edge_index(edges), torch.ones(3), torch.zeros(2))
torch.func.grad(lambda x: ws.solve(J, x).sum())(x)  # here solvers are imported
layer = ws.Propagate()
layer(x, edges)
torch.save(layer, io.BytesIO())
print("done")
"""


def test_what_is_first_imported_in_a_transform_can_be_kept():
    done = subprocess.run([sys.executable, "-c", FIRST_USED_IN_A_TRANSFORM], capture_output=True, text=True)
    assert done.stdout == "done\n", done.stderr


def test_private_names_of_torch_stand_in_one_module():
    private = re.compile(r"(?:from|import) torch\._|\btorch\._[A-Za-z]")
    found = [str(p.relative_to(SOURCE)) for p in SOURCE.rglob("*.py") if private.search(p.read_text())]
    assert found == ["_torch.py"]


def test_what_is_made_outside_a_transform_bears_no_mark_of_it():
    made = []

    def f(x):
        assert is_functorch_wrapped(x)
        assert needs_grad(x)
        made.append(outside_transforms(torch.ones, 2))
        return x.sum()

    torch.func.grad(f)(torch.ones(3))
    torch.func.vmap(f)(torch.ones(3, 2))
    with torch.inference_mode():
        made.append(outside_transforms(torch.ones, 2))
    assert not any(is_functorch_wrapped(each) or each.is_inference() or needs_grad(each) for each in made)


def test_gradients_stay_off_outside_inference_mode_too():
    with torch.inference_mode():
        assert outside_transforms(torch.is_grad_enabled) is False
    assert outside_transforms(torch.is_grad_enabled) is True


def test_a_wrapped_tensor_is_found_again():
    x, seen = torch.arange(6.0).view(3, 2), []
    torch.func.vmap(lambda row: seen.append(unwrapped(row)) or row)(x)
    assert torch.equal(seen[0], x)


SOLVED = ("direct", "hybrid", "cg", "gabp", "chebyshev", "dense", "inverse")
FIELDS = {
    "variance": lambda field, y: field.variance,
    "sample": lambda field, y: field.rsample(),
    "evidence": lambda field, y: field.log_evidence([0, 1], y, 0.1),
    "leaving out": lambda field, y: field.leave_one_out([0, 1], y, 0.1)[1],
    "constraint": lambda field, y: field.constrain(torch.ones_like(field.mean[0])).variance,
    "correlation": lambda field, y: field.correlation(torch.stack([field.free[:2], field.free[1:3]])),
}
LAYERS = {
    "laplacian": lambda: ws.GLTConv(3, 4, heads=2),
    "dominant": lambda: ws.GLTConv(3, 4, heads=2, design="diagonally-dominant"),
    "pairwise": lambda: ws.GLTConv(3, 4, heads=2, design="pairwise-normal"),
    "matern": lambda: ws.GLTConv(3, 4, design="matern", nu=2),
    "model": lambda: ws.GLT(3, 8, 2, 2),
    "bank": lambda: ws.PropagateBank(),
}


@pytest.mark.parametrize("name", [*SOLVED, *FIELDS, *LAYERS])
def test_the_default_device_does_not_matter_where_the_data_are_on_another(name):
    """Kernels were given addresses of memory on the default device, which ended the process."""
    torch.manual_seed(0)
    graph, x = random_graph(12, 24), torch.randn(12, 3, dtype=torch.double)
    edges = graph.edges.clone()

    def run():
        given = x.clone().requires_grad_()
        if name in LAYERS:
            out = layer(given, edges.clone())
        else:
            off = -0.1 * given[graph.edges[0], 0] * given[graph.edges[1], 1]
            J = ws.Precision(ws.Graph(edges.clone(), 12), 3 + given[:, 0].square() + off.detach().abs().sum(), off)
            field = ws.GaussianField(J) if name in FIELDS else None
            torch.manual_seed(1)
            out = ws.solve(J, x, name) if field is None else FIELDS[name](field, x[0, :2])
        out.square().sum().backward()
        return out, given.grad

    if name in LAYERS:
        layer = LAYERS[name]().double().eval()
    expected = run()
    with torch.device("meta"):
        found = run()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_a_container_has_what_its_group_leaves_and_files_that_can_be_given_back(tmp_path):
    assert _torch._left_to_container(tmp_path) == float("inf")
    for name, text in {"max": "1000", "current": "700", "stat": "anon 400\ninactive_file 250\n"}.items():
        (tmp_path / f"memory.{name}").write_text(text)
    assert _torch._left_to_container(tmp_path) == 550
    (tmp_path / "memory.max").write_text("max\n")
    assert _torch._left_to_container(tmp_path) == float("inf")
    assert 0 < _torch.free_memory() < float("inf")
