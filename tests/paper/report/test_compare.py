import math

import numpy as np
import pytest
from scipy.stats import wilcoxon

from synthetic import draw, run
from walksum.paper.report import compare
from walksum.paper.report.sections import sections_of
from walksum.paper.rows import TABLE1


def section(*records):
    (found,) = sections_of(records)
    return found


def test_standard_error_of_a_difference_by_hand():
    gap = compare.difference(82.0, 3.0, 9, 80.0, 4.0, 16)
    assert gap.value == 2.0
    assert gap.error == pytest.approx(math.sqrt(9 / 9 + 16 / 16))
    assert gap.within is True  # 2.0 <= 2 * 1.414


def test_beyond_two_standard_errors():
    assert compare.difference(83.0, 3.0, 9, 80.0, 4.0, 16).within is False
    assert compare.difference(77.0, 3.0, 9, 80.0, 4.0, 16).within is False


def test_against_the_paper():
    cell = section(*draw("gcn", "cora", 10, mean=80.2)).cells["gcn", "cora"]
    mean, std = TABLE1["gcn"]["cora"]
    gap = compare.from_paper(cell)
    assert gap.value == pytest.approx(cell.mean - mean)
    assert gap.error == pytest.approx(math.sqrt(cell.std**2 / 10 + std**2 / 30))


def test_what_the_paper_lacks_has_no_difference():
    found = section(*draw("sat", "pubmed"), *draw("mlp", "texas"))
    assert compare.from_paper(found.cells["sat", "pubmed"]) is None
    assert compare.from_paper(found.cells["mlp", "texas"]) is None


def test_one_run_has_a_difference_but_no_verdict():
    gap = compare.from_paper(section(run("gcn", "cora", 0, 80.0)).cells["gcn", "cora"])
    assert gap.value == pytest.approx(-0.2)
    assert gap.within is None


def test_the_papers_rounding_is_no_difference():
    # 18 of 37 is 48.648..., printed 48.6 with a spread of zero
    cell = section(*(run("gat", "texas", seed, 100 * 18 / 37) for seed in range(3))).cells["gat", "texas"]
    assert compare.from_paper(cell).within is True


def test_signed_rank_is_scipys():
    found = section(*draw("gcn", "cora", 12), *draw("gat", "cora", 12))
    a, b = found.cells["gcn", "cora"], found.cells["gat", "cora"]
    gaps = [a.scores[seed] - b.scores[seed] for seed in range(12)]
    test = compare.paired(a, b)
    assert test.p == pytest.approx(wilcoxon([round(g, 4) for g in gaps]).pvalue)
    assert test.difference == pytest.approx(sum(gaps) / 12)


def test_signed_rank_by_hand():
    # five gaps, all positive: both tails of 1 / 2^5
    assert compare.signed_rank([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 32)


def test_gaps_of_as_many_nodes_rank_as_equal():
    # two of 37 nodes each time, but float32 says so in different last digits
    gaps = [5.4054054, 5.4054055, 5.4054049, 5.4054061, -2.7027027, 2.7027031]
    assert compare.signed_rank(gaps) == pytest.approx(wilcoxon([2, 2, 2, 2, -1, 1]).pvalue)


def test_gaps_of_as_many_nodes_rank_as_equal_in_records_of_six_digits():
    # 36 - 35 of 51 nodes is 0.019607 where 37 - 36 is 0.019608: no fixed number of digits joins all such pairs
    rng = np.random.default_rng(0)
    right, wrong = rng.integers(20, 51, 30), rng.integers(20, 51, 30)
    kept = [100 * float(f"{a / 51:.6g}") - 100 * float(f"{b / 51:.6g}") for a, b in zip(right, wrong, strict=True)]
    assert compare.signed_rank(kept) == wilcoxon(right - wrong).pvalue


def test_equal_rows_and_too_few_pairs():
    assert compare.signed_rank([0.0, 0.0, 0.0]) == 1.0
    assert compare.signed_rank([1.0]) is None
    assert compare.signed_rank([]) is None


def test_only_seeds_both_have_on_the_same_split():
    ours = [run("gcn", "cora", seed, 80.0 + seed) for seed in (0, 1, 2, 3)]
    theirs = [
        run("gat", "cora", 1, 70.0),
        run("gat", "cora", 2, 70.0, split="another"),
        run("gat", "cora", 3, 70.0, split=""),  # unknown: taken at its seed's word
        run("gat", "cora", 9, 0.0),
    ]
    found = section(*ours, *theirs)
    test = compare.paired(found.cells["gcn", "cora"], found.cells["gat", "cora"])
    assert test.pairs == 2
    assert test.difference == pytest.approx((11 + 13) / 2)


def test_holm_by_hand():
    tests = [compare.Paired("a", "b", 9, 0.0, p) for p in (0.01, 0.04, None, 0.03)]
    assert [t.corrected for t in compare.holm(tests)] == [
        pytest.approx(0.03),
        pytest.approx(0.06),
        None,
        pytest.approx(0.06),
    ]
    assert [t.significant for t in compare.holm(tests)] == [True, False, False, False]


def test_best_glt_is_compared_with_every_other_row():
    found = section(
        *draw("gcn", "texas", mean=90),
        *draw("glt-laplacian-fixed", "texas", mean=80),
        *draw("glt-diagonally-dominant-fixed-repulsive", "texas", mean=85),
        *draw("mlp", "texas", mean=70),
    )
    tests = compare.against_best(found, "texas")
    assert {t.a for t in tests} == {"glt-diagonally-dominant-fixed-repulsive"}
    assert [t.b for t in tests] == ["gcn", "glt-laplacian-fixed", "mlp"]
    assert len(compare.matrix(found, "texas")) == 6


def test_without_a_glt_there_is_nothing_to_test():
    assert compare.against_best(section(*draw("gcn", "texas")), "texas") == []


def test_best_and_second():
    found = section(run("gcn", "cora", 0, 80.0), run("gat", "cora", 0, 82.0), run("sage", "cora", 0, 81.0))
    assert compare.ranks(found, "cora") == ({"gat"}, {"sage"})


def test_ties_are_judged_as_printed():
    found = section(
        *(run("gcn", "cora", 0, 82.04), run("gat", "cora", 0, 81.96)),
        *(run("sage", "cora", 0, 81.0), run("mlp", "cora", 0, 81.0), run("gde", "cora", 0, 50.0)),
    )
    assert compare.ranks(found, "cora") == ({"gcn", "gat"}, {"sage", "mlp"})


def test_a_single_row_is_best_and_nobody_second():
    assert compare.ranks(section(run("gcn", "cora", 0, 80.0)), "cora") == ({"gcn"}, set())
