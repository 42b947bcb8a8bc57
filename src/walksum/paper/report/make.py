"""From a store to a page: the one way the report's parts are put together."""

from __future__ import annotations

import itertools
import os
import shlex
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from walksum._files import write_file
from walksum.data.splits import PROTOCOLS
from walksum.paper.report import compare, table1, table2
from walksum.paper.report.document import Document, Picture, render
from walksum.paper.report.sections import Section, sections_of
from walksum.paper.report.table2 import DIRECTIONS, Table2
from walksum.paper.rows import TABLE2, row_of
from walksum.paper.solve_record import FILE as SOLVES
from walksum.paper.solve_record import RULES, SolveRecord, read_solves
from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.store import RECORDS, read_records

TABLE1_COLUMNS = ("model", "dataset", "protocol", "runs", "mean", "std", "paper_mean", "paper_std")
TABLE2_COLUMNS = (
    *("model", "direction", "rule", "solves", "steps_min", "steps_median", "steps_max", "cut_off"),
    *("residual_median", "residual_max", "error_median", "error_max", "paper_min", "paper_max"),
)


def table1_rows(sections: list[Section]) -> list[dict[str, Any]]:
    """The cells with the paper's settings: these columns could not tell others apart."""
    rows = []
    for section in (section for section in sections if not section.changes):
        for at in itertools.product(section.models, section.datasets):
            if cell := section.cells.get(at):
                paper = compare.paper_cell(*at) or (None, None)
                row = (*at, section.protocol, cell.runs, cell.mean, cell.std, *paper)
                rows.append(dict(zip(TABLE1_COLUMNS, row, strict=True)))
    return rows


def table1_tests(sections: list[Section]) -> list[dict[str, Any]]:
    """The best GLT row of each column against the others."""
    return [
        {"protocol": section.protocol, "settings": section.name, "dataset": dataset, **asdict(test)}
        for section in sections
        for dataset in section.datasets
        for test in compare.against_best(section, dataset)
    ]


def table2_rows(table: Table2) -> list[dict[str, Any]]:
    rows = []
    for model, direction, rule in itertools.product(table.models, DIRECTIONS, RULES):
        group = table.group(direction, rule, [model])
        if group.records:
            paper = TABLE2[model][DIRECTIONS.index(direction)] if model in TABLE2 else (None, None)
            steps = (min(group.steps), group.median("steps"), max(group.steps), group.unmet)
            left = [f(name) for name in ("residual", "error") for f in (group.median, group.worst)]
            row = (model, direction, rule, len(group.records), *steps, *left, *paper)
            rows.append(dict(zip(TABLE2_COLUMNS, row, strict=True)))
    return rows


def as_csv(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> str:
    return pd.DataFrame(rows, columns=list(columns)).to_csv(index=False, float_format="%.6g", lineterminator="\n")


HINT = "fill one with 'walksum bench table1' or 'walksum bench table2'"


@dataclass(frozen=True)
class ReportRequest:
    """What a report is to be made of, and into what; without models, datasets or protocols: of all there are."""

    store: Path
    format: str = "text"
    out: Path | None = None
    plots: Path | None = None
    models: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for model in self.models:
            row_of(model)
        for protocol in self.protocols:
            if protocol not in PROTOCOLS:
                raise ValueError(f"protocol={protocol!r} is unknown; choose among {', '.join(PROTOCOLS)}")

    def takes(self, model: str, dataset: str, protocol: str) -> bool:
        pairs = ((self.models, model), (self.datasets, dataset), (self.protocols, protocol))
        return all(not chosen or value in chosen for chosen, value in pairs)

    @property
    def command(self) -> str:
        """The command that makes the same again."""
        options: dict[str, Any] = {"out": self.out, "plots": self.plots, "models": ",".join(self.models)}
        options |= {"datasets": ",".join(self.datasets), "protocol": ",".join(self.protocols)}
        named = [word for name, value in options.items() if value for word in (f"--{name}", str(value))]
        return shlex.join(["walksum", "report", str(self.store), "--format", self.format, *named])


def kind_of(store: Path) -> str:
    """ "table1" or "table2", by the file a folder holds."""
    if not store.is_dir():
        what = "is a file, not a folder" if store.exists() else "does not exist"
        raise ValueError(f"store {store} {what}; name a folder with {RECORDS} or {SOLVES}, or {HINT}")
    for name, kind in ((RECORDS, "table1"), (SOLVES, "table2")):
        if (store / name).is_file():
            return kind
    if (store / "report.html").is_file():
        raise ValueError(f"store {store} is a run, whose page is there already: open {store / 'report.html'}")
    raise ValueError(f"store {store} holds neither {RECORDS} nor {SOLVES}; {HINT}")


def runs_of(request: ReportRequest) -> list[RunRecord]:
    held = read_records(request.store)
    return _chosen(request, held, [(r.spec.model, r.spec.dataset, r.spec.protocol) for r in held])


def solves_of(request: ReportRequest) -> list[SolveRecord]:
    held = read_solves(request.store)
    return _chosen(request, held, [(r.model, r.dataset, "random") for r in held])


def _chosen(request: ReportRequest, held: list[Any], names: list[tuple[str, str, str]]) -> list[Any]:
    """The records that are asked for; ``names``: model, dataset and protocol of each."""
    if not held:
        raise ValueError(f"store {request.store} is empty; {HINT}")
    found = [record for record, each in zip(held, names, strict=True) if request.takes(*each)]
    if not found:
        parts = zip(*sorted(set(names)), strict=True)
        models, datasets, protocols = (", ".join(dict.fromkeys(part)) for part in parts)
        raise ValueError(
            f"store {request.store} has nothing of what was asked for; it holds the models {models}, the datasets "
            f"{datasets} and the protocols {protocols}"
        )
    return found


@dataclass(frozen=True)
class Report:
    """A report in its format, as a document (CSV is none), and as values for machines."""

    content: str
    page: Document | None
    values: dict[str, Any]
    saved: list[Path] = field(default_factory=list)
    remark: str = ""


def make(request: ReportRequest) -> Report:
    """Read the store, whichever table it is of, and save the plots where that was asked for."""
    return (_table1 if kind_of(request.store) == "table1" else _table2)(request)


def _table1(request: ReportRequest) -> Report:
    sections = sections_of(runs_of(request))
    values: dict[str, Any] = {"kind": "table1", "rows": table1_rows(sections), "tests": table1_tests(sections)}
    drawn = _pictures(sections, request)
    saved = [path for path, _ in drawn if path is not None]
    if request.format == "csv":
        left = sum(len(section.cells) for section in sections if section.changes)
        remark = f"{left} cells with other settings than the paper's are not in the CSV" if left else ""
        return Report(as_csv(TABLE1_COLUMNS, values["rows"]), None, values, saved, remark)
    pictures = [picture for _, picture in drawn]
    page = table1.document(sections, _source(request), pictures, matrices=request.format == "html")
    return Report(render(page, request.format), page, values, saved)


def _table2(request: ReportRequest) -> Report:
    if request.plots is not None:
        raise ValueError(f"plots=: {request.store} is a store of Table 2, which has no plots; leave it out")
    held = table2.Table2(tuple(solves_of(request)))
    values: dict[str, Any] = {"kind": "table2", "rows": table2_rows(held)}
    if request.format == "csv":
        return Report(as_csv(TABLE2_COLUMNS, values["rows"]), None, values)
    page = table2.document(held, _source(request))
    return Report(render(page, request.format), page, values)


def _source(request: ReportRequest) -> str:
    return f"Made by `{request.command}`."


def _pictures(sections: list[Section], request: ReportRequest) -> list[tuple[Path | None, Picture]]:
    """The plots of the main tables: saved where a folder is named, and drawn into a page that can hold them."""
    inside = request.format == "html"
    if not inside and request.plots is None:
        return []
    from walksum.paper.report.plots import as_svg, plots_of  # matplotlib takes a second to import

    made: list[tuple[Path | None, Picture]] = []
    for section in (section for section in sections if not section.changes):
        for name, (title, figure) in plots_of(section).items():
            salt, path, link = f"{section.protocol}-{name}", None, ""
            if request.plots is not None:
                path = request.plots / f"{salt}.svg"
                write_file(path, as_svg(figure, salt, inside=False))
                link = os.path.relpath(path, request.out.parent) if request.out else str(path)
            svg = as_svg(figure, salt, inside=True) if inside else ""
            made.append((path, Picture(f"{title} (protocol {section.protocol})", svg, link)))
    return made
