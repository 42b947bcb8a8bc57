"""The pages in docs say what the records in results hold, and what the tests show."""

import runpy
from pathlib import Path

import pytest

from benchmarks import measure, report
from walksum.paper.report.document import fill_marks
from walksum.paper.report.make import ReportRequest, make

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("table", ["table1", "table2"])
def test_a_page_is_made_from_its_records(table, monkeypatch):
    monkeypatch.chdir(ROOT)
    request = ReportRequest(Path("results") / table, "md", Path(f"docs/{table}.md"))
    assert make(request).content == request.out.read_text(encoding="utf-8"), f"run: {request.command}"


@pytest.mark.parametrize(
    ("page", "script"),
    [
        ("docs/ablation.md", "scripts/ablation_page.py"),
        ("docs/protocols.md", "scripts/protocols_page.py"),
        ("docs/promise.md", "scripts/promise_page.py"),
        ("docs/pyg.md", "scripts/pyg_page.py"),
    ],
)
def test_a_page_holds_the_tables_of_the_records(page, script, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = Path(page).read_text(encoding="utf-8")
    assert runpy.run_path(script)["updated"](text) == text, f"run: python {script}"


@pytest.mark.parametrize("page", ["docs/results.md", "docs/longrange.md", "docs/tables.md"])
def test_a_page_of_several_records_holds_their_tables(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert runpy.run_path(str(ROOT / "scripts" / "pages.py"))["updated"](text, page) == text, "run: scripts/pages.py"


def test_the_page_of_pyg_reads_every_file_of_its_tests():
    files = {path.stem.removeprefix("test_pyg_") for path in (ROOT / "tests" / "pyg").glob("test_pyg_*.py")}
    assert set(runpy.run_path(str(ROOT / "scripts" / "pyg_page.py"))["FILES"]) == files


def test_the_benchmarks_are_made_from_their_records(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    pages = {name: Path("docs", name).read_text(encoding="utf-8") for name in ("results.md", "benchmarks.md")}
    for name, text in pages.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    report.main(["--docs", str(tmp_path)])
    for name, text in pages.items():
        assert (tmp_path / name).read_text(encoding="utf-8") == text, f"{name}: run python -m benchmarks.report"
    rule, effort = " ".join(pages["benchmarks.md"].split()), measure.Effort()
    assert f"A measurement is {effort.runs} runs." in rule
    assert f"up to {effort.rounds} rounds;" in rule


@pytest.mark.data
def test_homophily_is_that_of_the_files():
    from walksum.data.datasets import load
    from walksum.paper.rows import HOMOPHILY

    for name, expected in HOMOPHILY.items():
        data = load(name)
        i, j = data.edge_index
        assert float((data.y[i] == data.y[j]).double().mean()) == pytest.approx(expected, abs=6e-4)


def test_a_page_without_its_marks_is_refused():
    assert fill_marks("a\n<!-- b -->old<!-- /b -->\nc", "b", "new\n") == "a\n<!-- b -->\n\nnew\n\n<!-- /b -->\nc"
    with pytest.raises(ValueError, match="lacks <!-- d --> and <!-- /d -->, each once"):
        fill_marks("<!-- b -->old<!-- /b -->", "d", "new")
