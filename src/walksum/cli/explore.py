"""walksum explore."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from walksum.cli import completion
from walksum.cli.console import Debug, Json, Quiet, Voice, speak

if TYPE_CHECKING:
    from walksum.explore.subject import Subject

PORT = 8050
EXTRA = "the explorer needs Dash and its graph drawing: pip install 'walksum[explore]'"


def explore(
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
    drop_unknown: Annotated[bool, typer.Option("--drop-unknown", help="Leave out edges to unknown ids.")] = False,
    encoding: Annotated[str, typer.Option(help="Encoding of text tables.")] = "utf-8",
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """See why a node got its label: an interactive page on this machine.

    Every node is coloured by its influence on the one you click. The page is served to this machine only, until Ctrl-C.

    Examples:

    walksum explore runs/digits

    walksum explore --dataset cora
    """
    voice = Voice(as_json, quiet, debug)

    def action() -> None:
        _check_installed()
        _check_sources(run, dataset, nodes, edges, graph)
        if run is None:
            subject = _of_dataset(voice, dataset or "digits", design, learned, coupling)
        else:
            subject = _of_run(voice, run, nodes, edges, graph, drop_unknown, encoding)
        _serve(voice, subject, port, browser)

    speak(voice, action)


def _check_installed() -> None:
    from importlib.util import find_spec

    if find_spec("dash") is None or find_spec("dash_cytoscape") is None:
        raise ValueError(EXTRA)


def _check_sources(
    run: Path | None, dataset: str | None, nodes: Path | None, edges: Path | None, graph: Path | None
) -> None:
    from walksum.cli.sources import check_sources

    if run is not None and dataset is not None:
        raise ValueError(f"{run} and --dataset {dataset} were given; name a run or a dataset, not both")
    if run is None and (nodes is not None or edges is not None or graph is not None):
        raise ValueError("tables need a run; train one first: walksum train --nodes ... --edges ... --target ...")
    if run is None and dataset is None:
        raise ValueError("name a run folder, for example runs/digits, or --dataset digits")
    check_sources(None, nodes, edges, graph)


def _of_run(
    voice: Voice,
    folder: Path,
    nodes: Path | None,
    edges: Path | None,
    graph: Path | None,
    drop_unknown: bool,
    encoding: str,
) -> Subject:
    from walksum.cli.progress import reading
    from walksum.cli.sources import problem_of_run
    from walksum.explore.subject import check_explorable, subject_of_run
    from walksum.workflow.run import read_run

    if not folder.exists():
        raise ValueError(f"{folder} does not exist; train a run first: walksum train --out {folder}")
    run = read_run(folder)
    check_explorable(run)
    problem = problem_of_run(run, nodes, edges, graph, drop_unknown, encoding, reading(voice), labels=True)
    return subject_of_run(run, problem, title=folder.name)


def _of_dataset(voice: Voice, name: str, design: str, learned: bool, coupling: str | None) -> Subject:
    from walksum.cli.progress import Epochs
    from walksum.data.datasets import load
    from walksum.data.problem import from_data
    from walksum.designs import check_design
    from walksum.explore.quick import quick_job, quick_run
    from walksum.explore.subject import subject_of_run

    check_design(design, learned, coupling)  # a wrong name is known before anything is read
    problem = from_data(name, load(name))
    epochs = Epochs(voice, "R^2" if problem.regression else "accuracy")

    def on_start() -> None:
        if "OMP_NUM_THREADS" not in os.environ:
            import torch

            torch.set_num_threads(1)  # small steps: a second thread costs more than it does
        voice.say(f"training a small model of {name}, once; 'walksum train --dataset {name}' makes a better one")

    run = quick_run(quick_job(design, learned, coupling), problem, epochs, on_start)
    epochs.done()
    return subject_of_run(run, problem, title=name)


def _serve(voice: Voice, subject: Subject, port: int, browser: bool) -> None:
    from walksum.explore.server import open_server, serve, url_of

    server = open_server(subject, port)
    voice.say(f"{subject.title}: {subject.num_nodes:,} nodes; see {url_of(server)} (Ctrl-C ends)", always=True)
    voice.result({"url": url_of(server), "nodes": subject.num_nodes})
    serve(server, browser)
    voice.say("\nended")
