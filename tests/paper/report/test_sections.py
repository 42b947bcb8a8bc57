import statistics

import pytest

from synthetic import draw, run
from walksum.paper.report.sections import changes_of, sections_of


def test_numbers_of_a_cell_by_hand():
    (section,) = sections_of([run("gcn", "cora", seed, value) for seed, value in enumerate((80.0, 82.0, 84.0))])
    cell = section.cells["gcn", "cora"]
    assert (cell.runs, cell.mean, cell.std) == (3, pytest.approx(82.0), pytest.approx(2.0))  # n - 1, not n


def test_one_run_has_no_spread():
    (section,) = sections_of([run("gcn", "cora", 0, 80.0)])
    assert section.cells["gcn", "cora"].std is None


def test_lost_runs_count_in_no_mean():
    records = [run("gcn", "cora", 0, 80.0), run("gcn", "cora", 1, 10.0, "diverged"), run("gcn", "cora", 2, 0.0, "oom")]
    cell = sections_of(records)[0].cells["gcn", "cora"]
    assert (cell.mean, cell.lost) == (pytest.approx(80.0), {"diverged": 1, "oom": 1})


def test_of_a_run_done_again_the_last_counts():
    (section,) = sections_of([run("gcn", "cora", 0, 0.0, "oom"), run("gcn", "cora", 0, 70.0)])
    cell = section.cells["gcn", "cora"]
    assert (cell.runs, cell.lost) == (1, {})


def test_protocols_and_settings_never_share_a_cell():
    records = [
        *draw("gcn", "texas"),
        *draw("gcn", "texas", protocol="one-split"),
        *draw("gcn", "texas", dropout=0.2),
        *draw("gcn", "texas", dropout=0.2, hidden=16),
        *draw("glt-laplacian-fixed", "texas", solver="gabp", protocol="one-split"),
        *draw("glt-laplacian-fixed", "texas", options=(("scale", 0.9),)),
    ]
    found = [(s.protocol, s.name) for s in sections_of(records)]
    assert found == [
        ("random", ""),
        ("one-split", ""),
        ("random", "dropout=0.2"),
        ("random", "hidden=16, dropout=0.2"),
        ("random", "options={scale: 0.9}"),
        ("one-split", "solver=gabp"),
    ]
    assert all(cell.runs == 8 for section in sections_of(records) for cell in section.cells.values())


def test_the_papers_own_patience_and_rate_are_no_change():
    for model in ("gcn", "glt-laplacian-fixed", "graphormer-1e-3"):
        assert changes_of(draw(model, "texas", 1)[0].spec) == ()


def test_order_is_the_papers():
    records = [
        r for m in ("mlp", "glt-laplacian-fixed", "gcn") for d in ("pubmed", "actor", "texas") for r in draw(m, d, 2)
    ]
    (section,) = sections_of(records)
    assert section.models == ["gcn", "glt-laplacian-fixed", "mlp"]
    assert section.datasets == ["texas", "pubmed", "actor"]


def test_usual_runs_is_the_most_frequent_count():
    records = [*draw("gcn", "texas", 3), *draw("gat", "texas", 3), *draw("sage", "texas", 5)]
    assert sections_of(records)[0].usual_runs == statistics.mode([3, 3, 5])
