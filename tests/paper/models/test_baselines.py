"""What every baseline promises: the shape of its interface, and how it treats the graph."""

import copy
import inspect
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, stack_module_state, vmap
from toy_graph import randomise

from walksum.paper.models.structure import PerGraph
from walksum.training.models import MODELS, model_by_name

BASELINES = {name: entry for name, entry in MODELS.items() if name != "glt"}
every = pytest.mark.parametrize("name", BASELINES)


def make(name, toy, **options):
    return model_by_name(name).make(toy.x.size(1), 3, num_nodes=toy.num_nodes, **options)


def test_the_registry_names_the_rows_of_the_tables():
    assert list(BASELINES) == [
        *("gcn", "gat", "sage", "sat", "graphormer", "gde", "cgnn", "cgnn-weights"),
        *("mlp", "appnp", "gcnii", "gprgnn", "h2gcn", "acm-gcn"),
    ]
    assert {name for name, baseline in BASELINES.items() if baseline.lr != 1e-2} == {"sat"}
    assert BASELINES["sat"].lr == 1e-3


@every
def test_defaults_are_the_papers(name):
    defaults = inspect.signature(BASELINES[name].model).parameters
    assert defaults["hidden_channels"].default == 64
    assert defaults["dropout"].default == 0.6


def test_unknown_name_lists_the_known(toy):
    with pytest.raises(ValueError, match="model='GCN'; known: 'glt', 'gcn', "):
        make("GCN", toy)


@every
def test_renumbering_nodes_renumbers_the_output(name, toy):
    model = randomise(make(name, toy))
    order = torch.randperm(toy.num_nodes)
    place = order.argsort()
    out = model(toy.x, toy.edge_index)
    if BASELINES[name].per_node:
        model.rate.data = model.rate.data[order]
    assert torch.allclose(model(toy.x[order], place[toy.edge_index]), out[order], atol=1e-10)
    assert out.std() > 1e-3


@every
def test_self_loops_and_edge_order_in_the_input_change_nothing(name, toy):
    model = randomise(make(name, toy))
    out = model(toy.x, toy.edge_index)
    loops = torch.arange(toy.num_nodes).expand(2, -1)
    looped = torch.cat([loops, toy.edge_index.flip(1)], dim=1)
    assert torch.allclose(model(toy.x, looped), out, atol=1e-10)


@every
def test_only_the_mlp_ignores_edges(name, toy):
    model = randomise(make(name, toy))
    fewer = toy.edge_index[:, (toy.edge_index != 4).all(0)]
    same = torch.allclose(model(toy.x, toy.edge_index), model(toy.x, fewer))
    assert same == (name == "mlp")


@every
def test_structure_is_derived_once_a_graph(name, toy, monkeypatch):
    model = make(name, toy).eval()
    memories = [value for value in vars(model).values() if isinstance(value, PerGraph)]
    calls = []
    for memory in memories:
        derive = memory.derive
        memory.derive = lambda *args, derive=derive: calls.append(1) or derive(*args)
    for _ in range(3):
        model(toy.x, toy.edge_index)
    assert len(calls) == len(memories) == (0 if name == "mlp" else 1)
    assert isinstance(model(toy.x, toy.edge_index.clone()), torch.Tensor)
    assert len(calls) == 2 * len(memories)


def test_a_compiled_model_does_not_trace_what_it_derives(toy):
    model = make("h2gcn", toy).eval()  # which scipy derives; dynamo would warn of it
    compiled = torch.compile(model, backend="eager")
    assert torch.allclose(compiled(toy.x, toy.edge_index.clone()), model(toy.x, toy.edge_index))


@every
def test_a_forward_in_inference_mode_does_not_spoil_training(name, toy):
    model = make(name, toy)
    with torch.inference_mode():
        model(toy.x, toy.edge_index)
    model(toy.x, toy.edge_index).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@every
def test_every_parameter_gets_a_gradient_and_dropout_acts_in_training_only(name, toy):
    model = make(name, toy)
    torch.manual_seed(0)
    a, b = model(toy.x, toy.edge_index), model(toy.x, toy.edge_index)
    assert not torch.equal(a, b)
    F.cross_entropy(a, toy.y).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    model.eval()
    assert torch.equal(model(toy.x, toy.edge_index), model(toy.x, toy.edge_index))


@every
def test_reset_makes_a_trained_model_new(name, toy):
    torch.manual_seed(5)
    fresh = make(name, toy)
    fresh.reset_parameters()
    torch.manual_seed(5)
    used = copy.deepcopy(fresh)
    randomise(used)
    torch.manual_seed(6)
    fresh.reset_parameters()
    torch.manual_seed(6)
    used.reset_parameters()
    for (key, a), b in zip(fresh.named_parameters(), used.parameters(), strict=True):
        assert torch.equal(a, b), key


@every
def test_a_used_model_can_be_copied_and_pickled(name, toy):
    model = randomise(make(name, toy))
    out = model(toy.x, toy.edge_index)
    assert torch.equal(copy.deepcopy(model)(toy.x, toy.edge_index), out)
    restored = make(name, toy).eval()
    restored.load_state_dict(pickle.loads(pickle.dumps(model.state_dict())))
    assert torch.equal(restored(toy.x, toy.edge_index), out)


# torch has no batching rule for its fused CPU attention and says that it loops over the batch instead.
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@every
def test_seeds_train_as_one_batch(name, toy):
    models = [make(name, toy) for _ in range(3)]
    for model in models:
        model.eval()
    params, buffers = stack_module_state(models)

    def loss(params, buffers):
        out = functional_call(models[0], (params, buffers), (toy.x, toy.edge_index))
        return F.cross_entropy(out, toy.y)

    # First use of the graph is inside the transforms, where derived structure must not be caught.
    batched = vmap(grad(loss))(params, buffers)
    for index, model in enumerate(models):
        F.cross_entropy(model(toy.x, toy.edge_index), toy.y).backward()
        for key, parameter in model.named_parameters():
            assert torch.allclose(batched[key][index], parameter.grad, atol=1e-12), key
    models[0].train()
    noisy = vmap(grad(loss), randomness="different")(params, buffers)
    assert all(value.isfinite().all() for value in noisy.values())


@pytest.mark.parametrize("name", ["gat", "sat", "graphormer"])
def test_width_must_divide_into_heads(name, toy):
    with pytest.raises(ValueError, match="hidden_channels=60 is not a multiple of"):
        make(name, toy, hidden_channels=60)
