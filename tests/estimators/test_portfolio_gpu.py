"""The portfolio on a GPU: dense inverses in place of solves, and the same answers as on a CPU."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from walksum.estimators import AutoClassifier
from walksum.graph import Graph
from walksum.portfolio.spread import Operator, layer, neighbours, spread

pytestmark = pytest.mark.gpu


def communities(nodes=600, classes=3):
    random = np.random.default_rng(0)
    y = np.arange(nodes) % classes
    source = random.integers(0, nodes, 6 * nodes)
    target = (source + classes * random.integers(1, nodes // classes, 6 * nodes)) % nodes
    words = sp.random(nodes, 300, 0.05, random_state=0, format="lil")
    words[np.arange(nodes), 5 * y] = 1.0
    return words.tocsr(), y, np.stack([source, target])


@pytest.mark.parametrize("operator", [Operator(0.9, loops=True), Operator(-0.9)])
def test_operators_agree_with_the_cpu(operator):
    graph = Graph.from_edge_index(torch.from_numpy(communities()[2]), 600)
    z = torch.randn(600, 7)
    there = graph.to("cuda")
    assert torch.allclose(spread(operator, z.cuda(), there).cpu(), layer(operator)(z, graph), atol=1e-5)
    assert torch.allclose(neighbours(z.cuda(), there).cpu(), neighbours(z, graph), atol=1e-5)


def test_classifier_learns_there():
    X, y, pairs = communities()
    shown = np.where(np.arange(len(y)) % 4 == 0, y, -1)
    rows = np.nonzero(shown >= 0)[0]
    options = {"members": ("smooth raw", "bank raw", "mlp raw"), "device": "cuda", "random_state": 0, "refit": True}
    model = AutoClassifier(**options).fit(X, shown, pairs, validation=rows[::2])
    assert (model.transduction_ == y)[shown < 0].mean() > 0.9
    again = AutoClassifier(**options).fit(X, shown, pairs, validation=rows[::2])
    assert np.allclose(model.label_distributions_, again.label_distributions_, atol=1e-3)
