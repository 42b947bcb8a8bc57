import csv
import dataclasses
import io
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from synthetic import draw, run
from walksum.paper.report import document as render
from walksum.paper.report import make, notes, table1
from walksum.paper.report.document import Bullets, Document, Grid, Picture, TableCell, Title, Words
from walksum.paper.report.make import ReportRequest
from walksum.paper.report.plots import as_svg, plots_of
from walksum.paper.report.sections import sections_of
from walksum.paper.rows import ROWS


@pytest.fixture(scope="module")
def sections():
    models = ("gcn", "gat", "sat", "glt-laplacian-fixed", "glt-pairwise-normal-fixed-attractive", "mlp")
    records = [r for m in models for d in ("texas", "cornell", "cora") for r in draw(m, d, 6, full=True)]
    records += [run("sat", "pubmed", seed, 0.0, "oom") for seed in range(6)]
    records += draw("gat", "texas", 4, protocol="one-split")
    records += draw("glt-laplacian-fixed", "cora", 3, dropout=0.1)
    return sections_of(records)


@pytest.fixture(scope="module")
def page(sections):
    drawn = [Picture(title, as_svg(fig, name, True)) for name, (title, fig) in plots_of(sections[0]).items()]
    return table1.document(sections, "Made by `hand`.", drawn)


def main_table(page):
    return next(block for block in page.blocks if isinstance(block, Grid))


def row_of(grid, title):
    return next(row for row in grid.rows if not isinstance(row, str) and row[0].text == title)


def test_csv_has_exactly_these_columns(sections):
    out = make.as_csv(make.TABLE1_COLUMNS, make.table1_rows(sections))
    assert out.splitlines()[0] == "model,dataset,protocol,runs,mean,std,paper_mean,paper_std"
    rows = list(csv.DictReader(io.StringIO(out)))
    cell = sections[0].cells["gat", "cora"]
    (found,) = (r for r in rows if (r["model"], r["dataset"], r["protocol"]) == ("gat", "cora", "random"))
    assert float(found["mean"]) == pytest.approx(cell.mean, rel=1e-5)
    assert float(found["std"]) == pytest.approx(cell.std, rel=1e-5)
    assert (found["runs"], found["paper_mean"], found["paper_std"]) == ("6", "76.6", "1.1")


def test_csv_leaves_empty_what_is_unknown_and_other_settings_out(sections):
    rows = make.table1_rows(sections)
    (lost,) = (r for r in rows if (r["model"], r["dataset"]) == ("sat", "pubmed"))
    assert make.as_csv(make.TABLE1_COLUMNS, [lost]).splitlines()[1] == "sat,pubmed,random,0,,,,"
    assert [r["runs"] for r in rows if (r["model"], r["dataset"]) == ("glt-laplacian-fixed", "cora")] == [6]
    (mlp, *_) = (r for r in rows if r["model"] == "mlp")
    assert mlp["paper_mean"] is None


def test_the_table_shows_ours_the_papers_and_the_difference(page, sections):
    cell = sections[0].cells["gcn", "cora"]
    (shown,) = (
        c for c, name in zip(row_of(main_table(page), "GCN"), main_table(page).columns, strict=True) if name == "Cora"
    )
    assert shown.text == f"{cell.mean:.1f} ± {cell.std:.1f}"
    assert shown.below.startswith(f"80.2 ± 0.3, {cell.mean - 80.2:+.1f}")


def test_groups_and_order(page):
    headings = [row for row in main_table(page).rows if isinstance(row, str)]
    assert headings == list(table1.GROUPS.values())
    assert main_table(page).columns == ("Model", "Texas", "Cornell", "Cora", "PubMed")


def test_out_of_memory_is_said_as_in_the_paper(page):
    assert row_of(main_table(page), "SAT")[-1].text == "OOM"
    assert row_of(main_table(page), "SAT")[-1].below == "OOM"
    assert row_of(main_table(page), "GCN")[-1].text == "-"


def test_each_protocol_and_setting_has_its_own_table(page):
    titles = [block.text for block in page.blocks if isinstance(block, Title) and block.level == 2]
    assert titles[:3] == ["Protocol: random", "Protocol: one-split", "Other settings: dropout=0.1 (random)"]


def test_other_settings_are_compared_with_our_own(page, sections):
    grid = next(block for block in page.blocks if isinstance(block, Grid) and "dropout=0.1" in block.caption)
    main, other = sections[0].cells["glt-laplacian-fixed", "cora"], sections[2].cells["glt-laplacian-fixed", "cora"]
    shown = row_of(grid, "(F) Laplacian")[1].below
    assert shown.startswith(f"{main.mean:.1f} {round(other.mean - main.mean, 1) + 0.0:+.1f}")


def test_notes_say_what_a_reader_must_know(page):
    (bullets,) = (block for block in page.blocks if isinstance(block, Bullets))
    said = " ".join(bullets.items)
    for words in (
        "Texas and Cornell",
        "18 of 37",
        "share nothing but the split",
        "attractive (J_ij < 0",
        "out of memory",
        "0.001 and 200 epochs for (F) Laplacian",
    ):
        assert words in said


def test_the_signs_are_the_designs_own():
    assert notes._sign(ROWS["glt-pairwise-normal-fixed"]) == "repulsive"
    assert notes._sign(ROWS["glt-diagonally-dominant-fixed"]) == "attractive"
    assert notes._sign(ROWS["glt-diagonally-dominant-fixed-repulsive"]) == "repulsive"


def test_ties_are_noted():
    tied = sections_of([run("gcn", "cora", 0, 80.0), run("gat", "cora", 0, 80.0)])
    assert any("Tie for best (cora, random): GCN, GAT" in note for note in notes.of(tied))


def test_cells_below_the_paper_are_named():
    below = [run("gde", d, seed, 40.0 + 0.1 * (-1) ** seed) for d in ("cornell", "cora") for seed in range(6)]
    above = [run("gcn", "cora", seed, 90.0 + 0.1 * (-1) ** seed) for seed in range(6)]
    (said,) = (note for note in notes.of(sections_of(below + above)) if note.startswith("Below the paper"))
    assert "standard errors: GDE on cornell, cora. " in said
    assert not any(note.startswith("Below the paper") for note in notes.of(sections_of(above)))
    other = [dataclasses.replace(r, spec=dataclasses.replace(r.spec, protocol="one-split")) for r in below]
    assert not any(note.startswith("Below the paper") for note in notes.of(sections_of(other)))


def test_runs_on_another_split_are_noted():
    held = [run(model, "cora", seed, 80.0) for model in ("gcn", "gat", "sage") for seed in range(2)]
    assert not any("another split" in note for note in notes.of(sections_of(held)))
    held.append(run("mlp", "cora", 1, 80.0, split="odd"))
    assert any(note.startswith("cora, random: 1 run had another split") for note in notes.of(sections_of(held)))


def test_the_page_says_where_it_was_measured():
    record = dataclasses.replace(run("mlp", "texas", 0, 80.0), device="A GPU", versions={"torch": "2.9"})
    said = render.markdown(table1.document(sections_of([record]), "x"))
    assert "Measured on A GPU (1 run). Versions: torch 2.9." in said
    assert "Measured on" not in render.markdown(table1.document(sections_of([run("mlp", "texas", 0, 80.0)]), "x"))


def test_the_verdict_counts_by_hand():
    near = [run("gcn", "cora", seed, 80.2 + 0.1 * (-1) ** seed) for seed in range(6)]
    above = [run("gat", "cora", seed, 90.0 + 0.1 * (-1) ** seed) for seed in range(6)]
    below = [run("gde", "cora", seed, 60.0 + 0.1 * (-1) ** seed) for seed in range(6)]
    said = table1._agreement(sections_of(near + above + below)[0])
    assert said.startswith(
        "Of 3 cells that the paper has too, 1 are within two standard errors of its value, 1 above and 1 below"
    )


def test_a_store_with_one_run_still_gives_a_page():
    made = table1.document(sections_of([run("mlp", "texas", 0, 80.0)]), "x")
    for name in ("text", "md", "html"):
        assert "80.0" in render.render(made, name)


def test_markdown_marks_and_escapes(page):
    out = render.markdown(page)
    assert out.startswith("# Table 1: test accuracy\n")
    lines = [line for line in out.splitlines() if line.startswith("|")]
    assert lines
    assert all(len(re.findall(r"(?<!\\)\|", line)) >= 3 for line in lines)
    assert re.search(r"\*\*\d+\.\d&nbsp;±&nbsp;\d+\.\d\*\*", out)
    assert re.search(r"<u>\d+\.\d&nbsp;±&nbsp;\d+\.\d</u>", out)
    grid = Grid("c", ("a|b", "c"), ((TableCell("x|y"), TableCell("1 < 2*", "p_q")),))
    assert r"| x\|y | 1 &lt; 2\*<br><small>p\_q</small> |" in render.markdown(Document("t", (grid,)))


def test_latex_is_balanced(page):
    out = render.render(page, "latex")
    plain = re.sub(r"\\[{}%&$#_]", "", out)
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert sorted(re.findall(r"\\begin\{(.*?)\}", out)) == sorted(re.findall(r"\\end\{(.*?)\}", out))
    assert all(mark in out for mark in (r"\toprule", r"\bottomrule", r"\textbf{", r"\underline{", r"$\pm$"))
    body = out.split(r"\toprule")[1].split(r"\bottomrule")[0]
    cells = [line for line in body.splitlines() if line.strip().endswith(r"\\") and "multicolumn" not in line]
    assert len({len(re.findall(r"(?<!\\)&", line)) for line in cells}) == 1


def test_latex_escapes():
    out = render.render(Document("t", (Words("a_b & 5 % `x` < 1 ± 2"),)), "latex")
    assert r"a\_b \& 5 \% \texttt{x} $<$ 1 $\pm$ 2" in out


def test_markdown_links_pictures_only_where_they_are():
    held = Picture("t", "<svg/>"), Picture("u", "", "images/u.svg")
    assert render.markdown(Document("t", held)) == "# t\n\n![u](images/u.svg)\n"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a browser")
def test_a_click_sorts_by_the_number_and_not_by_what_stands_below(tmp_path):
    rows = tuple(
        (TableCell(name), TableCell(*texts)) for name, *texts in (("a", "27", "32 - 48"), ("b", "38", "5"), ("c", "9"))
    )
    file, click = tmp_path / "page.html", "<script>document.querySelectorAll('thead button')[1].click()</script>"
    file.write_text(render.html(Document("t", (Grid("c", ("name", "steps"), rows),))) + click, encoding="utf-8")
    flags = ("--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom")
    found = subprocess.run(["chromium", *flags, file.as_uri()], capture_output=True, text=True, check=True, timeout=120)
    assert re.findall(r"<tr><td><span>(\w)</span>", found.stdout) == ["b", "a", "c"]


def test_the_command_of_a_report_survives_a_shell():
    request = ReportRequest(Path("my store"), "md", Path("a'b.md"), models=("gcn", "gat"))
    assert shlex.split(request.command) == [
        *("walksum", "report", "my store", "--format", "md", "--out", "a'b.md", "--models", "gcn,gat")
    ]


def test_html_needs_nothing_else(page):
    out = render.html(page)
    assert len(out) < 5_000_000
    assert not re.search(r"https?:|//cdn|<link|<img|@import|url\((?!#)|src=", out)
    assert out.count("<svg") == out.count("</svg>") == 4
    assert "prefers-color-scheme: dark" in out
    assert "every pair of rows" in out
    assert 'class="best"' in out
    assert 'class="second"' in out


def test_html_escapes_and_knows_code():
    out = render.html(Document("<t>", (Words("a < `b`"),)))
    assert "<title>&lt;t&gt;</title>" in out
    assert "<p>a &lt; <code>b</code></p>" in out


def test_text_without_a_terminal_marks_bold_and_underline():
    out = render.text(
        Document("t", (Grid("c", ("a", "b"), ((TableCell("x", strong=True), TableCell("y", underlined=True)),)),))
    )
    assert "**x**" in out
    assert "_y_" in out


def test_folded_grids_are_for_html_alone(page):
    for name in ("text", "md"):
        assert "row less column" not in render.render(page, name)
    assert "row less column" in render.render(page, "html")


def test_format_by_name_and_by_file(tmp_path):
    assert [render.format_of("", tmp_path / name) for name in ("a.md", "a.HTML", "a.csv", "a")] == [
        *("md", "html", "csv", "text")
    ]
    assert render.format_of("html", tmp_path / "a.md") == "html"
    with pytest.raises(ValueError, match="format='pdf' is unknown; choose among text, md, latex, csv, html"):
        render.format_of("pdf", None)


def test_plots_only_of_what_is_recorded():
    assert set(plots_of(sections_of(draw("mlp", "texas"))[0])) == {"seconds"}
    assert set(plots_of(sections_of(draw("gcn", "texas", full=True))[0])) == {"homophily", "curves", "seconds"}


def test_every_word_of_a_plot_in_a_page_has_the_colour_of_the_page(page):
    plots = [block.svg for block in page.blocks if isinstance(block, Picture)]
    assert plots
    for svg in plots:
        words = re.findall(r"<text[^>]*style=\"([^\"]*)\"", svg)
        assert words
        assert all("fill: currentColor" in style for style in words)


def test_a_plot_as_a_file_is_a_whole_svg(sections):
    once, again = (as_svg(plots_of(sections[0])["curves"][1], "x", inside=False) for _ in range(2))
    assert once.startswith("<?xml")
    assert once == again  # the same bytes each time: no dates, no random names
