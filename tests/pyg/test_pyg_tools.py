import copy

import pytest
import torch
from torch.func import functional_call, stack_module_state
from torch.nn.utils import parametrizations, prune
from torch_geometric.data import HeteroData
from torch_geometric.explain import AttentionExplainer, CaptumExplainer, Explainer, GNNExplainer, PGExplainer
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import HeteroConv, Sequential, summary, to_captum_model, to_hetero, to_hetero_with_bases

import walksum as ws
from walksum.designs import NAMES

X = torch.randn(12, 6, generator=torch.Generator().manual_seed(1))
EDGES = torch.randint(12, (2, 30), generator=torch.Generator().manual_seed(1))
GRAPH = ws.Graph.from_edge_index(EDGES, 12)
CONFIG = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}


def relations():
    torch.manual_seed(3)
    data = HeteroData()
    data["a"].x, data["b"].x = torch.randn(20, 6), torch.randn(30, 5)
    data["a", "to", "a"].edge_index = torch.randint(20, (2, 40))
    data["a", "to", "b"].edge_index = torch.stack([torch.randint(20, (50,)), torch.randint(30, (50,))])
    data["b", "to", "a"].edge_index = torch.stack([torch.randint(30, (50,)), torch.randint(20, (50,))])
    return data


def test_bipartite_is_its_equation():
    """`(x_source, x_target)`: one symmetric system of both sides; the result is that of the targets."""
    source, target = torch.randn(5, 6, dtype=torch.double), torch.randn(4, 3, dtype=torch.double)
    edges = torch.tensor([[0, 1, 2, 4, 4], [0, 1, 1, 3, 2]])
    conv = ws.GLTConv((6, 3), 4, design="diagonally-dominant").double()
    out, J = conv((source, target), edges, return_precision=True)
    h = torch.cat([conv.observe_source(source), conv.observe(target)])
    mu = torch.linalg.solve(J.to_dense()[0], torch.nn.functional.leaky_relu(h))
    torch.testing.assert_close(out, mu[5:])
    assert J.num_nodes == 9
    changed = edges.clone()
    conv((source, target), changed)
    changed[1, 0] = 3  # in place: noticed
    assert not torch.allclose(conv((source, target), changed), out)
    many = torch.randn(254, 6, dtype=torch.double)
    torch.testing.assert_close(conv((many, target), edges.byte()), conv((many, target), edges))  # a byte holds 255


@pytest.mark.parametrize("width", [(-1, -1), None])
def test_hetero_conv(width):
    """`HeteroConv`: relations within one kind and between two."""
    data = relations()
    sizes = {"a": 6, "b": 5}
    layers = {
        kind: ws.GLTConv(width or (sizes[kind[0]] if kind[0] == kind[2] else (sizes[kind[0]], sizes[kind[2]])), 4)
        for kind in data.edge_types
        if width is None or kind[0] != kind[2]
    }
    out = HeteroConv(layers)(data.x_dict, data.edge_index_dict)
    assert {kind: tuple(value.shape) for kind, value in out.items()} == {"a": (20, 4), "b": (30, 4)}
    sum(value.square().sum() for value in out.values()).backward()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = ws.GLTConv((-1, -1), 16), ws.GLTConv((-1, -1), 4)

    def forward(self, x, edge_index):
        return self.last(self.first(x, edge_index).relu(), edge_index)


def test_to_hetero():
    """`to_hetero`: a model of one kind of nodes becomes one of many, with lazy widths."""
    data = relations()
    net = to_hetero(Net(), data.metadata())
    out = net(data.x_dict, data.edge_index_dict)
    assert {kind: tuple(value.shape) for kind, value in out.items()} == {"a": (20, 4), "b": (30, 4)}
    sum(value.square().sum() for value in out.values()).backward()


@pytest.mark.parametrize("layer", [ws.GLTConv(6, 4), ws.Propagate(), ws.PropagateBank((0.0, 0.5))])
def test_to_hetero_with_bases(layer):
    """`to_hetero_with_bases` and other hooks that change messages: refused, as there are none; `to_hetero` serves."""
    data = HeteroData()
    data["a"].x, data["b"].x = X[:7], X[7:]
    data["a", "to", "b"].edge_index = torch.stack([EDGES[0, :6] % 7, EDGES[1, :6] % 5])
    data["b", "to", "a"].edge_index = data["a", "to", "b"].edge_index.flip(0)  # as many entries as there are nodes
    net = to_hetero_with_bases(Sequential("x, edge_index", [(layer, "x, edge_index -> x")]), data.metadata(), 2)
    with pytest.raises(ValueError, match=r"message hook of .* returned new messages.*use to_hetero"):
        net(data.x_dict, data.edge_index_dict)


def explain(algorithm, explanation_type="model", node_mask_type="attributes", model=None):
    model = model or ws.GLT(6, 16, 2, 3, dropout=0.0)
    explainer = Explainer(
        model,
        algorithm=algorithm,
        explanation_type=explanation_type,
        node_mask_type=node_mask_type,
        edge_mask_type="object",
        model_config=CONFIG,
    )
    return explainer, model


def test_gnn_explainer():
    """`GNNExplainer`: masks the couplings; of a `Graph`, explain `graph.edges` (one value per undirected edge)."""
    explainer, _ = explain(GNNExplainer(epochs=10))
    for edges in (EDGES, ws.Graph.from_edge_index(EDGES, 12).edges):
        mask = explainer(X, edges, index=0).edge_mask
        assert mask.shape == (edges.size(1),)
        assert float(mask.std()) > 0


def test_attention_explainer():
    """`AttentionExplainer`: reads the partial correlations that J states, of all blocks and heads."""
    explainer, _ = explain(AttentionExplainer(), node_mask_type=None)
    mask = explainer(X, EDGES, index=0).edge_mask
    assert mask.shape == (30,)
    assert float(mask.max()) > 0


@pytest.mark.filterwarnings("ignore:Converting a tensor")  # in PyG itself
def test_pg_explainer():
    """`PGExplainer`: trains its mask through the layer."""
    explainer, model = explain(PGExplainer(epochs=1), "phenomenon", None)
    target = model(X, EDGES).argmax(1).detach()
    for node in range(3):
        assert torch.isfinite(torch.tensor(explainer.algorithm.train(0, model, X, EDGES, target=target, index=node)))
    assert explainer(X, EDGES, target=target, index=0).edge_mask.shape == (30,)


EXPLAINED = {
    "fixed": lambda: ws.Propagate(coupling="repulsive", loops=True),
    "learned scale": lambda: ws.Propagate(reach=3, learned=True),
    "design": lambda: ws.Propagate(design=ws.LearnedLaplacian(6)),
    "bank": lambda: ws.PropagateBank((0.0, 0.9, -0.5)),
    "outputs": lambda: ws.PredictThenPropagate(6, 8, 3, dropout=0.0),
    "hidden": lambda: ws.PredictThenPropagate(6, 8, 3, bank=(0.0, 0.9), where="hidden", dropout=0.0),
}


@pytest.mark.filterwarnings("ignore:Converting a tensor")  # in PyG itself
@pytest.mark.parametrize("kind", EXPLAINED)
def test_explainers_of_propagations(kind):
    """`GNNExplainer`, `AttentionExplainer`, `PGExplainer` of `Propagate`, `PropagateBank`, `PredictThenPropagate`: as
    of a GLT; the identity of a bank has no edges."""
    model = EXPLAINED[kind]()
    for algorithm, nodes in ((GNNExplainer(epochs=5), "attributes"), (AttentionExplainer(), None)):
        mask = explain(algorithm, "model", nodes, model)[0](X, EDGES, index=0).edge_mask
        assert mask.shape == (30,)
        assert float(mask.std()) > 0
    explainer, target = explain(PGExplainer(epochs=1), "phenomenon", None, model)[0], model(X, EDGES).argmax(1).detach()
    for node in range(3):
        explainer.algorithm.train(0, model, X, EDGES, target=target, index=node)
    assert float(explainer(X, EDGES, target=target, index=0).edge_mask.std()) > 0


@pytest.mark.parametrize("kind", EXPLAINED)
def test_edge_masks_reach_the_couplings(kind):
    """Edge masks of explainers: a mask of zeros is the graph without couplings, one of ones changes nothing."""
    model, weight = EXPLAINED[kind]().double(), torch.rand(30, 1, dtype=torch.double)
    x = X.double()
    wanted = model(x, EDGES, weight)
    set_masks(model, torch.ones(30, dtype=torch.double), EDGES, apply_sigmoid=False)
    torch.testing.assert_close(model(x, EDGES, weight), wanted)
    set_masks(model, torch.zeros(30, dtype=torch.double), EDGES, apply_sigmoid=False)
    masked, some = model(x, EDGES, weight), torch.tensor([0, 5])
    assert not torch.allclose(masked, wanted)
    other = x.clone()
    other[6:] += 1  # nothing of the others arrives
    torch.testing.assert_close(model(other, EDGES, weight)[some], masked[some])
    with pytest.raises(ValueError, match="give the layer the edge_index that is explained"):
        model(x, GRAPH)
    clear_masks(model)
    torch.testing.assert_close(model(x, EDGES, weight), wanted)


def test_masks_that_cannot_be_applied():
    """Edge masks on a `Graph`, on samples `[B, N, F]` or with a two-hop design: refused with the remedy."""
    conv, far = ws.GLTConv(6, 4), ws.GLTConv(6, 4, design="squared")
    for layer, x, where, message in (
        (conv, X, GRAPH, "give the layer the edge_index"),
        (conv, X.expand(2, 12, 6), EDGES, "explanations are given for one sample"),
        (far, X, EDGES, "not nodes at two hops"),
    ):
        set_masks(layer, torch.rand(30), EDGES)
        with pytest.raises(ValueError, match=message):
            layer(x, where)


def test_attention_weights_of_two_hops():
    """`return_attention_weights` of a two-hop design: of the given edges, for a `Graph` too."""
    conv = ws.GLTConv(6, 4, design="squared")
    _, (edges, alpha) = conv(X, GRAPH, return_attention_weights=True)
    _, (_, wanted) = conv(X, GRAPH.edges, return_attention_weights=True)
    assert alpha.shape == (edges.size(1), 1)
    torch.testing.assert_close(alpha, wanted)


def test_captum_explainer():
    """`CaptumExplainer` and `to_captum_model`: where captum is installed."""
    pytest.importorskip("captum", reason="captum is optional")
    explainer, model = explain(CaptumExplainer("IntegratedGradients"))
    assert explainer(X, EDGES, index=0).edge_mask.abs().sum() > 0
    assert to_captum_model(model, "edge", 0)(torch.ones(1, 30), X, EDGES).shape == (1, 3)


def test_summary():
    """`torch_geometric.nn.summary`: where tabulate is installed."""
    pytest.importorskip("tabulate", reason="tabulate is optional")
    assert "GLTConv" in summary(ws.GLT(6, 16, 2, 3), X, EDGES, leaf_module=None)


def test_copies():
    """`copy.deepcopy` and `state_dict`: copies are independent and equal."""
    model = ws.GLT(6, 16, 2, 3).eval()
    twin = copy.deepcopy(model)
    twin.load_state_dict(model.state_dict(), strict=True)
    torch.testing.assert_close(twin(X, EDGES), model(X, EDGES), rtol=0, atol=0)


# --- compiled and exported

quiet = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor", "ignore:.*lru_cache.*")


@quiet
@pytest.mark.parametrize("given", ["edge_index", "graph"])
@pytest.mark.parametrize(("design", "learned"), [(design, learned) for design in NAMES for learned in (True, False)])
def test_compile_fullgraph(design, learned, given):
    """`torch.compile(fullgraph=True)`: no graph break with an `edge_index` or a `Graph`, gradients included."""
    torch._dynamo.reset()
    edges = EDGES.clone()
    where = edges if given == "edge_index" else ws.Graph.from_edge_index(edges, 12)
    model = ws.GLT(6, 16, 2, 3, design=design, learned=learned, dropout=0.0).double()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x = X.double().requires_grad_()
    wanted = model(x, where)
    torch.testing.assert_close(compiled(x, where), wanted, rtol=1e-9, atol=1e-9)
    for each, other in zip(
        *(torch.autograd.grad(f(x, where).square().sum(), [x, *model.parameters()]) for f in (compiled, model)),
        strict=True,
    ):
        torch.testing.assert_close(each, other, rtol=1e-6, atol=1e-8)


PROPAGATIONS = {
    "fixed": lambda: ws.Propagate(coupling="repulsive", loops=True),
    "learned scale": lambda: ws.Propagate(reach=3, learned=True),
    "design": lambda: ws.Propagate(design=ws.LearnedLaplacian(6)),
    "bank": lambda: ws.PropagateBank((0.0, 0.9, -0.5)),
    "outputs": lambda: ws.PredictThenPropagate(6, 8, 3, bank=(0.0, 0.9), dropout=0.0),
    "hidden": lambda: ws.PredictThenPropagate(6, 8, 3, bank=(0.0, 0.9), where="hidden", dropout=0.0),
}


@quiet
@pytest.mark.parametrize("given", ["edge_index", "weights", "graph"])
@pytest.mark.parametrize("kind", PROPAGATIONS)
def test_compile_propagations(kind, given):
    """`torch.compile(fullgraph=True)` of `Propagate`, `PropagateBank`, `PredictThenPropagate`: no graph break,
    gradients included."""
    torch._dynamo.reset()
    weight = (torch.rand(30, dtype=torch.double) + 0.5).requires_grad_()
    where = (ws.Graph.from_edge_index(EDGES, 12),) if given == "graph" else (EDGES.clone(),)
    where = (*where, weight) if given == "weights" else where
    model, x = PROPAGATIONS[kind]().double(), X.double().requires_grad_()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, *where), model(x, *where), rtol=1e-9, atol=1e-9)
    inputs = [x, *model.parameters(), *where[1:]]
    found, wanted = (torch.autograd.grad(f(x, *where).square().sum(), inputs) for f in (compiled, model))
    for each, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(each, other, rtol=1e-6, atol=1e-8)


@quiet
def test_compile_relations():
    """`torch.compile(fullgraph=True)` of `(x_source, x_target)`: no graph break; ends out of range are refused."""
    conv, x = ws.GLTConv((6, 3), 4), (torch.randn(5, 6), torch.randn(4, 3))
    compiled = torch.compile(conv, backend="aot_eager", fullgraph=True)
    edges = torch.tensor([[0, 4], [1, 3]])
    torch.testing.assert_close(compiled(x, edges), conv(x, edges))
    for wrong in ([[5, 4], [1, 3]], [[0, 4], [-1, 3]], [[0, 4], [1, 4]], [[-1, 4], [1, 3]]):
        with pytest.raises(ValueError, match="edge_index contains"):
            compiled(x, torch.tensor(wrong))


@quiet
def test_compile_edge_weights_and_features():
    """`torch.compile` with weights and edge features: no graph break; edge features on a `Graph`."""
    torch._dynamo.reset()
    weight, attr = (torch.rand(30, dtype=torch.double) + 0.5).requires_grad_(), torch.randn(30, 3).double()
    conv, x, graph = ws.GLTConv(6, 4, 2).double(), X.double(), ws.Graph.from_edge_index(EDGES, 12)
    compiled = torch.compile(conv, backend="aot_eager", fullgraph=True)
    found, wanted = (torch.autograd.grad(f(x, EDGES, weight).square().sum(), weight)[0] for f in (compiled, conv))
    torch.testing.assert_close(found, wanted)
    conv = ws.GLTConv(6, 4, 2, edge_dim=3).double()
    attr = attr[: graph.num_edges].requires_grad_()
    compiled = torch.compile(conv, backend="aot_eager", fullgraph=True)
    found, wanted = (torch.autograd.grad(f(x, graph, edge_attr=attr).square().sum(), attr)[0] for f in (compiled, conv))
    torch.testing.assert_close(found, wanted)


class Own(ws.FixedLaplacian):
    """A design that nobody entered into the registry."""


@quiet
def test_compile_own_design_and_solver():
    """`torch.compile` with a design or solver of one's own: no graph break, within the process."""
    torch._dynamo.reset()
    conv = ws.GLTConv(6, 4, 2, design=Own(0.5), solver=ws.GaBP(tol=1e-6))
    compiled = torch.compile(conv, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(X, EDGES), conv(X, EDGES))


ONE_CLASS = {
    "design": [lambda s=s: ws.GLTConv(6, 4, scale=s) for s in (0.5, 0.9)],
    "similarity": [lambda s=s: ws.GLTConv(6, 4, similarity=s) for s in ("gaussian", "dot")],
    "solver": [lambda s=s: ws.GLTConv(6, 4, solver=s) for s in (ws.CG(tol=0.5), "direct")],
    "own design": [lambda s=s: ws.GLTConv(6, 4, design=Own(s)) for s in (0.5, 0.9)],
    "coupling": [lambda s=s: ws.Propagate(coupling=s) for s in ("attractive", "repulsive")],
    "loops": [lambda s=s: ws.Propagate(loops=s) for s in (True, False)],
    "copy": [lambda s=s: copy.deepcopy(ws.GLTConv(6, 4, design=Own(s))) for s in (0.5, 0.9)],
    "lazy": [lambda s=s: ws.GLTConv(-1, 4, scale=s) for s in (0.5, 0.9)],
    "model": [lambda s=s: ws.GLT(6, 16, 2, 2, scale=s).eval() for s in (0.5, 0.9)],
}


@quiet
@pytest.mark.parametrize("kind", ONE_CLASS)
def test_compile_layers_of_one_class(kind):
    """`torch.compile` of several layers or models: each keeps the settings it was made with."""
    torch._dynamo.reset()
    for make in [*ONE_CLASS[kind], ONE_CLASS[kind][0]]:
        layer = make()
        wanted = layer(X, EDGES)  # which tells a lazy layer its width
        compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(X, EDGES), wanted)


@quiet
def test_equal_layers_share_compiled_code():
    """`torch.compile` of many equal layers: they share code; another `layer.solver` is noticed."""
    torch._dynamo.reset()
    compilations = []

    def backend(module, _):
        compilations.append(module)
        return module

    for _ in range(10):  # beyond torch's limit of recompilations
        torch.compile(ws.GLTConv(6, 4), backend=backend, fullgraph=True)(X, EDGES)
    layer = ws.GLTConv(6, 4)
    compiled = torch.compile(layer, backend=backend, fullgraph=True)
    layer.solver = ws.CG(tol=0.5)  # noticed
    torch.testing.assert_close(compiled(X, EDGES), layer(X, EDGES))
    assert len(compilations) == 2


@quiet
@pytest.mark.parametrize("make", [lambda: ws.GLTConv(6, 4, 2), lambda: ws.GLT(6, 16, 2, 3).eval()])
def test_compile_samples(make):
    """`torch.compile(fullgraph=True)` and `torch.export` of samples `[B, N, F]`: solved one after the other."""
    torch._dynamo.reset()
    model, x = make().double(), torch.stack([X, -X, 2 * X]).double().requires_grad_()
    weight = (torch.rand(30, dtype=torch.double) + 0.5).requires_grad_()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, EDGES, weight), model(x, EDGES, weight))
    inputs = [x, weight, *model.parameters()]
    found, wanted = (torch.autograd.grad(f(x, EDGES, weight).square().sum(), inputs) for f in (compiled, model))
    torch.testing.assert_close(found, wanted)
    program = torch.export.export(model, (x, EDGES, weight)).module()
    torch.testing.assert_close(program(2 * x, EDGES, weight), model(2 * x, EDGES, weight))


@quiet
def test_compile_ensemble():
    """`torch.compile` of an ensemble, `torch.vmap` over stacked weights: equal to its members."""
    torch._dynamo.reset()
    members = [ws.GLTConv(6, 4, 2).double() for _ in range(3)]
    weights, _ = stack_module_state(members)
    together = torch.vmap(lambda each: functional_call(members[0], each, (X.double(), EDGES)))
    apart = torch.stack([member(X.double(), EDGES) for member in members])
    torch.testing.assert_close(torch.compile(together, backend="aot_eager", fullgraph=True)(weights), apart)


CHANGES = {
    "loops": (lambda: ws.Propagate(0.5), lambda layer: setattr(layer, "loops", True)),
    "coupling": (lambda: ws.Propagate(0.5), lambda layer: setattr(layer, "coupling", "repulsive")),
    "design.scale": (lambda: ws.GLTConv(6, 4), lambda layer: setattr(layer.design, "scale", 0.2)),
    "design.coupling": (
        lambda: ws.Propagate(design=ws.FixedLaplacian(0.5)),
        lambda layer: setattr(layer.design, "coupling", "repulsive"),
    ),
}


@quiet
@pytest.mark.parametrize("kind", CHANGES)
def test_compile_layers_that_change(kind):
    """`torch.compile` of a layer, or of several with one design, whose settings are set anew afterwards: noticed."""
    torch._dynamo.reset()
    make, change = CHANGES[kind]
    layer = make()
    layers = [layer, copy.copy(layer)]  # of one design
    compiled = [torch.compile(each, backend="aot_eager", fullgraph=True) for each in layers]
    for _ in range(2):
        for each, code in zip(layers, compiled, strict=True):
            torch.testing.assert_close(code(X, EDGES), each(X, EDGES))
        for each in layers:
            change(each)


@quiet
@pytest.mark.parametrize("design", NAMES)
def test_compile_lazy_layers(design):
    """`torch.compile` with `in_channels=-1`: the first call runs beside compiled code; `fullgraph=True` asks for it."""
    torch._dynamo.reset()
    conv = ws.GLTConv(-1, 4, design=design)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="call the layer once before it is compiled"):
        torch.compile(conv, backend="aot_eager", fullgraph=True)(X, EDGES)
    compiled = torch.compile(conv, backend="aot_eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(X, EDGES), conv(X, EDGES))


MAPS = {
    "pruning": lambda linear: prune.l1_unstructured(linear, "weight", 0.9),
    "spectral_norm": parametrizations.spectral_norm,
    "weight_norm": parametrizations.weight_norm,
    "hook": lambda linear: linear.register_forward_hook(lambda *given: 3 * given[-1]),
}


@quiet
@pytest.mark.parametrize("design", ["laplacian", "diagonally-dominant", "squared"])
@pytest.mark.parametrize("kind", MAPS)
def test_changed_maps(kind, design):
    """Pruning, weight norms and hooks on the linear maps of a design: as on torch's own, also in compiled code."""
    torch._dynamo.reset()
    conv = ws.GLTConv(6, 4, design=design)
    plain = conv(X, EDGES)
    for linear in [each for each in conv.design.modules() if type(each) is torch.nn.Linear]:
        MAPS[kind](linear)
    optimiser = torch.optim.SGD(conv.parameters(), lr=0.1)
    for _ in range(2):  # hooks make the weights of a step: without them a second backward pass is an error
        optimiser.zero_grad()
        conv(X, EDGES).square().sum().backward()
        optimiser.step()
    wanted = conv.eval()(X, EDGES)
    assert not torch.allclose(wanted, plain)
    torch.testing.assert_close(torch.compile(conv, backend="aot_eager", fullgraph=True)(X, EDGES), wanted)


def test_hooks_on_maps_fire():
    """Forward hooks on the linear maps of a design and of edge features: called, as on torch's own."""
    conv, seen = ws.GLTConv(6, 4, edge_dim=2), []
    for part in (conv.design.project, conv.design.confidence, conv.edge):
        part.register_forward_hook(lambda *given: seen.append(given[0]))
    conv(X, EDGES, edge_attr=torch.randn(30, 2))
    assert len(seen) == 3


@quiet
def test_compiled_solves_are_not_silent():
    """Solves in compiled code: one that did not converge warns, as in eager mode."""
    torch._dynamo.reset()
    conv = ws.GLTConv(6, 4, solver=ws.GaBP(max_steps=1))
    with pytest.warns(ws.SolveWarning, match="did not reach"):
        torch.compile(conv, backend="aot_eager", fullgraph=True)(X, EDGES)


def test_operator_is_sound():
    """`torch.library.opcheck`: schema, fake implementation and autograd of `torch.ops.walksum.mix`."""
    from walksum.nn.compiled import mix, recipe

    conv = ws.GLTConv(6, 4, 2).double()
    x, h = X.double().requires_grad_(), torch.randn(2, 12, 4, dtype=torch.double, requires_grad=True)
    inputs = (EDGES, None, 12, x, h, None, list(conv.design.parameters()), recipe(conv.design, conv.solver, "warn"))
    torch.library.opcheck(mix, inputs, test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_static"))


def check_export(model, folder, strict=False):
    n, m = torch.export.Dim("n", min=2), torch.export.Dim("m", min=2)
    program = torch.export.export(model, (X, EDGES), dynamic_shapes=[{0: n}, {1: m}], strict=strict)
    torch.export.save(program, folder / "model.pt2")
    again = torch.export.load(folder / "model.pt2").module()
    for nodes, edges in ((X, EDGES), (torch.randn(20, 6), torch.randint(20, (2, 50)))):
        torch.testing.assert_close(again(nodes, edges), model(nodes, edges), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("strict", [False, True])
@quiet
def test_export(tmp_path, strict):
    """`torch.export`: of an eval model, saved, loaded and run on graphs of other sizes."""
    check_export(ws.GLT(6, 16, 2, 3).eval(), tmp_path, strict)


@pytest.mark.parametrize("kind", PROPAGATIONS)
@quiet
def test_export_propagations(tmp_path, kind):
    """`torch.export` of `Propagate`, `PropagateBank`, `PredictThenPropagate`: as a GLT."""
    check_export(PROPAGATIONS[kind]().eval(), tmp_path)
