"""walksum predict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from walksum.cli import completion
from walksum.cli.console import Console, DropUnknown, Encoding, missing_folders


def predict(
    console: Console,
    run: Annotated[Path, typer.Argument(help="A folder written by 'walksum train'.")],
    nodes: Annotated[Path | None, typer.Option(help="Nodes, with the columns of the training table.")] = None,
    edges: Annotated[Path | None, typer.Option(help="Edges between them.")] = None,
    graph: Annotated[Path | None, typer.Option(help="The graph as one file: GraphML, or a PyG Data as .pt.")] = None,
    out: Annotated[Path, typer.Option(help="File to write: CSV, or Parquet by its name.")] = Path("predictions.csv"),
    drop_unknown: DropUnknown = False,
    encoding: Encoding = "utf-8",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", autocompletion=completion.of_devices)] = "auto",
) -> None:
    """Predict with a trained run, on its own graph or a new one.

    The columns are found and encoded as in training. Categories that training did not see count as none. A portfolio
    also reads the targets that are known in these tables.

    Example: walksum predict my-run --nodes nodes.csv --edges edges.csv --out predictions.csv
    """
    from walksum._files import write_file
    from walksum.cli.progress import reading
    from walksum.workflow.predict import check_suffix, predict_nodes, write_predictions
    from walksum.workflow.problem import Source, problem_of_run
    from walksum.workflow.runs import joined, open_runs

    check_suffix(out)
    source = Source(nodes=nodes, edges=edges, graph=graph, encoding=encoding, on_read=reading(console))
    runs, tables, notes = open_runs(run), {}, []
    for target, trained in runs.items():
        problem = problem_of_run(trained, source, drop_unknown, labels=trained.job.model == "auto")
        found = predict_nodes(trained, problem, device)
        tables[target] = found.table
        notes += [note for note in found.notes if note not in notes]
    for note in notes:
        console.note(note)
    table = joined(tables) if len(tables) > 1 else found.table
    new = missing_folders(out)
    write_file(out, lambda path: write_predictions(path, table, out.suffix.lower()))
    made = f" (made the folder {new})" if new else ""
    console.say(f"{len(table)} predictions of {', '.join(tables)} written to {out}{made}", always=True)
    console.result({"predictions": str(out), "nodes": len(table), "notes": notes})
