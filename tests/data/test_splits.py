"""Splits: pinned for good, disjoint, and independent of everything but labels, protocol and seed."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from walksum.data import PROTOCOLS, Split, make_split
from walksum.data.splits import COUNTS


def labels(num_nodes: int, num_classes: int = 7) -> torch.Tensor:
    return torch.arange(num_nodes) % num_classes


def masks(num_nodes: int, folds: int | None) -> dict[str, torch.Tensor]:
    """Fold f trains on the nodes equal to f mod 12, validates on f + 1, tests on the rest."""
    nodes = torch.arange(num_nodes)
    kind = torch.stack([(nodes - fold) % 12 for fold in range(folds or 1)], dim=1)
    kind = kind if folds else kind[:, 0]
    return {"train_mask": kind == 0, "val_mask": kind == 1, "test_mask": kind > 1}


PINNED = {
    ("cora", 2708, 0): "5619d4cc0f7baa78e508ba8479e643f1f8015a406977014f99e88e7a1643ad6e",
    ("cora", 2708, 29): "7f68b2e53edc540d99cd08086e18e220bc2a446f2a67501e3f7cdee53a2d137c",
    ("citeseer", 3327, 0): "46af92e1b0ed75e48531eeab566c27254ddedcd33c4ad9e1cc21e30e3d98426e",
    ("pubmed", 19717, 0): "101c69badb19e4a6869b02841172d74a4f2a0e3d1a9deec5df516361e69993e4",
    ("texas", 183, 0): "64ff7d7b82eb7c89ae5856f39437636bb82872a9281d8acf60e94b2dd53ff211",
    ("wisconsin", 251, 0): "8e8b49d03a9a014966f4546236b1b4a130e70a3e82331c16b8b5306fddf26027",
    ("cornell", 183, 1): "0d87600bbc75b33ce9d2d899823183200882fcc8f26812414dc728436258ffc9",
    ("digits", 1797, 0): "dfa14caf2a137dd33063fbc3e9b1eba14da362df11f9c7e60289ea4953b5aa2d",
    (None, 1000, 0): "dd30ce761e088e76ffb2d8f6e3bc1b68666a0575811114646932975f36610d97",
}


@pytest.mark.parametrize(("name", "num_nodes", "seed"), PINNED)
def test_random_splits_are_pinned(name, num_nodes, seed):
    split = make_split(labels(num_nodes), "random", seed, name=name)
    assert split.digest() == PINNED[name, num_nodes, seed]
    assert split.counts == COUNTS.get(name, (600, 200, 200))


def test_balanced_split_is_pinned():
    assert (
        make_split(labels(2708), "balanced", 3).digest()
        == "17ab7626019ef97644293c32dadf4572f7fc8d541a48bf447bb350b3cd4666cc"
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(num_nodes=st.integers(30, 200), seed=st.integers(0, 10**12))
def test_parts_are_ascending_disjoint_node_numbers(protocol, num_nodes, seed):
    data = Data(y=labels(num_nodes), num_nodes=num_nodes, **masks(num_nodes, folds=10))
    split = make_split(data, protocol, seed)
    seen = torch.cat([split.train, split.val, split.test])
    assert seen.unique().numel() == seen.numel() == num_nodes
    assert seen.min() == 0
    assert seen.max() == num_nodes - 1
    for part in (split.train, split.val, split.test):
        assert part.dtype == torch.int64
        assert (part.diff() > 0).all()


def test_seeds_give_different_splits_and_one_split_does_not():
    y = labels(183)
    assert len({make_split(y, "random", seed).digest() for seed in range(30)}) == 30
    assert len({make_split(y, "one-split", seed).digest() for seed in range(30)}) == 1


@pytest.mark.parametrize(("protocol", "which"), [("one-split", 0), *((f"one-split-{k}", k) for k in range(1, 5))])
def test_one_split_is_a_random_one_whatever_the_seed(protocol, which):
    y = labels(183)
    assert make_split(y, protocol, 17).digest() == make_split(y, "random", which).digest()


def test_random_does_not_look_at_labels():
    a, b = labels(183), torch.zeros(183, dtype=torch.long)
    assert make_split(a, seed=5).digest() == make_split(b, seed=5).digest()


def test_every_node_is_equally_likely_to_train():
    hits = torch.zeros(50)
    for seed in range(2000):
        hits[make_split(labels(50), seed=seed, counts=(10, 10, 30)).train] += 1
    assert (hits / 2000 - 0.2).abs().max() < 4 * (0.2 * 0.8 / 2000) ** 0.5


def test_balanced_takes_twenty_a_class_then_500_and_1000():
    y = labels(2708)
    split = make_split(y, "balanced", seed=1)
    assert torch.bincount(y[split.train]).tolist() == [20] * 7
    assert split.counts == (140, 500, 1000)


def test_balanced_on_a_small_graph_leaves_every_class_something_to_test():
    y = torch.tensor([0] * 33 + [1] + [2] * 18 + [3] * 101 + [4] * 30)
    split = make_split(y, "balanced", seed=1)
    assert torch.bincount(y[split.train]).tolist() == [16, 1, 9, 20, 15]
    assert sum(split.counts) == len(y)
    assert split.counts[2] == pytest.approx(2 * split.counts[1], abs=2)


def test_public_masks_are_used_and_the_seed_picks_the_fold():
    data = Data(y=labels(60), **masks(60, folds=10))
    for seed in (0, 3, 13):
        split = make_split(data, "public", seed)
        assert split.train.tolist() == [node for node in range(60) if (node - seed % 10) % 12 == 0]
    assert make_split(data, "geom-gcn", 3).digest() == make_split(data, "public", 13).digest()


def test_a_single_public_fold_serves_every_seed():
    data = Data(y=labels(60), **masks(60, folds=None))
    assert make_split(data, "public", 0).digest() == make_split(data, "public", 7).digest()
    with pytest.raises(ValueError, match="several folds"):
        make_split(data, "geom-gcn", 0)


def test_explicit_counts_win_over_the_name():
    assert make_split(labels(183), name="texas", counts=(10, 20, 30)).counts == (10, 20, 30)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"protocol": "stratified"}, "protocol='stratified' is unknown; choose one of random"),
        ({"seed": -1}, "seed=-1"),
        ({"counts": (30, 30, 30)}, r"counts=\(30, 30, 30\) do not fit 60 nodes"),
        ({"name": "cora"}, "do not fit 60 nodes"),
        ({"protocol": "public"}, "train_mask"),
        ({"protocol": "geom-gcn"}, "several folds"),
    ],
)
def test_wrong_use_is_refused_with_a_remedy(kwargs, message):
    with pytest.raises(ValueError, match=message):
        make_split(labels(60), **kwargs)


def test_labels_must_be_one_class_a_node():
    with pytest.raises(ValueError, match=r"shape \(60, 3\)"):
        make_split(torch.zeros(60, 3))


def test_a_split_whose_parts_overlap_cannot_be_made():
    a = torch.tensor([0, 1])
    with pytest.raises(ValueError, match="share nodes"):
        Split(a, a, a)


def test_masks_are_numbers_of_nodes():
    split = Split(*masks(24, None).values())
    assert split.counts == (2, 2, 20)
    assert split.train.tolist() == [0, 12]
    with pytest.raises(ValueError, match=r"train has shape \(24, 2\); expected numbers of nodes \[n\] or one mask"):
        Split(*masks(24, 2).values())
