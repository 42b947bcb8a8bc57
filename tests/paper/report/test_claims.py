import pytest

from synthetic import run
from walksum.paper.report.compare import Difference
from walksum.paper.report.sections import sections_of
from walksum.paper.report.table1 import claim, claims_grid, paper_best


def grid_of(*records):
    (section,) = sections_of(records)
    return claims_grid(section)


def test_the_papers_best_rows():
    bests = {
        dataset: paper_best(dataset)[1] for dataset in ("texas", "wisconsin", "cornell", "cora", "citeseer", "pubmed")
    }
    assert list(bests.values()) == [83.7, 85.0, 81.3, 80.6, 66.0, 76.8]


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [(0.0, 1.0, "reached"), (-1.9, 1.0, "no claim"), (-2.1, 1.0, "below"), (-1.0, None, "too few")],
)
def test_what_may_be_claimed(value, error, words):
    assert claim(Difference(value, error)).startswith(words)


def test_the_best_glt_row_is_taken_and_no_baseline():
    weak = [run("glt-laplacian-fixed", "cora", seed, 70.0 + seed) for seed in range(3)]
    strong = [run("glt-laplacian-learned", "cora", seed, 80.0 + seed) for seed in range(3)]
    other = [run("gcn", "cora", seed, 99.0) for seed in range(3)]
    ((dataset, paper, ours, gap, said),) = grid_of(*weak, *strong, *other).rows
    assert (dataset.text, paper.text, ours.text, gap.text) == ("Cora", "80.6", "81.0", "+0.4")
    assert "Laplacian" in ours.below
    assert said.text == "reached"


def test_nothing_to_compare():
    assert grid_of(run("gcn", "cora", 0, 80.0)) is None
