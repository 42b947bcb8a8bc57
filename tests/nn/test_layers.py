import copy
import json

import numpy as np
import pytest
import torch
import torch.autograd.forward_ad as fwAD
from torch.nn.utils import parametrizations
from torch_geometric.data import Batch, Data
from torch_geometric.nn import Sequential
from torch_geometric.testing import assert_module

import walksum as ws
from walksum.graph import as_graph

X = torch.randn(12, 6, generator=torch.Generator().manual_seed(1))
EDGES = torch.randint(12, (2, 30), generator=torch.Generator().manual_seed(1))
KINDS = [(design, learned) for design in ws.designs.NAMES for learned in (True, False)]


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(("design", "learned"), KINDS)
@pytest.mark.parametrize(("heads", "concat", "width"), [(1, True, 4), (3, True, 12), (3, False, 4)])
def test_conv_is_a_pyg_layer(design, learned, heads, concat, width):
    conv = ws.GLTConv(6, 4, heads, concat, design, learned)
    assert_module(conv, X, EDGES, expected_size=(12, width), atol=1e-5)
    assert f"GLTConv(6, 4, heads={heads}" in repr(conv)


@pytest.mark.parametrize(("design", "learned"), KINDS)
def test_conv_is_its_equation(design, learned):
    conv = ws.GLTConv(6, 4, 2, design=design, learned=learned).double()
    x = X.double()
    out, J = conv(x, EDGES, return_precision=True)
    h = torch.nn.functional.leaky_relu(conv.observe(x)).view(12, 2, 4).transpose(0, 1)
    mu = torch.linalg.solve(J.to_dense().expand(2, -1, -1), h)
    torch.testing.assert_close(out, mu.transpose(0, 1).flatten(1))


def test_conv_in_sequential_with_weights():
    net = Sequential(
        "x, e, w", [(ws.GLTConv(6, 8), "x, e, w -> x"), torch.nn.ReLU(), (ws.GLTConv(8, 3), "x, e, w -> x")]
    )
    weight = torch.rand(EDGES.size(1)) + 0.5
    assert net(X, EDGES, weight).shape == (12, 3)
    assert not torch.allclose(net(X, EDGES, weight), net(X, EDGES, weight.flip(0)))


def test_reset_parameters_changes_every_learned_part():
    conv = ws.GLTConv(6, 4, 2, design="pairwise-normal")
    before = {name: value.clone() for name, value in conv.named_parameters()}
    conv.reset_parameters()
    assert all(not torch.equal(value, before[name]) for name, value in conv.named_parameters())


def test_reports_of_the_last_passes():
    conv = ws.GLTConv(6, 4, solver="cg")
    assert conv.last_solve is None
    conv(X, EDGES).sum().backward()
    assert conv.last_solve.direction == "forward"
    assert conv.last_backward_solve.direction == "backward"
    assert conv.last_solve.converged


def test_nonconvergence_follows_the_layers_choice():
    impatient = ws.GaBP(max_steps=1)
    with pytest.warns(ws.SolveWarning, match="did not reach"):
        ws.GLTConv(6, 4, solver=impatient)(X, EDGES)
    with pytest.raises(ws.SolveError):
        ws.GLTConv(6, 4, solver=impatient, on_nonconverged="raise")(X, EDGES)
    layer = ws.GLTConv(6, 4, solver=impatient, on_nonconverged="ignore")
    layer(X, EDGES)
    assert layer.last_solve.status is ws.Status.max_steps_reached


def test_autocast_runs_the_mixing_in_float32():
    conv = ws.GLTConv(6, 4, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, J = conv(X, EDGES, return_precision=True)
    assert out.dtype == J.dtype == torch.float32
    torch.testing.assert_close(out, conv(X, EDGES), rtol=0.05, atol=0.05)


# --- the block and the model


@pytest.mark.parametrize(("design", "learned"), KINDS)
def test_a_model_in_half_precision_mixes_in_float32(design, learned):
    half = ws.GLT(6, 16, 2, 3, design=design, learned=learned).bfloat16().eval()
    half.mixers[0].keep_values = True
    out = half(X.bfloat16(), EDGES)
    assert half.mixers[0].last_solve.value.dtype == torch.float32
    out.sum().backward()
    assert out.dtype == torch.bfloat16
    whole = copy.deepcopy(half).float()
    torch.testing.assert_close(out.float(), whole(X.bfloat16().float(), EDGES), rtol=0.1, atol=0.1)


def test_features_of_another_precision():
    conv = ws.GLTConv(6, 4, design="pairwise-normal", learned=False)
    torch.testing.assert_close(conv(X, EDGES, features=X.double()), conv(X, EDGES))


def test_sizes_may_be_numpy_numbers(tmp_path):
    two, eight = np.array([2, 8])
    model = ws.GLT(6, eight, two, 3, heads=two)
    model.save(tmp_path)
    assert ws.load(tmp_path)(X, EDGES).shape == (12, 3)


def test_precisions_are_those_of_evaluation():
    model = ws.GLT(6, 16, 2, 3)
    model.blocks[0].eval()
    first, again = model.precisions(X, EDGES), model.precisions(X, EDGES)
    assert all(torch.equal(J.off, K.off) for J, K in zip(first, again, strict=True))
    assert [model.training, model.blocks[0].training, model.blocks[1].training] == [True, False, True]


def test_block_is_its_equation():
    block = ws.GLTBlock(6, heads=2, dropout=0.0)
    x = X
    mu = block.mix(block.norm(x), EDGES).view(12, 2, 3)
    x = x + block.merge(torch.nn.functional.leaky_relu(block.mix_norm(mu)).flatten(1))
    torch.testing.assert_close(block(X, EDGES), x + block.ffn(x))


@pytest.mark.parametrize(("design", "learned"), KINDS)
def test_model_trains_in_every_design(design, learned):
    model = ws.GLT(6, 16, 2, 3, design=design, learned=learned)
    model(X, EDGES).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_model_takes_edges_a_graph_and_weights():
    model = ws.GLT(6, 16, 2, 3).eval()
    graph = ws.Graph.from_edge_index(EDGES, 12)
    torch.testing.assert_close(model(X, EDGES), model(X, graph))
    weight = torch.rand(EDGES.size(1)) + 0.5
    weighted = ws.Graph.from_edge_index(EDGES, 12, weight)
    torch.testing.assert_close(model(X, EDGES, weight), model(X, weighted))


def test_a_batch_of_graphs_is_a_disjoint_union():
    model = ws.GLT(6, 16, 2, 3).eval()
    parts = [Data(x=X, edge_index=EDGES), Data(x=X.flip(0), edge_index=EDGES[:, :10])]
    batch = Batch.from_data_list(parts)
    apart = torch.cat([model(part.x, part.edge_index) for part in parts])
    torch.testing.assert_close(model(batch.x, batch.edge_index), apart, rtol=1e-4, atol=1e-5)


def test_information_crosses_the_whole_graph_in_one_layer():
    n = 40
    chain = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    x = torch.randn(n, 6, dtype=torch.double, requires_grad=True)
    model = ws.GLT(6, 16, 1, 3, design="laplacian", learned=False).double().eval()
    influence = torch.autograd.grad(model(x, chain)[0].sum(), x)[0].abs().sum(1)
    assert bool((influence > 0).all())


def test_an_empty_and_a_tiny_graph():
    nothing = torch.empty(2, 0, dtype=torch.long)
    model = ws.GLT(6, 16, 2, 3).eval()
    assert model(X[:0], nothing).shape == (0, 3)
    assert model(X[:1], nothing).shape == (1, 3)
    assert bool(model(X[:4], nothing).isfinite().all())


def test_nan_in_the_features_is_never_silent():
    broken = X.clone()
    broken[3, 2] = float("nan")
    with pytest.warns(ws.SolveWarning, match="met NaN or infinity in J or h"):
        ws.GLT(6, 16, 1, 3, design="diagonally-dominant", learned=False)(broken, EDGES)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # dynamo looks at it
def test_model_under_compile_and_functional_vmap():
    model = ws.GLT(6, 16, 2, 3).eval()
    torch.testing.assert_close(torch.compile(model, backend="eager")(X, EDGES), model(X, EDGES))
    copies = [ws.GLT(6, 16, 2, 3).eval() for _ in range(3)]
    stacked, buffers = torch.func.stack_module_state(copies)
    graph = ws.Graph.from_edge_index(EDGES, 12)
    together = torch.vmap(lambda p: torch.func.functional_call(model, (p, buffers), (X, graph)))(stacked)
    for k, single in enumerate(copies):
        torch.testing.assert_close(together[k], single(X, graph), rtol=1e-4, atol=1e-5)


# --- masks of explainers, which tests/pyg tries


def test_a_mask_of_zero_cuts_the_edge():
    conv = ws.GLTConv(6, 4, design="diagonally-dominant", learned=False)
    conv.explain, conv._edge_mask, conv._apply_sigmoid = True, torch.zeros(EDGES.size(1)), False
    _, J = conv(X, EDGES, return_precision=True)
    assert J.off.abs().sum() == 0
    assert J.diag.max() > 1  # the confidences stay


# --- saving


@pytest.mark.parametrize("solver", ["auto", ws.GaBP(damping=0.7, tol=1e-5)])
def test_a_saved_model_comes_back(tmp_path, solver):
    model = ws.GLT(6, 16, 2, 3, design="pairwise-normal", coupling="attractive", solver=solver).eval()
    model.save(tmp_path / "model")
    again = ws.load(tmp_path / "model")
    assert again.config == model.config
    assert not again.training
    torch.testing.assert_close(again(X, EDGES), model(X, EDGES))
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]


def _other_scale(model):
    model.blocks[1].mix.design.scale = 0.3


CHANGES = {
    "weight norm": (lambda model: parametrizations.weight_norm(model.read), "read.weight"),
    "another width": (lambda model: setattr(model, "read", torch.nn.Linear(16, 5)), "read.weight"),
    "a block less": (lambda model: model.blocks.__delitem__(0), "blocks.0"),
    "another scale": (_other_scale, "blocks.1.mix.design"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_load_would_not_give_back_is_not_saved(tmp_path, change):
    model, (apply, name) = ws.GLT(6, 16, 2, 3), CHANGES[change]
    apply(model)
    with pytest.raises(ValueError, match=rf"was changed after it was made, at .*{name}.*; take back"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_model_without_its_width_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="call the model once before it is saved"):
        ws.GLT(-1, 16, 3, 1).save(tmp_path)


def test_a_saved_model_keeps_its_precision(tmp_path):
    model = ws.GLT(6, 16, 2, 3).double().eval()
    model.save(tmp_path)
    torch.testing.assert_close(ws.load(tmp_path)(X.double(), EDGES), model(X.double(), EDGES), rtol=0, atol=0)


def test_a_broken_model_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds no config.json"):
        ws.load(tmp_path)
    ws.GLT(6, 16, 2, 3).save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match="not readable JSON"):
        ws.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "format": "other/9"}))
    with pytest.raises(ValueError, match=r"not of the format walksum.GLT/1"):
        ws.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**config, "hidden_channels": 24}))
    with pytest.raises(ValueError, match="does not hold a complete walksum model"):
        ws.load(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"junk")
    with pytest.raises(ValueError, match="does not hold a complete walksum model"):
        ws.load(tmp_path)


@pytest.mark.parametrize(
    "design",
    [
        ws.FixedLaplacian(0.5),
        ws.FixedPairwiseNormal(),
        ws.LearnedLaplacian(16, 2, confidence=0.3, similarity="dot"),
        ws.LearnedPairwiseNormal(8, 2, epsilon=0.5),
        ws.LearnedDiagonallyDominant(16, 2, margin=0.1),
    ],
)
def test_a_given_design_is_copied_for_each_block_and_comes_back(tmp_path, design):
    model = ws.GLT(6, 16, 2, 3, heads=2, design=design).eval()
    designs = [mixer.design for mixer in model.mixers]
    assert len({id(each) for each in (design, *designs)}) == 3
    for parameter in designs[0].parameters():
        torch.nn.init.normal_(parameter)
    assert all(torch.equal(a, b) for a, b in zip(design.parameters(), designs[1].parameters(), strict=True))
    model.save(tmp_path)
    again = ws.load(tmp_path)
    assert [mixer.design.arguments() for mixer in again.mixers] == [each.arguments() for each in designs]
    torch.testing.assert_close(again(X, EDGES), model(X, EDGES))


def test_settings_come_back(tmp_path):
    model = ws.GLT(6, 16, 2, 3, reach=3, similarity="dot")
    model.save(tmp_path)
    assert ws.load(tmp_path).config == model.config


class Own(ws.FixedLaplacian):
    """A design that nobody entered into the registry."""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"design": Own(), "learned": False}, r"design=Own.* cannot be saved; enter its class there"),
        ({"similarity": lambda a, b: (a * b).sum(-1)}, r"similarity=<function .* cannot be saved"),
    ],
)
def test_what_has_no_name_is_not_saved(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        ws.GLT(6, 16, 2, 3, **arguments).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("value", ["Infinity", "NaN", "1e999", "[" * 100_000 + "]" * 100_000, "[" * 900 + "]" * 900])
@pytest.mark.parametrize("name", ["hidden_channels", "dropout", "heads", "solver", "design", "ffn_channels"])
def test_a_config_of_strange_values_is_refused(tmp_path, name, value):
    ws.GLT(6, 16, 2, 3).save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, name: "HERE"}).replace('"HERE"', value))
    with pytest.raises(ValueError, match=r"not readable JSON|complete walksum model|="):
        ws.load(tmp_path)


def test_learned_edge_weights_share_what_the_edges_decide(monkeypatch):
    edge_index, x = EDGES.clone(), X.clone()
    weight = torch.rand(edge_index.size(1), requires_grad=True)
    conv = ws.GLTConv(6, 4)
    conv(x, edge_index, weight)
    monkeypatch.setattr("walksum.graph.graph.build_csr", None)  # neighbour lists are not made again
    for _ in range(2):
        out, J = conv(x, edge_index, weight, return_precision=True)
        assert J.graph is as_graph(edge_index, 12)
        (gradient,) = torch.autograd.grad(out.square().sum(), weight)
    monkeypatch.undo()
    fresh = ws.Graph.from_edge_index(edge_index, 12, weight)
    (expected,) = torch.autograd.grad(conv(x, fresh).square().sum(), weight)
    torch.testing.assert_close(gradient, expected)
    assert expected.abs().sum() > 0


# --- what is kept with a graph outlives the mode in which it was first needed


@pytest.mark.parametrize("weight", [None, torch.linspace(0.5, 1, EDGES.size(1))], ids=["plain", "weighted"])
@pytest.mark.parametrize(("design", "learned"), KINDS)
def test_training_after_inference_mode(design, learned, weight):
    model, edges = ws.GLT(6, 16, 2, 3, design=design, learned=learned), EDGES.clone()
    with torch.inference_mode():
        model.eval()(X, edges, weight)
    model.train()(X, edges, weight).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(("design", "learned"), KINDS)
def test_the_first_call_may_be_under_a_transform(design, learned):
    model = ws.GLT(6, 16, 2, 3, design=design, learned=learned, dropout=0).double()
    x, edges, values = X.double(), EDGES.clone(), dict(model.named_parameters())
    found = torch.func.grad(lambda p: torch.func.functional_call(model, p, (x, edges)).square().sum())(values)
    model(x, edges).square().sum().backward()
    torch.testing.assert_close(found, {name: parameter.grad for name, parameter in values.items()})
    several = torch.stack([x, -x])
    torch.testing.assert_close(torch.vmap(lambda x: model(x, EDGES.clone()))(several)[1], model(-x, edges))


@pytest.mark.parametrize(("design", "learned"), KINDS)
def test_derivatives_by_edge_weights_in_both_modes(design, learned):
    conv, x = ws.GLTConv(6, 4, 2, design=design, learned=learned).double(), X.double()
    weight = torch.linspace(0.5, 1, EDGES.size(1), dtype=torch.double, requires_grad=True)
    conv(x, EDGES, weight).sum().backward()
    for transform in (torch.func.grad, torch.func.jacfwd):
        torch.testing.assert_close(transform(lambda w: conv(x, EDGES, w).sum())(weight.detach()), weight.grad)
    along = torch.ones_like(weight)
    with fwAD.dual_level():
        dual = conv(x, EDGES, fwAD.make_dual(weight.detach(), along))
        torch.testing.assert_close(fwAD.unpack_dual(dual).tangent.sum(), weight.grad @ along)


@pytest.mark.parametrize("change", [lambda x: x.data[:3].fill_(1), lambda x: x.numpy()[:3].fill(1)])
def test_features_overwritten_behind_the_version_of_their_tensor_are_seen(change):
    torch.manual_seed(0)
    layer, x = ws.GLTConv(6, 4, design="pairwise-normal", learned=False), torch.randn(12, 6)
    layer(x, EDGES)
    change(x)
    assert torch.equal(layer(x, EDGES), layer(x.clone(), EDGES))


def test_features_overwritten_in_inference_mode_are_seen():
    conv = ws.GLTConv(6, 4, design="pairwise-normal", learned=False)
    with torch.inference_mode():
        x = X.clone()
        conv(x, EDGES)
        x.copy_(X.flip(0))
        torch.testing.assert_close(conv(x, EDGES), conv(x.clone(), EDGES))


# --- wrong use


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ws.GLTConv(6, 4, design="spectral"), r"design='spectral'; known: 'pairwise-normal'"),
        (lambda: ws.GLTConv(6, 4, solver="lu"), r"solver='lu'; known: 'auto'"),
        (lambda: ws.GLTConv(6, 0), r"out_channels=0"),
        (lambda: ws.GLTConv(6, 4, heads=0), r"heads=0"),
        (lambda: ws.GLTConv(6, 4, on_nonconverged="cry"), r"on_nonconverged='cry'"),
        (lambda: ws.GLTConv(6, 4, coupling="none"), r"coupling='none'"),
        (lambda: ws.GLTConv(6, 4)(X[:, :5], EDGES), r"x has shape \(12, 5\); expected \[N, 6\]"),
        (lambda: ws.GLTConv(6, 4)(X.long(), EDGES), r"x has type torch.int64"),
        (lambda: ws.GLTConv(6, 4)(X[:5], EDGES), r"contains node \d+, but num_nodes=5"),
        (lambda: ws.GLTConv(6, 4)(X, ws.Graph.from_edge_index(EDGES, 13)), r"x has 12 rows but the graph has 13"),
        (lambda: ws.GLT(6, 16, 0, 3), r"num_layers=0"),
        (lambda: ws.GLT(6, 16, 4, 3, heads=(8, 4, 1)), r"heads=\(8, 4, 1\) for num_layers=4"),
        (lambda: ws.GLT(6, 16, 2, 3, dropout=1.5), r"dropout=1.5"),
        (lambda: ws.GLTConv(6, 4, heads=True), r"heads=True; expected a positive whole number"),
        (lambda: ws.GLTConv(6, 4, design=ws.FixedLaplacian(), coupling="repulsive"), r"coupling='repulsive' was given"),
        (lambda: ws.GLTBlock(8, heads=0), r"heads=0"),
        (lambda: ws.GLT(6, 16, 2, 3, heads=(0, 1)), r"heads=0"),
        (lambda: ws.GLT(6, 16, 2, 0), r"out_channels=0"),
        (lambda: ws.GLT(2.7, 16, 2, 3), r"in_channels=2.7; expected a positive whole number"),
        (lambda: ws.GLT(0, 16, 2, 3), r"in_channels=0; expected a positive whole number"),
        (lambda: ws.GLT(6, 16, 2, 3, ffn_channels=2.5), r"ffn_channels=2.5"),
    ],
)
def test_bad_input_says_what_to_do(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("design", ["pairwise-normal", "diagonally-dominant", "laplacian"])
def test_learned_edge_weights_count_without_gradients_too(design, learned):
    edge_index, x = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), torch.randn(4, 3)
    weight = torch.tensor([0.2, 1.0, 3.0, 0.5], requires_grad=True)
    conv = ws.GLTConv(3, 2, design=design, learned=learned)
    expected = conv(x, edge_index, weight.detach().clone())
    assert not torch.allclose(expected, conv(x, edge_index))
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            assert torch.allclose(conv(x, edge_index, weight), expected)


@pytest.mark.parametrize(("design", "learned"), [("diagonally-dominant", False), ("laplacian", True)])
def test_blocks_computed_again_have_the_same_gradients_and_hold_less(design, learned):
    torch.manual_seed(0)
    model = ws.GLT(6, 16, 3, 3, design=design, learned=learned, dropout=0.3)
    held, gradients = [], []
    for model.recompute in (False, True):
        kept: list[torch.Tensor] = []
        torch.manual_seed(1)
        with torch.autograd.graph.saved_tensors_hooks(lambda t, kept=kept: kept.append(t) or t, lambda t: t):
            loss = model(X, EDGES).square().sum()
        held.append(sum(t.numel() for t in {id(t): t for t in kept}.values()))
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    assert held[1] < 0.5 * held[0]
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize(
    "model",
    [
        ws.GLT(6, 16, 2, 3, heads=2),
        ws.GLT(6, 16, 2, 3, recompute=True),
        ws.GLTConv(6, 8, design="pairwise-normal"),
        ws.Propagate(learned=True),
    ],
    ids=["GLT", "recomputed", "GLTConv", "Propagate"],
)
def test_gradients_of_many_outputs_at_once(model):
    model, x = copy.deepcopy(model).double().eval(), X.double().requires_grad_()
    y = model(x, EDGES)
    rows, wanted = torch.randn(4, *y.shape, dtype=y.dtype), (x, *model.parameters())
    found = torch.autograd.grad(y, wanted, rows, is_grads_batched=True, allow_unused=True)
    y = model(x, EDGES)
    alone = [torch.autograd.grad(y, wanted, row, retain_graph=True, allow_unused=True) for row in rows]
    for batch, *one in zip(found, *alone, strict=True):
        torch.testing.assert_close(batch, torch.stack(one))


@pytest.mark.parametrize(
    ("design", "learned", "jk"),
    [("laplacian", True, None), ("laplacian", False, "cat"), ("pairwise-normal", False, "lstm")],
)
def test_samples_on_one_graph_through_a_whole_model(design, learned, jk):
    torch.manual_seed(0)
    model = ws.GLT(6, 12, 2, 3, heads=3, design=design, learned=learned, jk=jk).double().eval()
    samples = torch.stack([X, -X, X.flip(0)]).double()
    torch.testing.assert_close(model(samples, EDGES), torch.stack([model(x, EDGES) for x in samples]))
    alone = samples[:, :1]  # one node without edges
    torch.testing.assert_close(model(alone, EDGES[:, :0]), torch.stack([model(x, EDGES[:, :0]) for x in alone]))


@pytest.mark.parametrize(
    "layer",
    [ws.GLTConv(3, 4), ws.GLTConv(3, 4, learned=False), ws.Propagate(design=ws.LearnedLaplacian(3, 1))],
    ids=["learned", "fixed", "design"],
)
def test_what_a_layer_returns_may_be_changed_in_place(layer):
    """As of GCNConv: ReLU(inplace=True) and += follow convolutions in many models."""
    torch.manual_seed(0)
    x, ring = torch.randn(6, 3), torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
    gradients = []
    for change in (torch.relu, torch.relu_):
        x.requires_grad_().grad = None
        change(layer(x, ring)).square().sum().backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)
