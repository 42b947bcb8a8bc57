"""walksum explore."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from walksum.cli import completion
from walksum.cli.console import Console, DropUnknown, Encoding

if TYPE_CHECKING:
    from walksum.workflow.problem import Source
    from walksum.workflow.trained_run import TrainedRun

PORT = 8050
EXTRA = "the explorer needs Dash and its graph drawing: pip install 'walksum[explore]'"


def explore(
    console: Console,
    run: Annotated[Path | None, typer.Argument(help="A folder written by 'walksum train'.")] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Without a run: a dataset, of which a small model is trained.", autocompletion=completion.of_datasets
        ),
    ] = None,
    nodes: Annotated[Path | None, typer.Option(help="Nodes of a run on tables.")] = None,
    edges: Annotated[Path | None, typer.Option(help="Edges of a run on tables.")] = None,
    graph: Annotated[Path | None, typer.Option(help="The graph of a run on one file: GraphML or .pt.")] = None,
    design: Annotated[
        str, typer.Option(help="Without a run: how the small model makes J.", autocompletion=completion.of_designs)
    ] = "diagonally-dominant",
    learned: Annotated[bool, typer.Option("--learned/--fixed", help="Without a run: learn J, or not.")] = False,
    coupling: Annotated[
        str | None,
        typer.Option(help="Without a run: attractive or repulsive.", autocompletion=completion.of_couplings),
    ] = None,
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; 0: any free one.", min=0, max=65535)] = PORT,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    drop_unknown: DropUnknown = False,
    encoding: Encoding = "utf-8",
) -> None:
    """See why a node got its label or value: an interactive page on this machine.

    Every node is coloured by its influence on the one you click. The page is served to this machine only, until Ctrl-C.

    Examples:

    walksum explore runs/digits

    walksum explore --dataset cora
    """
    if find_spec("dash") is None or find_spec("dash_cytoscape") is None:
        raise ValueError(EXTRA)
    _check_use(run, dataset, nodes is not None or edges is not None or graph is not None)
    if run is None:
        trained = _of_dataset(console, dataset or "digits", design, learned, coupling)
    else:
        from walksum.cli.progress import reading
        from walksum.workflow.problem import Source

        source = Source(nodes=nodes, edges=edges, graph=graph, encoding=encoding, on_read=reading(console))
        trained = _of_run(run, source, drop_unknown)
    _serve(console, trained, port, browser)


def _check_use(run: Path | None, dataset: str | None, tables: bool) -> None:
    if run is not None and dataset is not None:
        raise ValueError(f"{run} and --dataset {dataset} were given; name a run or a dataset, not both")
    if run is None and tables:
        raise ValueError("tables need a run; train one first: walksum train --nodes ... --edges ... --target ...")
    if run is None and dataset is None:
        raise ValueError("name a run folder, for example runs/digits, or --dataset digits")


def _of_run(folder: Path, source: Source, drop_unknown: bool) -> TrainedRun:
    from walksum.workflow.problem import problem_of_run, read_node_table
    from walksum.workflow.run import open_run
    from walksum.workflow.trained_run import open_trained_run

    if not folder.exists():
        raise ValueError(f"{folder} does not exist; train a run first: walksum train --out {folder}")
    run = open_run(folder)
    problem = problem_of_run(run, source, drop_unknown, labels=True)
    return open_trained_run(run, problem, title=folder.name, table=read_node_table(run, source, problem))


def _of_dataset(console: Console, name: str, design: str, learned: bool, coupling: str | None) -> TrainedRun:
    from walksum.cli.progress import Epochs
    from walksum.data.datasets import load
    from walksum.data.problem import from_data
    from walksum.designs import check_design
    from walksum.explore.small_model import small_job, small_run
    from walksum.workflow.trained_run import open_trained_run

    check_design(design, learned, coupling)  # a wrong name is known before anything is read
    problem = from_data(name, load(name))
    epochs = Epochs(console, "R^2" if problem.regression else "accuracy")

    def on_start() -> None:
        if "OMP_NUM_THREADS" not in os.environ:
            import torch

            torch.set_num_threads(1)  # small steps: a second thread costs more than it does
        console.say(f"training a small model of {name}, once; 'walksum train --dataset {name}' makes a better one")

    run = small_run(small_job(design, learned, coupling), problem, epochs, on_start)
    epochs.done()
    return open_trained_run(run, problem, title=name)


def _serve(console: Console, trained: TrainedRun, port: int, browser: bool) -> None:
    from walksum.explore.server import open_server, serve, url_of

    server = open_server(trained, port)
    console.say(f"{trained.title}: {trained.num_nodes:,} nodes; see {url_of(server)} (Ctrl-C ends)", always=True)
    console.result({"url": url_of(server), "nodes": trained.num_nodes})
    serve(server, browser)
    console.say("\nended")
