"""Explain one node's prediction: by one layer's operator, by walks, and by the whole model.

    python examples/explain_node.py

A layer mixes by mu = J^-1 h, so a row of J^-1 says exactly how much each node adds to one node's mean. The derivative
of the whole model says what its layers, norms and residual connections make of that together.
"""

import torch

import walksum as ws
from walksum.analysis.influence import Walks, influence
from walksum.data import load, make_split

torch.manual_seed(0)
data = load("digits")
split = make_split(data, "balanced", counts=(10, 200, 1497))
graph = ws.Graph.from_edge_index(data.edge_index, data.num_nodes)
model = ws.PredictThenPropagate(data.num_features, 64, 10, bank=(0.0, 0.9))  # its own answer, and that carried by J^-1
optimiser = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
for _ in range(100):
    optimiser.zero_grad()
    torch.nn.functional.cross_entropy(model(data.x, graph)[split.train], data.y[split.train]).backward()
    optimiser.step()
model.eval()

score = model(data.x, graph).log_softmax(1).detach()
sure = torch.where(score.argmax(1) == data.y, -torch.inf, score.max(1).values)
node = int(split.test[sure[split.test].argmax()])  # the surest of the wrong ones
print(f"node {node} is a {int(data.y[node])}; the model says {int(score[node].argmax())}, ", end="")
print(f"with probability {float(score[node].max().exp()):.2f}")

# the operator of that bank: a row of J^-1
J = ws.FixedLaplacian(scale=0.9)(graph, torch.empty(0, dtype=torch.double))
row = influence(J, node)
print("\nwho speaks into it, by J^-1:")
for j in row.ranked(5).tolist():
    print(f"  node {j} (a {int(data.y[j])}), {row.hops[j]} hops: {100 * row.share[j]:.1f} %")
for path in Walks(J).strongest(node, row.ranked(2).tolist()):
    print(f"  strongest walk from {path.source}: {' -> '.join(map(str, path.nodes))}, adds {path.weight:.3f}")

# the whole model: the derivative of the log-odds of its answer by the features of every node
x = data.x.clone().requires_grad_()
p = model(x, graph)[node].softmax(0).max()
(slope,) = torch.autograd.grad((p / (1 - p)).log(), x)
size = slope.abs().sum(1)
print("\nwhose features move its answer, by the derivative of the whole model:")
for j in size.argsort(descending=True)[:5].tolist():
    print(f"  node {j} (a {int(data.y[j])}): {100 * float(size[j] / size.sum()):.1f} %")
