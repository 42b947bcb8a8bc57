"""Messages about the data, the progress (also as TensorBoard logs) and the result of a training."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from walksum.cli.console import Console

if TYPE_CHECKING:
    from walksum.training import Epoch, Recipe

MOST_CLASSES = 12
MOST_MEMBERS = 4
MOST_COLUMNS = 5
RARE = 0.25  # share of the labelled nodes below which the rarest class gets a line of its own


def say_data(console: Console, data: dict[str, Any]) -> None:
    """Print what was read: the graph and the target."""
    console.say(
        f"{data['name']}: {data['nodes']} nodes, {data['edges']} {'weighted ' if data['weighted'] else ''}edges, "
        f"{data['components']} connected component{'s' * (data['components'] != 1)}, "
        f"{data['isolated_nodes']} isolated node{'s' * (data['isolated_nodes'] != 1)}"
    )
    known = f"{data['labelled_nodes']} nodes have it, {data['nodes'] - data['labelled_nodes']} are to be predicted"
    console.say(f"target: {data['target']} ({data['task']}); {known}")
    if data["task"] == "regression":
        from walksum.data.numerals import written

        console.say(f"mean {written(data['target_mean'])}, spread {written(data['target_spread'])}")
        return
    counts = [f"{name} {count}" for name, count in data["classes"].items()]
    more = f" and {len(counts) - MOST_CLASSES} more" if len(counts) > MOST_CLASSES else ""
    console.say(f"{len(counts)} classes: {', '.join(counts[:MOST_CLASSES])}{more}")
    if data["homophily"] is not None:
        console.say(f"homophily: {data['homophily']:.2f} of the edges join nodes of the same class")


class Epochs:
    """The progress line of one or more trainings."""

    def __init__(self, console: Console, score: str, sign: int = 1):
        self.console, self.score, self.sign = console, score, sign
        self.prefix = ""
        self.started: dict[str, float] = {}

    def stage(self, text: str) -> None:
        """What begins: a trial or a seed."""
        self.prefix = f"{text}: " if text else ""

    def __call__(self, name: str, epoch: Epoch, best: Epoch, recipe: Recipe) -> None:
        if epoch.number == 1:
            self.started[name] = time.monotonic()
        self.console.progress(f"{self.prefix}{name} {self._line(name, epoch, best, recipe)}")

    def _line(self, name: str, epoch: Epoch, best: Epoch, recipe: Recipe) -> str:
        line = (
            f"epoch {epoch.number}: loss {epoch.train_loss:.3f}, validation loss {epoch.val_loss:.3f}, best "
            f"{self.score} {self.sign * best.val_score:.3f} (epoch {best.number})"
        )
        if epoch.number == 1:  # how long an epoch takes is not known yet
            return line
        each = (time.monotonic() - self.started[name]) / (epoch.number - 1)
        left = each * (min(best.number + recipe.patience, recipe.max_epochs) - epoch.number)
        return f"{line}; {left:.0f} s left unless it improves"

    def member(self, name: str, done: int, total: int, seconds: float) -> None:
        """A training of a portfolio has ended."""
        self.console.progress(f"{self.prefix}{name}: {done} of {total} trainings done, {seconds:.0f} s")

    def done(self) -> None:
        if self.console.err.is_terminal and not self.console.quiet:
            self.console.err.print()


def reading(console: Console) -> Any:
    """The progress line while a large file is read."""
    started: dict[str, float] = {}

    def on_read(name: str, done: int, total: int) -> None:
        since = time.monotonic() - started.setdefault(name, time.monotonic())
        left = since * (total - done) / max(done, 1)
        console.progress(f"reading {name}: {done / 2**20:.0f} of {total / 2**20:.0f} MB, {left:.0f} s left")

    return on_read


def outcome_table(metrics: dict[str, Any]) -> Table:
    from walksum.workflow.metrics import ranked
    from walksum.workflow.page import score_text, seconds_text

    split = metrics["split"]
    title = f"test {metrics['score']}: {split['train']} training and {split['test']} test nodes"
    table = Table(title=title, title_justify="left")
    table.add_column("method")
    table.add_column(metrics["score"], justify="right")
    table.add_column("95 % interval" if len(metrics["seeds"]) == 1 else "spread")
    table.add_column("seconds", justify="right")
    for name in ranked(metrics):
        cells = (name, *score_text(metrics, name), seconds_text(metrics, name))
        table.add_row(*cells, style="bold" if name == metrics["model"] else None)
    return table


def say_end(console: Console, metrics: dict[str, Any]) -> None:
    """Print the members of a portfolio, whether the graph helped, coverage of intervals, and the solver's report."""
    from walksum.data.frames import name_list
    from walksum.data.numerals import written
    from walksum.workflow.metrics import graph_text

    if metrics.get("portfolio"):
        shown = [row for row in metrics["portfolio"]["members"] if row["weight"] > 0][:MOST_MEMBERS]
        text = ", ".join(f"{row['member']} {row['weight']:.2f}" for row in shown)
        console.say(f"{metrics['portfolio']['count']} members; most weight: {text}")
    if metrics.get("graph") is not None or metrics.get("portfolio"):
        console.say(graph_text(metrics), always=True)
    _say_classes(console, metrics)
    if metrics.get("importance"):
        rows = [row for row in metrics["importance"] if row["importance"] > 2 * row["standard_error"]][:MOST_COLUMNS]
        text = ", ".join(
            f"{row['column']} {written(row['importance'], 3)} ± {written(row['standard_error'], 2)}" for row in rows
        )
        way = "fall" if metrics.get("higher_is_better", True) else "rise"
        left = (metrics.get("importance_by") or {}).get("not_measured")
        console.say(
            f"columns that matter most, by the {way} of {metrics['score']} when permuted: {text or 'none clearly'}"
            + (f"; not measured in the time: {name_list(left)}" if left else "")
        )
    intervals = metrics.get("intervals")
    if intervals:
        console.say(
            f"{100 * intervals['level']:.0f} % intervals cover {100 * intervals['coverage']:.1f} % of the test nodes "
            f"({intervals['by']})"
        )
    solver = metrics["solver"]
    if solver is not None:
        residual = "NaN" if solver["residual"] is None else f"{solver['residual']:.0e}"
        console.say(f"solver: {solver['name']}, {solver['steps']} steps, residual {residual}, {solver['status']}")


def _say_classes(console: Console, metrics: dict[str, Any]) -> None:
    """How far probabilities can be believed, and how the rarest class fares where it is rare."""
    record = metrics.get("calibration")
    if record is None:
        return
    error, share = (
        record["error"],
        metrics["data"]["classes"][metrics["rare_class"]] / metrics["data"]["labelled_nodes"],
    )
    if record.get("smoothing"):  # older runs have none
        console.say(
            f"probabilities were propagated over the graph once more, by the scale {record['smoothing']:g} that "
            "validation nodes chose"
        )
    console.say(
        f"probabilities: expected calibration error {error['after']:.3f} on the test nodes "
        f"({error['before']:.3f} before the temperature {record['temperature']:.2f})"
    )
    own = metrics["parts"]["test"].get(metrics["model"], {})
    if own and share < RARE:
        recall, precision = (own[name] for name in ("rare_recall", "rare_precision"))
        text = "never predicted" if precision is None else f"precision {100 * precision:.1f} %"
        found = "no test node has it" if recall is None else f"recall {100 * recall:.1f} %"
        console.say(f"the rarest class, {metrics['rare_class']} ({100 * share:.1f} %): {found}, {text}")


def check_tensorboard() -> None:
    try:
        import tensorboard  # noqa: F401
    except ImportError as error:
        raise ValueError("--tensorboard needs the package tensorboard: pip install 'walksum[tensorboard]'") from error


@contextmanager
def watched(on_epoch: Any, folder: Path | None) -> Iterator[Any]:
    """``on_epoch``, which also writes to ``folder`` if there is one."""
    if folder is None:
        yield on_epoch
        return
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as log:
        trainings: dict[str, int] = {}

        def both(name: str, epoch: Epoch, best: Epoch, recipe: Recipe) -> None:
            if epoch.number == 1:
                trainings[name] = trainings.get(name, 0) + 1
            where = f"{name}-{trainings[name]}"
            log.add_scalars("loss", {f"{where}/train": epoch.train_loss, f"{where}/val": epoch.val_loss}, epoch.number)
            log.add_scalar(f"val_score/{where}", epoch.val_score, epoch.number)
            on_epoch(name, epoch, best, recipe)

        yield both
