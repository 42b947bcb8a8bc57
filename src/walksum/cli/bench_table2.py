"""walksum bench table2."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from walksum.cli import completion
from walksum.cli.console import Console, Interrupted


def table2(
    console: Console,
    datasets: Annotated[
        list[str] | None,
        typer.Option(help="Datasets, a,b,c; default: the paper's six.", autocompletion=completion.of_datasets),
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(help="Rows, a,b,c; default: glt, the paper's six.", autocompletion=completion.of_rows),
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Train for so many epochs, measuring at 1, 2, 5, 10, ...")] = 100,
    probes: Annotated[str, typer.Option(help="Measure at these epochs instead, a,b,c.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the split and the initial weights.")] = 0,
    store: Annotated[Path, typer.Option(help="Folder of the records; what it holds is not measured again.")] = Path(
        "results/table2"
    ),
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: cuda where there is one.")] = "cpu",
) -> None:
    """Measure GaBP iterations, forward and backward, under the paper's stop rule and under the true residual.

    Example: walksum bench table2 --datasets texas,cora --epochs 20, then: walksum report results/table2
    """
    from walksum.cli.bench_options import chosen_datasets, chosen_models, whole_numbers
    from walksum.paper.table2 import measure, up_to
    from walksum.training.devices import available_device

    columns, rows = chosen_datasets(datasets or []), chosen_models(models or ["glt"])
    at = tuple(sorted(set(whole_numbers("probes", probes, 1, "epoch numbers")))) or up_to(epochs)
    try:
        new = measure(store, tuple(columns), tuple(rows), at, seed, available_device(device), console.progress)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; what was measured is in {store}, and the same command goes on there") from None
    console.say(f"{new} solves measured, in {store}; read them with: walksum report {store}")
    console.result({"store": str(store), "new_records": new})
