"""walksum bench table2."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from walksum.cli.voice import Debug, Json, Quiet, Voice, speak


def table2(
    datasets: Annotated[str, typer.Option(help="Names with commas between; default: the paper's six.")] = "",
    models: Annotated[str, typer.Option(help="Rows of Table 2 with commas between; default: all six designs.")] = "",
    epochs: Annotated[int, typer.Option(min=1, help="Train for so many epochs, measuring at 1, 2, 5, 10, ...")] = 100,
    probes: Annotated[str, typer.Option(help="Epochs to measure at instead, with commas between.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Of the split and the initial weights.")] = 0,
    store: Annotated[Path, typer.Option(help="Folder of the records; what it holds is not measured again.")] = Path(
        "results/table2"
    ),
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure GaBP iterations, forward and backward, under the paper's stop rule and under the true residual.

    Example: walksum bench table2 --datasets texas,cora --epochs 20, then: walksum report results/table2
    """
    voice = Voice(as_json, quiet, debug)
    speak(voice, lambda: _table2(voice, datasets, models, epochs, probes, seed, store, device))


def _table2(
    voice: Voice, datasets: str, models: str, epochs: int, probes: str, seed: int, store: Path, device: str
) -> None:
    from walksum.experiments import table2 as experiment

    new = experiment.measure(
        store,
        _names(datasets) or experiment.DATASETS,
        _names(models) or experiment.SIX,
        _probes(probes) or experiment.up_to(epochs),
        seed,
        device,
        voice.progress,
    )
    voice.say(f"{new} solves measured, in {store}; read them with: walksum report {store}")
    voice.result({"store": str(store), "new_records": new})


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip().lower()))


def _probes(text: str) -> tuple[int, ...]:
    parts = _names(text)
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"--probes {text!r}; expected epoch numbers from 1 on, such as 1,10,100")
    return tuple(sorted({int(part) for part in parts}))
