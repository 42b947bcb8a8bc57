"""walksum report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from walksum.cli import completion
from walksum.cli.console import Console


def report(
    console: Console,
    store: Annotated[Path, typer.Argument(help="A folder of records, from 'walksum bench'.")],
    format: Annotated[str, typer.Option(help="text, md, latex, csv or html; default: by the name of --out.")] = "",
    out: Annotated[Path | None, typer.Option(help="File to write; default: print.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Folder to save the plots in, as SVG.")] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            help="Only these rows, a,b,c, or groups: paper, glt, baselines, sign, extra.",
            autocompletion=completion.of_rows,
        ),
    ] = None,
    datasets: Annotated[
        list[str] | None, typer.Option(help="Only these datasets, a,b,c.", autocompletion=completion.of_datasets)
    ] = None,
    protocol: Annotated[str, typer.Option(help="Only runs with this way to split the nodes.")] = "",
) -> None:
    """Make the paper's tables from records: numbers beside the paper's, tests, plots, notes.

    Example: walksum report results/table1 --format html --out table1.html
    """
    from walksum._files import write_file
    from walksum.cli.bench_options import chosen_datasets, chosen_models
    from walksum.paper.report.document import format_of, show
    from walksum.paper.report.make import ReportRequest, make

    rows, columns = tuple(chosen_models(models or [])), tuple(chosen_datasets(datasets)) if datasets else ()
    request = ReportRequest(store, format_of(format, out), out, plots, rows, columns, (protocol,) if protocol else ())
    made = make(request)
    if made.remark:
        console.progress(made.remark, last=True)
    if request.out is not None:
        write_file(request.out, made.content)
        console.say(f"written: {request.out}")
    elif request.format == "text" and made.page is not None and console.out.is_terminal and not console.as_json:
        show(made.page, console.out)
    elif not console.as_json:
        print(made.content, end="")
    places = {"store": str(request.store), "format": request.format, "out": request.out and str(request.out)}
    console.result({**places, "plots": [str(path) for path in made.saved], **made.values})
