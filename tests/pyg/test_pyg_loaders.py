import pytest
import torch
from torch_geometric import typing
from torch_geometric.data import Data
from torch_geometric.loader import (
    ClusterData,
    ClusterLoader,
    DataLoader,
    LinkNeighborLoader,
    NeighborLoader,
    RandomNodeLoader,
    ShaDowKHopSampler,
)
from torch_geometric.nn import global_mean_pool

import walksum as ws

sampler = pytest.mark.skipif(
    not (typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE), reason="needs pyg-lib or torch-sparse"
)
sparse = pytest.mark.skipif(not typing.WITH_TORCH_SPARSE, reason="needs torch-sparse")
pytestmark = pytest.mark.filterwarnings("ignore:Using '.*' without a 'pyg-lib'")  # PyG's notice, torch-sparse does


def whole():
    torch.manual_seed(5)
    edges = torch.randint(40, (2, 100))
    return Data(x=torch.randn(40, 6), edge_index=torch.cat([edges, edges.flip(0)], 1), y=torch.randint(3, (40,)))


def step(batch):
    """A training step on one batch; every node of it gets a finite output."""
    model = ws.GLT(6, 16, 2, 3)
    out = model(batch.x, batch.edge_index)
    torch.nn.functional.cross_entropy(out, batch.y).backward()
    assert out.shape == (batch.num_nodes, 3)
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters())


def test_dataloader_of_small_graphs():
    """`DataLoader` of small graphs: a batch equals its graphs one by one; pooled for graph-level tasks."""
    graphs = [Data(x=torch.randn(n, 6), edge_index=torch.randint(n, (2, 2 * n))) for n in (3, 5, 8, 4)]
    model = ws.GLT(6, 16, 2, 3).eval()
    for k, batch in enumerate(DataLoader(graphs, batch_size=2)):
        pooled = global_mean_pool(model(batch.x, batch.edge_index), batch.batch)
        apart = [model(graph.x, graph.edge_index).mean(0) for graph in graphs[2 * k : 2 * k + 2]]
        torch.testing.assert_close(pooled, torch.stack(apart), rtol=1e-4, atol=1e-5)


def test_dataloader_of_walksum_graphs():
    """`DataLoader` of `Data` that hold a `walksum.Graph`: the batch's list is their disjoint union."""
    graphs = [
        Data(x=torch.randn(n, 6), graph=ws.Graph.from_edge_index(torch.randint(n, (2, 2 * n)), n)) for n in (3, 5, 8, 4)
    ]
    model = ws.GLT(6, 16, 2, 3).eval()
    (batch,) = DataLoader(graphs, batch_size=4)
    apart = torch.cat([model(data.x, data.graph) for data in graphs])
    torch.testing.assert_close(model(batch.x, batch.graph), apart, rtol=1e-4, atol=1e-5)


def test_random_node_loader():
    """`RandomNodeLoader`: induced subgraphs; couplings between parts are missing, which shortens the reach."""
    for batch in RandomNodeLoader(whole(), num_parts=3):
        step(batch)


@sampler
def test_neighbor_loader():
    """`NeighborLoader`: sampled trees, mixed as undirected graphs; read the rows of the seeds."""
    for batch in NeighborLoader(whole(), [4, 4], batch_size=10):
        step(batch)


@sampler
def test_link_neighbor_loader():
    """`LinkNeighborLoader`: as NeighborLoader, around the ends of links."""
    for batch in LinkNeighborLoader(whole(), [4, 4], batch_size=50, neg_sampling_ratio=1.0):
        step(batch)


class Clusters(ClusterData):
    """ClusterData whose METIS is that of pymetis, where PyG finds none of its own."""

    def _metis(self, edge_index, num_nodes):
        try:
            return super()._metis(edge_index, num_nodes)
        except ImportError:  # no pyg-lib, and no torch-sparse or one that was built without METIS
            pymetis = pytest.importorskip("pymetis")
        near = [edge_index[1][edge_index[0] == node].unique().tolist() for node in range(num_nodes)]
        return torch.tensor(pymetis.part_graph(self.num_parts, adjacency=near)[1])


def test_cluster_loader():
    """`ClusterLoader`: METIS parts, by PyG's METIS or that of pymetis; few couplings are cut."""
    ring = torch.arange(40)
    data = Data(x=torch.randn(40, 6), edge_index=torch.stack([ring, (ring + 1) % 40]), y=torch.randint(3, (40,)))
    data.edge_index = torch.cat([data.edge_index, data.edge_index.flip(0)], 1)
    parts = Clusters(data, 4, log=False)
    assert sum(part.num_edges for part in parts) >= 80 - 4 * 4  # of a ring, few couplings are cut
    seen = 0
    for batch in ClusterLoader(parts, batch_size=2):
        step(batch)
        seen += batch.num_nodes
    assert seen == 40


@sparse
def test_shadow_sampler():
    """`ShaDowKHopSampler`: one small graph per seed, in a batch."""
    for batch in ShaDowKHopSampler(whole(), depth=2, num_neighbors=4, batch_size=10):
        assert ws.GLT(6, 16, 2, 3)(batch.x, batch.edge_index).shape[0] == batch.num_nodes
