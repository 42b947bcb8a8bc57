"""walksum train."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walksum.cli import completion
from walksum.cli.console import Console, DropUnknown, Encoding, Interrupted, Root, missing_folders

if TYPE_CHECKING:
    from walksum.data.problem import Problem
    from walksum.workflow.job import Job
    from walksum.workflow.run import Run
    from walksum.workflow.search import SearchPlan

Designs = "laplacian, diagonally-dominant or pairwise-normal"
# options that are settings of a job under the same name
SETTINGS = ("design", "learned", "coupling", "solver", "hidden", "layers", "dropout", "lr", "patience", "metric",
            "class_weight", "transform", "seed", "device", "budget")  # fmt: skip


def train(
    console: Console,
    dataset: Annotated[
        str | None,
        typer.Option(help="A dataset by name, see 'walksum datasets'.", autocompletion=completion.of_datasets),
    ] = None,
    nodes: Annotated[
        Path | None, typer.Option(help="Your nodes: CSV, TSV, Parquet, Feather, JSON lines or Excel.")
    ] = None,
    edges: Annotated[Path | None, typer.Option(help="Your edges: one row per edge, both ends by id.")] = None,
    graph: Annotated[Path | None, typer.Option(help="Your graph as one file: GraphML, or a PyG Data as .pt.")] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(help="Column to predict; empty cells are the ones to predict. Several: a,b or --target twice."),
    ] = None,
    id: Annotated[str | None, typer.Option(help="Column of node ids; default: by name, or as edges name them.")] = None,
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
        typer.Option(
            help="Counts 87,59,37, fractions 0.6,0.2,0.2, a column saying train/val/test, 'spatial' for parts of the "
            "graph, the folder of a run, or a protocol."
        ),
    ] = None,
    time_column: Annotated[
        str | None, typer.Option(help="Train on the past of this column, test on the latest.")
    ] = None,
    group_column: Annotated[str | None, typer.Option(help="Nodes equal in this column stay in one part.")] = None,
    name_column: Annotated[str | None, typer.Option(help="Column to show beside the id, not learned from.")] = None,
    coordinates: Annotated[
        str | None, typer.Option(help="Where a node lies: lon,lat on the globe or x,y on a plane; joins near nodes.")
    ] = None,
    knn: Annotated[str | None, typer.Option(help="Columns a,b,c in whose space near nodes are joined.")] = None,
    neighbours: Annotated[
        str | None, typer.Option(help="Nearest nodes to join, or delaunay; default: chosen on validation nodes.")
    ] = None,
    decimal: Annotated[str | None, typer.Option(help="Decimal mark of numbers; default: as cells show.")] = None,
    thousands: Annotated[str | None, typer.Option(help="Separator of thousands; default: as cells show.")] = None,
    add_unknown: Annotated[
        bool, typer.Option("--add-unknown", help="Add nodes that only edges name, with empty cells.")
    ] = False,
    drop_unknown: DropUnknown = False,
    keep_rare: Annotated[bool, typer.Option("--keep-rare", help="Go on with classes of a single node.")] = False,
    encoding: Encoding = "utf-8",
    model: Annotated[
        str | None,
        typer.Option(
            help="auto: a portfolio blended by validation, the default unless an option of networks is given; glt; or "
            "a compared model such as gcn or mlp.",
            autocompletion=completion.of_models,
        ),
    ] = None,
    budget: Annotated[float, typer.Option(help="Seconds for the portfolio, and again for the comparisons.")] = 60.0,
    design: Annotated[
        str | None, typer.Option(help=f"How J is made from the graph: {Designs}.", autocompletion=completion.of_designs)
    ] = None,
    learned: Annotated[
        bool | None, typer.Option("--learned/--fixed", help="Learn J, or take it from the graph.")
    ] = None,
    coupling: Annotated[
        str | None,
        typer.Option(help="attractive or repulsive; default: the paper's.", autocompletion=completion.of_couplings),
    ] = None,
    solver: Annotated[
        str | None, typer.Option(help="How mu is found; default: auto.", autocompletion=completion.of_solvers)
    ] = None,
    hidden: Annotated[
        int | None, typer.Option(help="Width of the embeddings; default: 64, digits: 128.", min=1)
    ] = None,
    layers: Annotated[int | None, typer.Option(help="Number of layers; default: 2.", min=1)] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout rate; default: 0.6.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate; default: the paper's for the model.")] = None,
    patience: Annotated[int | None, typer.Option(help="Epochs without improvement to wait.", min=1)] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs at most; default: 2000.", min=1)] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="What chooses epochs, members and settings, and sorts the comparison: accuracy (default), "
            "balanced_accuracy, macro_f1, roc_auc, average_precision, log_loss; r2 (default), rmse, mae.",
            autocompletion=completion.of_metrics,
        ),
    ] = None,
    class_weight: Annotated[
        str, typer.Option(help="none, or balanced: rare classes are predicted in relation to their share.")
    ] = "none",
    transform: Annotated[
        str,
        typer.Option(help="Of a number to learn: none, log, quantile; auto: validation chooses if it is skewed."),
    ] = "auto",
    seed: Annotated[int, typer.Option(help="Decides the split and the initial weights.", min=0)] = 0,
    seeds: Annotated[int, typer.Option(help="How many seeds, from --seed on: gives mean and spread.", min=1)] = 1,
    search: Annotated[int, typer.Option(help="Trials of a search, compared on validation nodes only.", min=0)] = 0,
    engine: Annotated[
        str, typer.Option(help="What trains the trials: local, one by one; ray, several at once.")
    ] = "local",
    workers: Annotated[int, typer.Option(help="Trials to choose, and with ray to train, at a time.", min=1)] = 1,
    device: Annotated[
        str, typer.Option(help="Where to train: auto, cpu or cuda.", autocompletion=completion.of_devices)
    ] = "auto",
    root: Root = None,
    out: Annotated[Path | None, typer.Option(help="Run folder to write; default: runs/NAME.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the run that is in that folder.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard logs into the run.")] = False,
) -> None:
    """Train a model on a graph and compare it with simpler ones.

    Without arguments: 1,797 handwritten digits as a nearest-neighbour graph, 10 labels per class.

    Examples:

    walksum train --dataset cora --design laplacian

    walksum train --nodes nodes.csv --edges edges.csv --target label --out my-run
    """
    options = locals().copy()  # before there are other names than those of the options

    from walksum.cli.progress import check_tensorboard, reading
    from walksum.workflow.job import AUTO_NAME, DEMO_MODEL, GLT_NAME, default_width
    from walksum.workflow.problem import Source, read_split
    from walksum.workflow.runs import read_each, target_names
    from walksum.workflow.search import SearchPlan
    from walksum.workflow.tables import make_columns, make_job, read_problem

    trials = SearchPlan(search, engine, workers)
    trials.check()
    data = Source(dataset, nodes, edges, graph, root, encoding, reading(console))
    cut = read_split(split, data)
    options["neighbours"] = int(neighbours) if neighbours is not None and neighbours.isdigit() else neighbours
    columns = make_columns(options, cut.column)
    asked = {name: options[name] for name in SETTINGS} | {"max_epochs": epochs, "split": cut.how}
    asked["model"] = model or (DEMO_MODEL if data.is_demo else GLT_NAME if tensorboard else None)
    job = make_job(search, **{name: value for name, value in asked.items() if value is not None})
    if tensorboard:
        check_tensorboard()
    problems = read_each(
        target_names(target or None, data),
        lambda name: read_problem(data, replace(columns, target=name), keep_rare, cut),
    )
    if job.model != AUTO_NAME:
        job = replace(job, hidden=hidden or default_width(next(iter(problems.values()))))
    _train(console, job, problems, seeds, trials, out, tensorboard, force)


def _train(
    console: Console,
    job: Job,
    problems: dict[str, Problem],
    seeds: int,
    search: SearchPlan,
    out: Path | None,
    tensorboard: bool,
    force: bool,
) -> None:
    from walksum._files import whole_folder
    from walksum.workflow.run import free_folder
    from walksum.workflow.runs import Runs, place_of

    names, runs = list(problems), Runs()
    folder = free_folder(out, problems[names[0]].name, force)
    new = missing_folders(folder) if out is not None else None
    with whole_folder(folder, overwrite=force) as scratch:
        for name, problem in problems.items():
            place = scratch if len(names) == 1 else place_of(scratch, name, names)
            runs[name] = _train_one(console, job, problem, seeds, search, place, tensorboard)
            if runs[name].interrupted:
                break
        if len(names) > 1:
            runs.write_index(scratch)
        written = sorted(path.name + ("/" if path.is_dir() else "") for path in scratch.iterdir())
    if new:
        console.say(f"made the folder {new}")
    for name, run in runs.items():
        if len(names) > 1:
            console.say(f"target {name}:", always=True)
        _say_result(console, run)
    console.say(f"written to {folder}/: {', '.join(written)}", always=True)
    shown = {name: {k: v for k, v in run.metrics.items() if k != "history"} for name, run in runs.items()}
    console.result({"run": str(folder), **(shown[names[0]] if len(names) == 1 else {"targets": shown})})
    if any(run.interrupted for run in runs.values()):
        console.err.print("interrupted: these are the best weights so far; what was not finished was left out")
        raise Interrupted


def _train_one(
    console: Console, job: Job, problem: Problem, seeds: int, search: SearchPlan, folder: Path, tensorboard: bool
) -> Run:
    """Train for one target and fill the folder of its run."""
    from walksum.cli.progress import Epochs, say_data, watched
    from walksum.training.scoring import metric_for
    from walksum.workflow.prepare import with_neighbours
    from walksum.workflow.tables import fit_problem

    if seeds == 1:  # several choose for themselves
        problem = with_neighbours(problem, job)
    say_data(console, problem.summary())
    for note in problem.notes:
        console.note(note)
    by = metric_for(job.metric, problem.task)
    epochs = Epochs(console, by.title, by.sign)

    def on_trial(number: int, trial: Any) -> None:
        value = epochs.sign * trial.val_score
        console.say(f"trial {number}: validation {epochs.score} {value:.3f}, {trial.job.settings}")

    with watched(epochs, folder / "tensorboard" if tensorboard else None) as on_epoch:
        run = fit_problem(
            problem,
            job,
            seeds=seeds,
            search=search,
            on_epoch=on_epoch,
            on_trial=on_trial,
            on_stage=epochs.stage,
            on_member=epochs.member,
        )
    epochs.done()
    run.write(folder)
    return run


def _say_result(console: Console, run: Run) -> None:
    from walksum.cli.progress import outcome_table, say_end

    metrics = run.metrics
    for note in metrics["notes"][len(run.result.problem.notes) :] if run.result is not None else ():
        console.note(note)
    if metrics["search"] is not None:
        console.say(
            f"best of {len(metrics['search']['trials'])} trials by {metrics['search']['by']}: {run.job.settings}"
        )
    console.table(outcome_table(metrics), always=True)
    say_end(console, metrics)
