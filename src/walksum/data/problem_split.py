"""Split a Problem into training, validation and test nodes, as the user asked."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
import torch

from walksum.data.problem import Problem
from walksum.data.splits import PROTOCOLS, Counts, Split, make_split, sorted_split
from walksum.graph import Graph

DIGITS_PER_CLASS, DIGITS_VALIDATION = 10, 200
FRACTIONS = (0.6, 0.2, 0.2)
CUT = 0.25  # of the training nodes: validation, where a split says train and test alone
SPATIAL = "spatial"
FEW_TESTED = 5  # test nodes of a class below which a note says so
STREAM = 1  # of random numbers, beside default_rng(seed) of whoever drew the table by the same seed
PARTS = 20  # of the graph, which a spatial split distributes


def split_problem(problem: Problem, how: str | None, seed: int) -> Split:
    """Split the labelled nodes.

    Args:
        problem: the graph and its target.
        how: counts ("87,59,37"), fractions ("0.6,0.2,0.2"), or two of either for training and test; "spatial":
            connected parts of the graph; a protocol of :func:`walksum.data.make_split`; or None: the table's split
            column; for a published dataset the paper's random counts (digits: 10 labels per class); else 60/20/20 %
            of each class. Where the problem has a time or groups, three numbers say how many of each part.
        seed: which random order.
    """
    if problem.time is not None:
        split = _by_time(problem, problem.time, how)
    elif problem.groups is not None:
        split = _by_groups(problem, problem.groups, None if how == SPATIAL else how, seed)
    elif how == SPATIAL:
        split = _by_groups(problem, graph_parts(problem.graph), None, seed)
    elif how is None and problem.given_split is not None:
        split = _by_column(problem, problem.given_split, seed)
    elif how is None and problem.name == "digits" and problem.data is not None:
        rest = problem.num_nodes - DIGITS_PER_CLASS * len(problem.classes) - DIGITS_VALIDATION
        split = make_split(problem.data, "balanced", seed, counts=(DIGITS_PER_CLASS, DIGITS_VALIDATION, rest))
    elif how is None and problem.data is not None and problem.labelled.numel() == problem.num_nodes:
        split = make_split(problem.data, "random", seed, name=problem.name)
    elif how is None:
        split = _stratified(problem, seed)
    elif how in PROTOCOLS:
        split = make_split(problem.y if problem.data is None else problem.data, how, seed, name=problem.name)
    else:
        split = _by_counts(problem, how, seed)
    _check(split, problem)
    return split


def check_labels(problem: Problem, keep_rare: bool = False) -> None:
    """Raise a ValueError for targets that cannot be learned; ``keep_rare`` allows classes of a single node."""
    known = problem.labelled.numel()
    if known < 6:
        raise ValueError(
            f"{known} nodes have a value in {problem.target!r}; at least 6 are needed to learn, choose and test"
        )
    if problem.regression:
        if float(problem.y[problem.labelled].std()) == 0:
            raise ValueError(f"every {problem.target!r} is the same number; there is nothing to predict")
        return
    counts = torch.bincount(problem.y[problem.labelled], minlength=len(problem.classes))
    if int((counts > 0).sum()) < 2:
        only = problem.classes[int(counts.argmax())]
        raise ValueError(f"every {problem.target!r} is {only!r}; a target needs at least two classes")
    rare = [name for name, count in zip(problem.classes, counts.tolist(), strict=True) if count < 2]
    if rare and problem.data is None and not keep_rare:
        raise ValueError(
            f"{problem.target!r} has {len(rare)} of {len(problem.classes)} classes with fewer than two labelled nodes: "
            f"{', '.join(map(repr, rare[:5]))}; merge them, leave those cells empty, or pass keep_rare=True to go on"
        )


def _by_column(problem: Problem, words: np.ndarray, seed: int) -> Split:
    """Split by a column; if it names no validation nodes, take some training nodes of each class."""
    known = np.zeros(len(words), dtype=bool)
    known[problem.labelled.numpy()] = True
    train, val, test = (np.nonzero((words == part) & known)[0] for part in ("train", "val", "test"))
    if not len(val) and len(train):
        train, val = _cut_validation(problem, train, seed)
    return sorted_split((train, val, test))


def _cut_validation(problem: Problem, train: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    order = _shuffled(train, seed)
    group = np.zeros(len(order)) if problem.regression else problem.y.numpy()[order]
    held = [order[group == label][: round(CUT * (group == label).sum())] for label in np.unique(group)]
    val = np.sort(np.concatenate(held))
    return np.setdiff1d(train, val), val


def _by_time(problem: Problem, time: np.ndarray, how: str | None) -> Split:
    """Train on the earliest nodes, test on the latest; nodes of equal time stay together."""
    labelled = problem.labelled.numpy()
    if np.isnan(time[labelled]).any():
        at = problem.ids[labelled[np.isnan(time[labelled]).argmax()]]
        raise ValueError(f"the node {at!r} has a target and no time; fill it in, or choose another time_column=")
    order = labelled[np.argsort(time[labelled], kind="stable")]
    moments = time[order]
    _, val_count, test_count = _counts(problem, how)
    first_test = int(np.searchsorted(moments, moments[len(order) - test_count], "left"))
    first_val = int(np.searchsorted(moments, moments[max(0, first_test - val_count)], "left"))
    parts = np.split(order, [first_val, first_test])
    if min(map(len, parts)) == 0:
        raise ValueError(
            f"time_column= has {len(np.unique(moments))} different times among the labelled nodes, too few to cut "
            "into past, later and latest; choose another column or split="
        )
    return sorted_split(parts, ordered=True)


def _by_groups(problem: Problem, groups: np.ndarray, how: str | None, seed: int) -> Split:
    """Assign whole groups, the largest first, each to the part that is furthest from its size."""
    labelled = problem.labelled.numpy()
    found, sizes = np.unique(groups[labelled], return_counts=True)
    if len(found) < 3:
        raise ValueError(
            f"the labelled nodes are of {len(found)} groups; a split into three parts needs three or more: choose "
            "another group_column=, or another split="
        )
    wanted = np.array(_counts(problem, how), dtype=float)
    filled, place = np.zeros(3), np.zeros(len(found), dtype=int)
    shuffled = _shuffled(np.arange(len(found)), seed)
    for k in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:  # the largest first, so that small ones even it out
        place[k] = int(np.argmax((wanted - filled) / wanted))
        filled[place[k]] += sizes[k]
    part = place[np.searchsorted(found, groups[labelled])]
    return sorted_split((labelled[part == k] for k in range(3)), groups=groups)


def graph_parts(graph: Graph, parts: int = PARTS) -> np.ndarray:
    """Cut the graph into parts and number them by node: by METIS if pymetis is installed, else breadth-first."""
    parts = max(3, min(parts, graph.num_nodes // 3))
    start, neighbours = _adjacency(graph)
    try:
        import pymetis
    except ImportError:
        return _parts_by_breadth(start, neighbours, parts)
    adjacency = np.split(neighbours, start[1:-1])
    return np.asarray(pymetis.part_graph(parts, adjacency=adjacency)[1], dtype=np.int64)


def _adjacency(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    i, j = graph.edges.cpu().numpy()
    ends, others = np.r_[i, j], np.r_[j, i]
    order = np.argsort(ends, kind="stable")
    return np.r_[0, np.cumsum(np.bincount(ends, minlength=graph.num_nodes))], others[order]


def _parts_by_breadth(start: np.ndarray, neighbours: np.ndarray, parts: int) -> np.ndarray:
    """Grow parts breadth-first, one after another, each from the border of the last until it is full."""
    count = len(start) - 1
    part, size, queue, number, grown = np.full(count, -1), -(-count // parts), deque[int](), 0, 0
    for root in range(count):
        if part[root] >= 0:
            continue
        queue.append(root)
        while queue:
            node = queue.popleft()
            if part[node] >= 0:
                continue
            if grown == size:
                number, grown, queue = number + 1, 0, deque([node])
                continue
            part[node], grown = number, grown + 1
            queue.extend(int(k) for k in neighbours[start[node] : start[node + 1]] if part[k] < 0)
    return part


def _shuffled(values: np.ndarray, seed: int) -> np.ndarray:
    return values[np.argsort(np.random.PCG64([seed, STREAM]).random_raw(len(values)), kind="stable")]


def _by_counts(problem: Problem, how: str, seed: int) -> Split:
    counts = _counts(problem, how)
    if min(map(float, how.split(","))) >= 1:  # counts cut a table as they cut the published dataset
        chosen = make_split(problem.y[problem.labelled], "random", seed, counts=counts)
        return sorted_split(problem.labelled[part].numpy() for part in (chosen.train, chosen.val, chosen.test))
    return sorted_split(np.split(_shuffled(problem.labelled.numpy(), seed)[: sum(counts)], np.cumsum(counts)[:2]))


def _counts(problem: Problem, how: str | None) -> Counts:
    """How many training, validation and test nodes two or three numbers ask for; None: 60/20/20 %."""
    try:
        numbers = list(FRACTIONS) if how is None else [float(part) for part in how.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (2, 3) or min(numbers) <= 0 or not all(map(math.isfinite, numbers)):
        raise ValueError(
            f"split={how!r}; expected three counts like 87,59,37, three fractions like 0.6,0.2,0.2 (or two, of "
            f"training and test), a column of the nodes table that says train, val or test, a run folder, {SPATIAL}, "
            f"or one of {', '.join(PROTOCOLS)}"
        )
    if len(numbers) == 2:
        numbers = [(1 - CUT) * numbers[0], CUT * numbers[0], numbers[1]]
    total, wanted = problem.labelled.numel(), sum(numbers)
    if wanted > 1 + 1e-9 and max(numbers) < 1:
        raise ValueError(f"split={how!r}; the fractions sum to {wanted:g}, more than 1")
    if wanted <= 1 + 1e-9:
        numbers = [math.floor(total * share + 1e-9) for share in numbers]
    train, val, test = (int(number) for number in numbers)
    if train + val + test > total:
        raise ValueError(f"split={how!r}; {train + val + test} nodes are asked for and {total} have a target")
    return train, max(val, 1), max(test, 1)


def split_notes(problem: Problem, how: str | None, split: Split) -> list[str]:
    """Notes where counts were perhaps meant as per cent, on nodes in no part, and on classes of few test nodes."""
    return _on_per_cent(problem, how) + _on_left_out(problem, how, split) + _on_rare(problem, split)


def _on_left_out(problem: Problem, how: str | None, split: Split) -> list[str]:
    """A column or an earlier run may say nothing of nodes whose target is known."""
    left = problem.labelled.numel() - sum(split.counts)
    if not left or how is not None or problem.given_split is None:
        return []
    return [f"{left} nodes have a target and are in no part of the given split: they are predicted, not learned from"]


def _on_rare(problem: Problem, split: Split) -> list[str]:
    if problem.regression:
        return []
    tested = torch.bincount(problem.y[split.test], minlength=len(problem.classes)).tolist()
    few = [f"{name!r} ({count})" for name, count in zip(problem.classes, tested, strict=True) if count < FEW_TESTED]
    if not few:
        return []
    listed = ", ".join(few[:5]) + ", ..." * (len(few) > 5)
    return [f"hardly any test nodes are {listed}: recall of such a class, and every mean over classes, hangs on chance"]


def _on_per_cent(problem: Problem, how: str | None) -> list[str]:
    try:
        total = sum(float(part) for part in (how or "").split(","))
    except ValueError:
        return []
    labelled = problem.labelled.numel()
    if total != 100 or labelled < 2 * total:
        return []
    shares = ",".join(f"{float(part) / 100:g}" for part in str(how).split(","))
    return [f"the split {how} counts nodes: 100 of {labelled} are used; write {shares} for per cent"]


def _stratified(problem: Problem, seed: int) -> Split:
    """60/20/20 % of every class in a random order; a class of two gives one to training and one to the test."""
    labelled = problem.labelled.numpy()
    order = _shuffled(labelled, seed)
    group = np.zeros(len(order)) if problem.regression else problem.y.numpy()[order]
    parts: tuple[list[np.ndarray], ...] = ([], [], [])
    for label in np.unique(group):
        members = order[group == label]
        test = max(1, round(FRACTIONS[2] * len(members)))
        val = round(FRACTIONS[1] * len(members))
        for part, nodes in zip(parts, np.split(members, [len(members) - test - val, len(members) - test]), strict=True):
            part.append(nodes)
    return sorted_split(np.concatenate(part) for part in parts)


def _check(split: Split, problem: Problem) -> None:
    for part, count in zip(("train", "validation", "test"), split.counts, strict=True):
        if not count:
            raise ValueError(f"the split leaves no labelled {part} nodes; label more nodes or change split=")
    if not problem.regression and problem.y[split.train].unique().numel() < 2:
        raise ValueError("the training nodes are all of one class; label more nodes or change split=")
