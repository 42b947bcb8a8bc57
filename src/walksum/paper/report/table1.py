"""Table 1 as a document: accuracies beside the paper's, tests, runs that were lost, other settings, notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from walksum.paper.report import compare, notes
from walksum.paper.report.document import Block, Bullets, Document, Grid, Picture, TableCell, Title, Words, cells
from walksum.paper.report.grids import claims_grid, dataset_title, matrix_grid, p_text, signed, tests_grid
from walksum.paper.report.sections import Section
from walksum.paper.rows import HOMOPHILY, ROWS
from walksum.paper.sweep.record import Cell

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
    lost: dict[str, int] = {}
    for cell in held:
        for outcome, count in cell.lost.items():
            lost[outcome] = lost.get(outcome, 0) + count
    tail = "".join(f", {count} {outcome}" for outcome, count in sorted(lost.items())) or ", none lost"
    runs = sum(len(cell.records) for cell in held)
    return f"{_many(runs, 'run')} in {_many(len(held), 'cell')}{tail}."


def _many(count: int, word: str) -> str:
    return f"{count} {word}" + "s" * (count != 1)


def _provenance(sections: list[Section]) -> list[Block]:
    """Where the numbers were measured and by what, as far as the records say."""
    held = [record for section in sections for cell in section.cells.values() for record in cell.records]
    devices = Counter(record.device for record in held if record.device)
    made_by = {f"{name} {number}" for record in held for name, number in record.versions.items()}
    said = []
    if devices:
        runs = (f"{device} ({_many(count, 'run')})" for device, count in devices.most_common())
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
