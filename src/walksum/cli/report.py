"""walksum report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walksum.cli import choices
from walksum.cli.voice import Debug, Json, Quiet, Voice, speak

if TYPE_CHECKING:
    from walksum.report.document import Document, Picture
    from walksum.report.sections import Section
    from walksum.report.source import Wanted


def report(
    store: Annotated[Path, typer.Argument(help="A folder of records, from 'walksum bench'.")],
    format: Annotated[str, typer.Option(help="text, md, latex, csv or html; default: by the name of --out.")] = "",
    out: Annotated[Path | None, typer.Option(help="File to write; default: print.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Folder to save the plots in, as SVG.")] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these rows, a,b,c, or groups: paper, glt, baselines, sign, extra.",
            autocompletion=choices.of_rows,
        ),
    ] = None,
    datasets: Annotated[
        list[str] | None, typer.Option(help="Only these datasets, a,b,c.", autocompletion=choices.of_datasets)
    ] = None,
    protocol: Annotated[str, typer.Option(help="Only runs with this way to split the nodes.")] = "",
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Make the paper's tables from records: numbers beside the paper's, tests, plots, notes.

    Example: walksum report results/table1 --format html --out table1.html
    """
    voice = Voice(as_json, quiet, debug)

    def action() -> None:
        from walksum.cli.bench_choices import chosen_datasets, chosen_models
        from walksum.report.source import Wanted

        columns = tuple(chosen_datasets(datasets)) if datasets else ()
        wanted = Wanted(tuple(chosen_models(models or [])), columns, (protocol,) if protocol else ())
        _report(voice, store, format, out, plots, wanted)

    speak(voice, action)


def _report(voice: Voice, store: Path, format: str, out: Path | None, plots: Path | None, wanted: Wanted) -> None:
    from walksum.report import files, source

    chosen = files.format_of(format, out)
    kind = source.kind_of(store)
    how = f"Made by `{_command(store, chosen, out, plots, wanted)}`."
    content, page, rows, saved = (_table1 if kind == "table1" else _table2)(
        voice, store, chosen, out, plots, wanted, how
    )
    if out is not None:
        files.write(out, content)
        voice.say(f"written: {out}")
    elif chosen == "text" and page is not None and voice.out.is_terminal and not voice.as_json:
        files.text.show(page, voice.out)
    elif not voice.as_json:
        print(content, end="")
    names = [str(path) for path in saved]
    voice.result(
        {"store": str(store), "kind": kind, "format": chosen, "out": out and str(out), "plots": names, "rows": rows}
    )


Made = tuple[str, "Document | None", list[dict[str, Any]], list[Path]]


def _table1(
    voice: Voice, store: Path, format: str, out: Path | None, plots: Path | None, wanted: Wanted, how: str
) -> Made:
    from walksum.report import files, source, table, table1
    from walksum.report.sections import sections_of

    sections = sections_of(source.runs_of(store, wanted))
    rows = table.table1_rows(sections)
    pictures = _pictures(sections, format == "html", out, plots)
    saved = [path for path, _ in pictures if path is not None]
    if format == "csv":
        left = sum(len(s.cells) for s in sections if s.changes)
        if left:
            voice.progress(f"{left} cells with other settings than the paper's are not in the CSV", last=True)
        return table.as_csv(table.TABLE1_COLUMNS, rows), None, rows, saved
    page = table1.document(sections, how, [picture for _, picture in pictures])
    return files.render(page, format), page, rows, saved


def _table2(
    voice: Voice, store: Path, format: str, out: Path | None, plots: Path | None, wanted: Wanted, how: str
) -> Made:
    from walksum.report import files, source, table, table2, table2_page

    if plots is not None:
        raise ValueError(f"--plots: {store} is a store of Table 2, which has no plots; leave it out")
    held = table2.Table2(tuple(source.solves_of(store, wanted)))
    rows = table.table2_rows(held)
    if format == "csv":
        return table.as_csv(table.TABLE2_COLUMNS, rows), None, rows, []
    page = table2_page.document(held, how)
    return files.render(page, format), page, rows, []


def _pictures(
    sections: list[Section], inside: bool, out: Path | None, folder: Path | None
) -> list[tuple[Path | None, Picture]]:
    """The plots of the main tables: saved where a folder is named, and drawn into a page that can hold them."""
    if not inside and folder is None:
        return []
    from walksum.report import files
    from walksum.report.document import Picture
    from walksum.report.plots import as_svg, plots_of

    made: list[tuple[Path | None, Picture]] = []
    for section in (section for section in sections if not section.changes):
        for name, (title, figure) in plots_of(section).items():
            salt, path, link = f"{section.protocol}-{name}", None, ""
            if folder is not None:
                path = folder / f"{salt}.svg"
                files.write(path, as_svg(figure, salt, inside=False))
                link = os.path.relpath(path, out.parent) if out else str(path)
            svg = as_svg(figure, salt, inside=True) if inside else ""
            made.append((path, Picture(f"{title} (protocol {section.protocol})", svg, link)))
    return made


def _command(store: Path, format: str, out: Path | None, plots: Path | None, wanted: Wanted) -> str:
    named = (("models", wanted.models), ("datasets", wanted.datasets), ("protocol", wanted.protocols))
    parts = ["walksum report", str(store), f"--format {format}"]
    parts += [f"--{name} {value}" for name, value in (("out", out), ("plots", plots)) if value is not None]
    parts += [f"--{name} {','.join(values)}" for name, values in named if values]
    return " ".join(parts)
