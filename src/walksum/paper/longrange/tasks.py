"""The long-range tasks: many small graphs of one kind as one graph, with the nodes that must answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from walksum._checks import check_choice
from walksum.data.splits import Split
from walksum.training import Data

COPIES = 2  # chains to learn from, as many to choose by and to count
RING_CLASSES = 5
TREES = (120, 40, 40)  # to learn from, to choose by, to count


@dataclass(frozen=True)
class LongRange:
    """One task of one size.

    Args:
        data: all graphs side by side; the split names the nodes that answer, each in a graph of its own.
        hops: edges between the node that knows and the node that answers; layers that message passing needs.
        chance: the accuracy of guessing.
        source: the node that knows, of the first test graph; None where many do.
        test_nodes: all nodes of the test graphs whose answer is defined.
    """

    data: Data
    hops: int
    chance: float
    source: int | None
    test_nodes: Tensor

    @property
    def target(self) -> int:
        """The node that answers, of the first test graph."""
        return int(self.data.split(0).test[0])


def chain(length: int, seed: int) -> LongRange:
    """Paths whose first node carries one of two classes, all other features zero; the last node answers.

    After Gu et al. (2020). All nodes of the training paths are learned from, so that a model may begin with the near
    ones. Graphs of one class are alike, so the score says whether the class arrives at all.
    """
    graphs = 3 * COPIES
    first = torch.arange(graphs) * length
    y = torch.arange(graphs) % 2
    x = torch.zeros(graphs * length, 2)
    x[first, y] = 1
    one = torch.stack([torch.arange(length - 1), torch.arange(1, length)])
    _, val, last = (first + length - 1).chunk(3)
    split = Split(torch.arange(COPIES * length), val, last)
    data = Data(x, _side_by_side(one, length, graphs), y.repeat_interleave(length), split)
    test = torch.arange(2 * COPIES * length, graphs * length)
    return LongRange(data, length - 1, 0.5, 2 * COPIES * length, test)


def ring(size: int, seed: int) -> LongRange:
    """Rings in which one node carries one of five classes and the opposite node, whose features are zero, answers.

    All other nodes carry ones. After Bodnar et al. (2021) and Di Giovanni et al. (2023).
    """
    graphs = 3 * RING_CLASSES
    first = torch.arange(graphs) * size
    y = torch.arange(graphs) % RING_CLASSES
    x = torch.ones(graphs * size, RING_CLASSES)
    x[first] = torch.eye(RING_CLASSES)[y]
    answer = first + size // 2
    x[answer] = 0
    one = torch.stack([torch.arange(size), (torch.arange(size) + 1) % size])
    train, val, test = answer.chunk(3)
    data = Data(x, _side_by_side(one, size, graphs), y.repeat_interleave(size), Split(train, val, test))
    return LongRange(data, size // 2, 1 / RING_CLASSES, 2 * RING_CLASSES * size, test)


def tree(depth: int, seed: int) -> LongRange:
    """Binary trees: each leaf has a key and a value, the root has a key and answers with that leaf's value.

    Tree-neighbours-match of Alon and Yahav (2021); keys and values one-hot, inner nodes zero, trees drawn at random.
    """
    random = torch.Generator().manual_seed(1000 * depth + seed)
    graphs, leaves = sum(TREES), 2**depth
    size = 2 * leaves - 1
    keys = torch.rand(graphs, leaves, generator=random).argsort(1)
    values = torch.rand(graphs, leaves, generator=random).argsort(1)
    asked = torch.randint(leaves, (graphs,), generator=random)
    x = torch.zeros(graphs, size, 2 * leaves)
    x[:, leaves - 1 :, :leaves] = torch.eye(leaves)[keys]
    x[:, leaves - 1 :, leaves:] = torch.eye(leaves)[values]
    row = torch.arange(graphs)
    x[row, 0, keys[row, asked]] = 1
    y = torch.zeros(graphs, size, dtype=torch.int64)
    y[:, 0] = values[row, asked]
    child = torch.arange(1, size)
    train, val, test = (row * size).split(TREES)
    edges = _side_by_side(torch.stack([(child - 1) // 2, child]), size, graphs)
    # one layer more than the depth, as the authors give: the root must compare keys after they have arrived
    data = Data(x.flatten(0, 1), edges, y.flatten(), Split(train, val, test))
    return LongRange(data, depth + 1, 1 / leaves, None, test)


TASKS: dict[str, Callable[[int, int], LongRange]] = {"chain": chain, "ring": ring, "tree": tree}
SIZES = {"chain": (10, 30, 100, 300, 1000), "ring": (10, 20, 30, 50, 100), "tree": (2, 3, 4, 5, 6)}


def make_task(name: str, size: int, seed: int) -> LongRange:
    """A task by its name."""
    check_choice("task", name, tuple(TASKS))
    return TASKS[name](size, seed)


def _side_by_side(edges: Tensor, size: int, graphs: int) -> Tensor:
    """Both directions of the edges of ``graphs`` copies of one graph."""
    both = torch.cat([edges, edges.flip(0)], 1)
    return (both[:, None] + size * torch.arange(graphs)[:, None]).flatten(1)
