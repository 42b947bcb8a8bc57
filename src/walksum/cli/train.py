"""walksum train."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walksum.cli import completion
from walksum.cli.console import Debug, Interrupted, Json, Quiet, Voice, speak

if TYPE_CHECKING:
    from walksum.data.problem import Problem
    from walksum.workflow.fit import Job, Result
    from walksum.workflow.search import Found

PAPERS_WIDTH = 64
DIGITS_WIDTH = 128  # over five splits 0.2 points above 64, on validation and on test nodes

Designs = "laplacian, diagonally-dominant or pairwise-normal"


def train(
    dataset: Annotated[
        str | None,
        typer.Option(help="A dataset by name, see 'walksum datasets'.", autocompletion=completion.of_datasets),
    ] = None,
    nodes: Annotated[Path | None, typer.Option(help="Your nodes: CSV, TSV, Parquet, or gzip of a text one.")] = None,
    edges: Annotated[Path | None, typer.Option(help="Your edges: one row an edge, both ends by id.")] = None,
    graph: Annotated[Path | None, typer.Option(help="Your graph as one file: GraphML, or a PyG Data as .pt.")] = None,
    target: Annotated[str | None, typer.Option(help="Column to predict; empty cells are the ones to predict.")] = None,
    id: Annotated[str | None, typer.Option(help="Column of node ids; default: id, node, node_id or name.")] = None,
    source: Annotated[str | None, typer.Option(help="Column with one end of an edge; default: source.")] = None,
    destination: Annotated[str | None, typer.Option(help="Column with the other end; default: target.")] = None,
    weight: Annotated[str | None, typer.Option(help="Column of edge weights; default: none.")] = None,
    features: Annotated[str | None, typer.Option(help="Columns to learn from, a,b,c; default: all others.")] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="classification or regression; default: from the target.", autocompletion=completion.of_tasks
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(help="Counts 87,59,37, fractions 0.6,0.2,0.2, a column saying train/val/test, or a protocol."),
    ] = None,
    drop_unknown: Annotated[bool, typer.Option("--drop-unknown", help="Leave out edges to unknown ids.")] = False,
    keep_rare: Annotated[bool, typer.Option("--keep-rare", help="Go on with classes of a single node.")] = False,
    encoding: Annotated[str, typer.Option(help="Encoding of text tables.")] = "utf-8",
    model: Annotated[
        str, typer.Option(help="glt, or a compared model such as gcn or mlp.", autocompletion=completion.of_models)
    ] = "glt",
    design: Annotated[
        str, typer.Option(help=f"How J is made from the graph: {Designs}.", autocompletion=completion.of_designs)
    ] = "diagonally-dominant",
    learned: Annotated[bool, typer.Option("--learned/--fixed", help="Learn J, or take it from the graph.")] = False,
    coupling: Annotated[
        str | None,
        typer.Option(help="attractive or repulsive; default: the paper's.", autocompletion=completion.of_couplings),
    ] = None,
    solver: Annotated[str, typer.Option(help="How mu is found.", autocompletion=completion.of_solvers)] = "auto",
    hidden: Annotated[
        int | None, typer.Option(help="Width of the embeddings; default: 64, digits: 128.", min=1)
    ] = None,
    layers: Annotated[int, typer.Option(help="Number of layers.", min=1)] = 2,
    dropout: Annotated[float, typer.Option(help="Dropout rate.")] = 0.6,
    lr: Annotated[float | None, typer.Option(help="Learning rate; default: the paper's for the model.")] = None,
    patience: Annotated[int | None, typer.Option(help="Epochs without improvement to wait.", min=1)] = None,
    epochs: Annotated[int, typer.Option(help="Epochs at most.", min=1)] = 2000,
    seed: Annotated[int, typer.Option(help="Decides the split and the initial weights.", min=0)] = 0,
    seeds: Annotated[int, typer.Option(help="How many seeds, from --seed on: gives mean and spread.", min=1)] = 1,
    search: Annotated[int, typer.Option(help="Trials of a search, judged on validation nodes only.", min=0)] = 0,
    root: Annotated[Path | None, typer.Option(help="Folder with raw dataset files in PyG's layout.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder to write; default: runs/NAME.")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard logs into the run.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train a model on a graph and compare it with simpler ones.

    Without arguments: 1,797 handwritten digits as a nearest-neighbour graph, 10 labels a class.

    Examples:

    walksum train --dataset cora --design laplacian

    walksum train --nodes nodes.csv --edges edges.csv --target label --out my-run
    """
    voice = Voice(as_json, quiet, debug)

    def action() -> None:
        from walksum.cli.progress import reading
        from walksum.cli.sources import (
            check_sources,
            check_table_options,
            read_problem,
            split_names_a_column,
            with_target,
        )
        from walksum.data.edges import EdgeColumns
        from walksum.data.problem_split import check_labels
        from walksum.data.user_files import Columns
        from walksum.workflow.fit import Job

        tables = nodes is not None or (graph is not None and graph.suffix == ".graphml")
        by_column = tables and split_names_a_column(split)
        columns = Columns(
            id=id,
            edges=EdgeColumns(source, destination, weight),
            features=None if features is None else tuple(name.strip() for name in features.split(",")),
            split=split if by_column else None,
            task=_task(task),
            drop_unknown=drop_unknown,
        )
        check_sources(dataset, nodes, edges, graph)
        columns = with_target(columns, target, needed=tables)
        if not tables:
            ends = {"--id": id, "--source": source, "--destination": destination, "--weight": weight}
            check_table_options({"--target": target, **ends, "--features": features, "--task": task})
        job = Job(
            model=model,
            design=design,
            learned=learned,
            coupling=coupling,
            solver=solver,
            layers=layers,
            dropout=dropout,
            lr=lr,
            patience=patience,
            max_epochs=epochs,
            split=None if by_column else split,
            seed=seed,
        )
        _check_job(job, tensorboard)
        problem = read_problem(dataset, nodes, edges, graph, root, columns, encoding, reading(voice))
        check_labels(problem, keep_rare)
        job = replace(job, hidden=hidden or (DIGITS_WIDTH if problem.name == "digits" else PAPERS_WIDTH))
        _train(voice, job, problem, seeds, search, out, tensorboard)

    speak(voice, action)


def _task(task: str | None) -> str | None:
    from walksum._checks import check_choice
    from walksum.training.loop import TASKS

    if task is not None:
        check_choice("task", task, tuple(TASKS))
    return task


def _check_job(job: Job, tensorboard: bool) -> None:
    """Refuse what cannot work before a large file is read."""
    from walksum.cli.tensorboard import check_installed
    from walksum.designs import check_design
    from walksum.solvers import resolve_name
    from walksum.workflow.models import check_model

    check_model(job.model)
    check_design(job.design, job.learned, job.coupling)
    resolve_name(job.solver)
    if not 0 <= job.dropout < 1:
        raise ValueError(f"--dropout {job.dropout}; expected a rate in [0, 1)")
    if job.lr is not None and not job.lr > 0:
        raise ValueError(f"--lr {job.lr}; expected a positive number")
    if tensorboard:
        check_installed()


def _train(
    voice: Voice, job: Job, problem: Problem, seeds: int, trials: int, out: Path | None, tensorboard: bool
) -> None:
    from walksum._files import whole_folder
    from walksum.cli.progress import Epochs, outcome_table, say_data, say_end
    from walksum.cli.tensorboard import watched
    from walksum.workflow.page import write_page
    from walksum.workflow.run import chosen, free_folder, write_run

    folder = free_folder(out, problem.name)
    _use_threads_where_they_pay(problem)
    say_data(voice, problem.summary())
    for note in problem.notes:
        voice.say(f"note: {note}")
    with whole_folder(folder) as scratch:
        epochs = Epochs(voice, "R^2" if problem.regression else "accuracy")
        with watched(epochs, scratch / "tensorboard" if tensorboard else None) as on_epoch:
            results, found = _learn(voice, job, problem, seeds, trials, epochs, on_epoch)
        epochs.done()
        for note in chosen(results).notes:
            voice.say(f"note: {note}")
        metrics = write_run(results, scratch, found)
        write_page(chosen(results), metrics, scratch / "report.html")
        written = sorted(path.name + ("/" if path.is_dir() else "") for path in scratch.iterdir())
    voice.table(outcome_table(metrics), always=True)
    say_end(voice, metrics)
    voice.say(f"written to {folder}/: {', '.join(written)}", always=True)
    voice.result({"run": str(folder), **{name: value for name, value in metrics.items() if name != "history"}})
    if metrics["interrupted"]:
        voice.err.print("interrupted: these are the best weights so far; what was not finished was left out")
        raise Interrupted


def _learn(
    voice: Voice, job: Job, problem: Problem, seeds: int, trials: int, epochs: Any, on_epoch: Any
) -> tuple[list[Result], Found | None]:
    """One result a seed; a search before decides how all of them are trained."""
    from walksum.workflow.fit import run
    from walksum.workflow.search import search

    found = None
    if trials:
        epochs.prefix = f"trial 1 of {trials}: "

        def on_trial(number: int, trial: Any) -> None:
            voice.say(f"trial {number}: validation {epochs.score} {trial.val_score:.3f}, {_settings(trial.job)}")
            epochs.prefix = f"trial {number + 1} of {trials}: "

        found = search(job, problem, trials, on_epoch, on_trial)
        job = found.job
        voice.say(f"best of {len(found.trials)} trials by {found.by}: {_settings(job)}")
    results: list[Result] = []
    for seed in range(job.seed, job.seed + seeds):
        epochs.prefix = f"seed {seed}: " if seeds > 1 else ""
        fitted = found.fitted if found is not None and seed == job.seed else None
        results.append(run(replace(job, seed=seed), problem, on_epoch, fitted))
        if results[-1].interrupted:
            # a seed that was cut short says little about the spread; alone it is better than nothing
            results = results[:-1] or results
            results[-1] = replace(results[-1], interrupted=True)
            break
    return results, found


def _settings(job: Job) -> str:
    common = f"width {job.hidden}, dropout {job.dropout:g}, lr {job.recipe().lr:.2g}"
    if job.model != "glt":
        return common
    return f"{'learned' if job.learned else 'fixed'} {job.design}, {job.coupling or 'default'} coupling, {common}"


def _use_threads_where_they_pay(problem: Problem) -> None:
    """A step on a small graph is a hundred operations of microseconds: a second thread costs more than it does."""
    import torch

    if problem.num_nodes * problem.features.shape[1] < 2e7 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
