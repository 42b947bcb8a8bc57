"""walksum predict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from walksum.cli import completion
from walksum.cli.console import Console, Debug, Json, Quiet, missing_folders, run_command


def predict(
    run: Annotated[Path, typer.Argument(help="A folder written by 'walksum train'.")],
    nodes: Annotated[Path | None, typer.Option(help="Nodes, with the columns of the training table.")] = None,
    edges: Annotated[Path | None, typer.Option(help="Edges between them.")] = None,
    graph: Annotated[Path | None, typer.Option(help="The graph as one file: GraphML, or a PyG Data as .pt.")] = None,
    out: Annotated[Path, typer.Option(help="File to write: CSV, or Parquet by its name.")] = Path("predictions.csv"),
    drop_unknown: Annotated[bool, typer.Option("--drop-unknown", help="Leave out edges to unknown ids.")] = False,
    encoding: Annotated[str, typer.Option(help="Encoding of text tables.")] = "utf-8",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", autocompletion=completion.of_devices)] = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Predict with a trained run, on its own graph or a new one.

    The columns are found and encoded as in training. Categories that training did not see count as none. A portfolio
    also reads the targets that are known in these tables.

    Example: walksum predict my-run --nodes nodes.csv --edges edges.csv --out predictions.csv
    """
    console = Console(as_json, quiet, debug)

    def action() -> None:
        from walksum._files import write_file
        from walksum.cli.progress import reading
        from walksum.workflow.predict import predict_nodes, write_predictions
        from walksum.workflow.problem import Source, problem_of_run
        from walksum.workflow.run import open_run

        source = Source(nodes=nodes, edges=edges, graph=graph, encoding=encoding, on_read=reading(console))
        trained = open_run(run)
        problem = problem_of_run(trained, source, drop_unknown, labels=trained.job.model == "auto")
        found = predict_nodes(trained, problem, device)
        for note in found.notes:
            console.note(note)
        new = missing_folders(out)
        write_file(out, lambda path: write_predictions(path, found.table, out.suffix))
        made = f" (made the folder {new})" if new else ""
        console.say(f"{len(found.table)} predictions of {problem.target} written to {out}{made}", always=True)
        console.result({"predictions": str(out), "nodes": len(found.table), "notes": found.notes})

    run_command(console, action)
