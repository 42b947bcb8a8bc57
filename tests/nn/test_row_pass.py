"""A linear layer with its norm, activation, dropout and residual in one pass, beside the same in torch operations."""

import copy

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import walksum as ws
from walksum.nn import node_linear, row_pass
from walksum.nn.dropout import Dropout
from walksum.nn.node_linear import NodeLinear, linear_after

BEFORE = {
    "nothing": lambda size: (),
    "norm": lambda size: (nn.LayerNorm(size),),
    "act": lambda size: (nn.LeakyReLU(0.1), Dropout(0.4)),
    "relu": lambda size: (nn.ReLU(), nn.Identity()),
    "all": lambda size: (nn.LayerNorm(size), nn.LeakyReLU(), Dropout(0.6)),
}


@pytest.fixture(autouse=True)
def no_limits(monkeypatch):
    monkeypatch.setattr(node_linear, "SMALL", 0)
    monkeypatch.setattr(row_pass, "CHUNK", 8)


@pytest.fixture
def passes(monkeypatch):
    """The steps of every pass that was made."""
    made, linear = [], row_pass.linear

    def counted(*args):
        made.append(args[-1])
        return linear(*args)

    monkeypatch.setattr(row_pass, "linear", counted)
    return made


def layer_and_input(before, inputs, outputs, heads, dtype, nodes=301):
    torch.manual_seed(0)
    layer = NodeLinear(inputs, outputs).to(dtype)
    modules = nn.ModuleList(BEFORE[before](inputs // heads)).to(dtype)
    for parameter in modules.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(nodes, heads, inputs // heads, dtype=dtype, requires_grad=True)
    return layer, tuple(modules), x, torch.randn(nodes, outputs, dtype=dtype, requires_grad=True)


def plainly(layer, modules, x, residual):
    for module in modules:
        x = module(x)
    return residual + nn.functional.linear(x.flatten(1), layer.weight, layer.bias)


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize(("inputs", "outputs", "heads"), [(64, 64, 1), (64, 64, 8), (24, 40, 1), (8, 16, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("asked", [301, 3])
def test_the_twin_in_torch_operations(before, inputs, outputs, heads, dtype, asked, passes):
    layer, modules, x, residual = layer_and_input(before, inputs, outputs, heads, dtype)
    wanted = [x, residual, *layer.parameters(), *(p for m in modules for p in m.parameters())]
    grad = torch.zeros_like(residual)
    grad[torch.randperm(301)[:asked]] = torch.randn(asked, outputs, dtype=dtype)
    found = []
    for call in (lambda *args: layer(args[2], args[1], args[3]), plainly):
        torch.manual_seed(7)  # the same masks
        y = call(layer, modules, x if before != "nothing" else x.flatten(1), residual)
        found.append((y, *torch.autograd.grad(y, wanted, grad)))
    assert len(passes) == 1
    loose = {"rtol": 2e-5, "atol": 2e-5} if dtype == torch.float32 else {}
    torch.testing.assert_close(*found, **loose)


def test_differentiates_twice():
    layer, modules, x, residual = layer_and_input("norm", 8, 8, 1, torch.float64, nodes=5)
    norm = modules[0]

    def value(x, residual, *_):
        return layer(x, (norm, nn.LeakyReLU(0.3)), residual)

    inputs = (x, residual, *layer.parameters(), *norm.parameters())
    assert torch.autograd.gradcheck(value, inputs)
    assert torch.autograd.gradgradcheck(value, inputs)


def test_gradients_of_many_outputs_at_once(passes):
    layer, modules, x, residual = layer_and_input("all", 16, 8, 1, torch.float64, nodes=20)
    wanted = (x, residual, *layer.parameters(), *modules[0].parameters())
    y, rows = layer(x, modules, residual), torch.randn(3, 20, 8, dtype=torch.float64)
    found = torch.autograd.grad(y, wanted, rows, is_grads_batched=True, retain_graph=True)
    alone = [torch.autograd.grad(y, wanted, row, retain_graph=True) for row in rows]
    assert passes
    torch.testing.assert_close(found, tuple(map(torch.stack, zip(*alone, strict=True))))


def test_the_same_bits_for_every_number_of_threads(monkeypatch):
    monkeypatch.setattr("walksum.backends.cpu.threads.WORTH_A_THREAD", 0)
    layer, modules, x, residual = layer_and_input("norm", 64, 64, 1, torch.float32, nodes=5000)
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            y = layer(x, modules, residual)
            found.append((y, *torch.autograd.grad(y.square().sum(), (x, *layer.parameters()))))
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize(
    "modules",
    [
        (nn.LeakyReLU(), nn.LayerNorm(16)),
        (nn.GELU(),),
        (nn.LayerNorm(16, elementwise_affine=False),),
        (nn.LayerNorm(16, bias=False),),
        (nn.Dropout(0.5),),
        (Dropout(1.0),),
    ],
)
def test_other_modules_run_as_they_are(modules, passes):
    layer, x = NodeLinear(16, 8), torch.randn(50, 16)
    found = []
    for call in (lambda: layer(x, modules, torch.ones(50, 8)), lambda: plainly(layer, modules, x, torch.ones(50, 8))):
        torch.manual_seed(3)
        found.append(call())
    assert passes == [row_pass.Steps()]
    torch.testing.assert_close(*found)


def test_a_hook_sees_what_its_module_makes():
    norm, layer, seen = nn.LayerNorm(16), NodeLinear(16, 8), []
    norm.register_forward_hook(lambda module, inputs, output: seen.append(output))
    x = torch.randn(50, 16)
    y = layer(x, (norm, nn.ReLU()))
    torch.testing.assert_close(seen, [nn.functional.layer_norm(x, (16,))])
    torch.testing.assert_close(y, layer(norm(x).relu()))


@pytest.mark.parametrize("act", [nn.ReLU(), nn.GELU()])
def test_a_hook_of_the_layer_runs_once(act):
    layer, calls = NodeLinear(16, 8), []
    layer.register_forward_hook(lambda *_: calls.append(1))
    layer(torch.randn(50, 16), (act,))
    assert calls == [1]


def test_layers_of_another_kind_in_a_block():
    block, x, edges = ws.GLTBlock(16).eval(), torch.randn(50, 16), torch.randint(50, (2, 90))
    expected = block(x, edges)
    for owner, name in ((block, "merge"), (block.ffn, "1"), (block.ffn, "4")):
        layer = nn.Linear(16, 16)
        layer.load_state_dict(getattr(owner, name).state_dict())
        setattr(owner, name, layer)
        torch.testing.assert_close(block(x, edges), expected)


def test_not_a_number_and_infinity_reach_the_output():
    layer, x = NodeLinear(16, 8), torch.randn(6, 16)
    x[1, 3], x[4, 2] = float("nan"), float("inf")
    y = layer(x, (nn.LayerNorm(16), nn.LeakyReLU()))
    assert y.isfinite().all(1).tolist() == [True, False, True, True, False, True]


@pytest.mark.parametrize("act", [nn.ReLU(), nn.LeakyReLU(0.1), nn.LeakyReLU(0.0)])
@pytest.mark.parametrize("number", [float("-inf"), float("inf"), float("nan"), -0.0])
@pytest.mark.parametrize("twice", [False, True])
def test_activations_of_numbers_that_are_not_finite(act, number, twice):
    layer, x = NodeLinear(16, 8), torch.randn(50, 16).index_fill(1, torch.tensor([3, 9]), number).requires_grad_()
    found = []
    for call in (linear_after, plainly):
        y = call(layer, (act,), x, torch.zeros(50, 8))
        found.append((y, *torch.autograd.grad(y.sum(), (x, layer.weight), create_graph=twice)))
    torch.testing.assert_close(*found, equal_nan=True)


@pytest.mark.parametrize("heads", [1, 4])
def test_a_model_gives_what_it_gives_in_torch_operations(heads, monkeypatch, passes):
    edges, x = torch.randint(200, (2, 500), generator=torch.Generator().manual_seed(0)), torch.randn(200, 12)
    model = ws.GLT(12, 32, 2, 3, heads=heads).double()
    other, found = copy.deepcopy(model), []
    for each in (model, other):
        torch.manual_seed(5)
        each(x.double(), edges)[:7].square().sum().backward()
        found.append([p.grad for p in each.parameters()])
        monkeypatch.setattr(row_pass, "serves", lambda *args: False)
    assert len(passes) == 8
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("act", [nn.ReLU(), nn.LeakyReLU(0.1)])
def test_the_gradient_at_zero_is_that_of_torch(act, passes):
    layer, x = NodeLinear(16, 8).double(), torch.randn(50, 16, dtype=torch.float64).relu().requires_grad_()
    found = []
    for call in (linear_after, plainly):
        y = call(layer, (act,), x, torch.zeros(50, 8, dtype=torch.float64))
        found.append(torch.autograd.grad(y.square().sum(), (x, layer.weight)))
    assert passes
    torch.testing.assert_close(*found)


def test_a_layer_that_serves_twice_differentiates_twice(passes):
    layer, (norm,), x, residual = layer_and_input("norm", 16, 16, 1, torch.float64, nodes=20)
    wanted = (x, residual, *layer.parameters(), *norm.parameters())
    found = []
    for call in (linear_after, plainly):
        y = call(layer, (norm,), call(layer, (norm,), x.flatten(1), residual), residual)
        found.append(torch.autograd.grad(y.square().sum(), wanted, create_graph=True))
    assert len(passes) == 2
    torch.testing.assert_close(*found)


def test_only_the_residual_needs_a_gradient_that_is_differentiated():
    layer, residual = NodeLinear(16, 8).requires_grad_(False), torch.randn(50, 8, requires_grad=True)
    y = layer(torch.randn(50, 16), (nn.ReLU(),), residual)
    (found,) = torch.autograd.grad(y.square().sum(), residual, create_graph=True)
    torch.testing.assert_close(found, 2 * y)


class AlwaysDropout(nn.Dropout):
    def forward(self, input):
        return nn.functional.dropout(input, self.p, training=True)


def test_dropout_of_another_kind_drops_in_evaluation():
    layer, drop = NodeLinear(16, 8), AlwaysDropout(0.5).eval()
    found = []
    for call in (linear_after, plainly):
        torch.manual_seed(0)
        found.append(call(layer, (drop,), torch.ones(50, 16), torch.zeros(50, 8)))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("hook", ["register_forward_pre_hook", "register_forward_hook"])
def test_a_hook_of_the_layer_may_replace_what_it_sees(hook):
    layer, norm, x = NodeLinear(16, 16), nn.LayerNorm(16), torch.randn(50, 16)
    getattr(layer, hook)(lambda module, inputs, *output: 0 * (output or inputs)[0])
    expected = x + layer.bias if hook == "register_forward_pre_hook" else x
    torch.testing.assert_close(linear_after(layer, (norm,), x, x), expected.expand(50, 16))


def test_a_forward_that_takes_the_input_alone():
    layer, norm, x = NodeLinear(16, 16), nn.LayerNorm(16), torch.randn(50, 16)
    expected, forward = linear_after(layer, (norm,), x, x) + 1, layer.forward
    layer.forward = lambda x: forward(x) + 1
    torch.testing.assert_close(linear_after(layer, (norm,), x, x), expected)


def test_hooks_of_all_modules_run():
    seen = []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module)))
    try:
        linear_after(NodeLinear(16, 8), (nn.LayerNorm(16), nn.ReLU()), torch.randn(50, 16))
    finally:
        handle.remove()
    assert seen == [nn.LayerNorm, nn.ReLU, NodeLinear]


def test_the_feed_forward_part_of_a_block_may_be_hooked_sliced_and_replaced():
    block, x, edges, seen = ws.GLTBlock(16).eval(), torch.randn(50, 16), torch.randint(50, (2, 90)), []
    assert block.ffn[:2](x).size(0) == 50
    block.ffn.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    block.ffn.register_forward_hook(lambda module, inputs, output: 0 * output)
    torch.testing.assert_close([block(x, edges)], seen)
    block.ffn = nn.Sequential(nn.Linear(16, 16))
    assert block(x, edges).shape == x.shape


def test_heads_need_modules_before():
    layer, x = NodeLinear(16, 8), torch.randn(50, 1, 16)
    torch.testing.assert_close(layer(x), nn.functional.linear(x, layer.weight, layer.bias))


def test_a_norm_whose_weight_was_replaced(passes):
    layer, norm, x = NodeLinear(16, 8), nn.LayerNorm(16), torch.randn(50, 16)
    del norm.weight
    norm.weight = torch.randn(16)
    torch.testing.assert_close(layer(x, (norm,)), layer(norm(x)))
    assert passes[0].norm is norm


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_parameters_of_another_shape_are_not_read(name):
    layer, norm, x = NodeLinear(16, 8), nn.LayerNorm(16), torch.randn(50, 16)
    setattr(norm, name, nn.Parameter(torch.ones(8)))
    with pytest.raises(RuntimeError, match="shape"):
        layer(x, (norm,))
    layer.bias = nn.Parameter(torch.ones(1))  # which torch repeats
    torch.testing.assert_close(layer(x, (nn.ReLU(),)), nn.functional.linear(x.relu(), layer.weight) + 1)


def test_a_parametrization_is_computed_once():
    layer, calls = nn.utils.parametrizations.spectral_norm(NodeLinear(16, 8)), []
    layer.parametrizations.weight[0].register_forward_hook(lambda *_: calls.append(1))
    layer(torch.randn(50, 16), (nn.GELU(),))
    assert calls == [1]


def test_tensors_without_memory_of_their_own():
    layer, x = NodeLinear(16, 8), torch.randn(50, 16).relu()
    torch.testing.assert_close(layer(x.to_sparse()), layer(x))
    with FakeTensorMode():
        assert NodeLinear(16, 8)(torch.randn(50, 16), (nn.ReLU(),)).shape == (50, 8)
