"""Which nodes are learned from, which choose the model, which judge it.

A split depends on the labels, the protocol and the seed, never on the model, so comparisons are paired.

random     the paper's: a random order of all nodes, cut at the dataset's counts, classes not balanced
one-split  random with seed 0 whatever the seed: what varies over runs is the initialisation alone;
           one-split-1 to one-split-4 are the same with the random splits of seeds 1 to 4
public     the masks that come with the data; where there are several folds, fold seed mod folds
geom-gcn   the same, for data that come with Geom-GCN's ten folds (an error for data with a single one)
balanced   20 training nodes per class, then 500 and 1000 in random order

The random order sorts the nodes by 64-bit keys from PCG64(seed), ties by node number. numpy promises the
stream of a bit generator for good, which it does not for Generator.permutation; torch promises neither.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

Counts = tuple[int, int, int]

# The paper's "original ratios": Planetoid's published sizes and Geom-GCN's of fold 0.
COUNTS: dict[str, Counts] = {
    "cora": (140, 500, 1000),
    "citeseer": (120, 500, 1000),
    "pubmed": (60, 500, 1000),
    "texas": (87, 59, 37),
    "wisconsin": (120, 80, 51),
    "cornell": (87, 59, 37),
    "digits": (100, 200, 1497),
}


@dataclass(frozen=True)
class Split:
    """Node numbers of the three parts, each ascending; no node is in two parts. Masks of the nodes become numbers.

    Attributes:
        groups: one number per node; nodes of a group stay together, also where training nodes take turns.
        ordered: whether the parts follow each other in time, so that nodes may not take turns.
    """

    train: Tensor
    val: Tensor
    test: Tensor
    groups: np.ndarray | None = None
    ordered: bool = False

    def __post_init__(self) -> None:
        for name in ("train", "val", "test"):
            part = getattr(self, name)
            if part.dim() != 1:
                raise ValueError(f"{name} has shape {tuple(part.shape)}; expected numbers of nodes [n] or one mask [N]")
            if part.dtype == torch.bool:
                object.__setattr__(self, name, part.nonzero().squeeze(1))
        parts = torch.cat([self.train, self.val, self.test])
        if parts.unique().numel() != parts.numel():
            raise ValueError("train, val and test share nodes; every node may be in one part only")

    @property
    def counts(self) -> Counts:
        return self.train.numel(), self.val.numel(), self.test.numel()

    def digest(self) -> str:
        """SHA-256 of the three lists, for records: equal digests are equal splits."""
        text = ";".join(",".join(map(str, part.tolist())) for part in (self.train, self.val, self.test))
        return hashlib.sha256(text.encode()).hexdigest()


Rule = Callable[[Data | Tensor, int, str | None, Counts | None], Split]


def make_split(
    data: Data | Tensor,
    protocol: str = "random",
    seed: int = 0,
    *,
    name: str | None = None,
    counts: Counts | None = None,
) -> Split:
    """Cut the nodes in three.

    Args:
        data: the graph, or its labels alone, [N] (the published masks need the graph).
        protocol: one of PROTOCOLS.
        seed: which order, or which fold; 0 or more.
        name: dataset whose counts to use; others are cut 60/20/20 %.
        counts: (train, val, test) instead of the name's; for balanced, (train per class, val, test).
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol={protocol!r} is unknown; choose one of {', '.join(PROTOCOLS)}")
    if seed < 0:
        raise ValueError(f"seed={seed} is negative; use 0 or more")
    return PROTOCOLS[protocol](data, seed, name, counts)


def _labels(data: Data | Tensor) -> np.ndarray:
    y = data if isinstance(data, Tensor) else data.y
    if y.dim() != 1:
        raise ValueError(f"labels have shape {tuple(y.shape)}; expected one class per node, [N]")
    return y.cpu().numpy()


def _order(num_nodes: int, seed: int) -> np.ndarray:
    return np.argsort(np.random.PCG64(seed).random_raw(num_nodes), kind="stable")


def sorted_split(parts: Iterable[np.ndarray], **how: Any) -> Split:
    """A split of these node numbers, each part ascending; ``how``: the other fields of :class:`Split`."""
    train, val, test = (torch.from_numpy(np.sort(part).astype(np.int64)) for part in parts)
    return Split(train, val, test, **how)


def _cut(order: np.ndarray, counts: Counts) -> Split:
    if min(counts) < 0 or sum(counts) > len(order):
        raise ValueError(f"counts={counts} do not fit {len(order)} nodes; lower them")
    return sorted_split(np.split(order[: sum(counts)], np.cumsum(counts)[:2]))


def _random(data: Data | Tensor, seed: int, name: str | None, counts: Counts | None) -> Split:
    n = len(_labels(data))
    train, val = n * 6 // 10, n * 2 // 10
    return _cut(_order(n, seed), counts or COUNTS.get(name or "") or (train, val, n - train - val))


def _one_split(which: int) -> Rule:
    def split(data: Data | Tensor, seed: int, name: str | None, counts: Counts | None) -> Split:
        return _random(data, which, name, counts)

    return split


def _balanced(data: Data | Tensor, seed: int, name: str | None, counts: Counts | None) -> Split:
    y = _labels(data)
    per_class, num_val, num_test = counts or (20, 500, 1000)
    order = _order(len(y), seed)
    # A class gives at most half of its nodes (but one at least), so that small ones can be tested too.
    train = [
        members[: min(per_class, max(1, len(members) // 2))]
        for label in np.unique(y)
        if len(members := order[y[order] == label])
    ]
    rest = order[~np.isin(order, np.concatenate(train))]
    if len(rest) < num_val + num_test:  # graphs this small keep the proportion instead
        num_val = len(rest) * num_val // (num_val + num_test)
        num_test = len(rest) - num_val
    first = np.concatenate(train)
    return _cut(np.concatenate([first, rest]), (len(first), num_val, num_test))


def _public(data: Data | Tensor, seed: int, name: str | None, counts: Counts | None) -> Split:
    masks = None if isinstance(data, Tensor) else [data.get(f"{part}_mask") for part in ("train", "val", "test")]
    if masks is None or any(mask is None for mask in masks):
        raise ValueError("protocol='public' needs data with train_mask, val_mask and test_mask; use protocol='random'")
    folds = [mask.view(len(mask), -1) for mask in masks]
    return Split(*(fold[:, seed % fold.size(1)].nonzero().view(-1).cpu() for fold in folds))


def _geom_gcn(data: Data | Tensor, seed: int, name: str | None, counts: Counts | None) -> Split:
    if isinstance(data, Tensor) or data.get("train_mask") is None or data.train_mask.dim() != 2:
        raise ValueError("protocol='geom-gcn' needs data with several folds of masks; use protocol='public'")
    return _public(data, seed, name, counts)


PROTOCOLS: dict[str, Rule] = {
    "random": _random,
    "one-split": _one_split(0),
    **{f"one-split-{which}": _one_split(which) for which in range(1, 5)},
    "public": _public,
    "geom-gcn": _geom_gcn,
    "balanced": _balanced,
}
