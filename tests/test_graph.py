import copy
import gc
import weakref

import networkx
import pytest
import scipy.sparse as sp
import torch
from torch_geometric import EdgeIndex

import walksum as ws
from gallery import GALLERY, path
from walksum.estimators.inputs import as_graph_of
from walksum.graph import as_graph

EDGES = torch.tensor([[0, 1, 2, 2, 3, 3], [1, 0, 1, 3, 3, 2]])  # both ways, one way, a loop
CANONICAL = [[0, 1, 2], [1, 2, 3]]


def test_directed_loops_and_duplicates_become_one_undirected_edge_each():
    graph = ws.Graph.from_edge_index(torch.cat([EDGES, EDGES[:, :3]], 1))
    assert graph.edges.tolist() == CANONICAL
    assert (graph.num_nodes, graph.num_edges, graph.edge_weight) == (4, 3, None)


def _adjacency(values=None):
    values = torch.ones(EDGES.size(1)) if values is None else values
    return torch.sparse_coo_tensor(EDGES, values, (4, 4))


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    "container",
    [
        lambda: EDGES,
        lambda: EDGES.int(),
        lambda: EdgeIndex(EDGES, sparse_size=(4, 4)),
        lambda: _adjacency(),
        lambda: _adjacency().coalesce().to_sparse_csr(),
        lambda: _adjacency().coalesce().to_sparse_csc(),
        lambda: ws.Graph.from_edge_index(EDGES),
    ],
    ids=["tensor", "int32", "EdgeIndex", "coo", "csr", "csc", "Graph"],
)
def test_every_container_gives_the_same_graph(container):
    graph = ws.Graph.from_edge_index(container())
    assert graph.edges.tolist() == CANONICAL
    assert graph.num_nodes == 4


def test_sparse_tensor_gives_the_same_graph():
    torch_sparse = pytest.importorskip("torch_sparse", reason="torch_sparse is optional")
    adjacency = torch_sparse.SparseTensor.from_edge_index(EDGES, sparse_sizes=(4, 4))
    assert ws.Graph.from_edge_index(adjacency).edges.tolist() == CANONICAL


def test_weights_of_both_directions_are_averaged():
    weight = torch.tensor([1.0, 3.0, 5.0, 7.0, 100.0, 9.0])
    graph = ws.Graph.from_edge_index(EDGES, edge_weight=weight)
    assert graph.edge_weight.tolist() == [2.0, 5.0, 8.0]


@pytest.mark.filterwarnings("ignore:Sparse")
def test_values_of_a_sparse_matrix_are_weights():
    graph = ws.Graph.from_edge_index(_adjacency(torch.tensor([1.0, 3.0, 5.0, 7.0, 100.0, 9.0])))
    assert graph.edge_weight.tolist() == [2.0, 5.0, 8.0]


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool, torch.float32])
def test_an_adjacency_means_the_same_in_every_format(dtype):
    dense = torch.tensor([[0, 200, 0], [200, 0, 1], [0, 1, 0]]).to(dtype)
    array = dense.numpy()
    named = networkx.from_numpy_array(array) if dtype != torch.bool else networkx.Graph([(0, 1), (1, 2)])
    coo = dense.to_sparse()
    twice = torch.sparse_coo_tensor(coo.indices().repeat(1, 2), coo.values().repeat(2), (3, 3))
    graphs = [ws.Graph.from_edge_index(source) for source in (coo, dense.to_sparse_csr(), StandIn(coo), named)]
    graphs += [as_graph_of(source, 3) for source in (array, sp.coo_array(array), coo)]
    for graph in graphs:
        assert graph.edges.tolist() == [[0, 1], [1, 2]]
        weight = torch.ones(2) if graph.edge_weight is None else graph.edge_weight
        assert weight.tolist() == dense[[0, 1], [1, 2]].tolist()
    if dtype != torch.bool:  # duplicates are summed in this format; 400 is more than a byte holds
        assert ws.Graph.from_edge_index(twice).edge_weight.tolist() == [400, 2]


class StandIn:
    """A torch_sparse.SparseTensor, which is optional."""

    def __init__(self, coo):
        self.matrix = coo

    def coo(self):
        return *self.matrix.indices(), self.matrix.values()

    def sparse_sizes(self):
        return tuple(self.matrix.shape)


def test_weights_carry_gradients():
    weight = torch.ones(EDGES.size(1), requires_grad=True)
    ws.Graph.from_edge_index(EDGES, edge_weight=weight).edge_weight.sum().backward()
    assert weight.grad.tolist() == [0.5, 0.5, 1.0, 0.5, 0.0, 0.5]


@pytest.mark.parametrize("name", GALLERY)
def test_csr_lists_every_directed_edge_once(name):
    graph = GALLERY[name]
    csr = graph.csr
    assert csr.indptr.tolist() == [0, *torch.cumsum(graph.degree, 0).tolist()]
    pairs = torch.stack([csr.row, csr.indices]).long()
    both = torch.cat([graph.edges, graph.edges.flip(0)], 1)
    assert sorted(pairs.t().tolist()) == sorted(both.t().tolist())
    assert torch.equal(pairs, pairs[:, torch.argsort(pairs[0] * 1000 + pairs[1])])
    assert torch.equal(pairs[:, csr.reverse.long()], pairs.flip(0))
    assert torch.equal(graph.edges[:, csr.edge.long()].sort(0).values, pairs.sort(0).values)


def test_structure_is_derived_once_and_moves_along():
    graph = path(5)
    assert graph.csr is graph.csr
    moved = graph.to("meta")
    assert moved.csr.row.device.type == "meta"
    assert graph.to("meta") is moved
    assert graph.to("cpu") is graph
    assert moved.to("cpu") is graph


def test_a_graph_nobody_needs_is_gone_at_once():
    graph = path(5)
    assert graph.csr is not None
    assert graph.to("meta").csr is not None
    alive = weakref.ref(graph)
    gc.disable()  # no cycle that only the collector could break: GPU memory does not wake it
    try:
        del graph
        assert alive() is None
    finally:
        gc.enable()


def test_a_model_call_reuses_the_graph_of_the_same_tensor_only():
    edge_index = EDGES.clone()
    graph = as_graph(edge_index, 4)
    assert as_graph(edge_index, 4) is graph
    assert as_graph(edge_index, 5) is not graph
    assert as_graph(edge_index.clone(), 4) is not graph
    edge_index[1, 0] = 3
    assert as_graph(edge_index, 4).edges.tolist() != graph.edges.tolist()


def test_empty_graphs():
    assert ws.Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long)).num_nodes == 0
    assert ws.Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long), 3).csr.indptr.tolist() == [0, 0, 0, 0]
    assert ws.Graph.from_edge_index(torch.tensor([[0], [0]])).num_edges == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((EDGES, 3), r"contains node 3, but num_nodes=3; pass num_nodes=4"),
        ((EDGES - 1,), r"negative index -1"),
        ((EDGES.float(),), r"dtype torch.float32; indices must be integers"),
        ((EDGES.t(),), r"shape \(6, 2\); expected \[2, M\].*edge_index.t\(\)"),
        (([[0], [1]],), r"edge_index is a list"),
        ((EDGES, -1), r"num_nodes=-1"),
        ((EDGES, 2.5), r"num_nodes=2.5"),
        ((EDGES + 2**62,), r"num_nodes=4611686018427387908; .*at most 3037000499 nodes: number those there are from 0"),
        ((EDGES + 2**62, None, torch.ones(6)), r"at most 3037000499 nodes"),
        ((EDGES, 2**40), r"num_nodes=1099511627776; a graph has at most"),
        ((EDGES, None, torch.ones(3)), r"edge_weight has shape \(3,\) for 6 edges"),
        ((EDGES, None, torch.ones(6).long()), r"expected a floating-point tensor"),
        ((EDGES, None, torch.tensor([1.0, 2, 3, float("nan"), 5, 6])), r"edge_weight\[3\] is nan"),
        ((EDGES, None, torch.tensor([1.0, 2, 3, 4, float("inf"), 6])), r"edge_weight\[4\] is inf"),
        ((EDGES, None, torch.ones(6, device="meta")), r"edge_weight is on meta but edge_index on cpu"),
        ((torch.ones(2, 3).to_sparse(),), r"shape \(2, 3\); a graph needs a square one"),
        ((2 * torch.eye(3).to_sparse(), None, torch.ones(3)), r"give the weights once"),
        ((EDGES, None, [1.0] * 6), r"edge_weight has type list"),
        ((torch.eye(3).to_sparse() * 1j,), r"edge_index holds values of dtype torch.complex64"),
        ((EDGES, float("nan")), r"num_nodes=nan"),
        ((path(3), 4), r"num_nodes=4 was given beside Graph"),
        ((path(3), None, torch.ones(2)), r"edge_weight was given beside a Graph"),
    ],
)
def test_bad_input_says_what_to_do(arguments, message):
    with pytest.raises(ValueError, match=message):
        ws.Graph.from_edge_index(*arguments)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
@pytest.mark.parametrize(
    ("starts", "columns", "message"),
    [
        ([0, 2, 1, 2], [1, 0], r"damaged sparse matrix: its crow_indices do not ascend from 0 to 2"),
        ([0, 1, 2, 9], [1, 0], r"damaged sparse matrix: its crow_indices do not ascend from 0 to 2"),
        ([0, 1, 2, 2], [1, 4], r"contains node 4, but num_nodes=3"),
    ],
)
def test_a_damaged_sparse_matrix_is_refused(starts, columns, message):
    matrix = torch.sparse_csr_tensor(starts, columns, torch.ones(2), (3, 3), check_invariants=False)
    with pytest.raises(ValueError, match=message):
        ws.Graph.from_edge_index(matrix)


@pytest.mark.parametrize("edges", [[[1], [0]], [[0], [0]], [[1, 0], [2, 1]], [[0, 0], [1, 1]], [[0], [3]], [[-1], [0]]])
def test_the_constructor_takes_canonical_edges_only(edges):
    with pytest.raises(ValueError, match=r"use Graph.from_edge_index"):
        ws.Graph(torch.tensor(edges), 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, torch.ones(1)), r"edge_weight has shape \(1,\) for 2 edges"),
        ((3, torch.ones(0)), r"edge_weight has shape \(0,\) for 2 edges"),
        ((3, [1.0, 1.0]), r"edge_weight has type list"),
        ((2.5,), r"num_nodes=2.5"),
        ((None,), r"num_nodes=None"),
    ],
)
def test_the_constructor_checks_the_rest(arguments, message):
    with pytest.raises(ValueError, match=message):
        ws.Graph(torch.tensor([[0, 1], [1, 2]]), *arguments)


def test_repr_is_short():
    assert repr(path(3)) == "Graph(num_nodes=3, num_edges=2)"


def test_a_graph_can_be_copied():
    graph = path(3)
    assert graph.csr is not None
    assert copy.deepcopy(graph).edges.tolist() == graph.edges.tolist()


def changed_through_numpy(edges):
    edges.numpy()[1, 0] = 3


def changed_through_data(edges):
    edges.data[1, 0] = 3


def changed_in_place(edges):
    edges[1, 0] = 3


@pytest.mark.parametrize("change", [changed_through_numpy, changed_through_data, changed_in_place])
@pytest.mark.parametrize("inference", [False, True])
def test_every_change_of_an_edge_index_is_noticed(change, inference):
    with torch.inference_mode(inference):
        edge_index = EDGES.clone()
        as_graph(edge_index, 4)
        change(edge_index)
        assert torch.equal(as_graph(edge_index, 4).edges, ws.Graph.from_edge_index(edge_index.clone(), 4).edges)


@pytest.mark.parametrize("inference", [False, True])
def test_every_change_of_edge_weights_is_noticed(inference):
    with torch.inference_mode(inference):
        edge_index, weight = EDGES.clone(), torch.ones(6)
        first = as_graph(edge_index, 4, weight)
        assert as_graph(edge_index, 4, weight) is first
        weight.numpy()[:] = 2
        assert as_graph(edge_index, 4, weight).edge_weight.unique().tolist() == [2]
        assert as_graph(edge_index, 4).edge_weight is None


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_a_changed_sparse_matrix_is_noticed(layout):
    matrix = torch.tensor([[0.0, 2, 0], [2, 0, 3], [0, 3, 0]]).to_sparse(layout=layout)
    values = matrix._values() if layout == torch.sparse_coo else matrix.values()
    assert as_graph(matrix).edge_weight.tolist() == [2, 3]
    values.numpy()[:] = 5
    assert as_graph(matrix).edge_weight.tolist() == [5, 5]


def test_the_structure_is_shared_by_all_weights():
    edge_index = EDGES.clone()
    unweighted, csr = as_graph(edge_index, 4), as_graph(edge_index, 4).csr
    learned = torch.rand(6, requires_grad=True)
    for weight in (torch.rand(6), learned, learned * 2):
        graph = as_graph(edge_index, 4, weight)
        assert graph.structure is unweighted
        assert graph.csr is csr
        expected = ws.Graph.from_edge_index(edge_index.clone(), 4, weight)
        assert torch.equal(graph.edge_weight, expected.edge_weight)
    assert as_graph(edge_index, 4, learned).edge_weight.requires_grad
    assert unweighted.with_weight(torch.ones(unweighted.num_edges)).structure is unweighted
    with pytest.raises(ValueError, match=r"edge_weight has shape \(9,\)"):
        unweighted.with_weight(torch.ones(9))


def test_structure_on_another_device_is_shared_too():
    graph = path(4).with_weight(torch.ones(3, requires_grad=True))
    assert graph.to("meta").structure is graph.structure.to("meta")
    constant = path(4).with_weight(torch.ones(3))
    assert constant.to("meta") is constant.to("meta")
    assert constant.to("meta").edge_weight.is_meta


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_means_of_huge_weights_do_not_overflow(dtype):
    largest = torch.finfo(dtype).max
    entries = torch.tensor([[0, 1, 0, 2], [1, 0, 1, 1]])
    weight = torch.tensor([largest, largest, largest, 0.3], dtype=dtype)
    assert ws.Graph.from_edge_index(entries, 3, weight).edge_weight.tolist() == [largest, weight[3]]
    tiny = torch.full((4,), torch.finfo(dtype).tiny / 8, dtype=dtype)
    assert ws.Graph.from_edge_index(entries, 3, tiny).edge_weight.unique().tolist() == [tiny[0]]


def test_a_graph_as_a_scipy_matrix():
    graph = ws.Graph.from_edge_index(EDGES, 5)
    dense = torch.zeros(5, 5, dtype=torch.double)
    i, j = graph.edges
    dense[i, j] = dense[j, i] = 1
    assert torch.equal(torch.from_numpy(graph.to_scipy().toarray()), dense)
    values = torch.rand(graph.num_edges)
    weighted = torch.zeros(5, 5)
    weighted[i, j] = weighted[j, i] = values
    assert torch.equal(torch.from_numpy(graph.with_weight(values).to_scipy().toarray()), weighted)
    assert torch.equal(torch.from_numpy(graph.to_scipy(values).toarray()), weighted)


def test_components_and_hops():
    graph = ws.Graph.from_edge_index(torch.tensor([[0, 1, 2, 5], [1, 2, 3, 6]]), 8)
    assert graph.components().tolist() == [0, 0, 0, 0, 1, 2, 2, 3]
    assert graph.hop_distances([0, 6]).tolist() == [[0, 1, 2, 3, -1, -1, -1, -1], [-1, -1, -1, -1, -1, 1, 0, -1]]
    assert graph.hop_distances(torch.tensor([0]), limit=2).tolist() == [[0, 1, 2, -1, -1, -1, -1, -1]]
    assert graph.hop_distances([]).shape == (0, 8)
    heavy = graph.with_weight(torch.full((4,), 9.0))
    assert torch.equal(heavy.hop_distances([0]), graph.hop_distances([0]))
    with pytest.raises(ValueError, match=r"nodes=\[8\]; expected nodes of"):
        graph.hop_distances([8])
    assert ws.Graph.from_edge_index(torch.empty(2, 0, dtype=torch.long)).components().tolist() == []


@pytest.mark.parametrize(
    "make", [lambda s, g: ws.FixedLaplacian(s)(g), lambda s, g: ws.Propagate(s).precision(g, torch.float32)]
)
def test_a_graph_keeps_the_matrices_of_a_few_scales(make):
    graph = path(5)
    scales = torch.linspace(0.1, 0.9, 40).tolist()
    made = [weakref.ref(make(scale, graph)) for scale in scales]
    gc.collect()
    assert [ref() is not None for ref in made] == [False] * 24 + [True] * 16
    assert make(scales[-1], graph) is made[-1]()
