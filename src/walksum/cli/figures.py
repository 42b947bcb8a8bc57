"""walksum figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from walksum.cli import completion
from walksum.cli.console import Console, Encoding, Root

if TYPE_CHECKING:
    from walksum.workflow.figures import NamedFigure
    from walksum.workflow.problem import Source

BOTH = "both"


def figures(
    console: Console,
    run: Annotated[Path | None, typer.Argument(help="A folder written by 'walksum train'.")] = None,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's figures: trains its six designs.")] = False,
    dataset: Annotated[
        str | None,
        typer.Option(help="With --paper: the graph; default: wisconsin.", autocompletion=completion.of_datasets),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write to; default: RUN/figures, or figures.")] = None,
    formats: Annotated[str, typer.Option("--format", help="svg, png, pdf; several as svg,png.")] = "svg,png",
    theme: Annotated[str, typer.Option(help="light, dark or both.")] = "light",
    dpi: Annotated[int, typer.Option(help="Dots per inch of PNG files.", min=20, max=1200)] = 130,
    compare: Annotated[
        str, typer.Option(help="Models trained beside it for influence by hop, a,b,c; or none.")
    ] = "gcn,gat,appnp",
    layer: Annotated[int, typer.Option(help="Whose J is drawn, from 1 on.", min=1)] = 1,
    nodes: Annotated[Path | None, typer.Option(help="The run's nodes, where it learned from tables.")] = None,
    edges: Annotated[Path | None, typer.Option(help="The run's edges.")] = None,
    graph: Annotated[Path | None, typer.Option(help="The run's graph, where it was one file.")] = None,
    encoding: Encoding = "utf-8",
    root: Root = None,
    seed: Annotated[int, typer.Option(help="With --paper: decides the split and the initial weights.", min=0)] = 0,
    epochs: Annotated[int, typer.Option(help="With --paper: epochs at most.", min=1)] = 2000,
) -> None:
    """Draw what a run learned, or the paper's figures.

    The graph as a Gaussian graphical model, correlations under J^-1, spectral response, influence by hop, convergence
    of every solver, walk sums.

    Examples:

    walksum figures runs/digits --format svg,pdf --theme both

    walksum figures --paper --dataset wisconsin --out paper-figures
    """
    from walksum.cli.progress import reading
    from walksum.workflow.problem import Source

    kinds, themes = _formats(formats), _themes(theme)
    models = [] if compare == "none" else [name.strip() for name in compare.split(",")]
    progress = _Progress(console)
    if paper:
        if run is not None:
            raise ValueError(f"{run} and --paper were given; draw a run, or the paper's figures without one")
        place = out or Path("figures")
        drawings = _of_paper(dataset or "wisconsin", root, seed, epochs, models, progress)
    else:
        if run is None:
            raise ValueError("name a run folder of 'walksum train', or use --paper for the paper's figures")
        if dataset is not None:
            raise ValueError(f"--dataset {dataset} belongs to --paper; a run knows its own data")
        place = out or run / "figures"
        source = Source(nodes=nodes, edges=edges, graph=graph, encoding=encoding, on_read=reading(console))
        drawings = _of_run(run, source, models, layer, progress)
    written = _write(drawings, place, kinds, themes, dpi, progress)
    progress.epochs.done()
    for note in progress.notes:
        console.note(note)
    console.say(f"{len(written)} files written to {place}/: {', '.join(path.name for path in written)}", always=True)
    console.result({"folder": str(place), "files": [str(path) for path in written], "notes": progress.notes})


def _formats(text: str) -> list[str]:
    from walksum.plot import FORMATS

    kinds = [kind.strip().lower() for kind in text.split(",")]
    for kind in kinds:
        if kind not in FORMATS:
            raise ValueError(f"--format {kind}; known: {', '.join(FORMATS)}, or several as svg,png")
    return kinds


def _themes(theme: str) -> list[str]:
    from walksum.plot import THEMES

    if theme != BOTH and theme not in THEMES:
        raise ValueError(f"--theme {theme}; known: {', '.join(THEMES)}, {BOTH}")
    return list(THEMES) if theme == BOTH else [theme]


class _Progress:
    """The progress line, and notes to be printed at the end."""

    def __init__(self, console: Console):
        from walksum.cli.progress import Epochs
        from walksum.workflow.figures import Listener

        self.notes: list[str] = []
        self.doing, self.epochs = console.progress, Epochs(console, "score")
        self.listener = Listener(self.doing, self.notes.append, self.epochs)


def _of_run(folder: Path, source: Source, compare: list[str], layer: int, progress: _Progress) -> Iterator[NamedFigure]:
    from walksum.workflow.figures import of_run
    from walksum.workflow.problem import problem_of_run
    from walksum.workflow.run import open_run

    run = open_run(folder)
    problem = problem_of_run(run, source)
    yield from of_run(run, problem, compare, layer, progress.listener)


def _of_paper(
    dataset: str, root: Path | None, seed: int, epochs: int, compare: list[str], progress: _Progress
) -> Iterator[NamedFigure]:
    from walksum.analysis.spectrum import SPECTRUM_LIMIT
    from walksum.data.datasets import load
    from walksum.data.problem import from_data
    from walksum.paper.figures import of_paper

    problem = from_data(dataset, load(dataset, root))
    if problem.num_nodes > SPECTRUM_LIMIT:
        raise ValueError(
            f"--dataset {dataset} has {problem.num_nodes} nodes; the paper's figures need all eigenvectors, up to "
            f"{SPECTRUM_LIMIT} nodes: train on it and draw the run by 'walksum figures RUN'"
        )
    yield from of_paper(problem, seed, compare, progress.listener, epochs)


def _write(
    drawings: Iterator[NamedFigure], place: Path, kinds: list[str], themes: list[str], dpi: int, progress: _Progress
) -> list[Path]:
    from walksum.plot import save

    written: list[Path] = []
    for drawing in drawings:
        for theme in themes:
            progress.doing(f"drawing {drawing.name}")
            figure: Any = drawing.draw(theme)
            suffix = "-dark" if theme == "dark" else ""
            written += [save(figure, place / f"{drawing.name}{suffix}.{kind}", dpi) for kind in kinds]
    return written
