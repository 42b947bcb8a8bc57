"""walksum predict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from walksum.cli.console import Debug, Json, Quiet, Voice, speak

if TYPE_CHECKING:
    from walksum.data.problem import Problem
    from walksum.workflow.run import Run


def predict(
    run: Annotated[Path, typer.Argument(help="A folder written by 'walksum train'.")],
    nodes: Annotated[Path | None, typer.Option(help="Nodes, with the columns of the training table.")] = None,
    edges: Annotated[Path | None, typer.Option(help="Edges between them.")] = None,
    graph: Annotated[Path | None, typer.Option(help="The graph as one file: GraphML, or a PyG Data as .pt.")] = None,
    out: Annotated[Path, typer.Option(help="CSV file to write.")] = Path("predictions.csv"),
    drop_unknown: Annotated[bool, typer.Option("--drop-unknown", help="Leave out edges to unknown ids.")] = False,
    encoding: Annotated[str, typer.Option(help="Encoding of text tables.")] = "utf-8",
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Predict with a trained run, on its own graph or a new one.

    The columns are found and encoded as in training. Categories that training did not see count as none.

    Example: walksum predict my-run --nodes nodes.csv --edges edges.csv --out predictions.csv
    """
    voice = Voice(as_json, quiet, debug)
    speak(voice, lambda: _predict(voice, run, nodes, edges, graph, out, drop_unknown, encoding))


def _predict(
    voice: Voice,
    folder: Path,
    nodes: Path | None,
    edges: Path | None,
    graph: Path | None,
    out: Path,
    drop_unknown: bool,
    encoding: str,
) -> None:
    from walksum._files import write_file
    from walksum.cli.progress import reading
    from walksum.cli.sources import problem_of_run
    from walksum.nn import GLT
    from walksum.training.metrics import marginal_variance
    from walksum.workflow.fit import predict as forward
    from walksum.workflow.run import read_run, write_predictions

    run = read_run(folder)
    problem = problem_of_run(run, nodes, edges, graph, drop_unknown, encoding, reading(voice))
    model = run.model()
    _refuse_other_size(run, problem)
    notes = [*problem.notes, *run.encoding.notes(problem.features)]
    for note in notes:
        voice.say(f"note: {note}")
    x = run.encoding.encode(problem.features)
    output = forward(model, x, problem, run.encoding)
    variance, by = marginal_variance(model.precisions(x, problem.graph)[-1]) if isinstance(model, GLT) else (None, None)
    write_file(out, lambda path: write_predictions(path, problem, output, variance))
    voice.say(f"{problem.num_nodes} predictions of {problem.target} written to {out}", always=True)
    voice.result({"predictions": str(out), "nodes": problem.num_nodes, "confidence": by, "notes": notes})


def _refuse_other_size(run: Run, problem: Problem) -> None:
    from walksum.paper.models import BASELINES

    name, trained = run.config["job"]["model"], run.metrics["data"]["nodes"]
    if name in BASELINES and BASELINES[name].per_node and trained != problem.num_nodes:
        raise ValueError(f"model {name} has parameters for each of its {trained} nodes and cannot read another graph")
