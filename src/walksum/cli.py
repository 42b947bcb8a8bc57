"""The command: walksum train | datasets."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

app = typer.Typer(
    help="Graph layers whose mixing is one exact linear operator, mu = J^-1 h.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
console = Console()

Designs = "laplacian, diagonally-dominant or pairwise-normal"


@app.callback()
def main() -> None:
    """Graph layers whose mixing is one exact linear operator, mu = J^-1 h."""


@app.command()
def train(
    dataset: Annotated[str, typer.Option(help="A dataset by name, see 'walksum datasets'.")] = "digits",
    design: Annotated[str, typer.Option(help=f"How J is made from the graph: {Designs}.")] = "diagonally-dominant",
    learned: Annotated[bool, typer.Option("--learned/--fixed", help="Learn J, or take it from the graph.")] = False,
    coupling: Annotated[str | None, typer.Option(help="attractive or repulsive; default: the paper's sign.")] = None,
    seed: Annotated[int, typer.Option(help="Decides the split and the initial weights.")] = 0,
    root: Annotated[Path | None, typer.Option(help="Folder with raw dataset files in PyG's layout.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder to write; default: runs/DATASET.")] = None,
) -> None:
    """Train a model and compare it with simpler ones.

    Without arguments: 1,797 handwritten digits as a nearest-neighbour graph, 10 labels a class.

    Example: walksum train --dataset cora --design laplacian --fixed
    """
    _or_exit(lambda: _train(dataset, design, learned, coupling, seed, root, out))


@app.command()
def datasets() -> None:
    """List the datasets that --dataset knows.

    Example: walksum datasets
    """
    from walksum.data.datasets import names

    console.print("\n".join(names()))


def _or_exit(action: Any) -> None:
    """A user's mistake ends with its message and exit code 2, not with a stack trace."""
    try:
        action()
    except (ValueError, FileNotFoundError, PermissionError) as error:
        Console(stderr=True).print(f"[bold red]error:[/] {error}", highlight=False)
        sys.exit(2)


def _train(
    dataset: str, design: str, learned: bool, coupling: str | None, seed: int, root: Path | None, out: Path | None
):
    from walksum.data.datasets import load
    from walksum.job import Job, run, save
    from walksum.report.picture import draw

    folder = _free_folder(out, dataset)
    data = load(dataset, root)
    _use_threads_where_they_pay(data)
    job = Job(dataset, design, learned, coupling, seed=seed)
    kind = "learned" if learned else "fixed"
    console.print(f"[bold]{dataset}[/]: {data.num_nodes} nodes, {data.num_edges} directed edges; {kind} {design} GLT")
    with _progress() as progress:
        tasks: dict[str, Any] = {}

        def on_epoch(name, epoch, best):
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=None, loss="", best="")
            progress.update(
                tasks[name],
                completed=epoch.number,
                loss=f"loss {epoch.train_loss:.3f}",
                best=f"validation {100 * best.val_accuracy:.1f} % (best, epoch {best.number})",
            )

        result = run(job, data, on_epoch)
    console.print(_table(result))
    save(result, folder, lambda path: draw(result, data, path))
    solve = result.solve
    console.print(f"solver: {solve.solver}, {solve.steps} steps, residual {solve.residual:.0e}, {solve.status.name}")
    if result.outcome.interrupted:
        console.print("[yellow]interrupted:[/] these are the best weights so far; comparisons were left out")
    console.print(f"written to {folder}/: model/, metrics.json, picture.png")


def _use_threads_where_they_pay(data: Any) -> None:
    """A step on a small graph is a hundred operations of microseconds: a second thread costs more than it does."""
    import torch

    if data.num_nodes * data.num_features < 2e7 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)


def _free_folder(out: Path | None, dataset: str) -> Path:
    if out is not None:
        if out.exists():
            raise ValueError(f"--out {out} already exists; name a new folder, nothing is overwritten")
        return out
    folder, number = Path("runs", dataset), 1
    while folder.exists():
        number += 1
        folder = Path("runs", f"{dataset}-{number}")
    return folder


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description:4}"),
        BarColumn(bar_width=20),
        TextColumn("epoch {task.completed:4.0f}  {task.fields[loss]}  {task.fields[best]}"),
        TimeElapsedColumn(),
        console=console,
    )


def _table(result: Any) -> Table:
    train_nodes, _, test_nodes = result.split.counts
    table = Table(title=f"test accuracy, {train_nodes} labelled and {test_nodes} test nodes", title_justify="left")
    table.add_column("method")
    table.add_column("accuracy", justify="right")
    for name, value in sorted(result.accuracy.items(), key=lambda item: -item[1]):
        table.add_row(name, f"{100 * value:.1f} %", style="bold" if name == "GLT" else None)
    return table
