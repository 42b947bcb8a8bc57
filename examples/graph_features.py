"""Any scikit-learn estimator with a graph: GraphFeatures in a pipeline.

    python examples/graph_features.py

The features of each node are joined by what its surroundings know: propagated columns, degrees, and the labels of the
training nodes around it (never its own).
"""

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from torch_geometric.utils import stochastic_blockmodel_graph

import walksum as ws

rng = np.random.default_rng(0)
torch.manual_seed(0)
n, classes = 200, 3
y = np.repeat(np.arange(classes), n)
edge_index = stochastic_blockmodel_graph([n] * classes, 0.002 + 0.018 * torch.eye(classes))
X = rng.normal(size=(len(y), 10)) + 0.4 * np.eye(classes, 10)[y]
order = rng.permutation(len(y))
train, test = order[:60], order[60:]

forest = RandomForestClassifier(300, random_state=0)
print(f"columns alone: {forest.fit(X[train], y[train]).score(X[test], y[test]):.1%} of 540 nodes")
with_graph = make_pipeline(ws.GraphFeatures(edge_index, X), RandomForestClassifier(300, random_state=0))
with_graph.fit(train, y[train])  # rows are node numbers: the table and the graph are known
print(f"with the graph: {with_graph.score(test, y[test]):.1%}")
