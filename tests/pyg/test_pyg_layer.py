import gc
import weakref

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.nn import Sequential
from torch_geometric.nn.models.basic_gnn import BasicGNN
from torch_geometric.testing import assert_module

import walksum as ws
from walksum.designs import NAMES

X = torch.randn(12, 6, generator=torch.Generator().manual_seed(1))
EDGES = torch.randint(12, (2, 30), generator=torch.Generator().manual_seed(1))
KINDS = [(design, learned) for design in NAMES for learned in (True, False)]
ATTR = torch.randn(30, 3, generator=torch.Generator().manual_seed(2))
GRAPH = ws.Graph.from_edge_index(EDGES, 12)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_assert_module():
    """`torch_geometric.testing.assert_module`: `edge_index`, sparse tensors and subsets of nodes give the same."""
    assert_module(ws.GLTConv(6, 4, 2), X, EDGES, expected_size=(12, 8), atol=1e-5)


@pytest.mark.parametrize(("design", "learned"), KINDS)
def test_lazy_width(design, learned):
    """`in_channels=-1`: width of the first input; an optimiser made before and `load_state_dict` work."""
    conv, twin = (ws.GLTConv(-1, 4, 2, design=design, learned=learned) for _ in range(2))
    optimiser = torch.optim.SGD(conv.parameters(), 0.1)
    conv(X, EDGES).square().sum().backward()
    before = [p.detach().clone() for p in conv.parameters()]
    optimiser.step()
    assert all(not torch.equal(a, b) for a, b in zip(before, conv.parameters(), strict=True) if b.grad.abs().sum() > 0)
    assert conv.in_channels == 6
    twin.load_state_dict(conv.state_dict())
    torch.testing.assert_close(twin(X, EDGES), conv(X, EDGES))
    with pytest.raises(ValueError, match=r"x has shape \(12, 5\); expected \[N, 6\]"):
        conv(X[:, :5], EDGES)


def test_lazy_model(tmp_path):
    """`GLT(in_channels=-1)`: as the layer, and `save` writes the width."""
    model = ws.GLT(-1, 16, 2, 3).eval()
    out = model(X, EDGES)
    model.save(tmp_path)
    torch.testing.assert_close(ws.load(tmp_path)(X, EDGES), out)


def test_column_of_weights():
    """`edge_weight [E, 1]`: one column is taken as `[E]`; more columns are refused with the remedy."""
    weight, conv = torch.rand(30) + 0.5, ws.GLTConv(6, 4)
    torch.testing.assert_close(conv(X, EDGES, weight.unsqueeze(1)), conv(X, EDGES, weight))
    with pytest.raises(ValueError, match=r"edge_weight has shape \(30, 3\).*edge_dim"):
        conv(X, EDGES, ATTR)


def test_integer_features():
    """Integer features: refused with the remedy `x.float()`, where GCNConv ends in an error of torch's."""
    for layer in (ws.GLTConv(6, 4), ws.Propagate(), ws.GLT(6, 8, 1, 2)):
        with pytest.raises(ValueError, match=r"x has type torch.int64.*use x.float\(\)"):
            layer(X.long(), EDGES)


@pytest.mark.parametrize("design", NAMES)
def test_edge_features(design):
    """`edge_dim`, `edge_attr`: multiply learned couplings by `exp(e W)`; both directions averaged; J stays safe."""
    conv = ws.GLTConv(6, 4, 2, design=design, edge_dim=3).double()
    x, attr = X.double(), (100 * ATTR).double().requires_grad_()
    out, J = conv(x, EDGES, edge_attr=attr, return_precision=True)
    assert J.is_walk_summable
    out.square().sum().backward()
    assert conv.edge.weight.grad is not None
    attr = ATTR.double()
    out = conv(x, EDGES, edge_attr=attr)
    torch.testing.assert_close(conv(x, EDGES.flip(0), edge_attr=attr), out)  # no direction
    torch.testing.assert_close(conv(x, EDGES, attr), out)  # in the place where PyG's layers take it
    assert not torch.allclose(conv(x, EDGES, edge_attr=attr.flip(0)), out)
    both = torch.cat([EDGES, EDGES.flip(0)], 1)
    torch.testing.assert_close(conv(x, both, edge_attr=torch.cat([attr, attr])), out)


def test_edge_features_of_a_model(tmp_path):
    """`GLT(edge_dim=...)`: every block reads the edge features; given with a `Graph`, one row per edge of it."""
    model = ws.GLT(6, 16, 2, 3, edge_dim=3).eval()
    model.save(tmp_path)
    torch.testing.assert_close(ws.load(tmp_path)(X, EDGES, edge_attr=ATTR), model(X, EDGES, edge_attr=ATTR))
    rows = ATTR[: GRAPH.num_edges]
    torch.testing.assert_close(model(X, GRAPH, edge_attr=rows), model(X, GRAPH.edges.clone(), edge_attr=rows))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ws.GLTConv(6, 4, learned=False, edge_dim=3), r"edge_dim=3; edge features enter learned couplings"),
        (lambda: ws.GLTConv(6, 4, design="car", edge_dim=3), r"of which CAR\(heads=1\) has none"),
        (
            lambda: ws.GLTConv(6, 4)(X, EDGES, [1.0] * 30),
            r"edge_weight has type list; expected a floating-point tensor",
        ),
        (lambda: ws.Propagate()(X, EDGES, [1.0] * 30), r"edge_weight has type list; expected a floating-point tensor"),
        (lambda: ws.GLTBlock(6)(X.numpy(), EDGES), r"x has type ndarray; expected a floating-point tensor \[N, 6\]"),
        (lambda: ws.GLTBlock(6)(X.double(), EDGES), r"x is torch.float64 but the layer is torch.float32"),
        (lambda: ws.GLTConv(6, 4)(X, EDGES, edge_attr=ATTR), r"make it with edge_dim"),
        (lambda: ws.GLTConv(6, 4, edge_dim=3)(X, EDGES), r"pass edge_attr=... of shape \[30, 3\]"),
        (lambda: ws.GLTConv(6, 4, edge_dim=2)(X, EDGES, edge_attr=ATTR), r"\(30, 3\); expected \[30, 2\]"),
        (lambda: ws.GLTConv(6, 4, edge_dim=3)(X, EDGES, edge_attr=ATTR.long()), r"use edge_attr.float\(\)"),
        (lambda: ws.GLT(6, 8, 1, 2)(X, EDGES, ATTR), r"edge_weight has shape \(30, 3\) for 30 edges.*edge_attr=\.\.\."),
        (lambda: ws.Propagate()((X, X), EDGES), r"x has type tuple.*only walksum.GLTConv takes \(x_source, x_target"),
        (lambda: ws.GLTConv(-1, 4)((X, X[:, :5]), EDGES), r"x has widths 6 and 5; make the layer with in_ch"),
        (lambda: ws.Propagate()(X, X @ X.t() > 0), r"edge_index has shape \(12, 12\).*use edge_index.to_sparse\(\)"),
        (lambda: ws.GLTConv((6, 5, 4), 4), r"in_channels=\(6, 5, 4\)"),
        (lambda: ws.GLTConv(6, 4)((X, None), EDGES), r"x\[1\] is None"),
        (lambda: ws.GLTConv((6, 6), 4)((X, X[:, :5]), EDGES), r"x\[1\] has shape \(12, 5\)"),
        (lambda: ws.GLTConv(6, 4)((X, X[:3]), EDGES), r"contains target node \d+, but x has 3 target rows"),
        (lambda: ws.GLTConv(6, 4)((X, X.clone()), EDGES - 1), r"contains the negative source node -1; nodes are"),
        (lambda: ws.GLTConv(6, 4)((X, X[:3]), torch.tensor([[0], [-1]])), r"contains the negative target node -1"),
        (lambda: ws.GLTConv(6, 4)((X, X[:3]), EDGES[[0, 1, 1]]), r"edge_index has shape \(3, 30\); expected \[2, M\]"),
        (lambda: ws.GLTConv(6, 4)((X, X[:3]), EDGES > 3), r"edge_index has dtype torch.bool; indices must be integers"),
        (lambda: ws.GLTConv(6, 4)((X, X[:3]), torch.eye(3, 12).to_sparse()), r"not torch.sparse_coo; use .*flip\(0\)"),
        (lambda: ws.GLTConv(6, 4)((X, X[:3]), GRAPH), r"sources first, then the targets"),
        (lambda: ws.GLTConv(6, 4)(torch.stack([X, X]), EDGES, return_precision=True), r"one sample"),
        (lambda: ws.GLTConv(6, 4, act="nothing"), r"act='nothing'; expected the name of an activation"),
        (lambda: ws.GLT(6, 8, 1, 2, norm="graph"), r"norm='graph'; known: 'layer', 'batch'"),
        (lambda: ws.GLT(6, 8, 1, 2, jk="sum"), r"jk='sum'; known: 'cat'"),
        (lambda: ws.GLT(6, 8, 1, 2)(X[:, :5], EDGES), r"x has shape \(12, 5\); expected \[N, 6\]"),
        (lambda: ws.PredictThenPropagate(6, 8, 2)(X[:, :5], EDGES), r"x has shape \(12, 5\); expected \[N, 6\]"),
        (lambda: ws.GLTConv(6, 4, design=ws.LearnedLaplacian(16)), r"in_channels=16 for a layer that gives it 6"),
        (lambda: ws.GLTConv(6, 4, design=ws.LearnedPairwiseNormal(8)), r"channels=8 for a layer that gives it 4"),
        (lambda: ws.Graph.disjoint_union([]), r"graphs holds nothing"),
        (lambda: ws.GLTConv(6, 4)(X.double(), EDGES), r"x is torch.float64 but the layer is torch.float32; use x.to\("),
        (lambda: ws.GLTConv(6, 4)((X, X.double()), EDGES), r"x\[1\] is torch.float64 but"),
        (lambda: ws.GLT(6, 8, 1, 2).double()(X, EDGES), r"x is torch.float32.*layer.to\(torch.float32\)"),
        (lambda: ws.PredictThenPropagate(6, 8, 2)(X.double(), EDGES), r"x is torch.float64 but the layer is"),
        (lambda: ws.GLTConv(6, 4)(X.to_sparse(), EDGES), r"x has layout torch.sparse_coo; .*x.to_dense\(\)"),
        (lambda: ws.Propagate()(X.to_sparse(), EDGES), r"x has layout torch.sparse_coo"),
        (lambda: ws.Propagate()(X.to("meta"), EDGES), r"x is on the meta device, which holds no numbers"),
        (lambda: ws.GLTConv(6, 4).to("meta")(X.to("meta"), EDGES), r"x is on the meta device"),
        (lambda: ws.GLTConv(6, 4)(X, [[0, 1], [1, 2]]), r"holds list;.*torch.tensor\(edge_index\)"),
        (lambda: ws.Graph.disjoint_union([GRAPH, GRAPH.with_weight(torch.ones(GRAPH.num_edges))]), "weighted and un"),
    ],
)
def test_bad_input_says_what_to_do(call, message):
    """Wrong input: a `ValueError` with argument, value and remedy before torch's "mat1 and mat2"."""
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("design", "learned"), KINDS)
def test_samples_on_one_graph(design, learned):
    """`x [B, N, F]`: B samples on one graph, solved together; equal to one after the other."""
    conv, samples = ws.GLTConv(6, 4, 2, design=design, learned=learned), torch.stack([X, -X, 2 * X])
    for where in (EDGES, GRAPH):
        apart = torch.stack([conv(x, where) for x in samples])
        torch.testing.assert_close(conv(samples, where), apart, rtol=1e-4, atol=1e-5)
        assert conv(samples[:0], where).shape == (0, *apart.shape[1:])
    assert ws.GLTConv(-1, 4)(samples, EDGES).shape == (3, 12, 4)
    assert ws.PropagateBank()(samples, EDGES).shape == samples.shape
    mix = ws.Propagate()
    torch.testing.assert_close(mix(samples, EDGES), torch.stack([mix(x, EDGES) for x in samples]))


def test_activation_norm_and_jumping_knowledge(tmp_path):
    """`act`, `norm`, `jk`: by PyG's names, but `norm` is "layer" or "batch"; `act=None` is linear; all are saved."""
    linear = ws.GLTConv(6, 4, learned=False, act=None, bias=False)
    torch.testing.assert_close(linear(-2 * X, EDGES), -2 * linear(X, EDGES))
    for act, norm, jk in (("elu", "batch", "cat"), ("ReLU", None, "max"), ("leaky_relu", "layer", "lstm")):
        model = ws.GLT(6, 16, 2, 3, act=act, norm=norm, jk=jk).eval()
        model.reset_parameters()
        model.save(tmp_path)
        torch.testing.assert_close(ws.load(tmp_path)(X, EDGES), model(X, EDGES))
        assert model.train()(X, EDGES).shape == (12, 3)


def test_any_number_of_heads():
    """Hidden sizes that the heads do not divide: a head gets the size rounded up."""
    model = ws.GLT(8, 60, 2, 3)
    assert model(torch.randn(12, 8), EDGES).shape == (12, 3)
    assert model.blocks[0].mix.out_channels == 8


def test_attention_weights():
    """`return_attention_weights`: `(edge_index, alpha [M, H])`, the partial correlations that J states."""
    loops = torch.cat([EDGES, torch.tensor([[3], [3]])], 1)
    out, (edge_index, alpha) = ws.GLTConv(6, 4, 2)(X, loops, return_attention_weights=True)
    assert out.shape == (12, 8)
    assert edge_index is loops
    assert alpha.shape == (31, 2)
    assert not alpha[-1].any()
    conv = ws.GLTConv(6, 4, 2)
    _, J = conv(X, loops, return_precision=True)
    _, (_, alpha) = conv(X, loops, return_attention_weights=True)
    dense = -J.normalised().to_dense()
    i, j = EDGES[:, EDGES[0] != EDGES[1]]
    torch.testing.assert_close(alpha[:-1][EDGES[0] != EDGES[1]], dense[:, i, j].t())


def test_graph_in_data():
    """A `walksum.Graph` in `Data`: a batch holds the list, which layers and models take; `data.to(device)` moves it."""
    other = ws.Graph.from_edge_index(EDGES[:, :10], 12)
    batch = Batch.from_data_list([Data(x=X, graph=GRAPH), Data(x=-X, graph=other)]).to("cpu")
    model = ws.GLT(6, 16, 2, 3).eval()
    apart = torch.cat([model(X, GRAPH), model(-X, other)])
    torch.testing.assert_close(model(batch.x, batch.graph), apart, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ws.Propagate()(batch.x, batch.graph)[:12], ws.Propagate()(X, GRAPH))
    assert GRAPH.to("meta", non_blocking=True).device.type == "meta"


def test_directed_edges():
    """Directed edges: counted in both directions, as J is symmetric; two given weights are averaged (no warning)."""
    conv = ws.GLTConv(6, 4)
    torch.testing.assert_close(conv(X, EDGES), conv(X, torch.cat([EDGES, EDGES.flip(0)], 1)))


def test_sequential():
    """`torch_geometric.nn.Sequential`: with weights and edge features in their places."""
    net = Sequential(
        "x, e, a", [(ws.GLTConv(6, 8, edge_dim=3), "x, e, a -> x"), torch.nn.ReLU(), torch.nn.Linear(8, 2)]
    )
    assert net(X, EDGES, ATTR).shape == (12, 2)


class GLTNet(BasicGNN):
    supports_edge_weight, supports_edge_attr, supports_norm_batch = True, True, False

    def init_conv(self, in_channels, out_channels, **kwargs):
        return ws.GLTConv(in_channels, out_channels, **kwargs)


def test_basic_gnn():
    """`torch_geometric.nn.models.BasicGNN`: act, norm, jk, edge weights and features of PyG's own frame."""
    net = GLTNet(6, 16, 2, 3, norm="batch_norm", jk="cat", edge_dim=3)
    assert net(X, EDGES, edge_attr=ATTR).shape == (12, 3)


def test_repr_says_scale_and_reach():
    """`repr`: design with scale and reach."""
    assert "scale=0.7, reach=1.12" in repr(ws.GLTConv(6, 4, learned=False))
    assert "scale=0.99" in repr(ws.GLT(6, 16, 1, 2))  # the paper's
    assert "GLTConv((5, 6), 4, heads=2" in repr(ws.GLTConv((5, 6), 4, 2))


def test_nothing_of_the_size_of_the_nodes_is_kept():
    """`last_solve`: status, steps and residual; tensors of the size of the nodes only with `keep_values=True`."""
    for layer in (ws.GLTConv(6, 4), ws.Propagate()):
        x = X.clone().requires_grad_()
        out = layer(x, EDGES)
        gone = weakref.ref(out.untyped_storage())
        out.sum().backward()
        assert layer.last_solve.converged
        assert layer.last_backward_solve.converged
        assert layer.last_solve.value.numel() == layer.last_backward_solve.value.numel() == 0
        del out
        gc.collect()
        assert gone() is None
    conv = ws.GLTConv(6, 4, keep_values=True)
    out = conv(X, EDGES)
    assert torch.equal(conv.last_solve.value[0], out)


@pytest.mark.data
def test_two_fixed_layers_with_defaults_train_on_cora():
    """Two `GLTConv(learned=False)` with defaults: above 75 % of Cora's validation nodes in 40 epochs."""
    from walksum.data import load, make_split

    data = load("cora")
    split = make_split(data, "public", 0)
    first, last = ws.GLTConv(1433, 16, learned=False), ws.GLTConv(16, 7, learned=False)
    optimiser = torch.optim.Adam([*first.parameters(), *last.parameters()], 0.01, weight_decay=5e-4)

    def forward():
        return last(first(data.x, data.edge_index).relu(), data.edge_index)

    for _ in range(40):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(forward()[split.train], data.y[split.train]).backward()
        optimiser.step()
    assert float((forward().argmax(1) == data.y)[split.val].float().mean()) > 0.75
