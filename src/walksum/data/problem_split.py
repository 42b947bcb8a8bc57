"""Splits of a Problem into train, validation and test, from what the user said."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from walksum.data.problem import Problem
from walksum.data.splits import PROTOCOLS, Split, make_split

DIGITS_PER_CLASS, DIGITS_VALIDATION = 10, 200
FRACTIONS = (0.6, 0.2, 0.2)


def split_problem(problem: Problem, how: str | None, seed: int) -> Split:
    """The split of the labelled nodes.

    Args:
        problem: the graph and its target.
        how: counts ("87,59,37"), fractions ("0.6,0.2,0.2"), a protocol of :func:`walksum.data.make_split`, or None:
            the table's split column; for a published dataset the paper's random counts (digits: 10 labels per
            class); else 60/20/20 % of each class.
        seed: which random order.
    """
    if how is None and problem.given_split is not None:
        split = _by_column(problem.given_split, problem.labelled)
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
    """Refuse targets nothing can be learned from; ``keep_rare``: classes of a single node are the user's will."""
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


def _by_column(words: np.ndarray, labelled: Tensor) -> Split:
    known = np.zeros(len(words), dtype=bool)
    known[labelled.numpy()] = True
    return Split(*(torch.from_numpy(np.nonzero((words == part) & known)[0]) for part in ("train", "val", "test")))


def _by_counts(problem: Problem, how: str, seed: int) -> Split:
    try:
        numbers = [float(part) for part in how.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != 3 or min(numbers) <= 0 or not all(map(math.isfinite, numbers)):
        raise ValueError(
            f"split={how!r}; expected three counts like 87,59,37, three fractions like 0.6,0.2,0.2, a column of the "
            f"nodes table that says train, val or test, or one of {', '.join(PROTOCOLS)}"
        )
    total = problem.labelled.numel()
    if sum(numbers) > 1 + 1e-9 and max(numbers) < 1:
        raise ValueError(f"split={how!r}; the fractions sum to {sum(numbers):g}, more than 1")
    if sum(numbers) <= 1 + 1e-9:
        numbers = [math.floor(total * share + 1e-9) for share in numbers]
    train, val, test = map(int, numbers)
    chosen = make_split(problem.y[problem.labelled], "random", seed, counts=(train, val, test))
    return Split(*(problem.labelled[part] for part in (chosen.train, chosen.val, chosen.test)))


def _stratified(problem: Problem, seed: int) -> Split:
    """60/20/20 % of every class in a random order; a class of two gives one to training and one to the test."""
    labelled = problem.labelled.numpy()
    order = labelled[np.argsort(np.random.PCG64(seed).random_raw(len(labelled)), kind="stable")]
    group = np.zeros(len(order)) if problem.regression else problem.y.numpy()[order]
    parts: tuple[list[np.ndarray], ...] = ([], [], [])
    for label in np.unique(group):
        members = order[group == label]
        test = max(1, round(FRACTIONS[2] * len(members)))
        val = round(FRACTIONS[1] * len(members))
        for part, nodes in zip(parts, np.split(members, [len(members) - test - val, len(members) - test]), strict=True):
            part.append(nodes)
    return Split(*(torch.from_numpy(np.sort(np.concatenate(part)).astype(np.int64)) for part in parts))


def _check(split: Split, problem: Problem) -> None:
    for part, count in zip(("train", "validation", "test"), split.counts, strict=True):
        if not count:
            raise ValueError(f"the split leaves no labelled {part} nodes; label more nodes or change split=")
    if not problem.regression and problem.y[split.train].unique().numel() < 2:
        raise ValueError("the training nodes are all of one class; label more nodes or change split=")
