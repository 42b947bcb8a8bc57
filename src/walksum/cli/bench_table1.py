"""walksum bench table1."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walksum.cli import completion
from walksum.cli.console import UNEXPECTED, Console, Device, Interrupted, Root

if TYPE_CHECKING:
    from walksum.paper.sweep.spec import RunSpec
    from walksum.paper.sweep.store import Store
    from walksum.paper.sweep.sweep import Engine, Sweep
    from walksum.paper.sweep.worker import WorkerSettings

ENGINES = ("local", "ray")


def table1(
    console: Console,
    datasets: Annotated[
        list[str] | None,
        typer.Option(help="Columns, a,b,c; default: the paper's six.", autocompletion=completion.of_datasets),
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            help="Rows, a,b,c, or groups of them: paper (default), glt, baselines, sign, extra, all.",
            autocompletion=completion.of_rows,
        ),
    ] = None,
    runs: Annotated[int, typer.Option(help="Runs per cell.", min=1)] = 30,
    first_seed: Annotated[int, typer.Option(help="Seed of the first run.", min=0)] = 0,
    protocol: Annotated[str, typer.Option(help="How nodes are split: random is the paper's.")] = "random",
    store: Annotated[Path, typer.Option(help="Folder of the records; a sweep goes on where it stopped.")] = Path(
        "results/table1"
    ),
    engine: Annotated[str, typer.Option(help="local (processes of this machine) or ray.")] = "local",
    workers: Annotated[
        int | None, typer.Option(help="Cells trained at a time; default: one per core, four on a GPU.", min=1)
    ] = None,
    device: Device = "auto",
    root: Root = None,
    max_epochs: Annotated[int | None, typer.Option(help="Epochs at most; default: the paper's.", min=1)] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Another setting, lr=0.01; options.NAME=VALUE for the model's own."),
    ] = None,
    no_batch: Annotated[bool, typer.Option("--no-batch", help="Train runs one after another.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Do runs again that failed or ran out of memory.")] = False,
    time_limit: Annotated[float | None, typer.Option(help="Begin no new cell after so many seconds.", min=0)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be trained; train nothing.")] = False,
) -> int:
    """Train every cell of Table 1 that is not in the store yet.

    Several of these commands may share one store: none does what another has done or is doing.

    Examples:

    walksum bench table1 --datasets texas --models glt-laplacian-fixed

    walksum bench table1 --models glt,sign --datasets cora,citeseer,pubmed --device cuda --workers 4
    """
    from walksum._checks import check_choice
    from walksum.cli.bench_options import changes_of, check_taken, chosen_datasets, chosen_models
    from walksum.data import PROTOCOLS
    from walksum.paper.sweep.store import Store
    from walksum.paper.sweep.sweep import plan
    from walksum.paper.sweep.worker import WorkerSettings
    from walksum.training.devices import DEVICES, available_device
    from walksum.workflow.search import find_ray

    # the words alone: a plan, or a table that is there, needs neither Ray nor a GPU
    check_choice("protocol", protocol, tuple(PROTOCOLS))
    check_choice("engine", engine, ENGINES)
    check_choice("device", device, DEVICES)
    rows, changes = chosen_models(models or ["paper"]), changes_of(settings or [], max_epochs)
    check_taken(rows, changes)
    seeds = range(first_seed, first_seed + runs)
    specs = plan(rows, chosen_datasets(datasets or []), seeds, protocol=protocol, **changes)
    found = Store(store)
    found.refresh()
    since = found.size if retry else 0
    if dry_run:
        _say_plan(console, specs, found, since)
        return 0
    trained = 0
    if found.missing(specs, since):
        home, batched = None if root is None else str(root.absolute()), False if no_batch else None
        job = WorkerSettings(str(found.folder.absolute()), available_device(device), home, batched, since)
        if engine == "ray":
            find_ray()
        _check_data(specs, root)
        found.make()
        trained = _sweep(console, specs, found, since, time_limit, _engine(engine, job, workers, found))
    return UNEXPECTED if _say_end(console, specs, found, since, trained) else 0


def _engine(name: str, job: WorkerSettings, workers: int | None, store: Store) -> Engine:
    from walksum.paper.sweep.local_engine import LocalEngine, cores

    number = workers or (cores() if job.device == "cpu" else min(4, cores()))
    if name == "local":
        return LocalEngine(job, number)
    from walksum.paper.sweep.ray_engine import RayEngine

    return RayEngine(job, number, store)


def _check_data(specs: list[RunSpec], root: Path | None) -> None:
    """Read every dataset and make a split before training, so that missing files are reported at once."""
    from walksum.data.datasets import load
    from walksum.data.splits import make_split

    for name in dict.fromkeys(spec.dataset for spec in specs):
        make_split(load(name, root), specs[0].protocol, specs[0].seed, name=name)


def _sweep(
    console: Console, specs: list[RunSpec], store: Store, since: int, time_limit: float | None, engine: Engine
) -> int:
    """Run the sweep; returns how many runs were trained here."""
    from walksum.cli.bench_progress import Screen
    from walksum.paper.sweep.sweep import Sweep

    screen = Screen(console)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what ends batch jobs is to end like Ctrl-C
    sweep = Sweep(
        specs,
        store,
        engine,
        since=since,
        time_limit=time_limit,
        on_tick=lambda: screen.show(sweep),
        on_note=screen.note,
    )
    try:
        with screen:
            sweep.run()
    except KeyboardInterrupt:
        _say_interrupted(console, sweep)
        raise Interrupted from None
    return sweep.trained


def _say_interrupted(console: Console, sweep: Sweep) -> None:
    from walksum.cli.bench_progress import filled
    from walksum.paper.sweep.record import cells_of

    sweep.store.refresh()
    left = len(sweep.left())
    console.table(filled(sweep.specs, cells_of(sweep.specs, sweep.store.latest())), always=True)
    console.err.print(
        f"interrupted: {len(sweep.specs) - left} of {len(sweep.specs)} runs are in {sweep.store.path}; "
        "the same command goes on from there",
        markup=False,
    )
    console.result({"interrupted": True, "store": str(sweep.store.folder), "runs": len(sweep.specs), "left": left})


def _say_plan(console: Console, specs: list[RunSpec], store: Store, since: int) -> None:
    from walksum.paper.sweep.sweep import groups_of

    missing = store.missing(specs, since)
    groups = groups_of(missing)
    for group in groups:
        seeds = [spec.seed for spec in group.specs]
        console.say(f"{group.title}: {len(seeds)} runs, seeds {min(seeds)} to {max(seeds)}", always=True)
    console.say(f"{len(missing)} of {len(specs)} runs are not in {store.path}; nothing was trained", always=True)
    cells = [{"model": g.specs[0].model, "dataset": g.specs[0].dataset, "runs": len(g.specs)} for g in groups]
    console.result({"store": str(store.folder), "runs": len(specs), "left": len(missing), "cells": cells})


def _say_end(console: Console, specs: list[RunSpec], store: Store, since: int, trained: int) -> bool:
    """Print the table; returns whether a run failed (out of memory and divergence are results)."""
    from walksum.cli.bench_progress import cell_json, filled, trouble
    from walksum.paper.sweep.record import cells_of

    cells = cells_of(specs, store.latest())
    left = len(store.missing(specs, since))
    console.table(filled(specs, cells), always=True)
    for line in trouble(specs, store.latest()):
        console.say(line, always=True)
    if left:
        console.say(f"{left} of {len(specs)} runs are left; the same command goes on from there", always=True)
    console.say(f"records: {store.path}", always=True)
    record: dict[str, Any] = {"store": str(store.folder), "runs": len(specs), "trained": trained, "left": left}
    console.result({**record, "cells": [cell_json(cell) for cell in cells.values()]})
    return any("failed" in cell.outcomes for cell in cells.values())
