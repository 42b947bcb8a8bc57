"""Table 1 as a document: accuracies beside the paper's, tests, runs that were lost, other settings, notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from walksum.paper.report import compare, notes
from walksum.paper.report.document import Block, Bullets, Document, Grid, Picture, TableCell, Title, Words, cells
from walksum.paper.report.sections import Section
from walksum.paper.rows import HOMOPHILY, PAPER_RUNS, ROWS, TABLE1
from walksum.paper.sweep.record import Cell

TITLES = {"citeseer": "CiteSeer", "pubmed": "PubMed"}


def dataset_title(name: str) -> str:
    return TITLES.get(name, name.capitalize())


def tests_grid(section: Section) -> Grid | None:
    found = {dataset: compare.against_best(section, dataset) for dataset in section.datasets}
    if not any(found.values()):
        return None
    best = {dataset: compare.best_glt(section, dataset) for dataset in section.datasets}
    rows: list[tuple[TableCell, ...] | str] = [
        (TableCell("best GLT row"), *(TableCell("-" if b is None else ROWS[b.model].title) for b in best.values()))
    ]
    for model in section.models:
        tests = [next((t for t in found[d] if t.b == model), None) for d in section.datasets]
        if any(tests):
            rows.append((TableCell(ROWS[model].title), *(_test_cell(test, section.usual_runs) for test in tests)))
    caption = (
        f"Best GLT row less every other row, protocol {section.protocol}: mean difference in points over the shared "
        f"splits ({section.usual_runs}, or the number in brackets); below it p after Holm's correction over the "
        "column. Bold: p < 0.05."
    )
    return Grid(caption, ("Model", *map(dataset_title, section.datasets)), tuple(rows))


def _test_cell(test: compare.Paired | None, usual: int) -> TableCell:
    if test is None or test.pairs == 0:
        return TableCell("-")
    p = "no test" if test.corrected is None else f"p {p_text(test.corrected)}"
    pairs = "" if test.pairs == usual else f" [{test.pairs}]"
    return TableCell(signed(test.difference), p + pairs, strong=test.significant)


def signed(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}"  # + 0.0: no minus before a zero


def p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def matrix_grid(section: Section, dataset: str) -> Grid:
    tests = {(t.a, t.b): t for t in compare.matrix(section, dataset)}
    models = [cell.model for cell in section.of(dataset)]

    def entry(a: str, b: str) -> TableCell:
        test, sign = (tests[a, b], 1) if (a, b) in tests else (tests.get((b, a)), -1)
        if test is None or test.pairs == 0:
            return TableCell("")
        p = "" if test.corrected is None else p_text(test.corrected)
        return TableCell(signed(sign * test.difference), p, strong=test.significant)

    rows = tuple((TableCell(ROWS[a].title), *(entry(a, b) for b in models)) for a in models)
    caption = (
        f"{dataset_title(dataset)}, protocol {section.protocol}: row less column in points; below it p after Holm's "
        "correction over all pairs. Bold: p < 0.05."
    )
    return Grid(caption, (dataset_title(dataset), *(ROWS[m].title for m in models)), rows, folded=True)


def paper_best(dataset: str) -> tuple[str, float, float] | None:
    """Model, mean and standard deviation of the paper's highest row."""
    known = [(model, *cell) for model, row in TABLE1.items() if (cell := row.get(dataset)) is not None]
    return max(known, key=lambda row: row[1], default=None)


def claim(gap: compare.Difference) -> str:
    if gap.value >= 0:
        return "reached"
    if gap.within is None:
        return "too few runs"
    return "no claim: within two standard errors" if gap.within else "below"


def claims_grid(section: Section) -> Grid | None:
    """The best GLT row of each dataset beside the paper's best row of any model; None where neither is known."""
    columns = []
    for dataset in section.datasets:
        ours, best = compare.best_glt(section, dataset), paper_best(dataset)
        if ours is None or ours.mean is None or best is None:
            continue
        model, mean, std = best
        gap = compare.difference(ours.mean, ours.std, ours.runs, mean, std, PAPER_RUNS)
        error = "" if gap.error is None else f"± {gap.error:.1f}"
        columns.append(
            (
                TableCell(dataset_title(dataset)),
                TableCell(f"{mean:.1f}", ROWS[model].title),
                TableCell(f"{ours.mean:.1f}", ROWS[ours.model].title),
                TableCell(signed(gap.value), error),
                TableCell(claim(gap)),
            )
        )
    if not columns:
        return None
    caption = (
        f"Best row of the paper, of any model, and our best GLT row, protocol {section.protocol}. Below the "
        "difference: its standard error. Both rows were picked by their test accuracy, which flatters both."
    )
    return Grid(caption, ("Dataset", "Paper's best", "Best GLT", "Difference", "Claim"), tuple(columns))


GROUPS = {
    "baseline": "The paper's baselines",
    "glt": "The paper's six graph linear transformations",
    "sign": "The other sign of the coupling",
    "extra": "Rows the paper lacks",
}
SHORT = {"oom": "OOM"}


def document(sections: list[Section], source: str, pictures: Iterable[Picture] = (), matrices: bool = True) -> Document:
    """The page.

    Args:
        source: how it was made, for its first paragraph.
        matrices: with the tests of every pair of rows, which take a while and only HTML has room for.
    """
    plain = {section.protocol: section for section in sections if not section.changes}
    blocks: list[Block] = [Words(source), Words(_overview(sections)), *_provenance(sections)]
    for section in sections:
        blocks += _other(section, plain.get(section.protocol)) if section.changes else _main(section, matrices)
    if drawn := [picture for picture in pictures if picture.svg or picture.link]:
        blocks += [Title("Plots"), *drawn]
    blocks += [Title("Notes"), Bullets(tuple(notes.of(sections)))]
    return Document("Table 1: test accuracy", tuple(blocks))


def _overview(sections: list[Section]) -> str:
    held = [cell for section in sections for cell in section.cells.values()]
    lost = sum((Counter(cell.lost) for cell in held), Counter())
    tail = "".join(f", {count} {outcome}" for outcome, count in sorted(lost.items())) or ", none lost"
    runs = sum(len(cell.records) for cell in held)
    return f"{notes.numbered(runs, 'run')} in {notes.numbered(len(held), 'cell')}{tail}."


def _provenance(sections: list[Section]) -> list[Block]:
    """Where the numbers were measured and by what, as far as the records say."""
    held = [record for section in sections for cell in section.cells.values() for record in cell.records]
    devices = Counter(record.device for record in held if record.device)
    made_by = {f"{name} {number}" for record in held for name, number in record.versions.items()}
    said = []
    if devices:
        runs = (f"{device} ({notes.numbered(count, 'run')})" for device, count in devices.most_common())
        said.append(f"Measured on {', '.join(runs)}.")
    if made_by:
        said.append(f"Versions: {', '.join(sorted(made_by))}.")
    return [Words(" ".join(said))] if said else []


def _main(section: Section, matrices: bool) -> list[Block]:
    blocks: list[Block] = [Title(f"Protocol: {section.protocol}"), Words(notes.PROTOCOLS.get(section.protocol, ""))]
    blocks += [_table(section, _against_paper, notes.caption(section)), Words(_agreement(section))]
    claims = claims_grid(section)
    if claims is not None:
        blocks += [Title(f"Against the paper's best ({section.protocol})", 3), claims]
    tests = tests_grid(section)
    if tests is not None:
        blocks += [Title(f"Paired tests ({section.protocol})", 3), Words(notes.TESTS), tests]
        wide = [dataset for dataset in section.datasets if matrices and len(section.of(dataset)) > 2]
        blocks += [matrix_grid(section, dataset) for dataset in wide]
    if any(cell.lost or cell.runs != section.usual_runs for cell in section.cells.values()):
        blocks += [Title(f"Runs ({section.protocol})", 3), _runs(section)]
    return blocks


def _other(section: Section, plain: Section | None) -> list[Block]:
    def beside(cell: Cell) -> str:
        main = plain.cells.get((cell.model, cell.dataset)) if plain else None
        if main is None or main.mean is None or cell.mean is None:
            return ""
        test = compare.paired(cell, main)
        p = "" if test.p is None else f", p {p_text(test.p)}"
        return f"{main.mean:.1f} {signed(cell.mean - main.mean)}{p}"

    caption = (
        f"Test accuracy in %, protocol {section.protocol}, with {section.name} in place of the paper's settings. "
        "Below each: the same row with the paper's settings, the difference, and p of the paired test, uncorrected. "
        + notes.counted(section)
    )
    return [Title(f"Other settings: {section.name} ({section.protocol})"), _table(section, beside, caption)]


def _table(section: Section, beside: Callable[[Cell], str], caption: str) -> Grid:
    marks = {dataset: compare.ranks(section, dataset) for dataset in section.datasets}
    rows: list[tuple[TableCell, ...] | str] = []
    if any(dataset in HOMOPHILY for dataset in section.datasets):
        known = (f"{HOMOPHILY[d]:.2f}" if d in HOMOPHILY else "" for d in section.datasets)
        rows.append(cells("Homophily", *known))
    for group, heading in GROUPS.items():
        members = [model for model in section.models if ROWS[model].group == group]
        if members:
            rows.append(heading)
        for model in members:
            row = [TableCell(ROWS[model].title)]
            for dataset in section.datasets:
                cell = section.cells.get((model, dataset))
                best, second = marks[dataset]
                row.append(
                    TableCell("-")
                    if cell is None
                    else TableCell(score(cell, section), beside(cell), model in best, model in second)
                )
            rows.append(tuple(row))
    return Grid(caption, ("Model", *map(dataset_title, section.datasets)), tuple(rows))


def score(cell: Cell, section: Section) -> str:
    """mean ± std as printed; how the runs ended where none of them counts."""
    if cell.mean is None:
        return ", ".join(SHORT.get(outcome, outcome) for outcome in sorted(cell.lost))
    spread = "" if cell.std is None else f" ± {cell.std:.1f}"
    return f"{cell.mean:.1f}{spread}" + ("" if cell.runs == section.usual_runs else f" [{cell.runs}]")


def _against_paper(cell: Cell) -> str:
    paper, gap = compare.paper_cell(cell.model, cell.dataset), compare.from_paper(cell)
    if paper is None:
        return "OOM" if cell.model in compare.TABLE1 and cell.dataset in HOMOPHILY else ""
    text = f"{paper[0]:.1f} ± {paper[1]:.1f}"
    return text if gap is None else f"{text}, {signed(gap.value)}{'*' if gap.within is False else ''}"


def _agreement(section: Section) -> str:
    gaps = [gap for cell in section.cells.values() if (gap := compare.from_paper(cell)) and gap.error is not None]
    if not gaps:
        return "No cell can be compared with the paper yet: that takes two runs of a row the paper has."
    above = sum(gap.within is False and gap.value > 0 for gap in gaps)
    below = sum(gap.within is False and gap.value < 0 for gap in gaps)
    return (
        f"Of {len(gaps)} cells that the paper has too, {len(gaps) - above - below} are within two standard errors of "
        f"its value, {above} above and {below} below. Every cell shares its splits with its column, so these counts "
        "are not independent."
    )


def _runs(section: Section) -> Grid:
    def entry(model: str, dataset: str) -> TableCell:
        cell = section.cells.get((model, dataset))
        if cell is None:
            return TableCell("-")
        return TableCell(
            str(cell.runs), ", ".join(f"{count} {outcome}" for outcome, count in sorted(cell.lost.items()))
        )

    held = [section.cells[at] for at in section.cells]
    uneven = {cell.model for cell in held if cell.lost or cell.runs != section.usual_runs}
    models = [model for model in section.models if model in uneven]
    rows = tuple((TableCell(ROWS[m].title), *(entry(m, d) for d in section.datasets)) for m in models)
    caption = (
        f"Runs that count, protocol {section.protocol}; below them those that ended otherwise. Rows not listed have "
        f"{section.usual_runs} in every cell they fill."
    )
    return Grid(caption, ("Model", *map(dataset_title, section.datasets)), rows)
