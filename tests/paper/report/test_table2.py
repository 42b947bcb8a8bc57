import csv
import io

import pytest

from walksum.paper.report import document as render
from walksum.paper.report import make, table2
from walksum.paper.report.document import Grid
from walksum.paper.report.table2 import Table2, finding
from walksum.paper.solve_record import SolveRecord

MODEL = "glt-diagonally-dominant-fixed"
TEMPLATE = {
    **{"model": MODEL, "dataset": "cora", "seed": 0, "epoch": 1, "layer": 0, "met": True, "status": "converged"},
    **{"residual": 1e-7, "error": 1e-6, "worst_error": 1e-6, "size": 2.0},
    **{"nodes": 9, "edges": 9, "heads": 1, "columns": 4, "train_nodes": 5},
}


def solve(direction, rule, steps, **changes):
    return SolveRecord(**{**TEMPLATE, "direction": direction, "rule": rule, "steps": steps, **changes})


def probe(ahead, back, rescaled, by_residual=(50, 50), **changes):
    """Forward and backward under the paper's rule, backward rescaled, both by residual."""
    small = {"size": 0.02, **changes}
    return [
        solve("forward", "messages", ahead, **changes),
        solve("backward", "messages", back, **{"residual": 1e-4, "error": 0.01, **small}),
        solve("backward", "rescaled", rescaled, **changes),
        solve("forward", "residual", by_residual[0], **changes),
        solve("backward", "residual", by_residual[1], **small),
    ]


ARTEFACT = Table2((*probe(100, 25, 100), *probe(120, 30, 120, epoch=2)))
REAL = Table2((*probe(100, 25, 25, (80, 20)),))


def grid(made, word):
    return next(block for block in made.blocks if isinstance(block, Grid) and word in block.caption)


def test_ranges_stand_beside_the_papers():
    made = table2.document(ARTEFACT, "x")
    (row,) = grid(made, "Steps of GaBP").rows
    assert [cell.text for cell in row] == [
        *("(F) Diagonally Dominant", "70 - 200", "100 - 120", "20 - 25", "25 - 30", "100 - 120", "50", "50")
    ]


def test_what_was_cut_off_is_marked():
    cut = solve("forward", "messages", 1000, met=False)
    assert Table2((cut,)).group("forward", "messages").range() == ">1000"
    assert (
        Table2((cut, solve("forward", "messages", 900, layer=1))).group("forward", "messages").range() == "900 - >1000"
    )
    assert Table2(()).group("forward", "messages").range() == "-"


def test_an_artefact_is_called_one():
    found = finding(ARTEFACT)
    assert found.speedup == {
        "messages": pytest.approx(4.0),
        "rescaled": pytest.approx(1.0),
        "residual": pytest.approx(1.0),
    }
    assert found.by_size == pytest.approx(1.0)
    assert found.by_rule == pytest.approx(1.0)
    assert found.size == pytest.approx(0.01)
    said = table2.conclusion(found)
    assert "is mostly an artefact" in said
    assert "1/100 of that of h" in said
    assert "forward takes 4.00 times the steps" in said
    assert "0 of 2 backward solves stopped with a true residual above 0.001 and 2 with an error above 0.001" in said


def test_a_real_difference_is_not():
    found = finding(REAL)
    assert found.by_size == pytest.approx(0.0)
    assert found.by_rule == pytest.approx(0.0)
    assert "is not mostly an artefact" in table2.conclusion(found)


def test_half_explained_by_hand():
    found = finding(Table2(tuple(probe(100, 25, 50))))  # 4 = 2 * 2
    assert found.by_size == pytest.approx(0.5)
    assert found.artefact is False


def test_nothing_to_explain():
    assert "there is nothing to explain" in table2.conclusion(finding(Table2(tuple(probe(30, 30, 30)))))


def test_pairs_that_were_cut_off_do_not_count():
    cut = [solve("forward", "messages", 1000, met=False, layer=1), solve("backward", "messages", 10, layer=1)]
    assert finding(Table2((*ARTEFACT.records, *cut))).speedup == finding(ARTEFACT).speedup


def test_ranges_apart_from_the_papers_are_named():
    said = table2._other_ranges(Table2(tuple(probe(30, 500, 500))))
    assert "(F) Diagonally Dominant, forward: 30 (paper 70 - 200)" in said
    assert "(F) Diagonally Dominant, backward: 500 (paper 20 - 25)" in said
    assert table2._other_ranges(ARTEFACT) == "Every range under the paper's rule overlaps the paper's."
    lap = "glt-laplacian-fixed"
    said = table2._other_ranges(
        Table2((solve("forward", "messages", 1000, met=False, model=lap), solve("backward", "messages", 90, model=lap)))
    )
    assert "forward" not in said
    assert "(F) Laplacian, backward: 90 (paper >1000)" in said


def test_nan_errors_count_as_large():
    bad = Table2((solve("backward", "messages", 5, residual=float("nan")),))
    assert bad.group("backward", "messages").above("residual") == 1


@pytest.mark.parametrize("name", ["text", "md", "html"])
def test_every_format_has_the_numbers_and_the_conclusion(name):
    out = render.render(table2.document(ARTEFACT, "x"), name)
    assert "100 - 120" in " ".join(out.split())
    assert "mostly an artefact" in " ".join(out.split())


def test_csv():
    out = make.as_csv(make.TABLE2_COLUMNS, make.table2_rows(ARTEFACT))
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 5
    (row,) = (r for r in rows if (r["direction"], r["rule"]) == ("backward", "messages"))
    assert (row["solves"], row["steps_min"], row["steps_median"], row["steps_max"]) == ("2", "25", "27.5", "30")
    assert (row["error_max"], row["paper_min"], row["paper_max"], row["cut_off"]) == ("0.01", "20", "25", "0")


def test_a_design_the_paper_lacks_has_no_range():
    other = Table2((solve("forward", "messages", 5, model="glt-pairwise-normal-fixed-attractive"),))
    (row,) = grid(table2.document(other, "x"), "Steps of GaBP").rows
    assert [cell.text for cell in row][1:4] == ["-", "5", "-"]
    assert make.table2_rows(other)[0]["paper_min"] is None
