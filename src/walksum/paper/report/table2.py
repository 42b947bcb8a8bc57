"""Table 2: ranges of GaBP iterations beside the paper's, true residuals, and a conclusion drawn from the numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from walksum.paper.report.document import Block, Document, Grid, TableCell, Title, Words, cells
from walksum.paper.report.table1 import dataset_title
from walksum.paper.rows import DATASETS, ROWS, TABLE2
from walksum.paper.solve_record import RULES, SolveRecord

COARSE = 1e-3  # a residual or an error above this is no solution in float32
DIRECTIONS = ("forward", "backward")
NO_SPEEDUP = 1.05  # forward steps over backward steps below which there is nothing to explain


@dataclass(frozen=True)
class SolveGroup:
    """Some solves of one design, one direction and one rule."""

    records: tuple[SolveRecord, ...]

    @property
    def steps(self) -> list[int]:
        return [record.steps for record in self.records]

    @property
    def unmet(self) -> int:
        return sum(not record.met for record in self.records)

    def range(self) -> str:
        """Least to most steps; > where the rule was not met in the allowed steps."""
        if not self.records:
            return "-"
        low, high = min(self.steps), max(self.steps)
        top = f">{high}" if self.unmet else str(high)
        low_text = top if self.unmet == len(self.records) else str(low)
        return top if low_text == top else f"{low_text} - {top}"

    def worst(self, name: str) -> float:
        return max((getattr(record, name) for record in self.records), default=math.nan)

    def median(self, name: str) -> float:
        return statistics.median([getattr(r, name) for r in self.records]) if self.records else math.nan

    def above(self, name: str) -> int:
        """How many are coarse; NaN counts as coarse."""
        return sum(not getattr(record, name) <= COARSE for record in self.records)


@dataclass(frozen=True)
class Table2:
    records: tuple[SolveRecord, ...]

    @property
    def models(self) -> list[str]:
        held = {record.model for record in self.records}
        return [name for name in ROWS if name in held]

    @property
    def datasets(self) -> list[str]:
        held = {record.dataset for record in self.records}
        return [*(d for d in DATASETS if d in held), *sorted(held - set(DATASETS))]

    @property
    def epochs(self) -> list[int]:
        return sorted({record.epoch for record in self.records})

    def group(
        self, direction: str, rule: str, models: Iterable[str] | None = None, dataset: str | None = None
    ) -> SolveGroup:
        chosen = set(self.models if models is None else models)
        return SolveGroup(
            tuple(
                r
                for r in self.records
                if r.direction == direction and r.rule == rule and r.model in chosen and dataset in (None, r.dataset)
            )
        )

    def speedups(self, rule: str, models: Iterable[str] | None = None) -> dict[tuple, float]:
        """Forward steps over backward steps of the same J, epoch and layer.

        The backward solves are those under ``rule``; "rescaled" leaves the forward ones alone, so they are the paper's
        rule's. Pairs in which either was cut off are left out: their ratio is unknown.
        """
        forward_rule = "messages" if rule == "rescaled" else rule
        forward = {_layer(r): r for r in self.group("forward", forward_rule, models).records if r.met}
        backward = {_layer(r): r for r in self.group("backward", rule, models).records if r.met}
        return {at: forward[at].steps / backward[at].steps for at in backward if at in forward}


def _layer(record: SolveRecord) -> tuple:
    return (*record.probe, record.layer)


@dataclass(frozen=True)
class Finding:
    """What the numbers say about "the backward pass converges faster"."""

    speedup: dict[str, float]  # rule -> geometric mean of forward / backward steps
    by_size: float | None  # share of the logarithm of the speedup that the size of dL/dmu accounts for
    by_rule: float | None  # the same of the absolute rule as a whole: what is gone by the true residual
    size: float  # median of the largest entry of dL/dmu over that of h, of the same layer
    backward: SolveGroup
    forward: SolveGroup

    @property
    def artefact(self) -> bool | None:
        """Mostly an artefact: the size explains more than half of it; None where there is nothing to explain."""
        return None if self.by_size is None else self.by_size > 0.5


def finding(table: Table2, models: Iterable[str] | None = None) -> Finding:
    chosen = list(table.models if models is None else models)
    ratios = {rule: found for rule in RULES if (found := table.speedups(rule, chosen))}
    common = set.intersection(*map(set, ratios.values())) if ratios else set()  # the same systems under every rule
    speedup = {rule: statistics.geometric_mean(found[at] for at in common) for rule, found in ratios.items() if common}
    ahead, back = (table.group(direction, "messages", chosen) for direction in DIRECTIONS)
    h = {_layer(record): record.size for record in ahead.records}
    sizes = [record.size / h[at] for record in back.records if h.get(at := _layer(record))]
    size = statistics.median(sizes) if sizes else math.nan
    return Finding(speedup, _explained(speedup, "rescaled"), _explained(speedup, "residual"), size, back, ahead)


def _explained(speedup: dict[str, float], rule: str) -> float | None:
    """The share of the paper's rule's speedup, on a logarithmic scale, that another rule does not show."""
    if not {"messages", rule} <= set(speedup) or speedup["messages"] < NO_SPEEDUP:
        return None
    return 1 - math.log(speedup[rule]) / math.log(speedup["messages"])


METHOD = (
    "A GLT is trained with the paper's recipe and exact solves (loss: mean over the training nodes). At the "
    "epochs given, every layer's own J, its h going forward and its dL/dmu going back are solved again by damped "
    "GaBP (Algorithm 1, damping 0.5, all messages from zero, float32), and compared with a float64 solve. The paper's "
    "rule stops when no message changes by more than 1e-6 in absolute size, or after 1000 steps. The residual rule "
    "is the same iteration, stopped at the first step whose true residual (normwise backward error, worst head and "
    "column) is at most 1e-6."
)


def document(table: Table2, source: str) -> Document:
    where = ", ".join(map(dataset_title, table.datasets))
    seeds = ", ".join(str(seed) for seed in sorted({record.seed for record in table.records}))
    epochs = ", ".join(map(str, table.epochs))
    held = f"{len(table.records)} solves: {where}; epochs {epochs} (not every epoch on every dataset); seed {seeds}."
    blocks: list[Block] = [Words(source), Words(METHOD), Words(held), Title("Iterations"), _iterations(table)]
    blocks += [Title("What the paper's rule leaves behind"), _leftovers(table)]
    blocks += [Title("Conclusion"), *_conclusion(table)]
    blocks += [Title("By dataset"), *(_by_dataset(table, direction) for direction in DIRECTIONS)]
    return Document("Table 2: GaBP iterations", tuple(blocks))


def _iterations(table: Table2) -> Grid:
    rows = []
    for model in table.models:
        groups = [table.group(d, rule, [model]) for rule in ("messages", "residual") for d in DIRECTIONS]
        rescaled = table.group("backward", "rescaled", [model])
        paper = TABLE2.get(model)
        texts = [_paper_range(paper[k]) if paper else "-" for k in range(2)]
        found = [group.range() for group in groups]
        rows.append(cells(ROWS[model].title, texts[0], found[0], texts[1], found[1], rescaled.range(), *found[2:]))
    columns = (
        *("Design", "forward, paper", "forward, ours", "backward, paper", "backward, ours", "backward, rescaled"),
        *("forward, by residual", "backward, by residual"),
    )
    caption = (
        "Steps of GaBP, least to most over datasets, epochs and layers. First four: the paper's rule. Rescaled: the "
        "paper's rule on dL/dmu multiplied so that its largest entry is that of h; nothing else differs. By residual: "
        "the same iteration until the true residual is 1e-6. The sign > marks solves cut off before their rule was met."
    )
    return Grid(caption, columns, tuple(rows))


def _paper_range(span: tuple[int, int | None]) -> str:
    return f">{span[0]}" if span[1] is None else f"{span[0]} - {span[1]}"


def _leftovers(table: Table2) -> Grid:
    rows = []
    for model in table.models:
        row = [TableCell(ROWS[model].title)]
        for direction in DIRECTIONS:
            group = table.group(direction, "messages", [model])
            row += [_spread(group, "residual"), _spread(group, "error"), TableCell(_share(group, "error"))]
        rows.append(tuple(row))
    columns = ["Design"]
    for direction in DIRECTIONS:
        columns += [f"{direction}: true residual", f"{direction}: error", f"{direction}: error > {COARSE:g}"]
    caption = (
        "Where the paper's rule stopped: median, and below it the worst. Residual: normwise backward error. Error: "
        f"|mu - exact| / |exact|, Frobenius norm. Last of each: solves with an error above {COARSE:g}, of all."
    )
    return Grid(caption, tuple(columns), tuple(rows))


def _spread(group: SolveGroup, name: str) -> TableCell:
    return TableCell(f"{group.median(name):.0e}", f"{group.worst(name):.0e}") if group.records else TableCell("-")


def _share(group: SolveGroup, name: str) -> str:
    return f"{group.above(name)} / {len(group.records)}" if group.records else "-"


def _by_dataset(table: Table2, direction: str) -> Grid:
    rows = tuple(
        (
            TableCell(ROWS[model].title),
            *(
                TableCell(
                    table.group(direction, "messages", [model], dataset).range(),
                    table.group(direction, "residual", [model], dataset).range(),
                )
                for dataset in table.datasets
            ),
        )
        for model in table.models
    )
    caption = f"{direction.capitalize()} steps under the paper's rule; below them by the true residual."
    return Grid(caption, ("Design", *map(dataset_title, table.datasets)), rows)


def _conclusion(table: Table2) -> list[Block]:
    said = (_cut_off(table), _other_ranges(table), _floor(table))
    return [Words(conclusion(finding(table))), _ratios(table), *(Words(text) for text in said if text)]


def conclusion(found: Finding) -> str:
    """The paper's "the backward pass consistently converges faster", judged by the numbers."""
    back, ahead = found.backward, found.forward
    counts = (
        f"Under the paper's rule {back.above('residual')} of {len(back.records)} backward solves stopped with a true "
        f"residual above {COARSE:g} and {back.above('error')} with an error above {COARSE:g} (forward: "
        f"{ahead.above('residual')} and {ahead.above('error')} of {len(ahead.records)})."
    )
    if found.by_size is None:
        return f"The backward pass is not faster here under the paper's rule: there is nothing to explain. {counts}"
    is_or_not = "is mostly" if found.artefact else "is not mostly"
    by_residual = ""
    if found.by_rule is not None:
        by_residual = (
            f" By the true residual it is {found.speedup['residual']:.2f}: the absolute rule as a whole accounts for "
            f"{100 * found.by_rule:.0f} %, and what is left does not depend on it."
        )
    return (
        f"That the backward pass converges faster {is_or_not} an artefact of the absolute stop rule: dL/dmu carries "
        f"the factor 1 / (number of training nodes) of the mean loss; its largest entry is 1/{1 / found.size:.0f} of "
        "that of h (median), so that its messages change by less than 1e-6 sooner, with fewer correct digits. Over "
        f"solves of the same J that met the rule, forward takes {found.speedup['messages']:.2f} times the steps of "
        "backward (geometric mean). With dL/dmu multiplied to the size of h, and nothing else changed, the factor is "
        f"{found.speedup['rescaled']:.2f}: the size alone accounts for {100 * found.by_size:.0f} % of it, on a "
        f"logarithmic scale.{by_residual} {counts}"
    )


def _ratios(table: Table2) -> Grid:
    def row(name: str, found: Finding) -> tuple[TableCell, ...]:
        ratios = (found.speedup.get(rule) for rule in ("messages", "rescaled", "residual"))
        shares = (found.by_size, found.by_rule)
        back = found.backward
        return cells(
            name,
            *("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
            *("-" if share is None else f"{100 * share:.0f} %" for share in shares),
            _share(back, "residual"),
            f"{back.worst('error'):.1g}",
        )

    rows = [row(ROWS[model].title, finding(table, [model])) for model in table.models]
    columns = (
        *("Design", "the paper's rule", "rescaled", "by residual", "due to the size", "due to the rule"),
        *(f"backward residual > {COARSE:g}", "worst backward error"),
    )
    caption = (
        "Forward steps over backward steps of the same J, geometric means over the pairs that met every rule; the "
        "shares of it, on a logarithmic scale, that are gone when only the size of dL/dmu is changed, and when the "
        "true residual is the rule; backward solves of the paper's rule with a coarse residual; their worst error."
    )
    return Grid(caption, columns, (*rows, row("all", finding(table))))


def _floor(table: Table2) -> str:
    cut = [r for d in DIRECTIONS for r in table.group(d, "residual").records if not r.met]
    if not cut:
        return ""
    where = ", ".join(dict.fromkeys(f"{ROWS[r.model].title} on {dataset_title(r.dataset)}" for r in cut))
    return (
        f"Not every solve reached a residual of 1e-6 in {max(r.max_steps for r in cut)} steps: {len(cut)} did not "
        f"({where}). The worst came to rest at {max(r.residual for r in cut):.2e}, as far as float32 messages go for "
        "its J."
    )


def _cut_off(table: Table2) -> str:
    """Designs whose forward solves were cut off by the paper's limit of steps."""
    said = []
    for model in table.models:
        ahead, back = (table.group(direction, "messages", [model]) for direction in DIRECTIONS)
        if ahead.unmet:
            said.append(
                f"{ROWS[model].title}: {ahead.unmet} of {len(ahead.records)} forward solves were cut off at the "
                f"paper's limit, with a worst true residual of {ahead.worst('residual'):.0e} and a worst error of "
                f"{ahead.worst('error'):.0e}. {len(back.records) - back.unmet} of {len(back.records)} backward solves "
                f"met the rule, with a median error of {back.median('error'):.1g} and a worst one of "
                f"{back.worst('error'):.1g}."
            )
    return " ".join(said)


def _other_ranges(table: Table2) -> str:
    """Ranges under the paper's rule that share no number with the paper's."""
    said = []
    for model in table.models:
        for k, direction in enumerate(DIRECTIONS):
            group, paper = table.group(direction, "messages", [model]), TABLE2.get(model)
            if paper is None or not group.records:
                continue
            low, high = paper[k][0], paper[k][1]
            over = group.unmet > 0 or max(group.steps) >= low
            if not over or (high is not None and min(group.steps) > high):
                said.append(f"{ROWS[model].title}, {direction}: {group.range()} (paper {_paper_range(paper[k])})")
    if not said:
        return "Every range under the paper's rule overlaps the paper's."
    return "Ranges under the paper's rule that do not overlap the paper's: " + "; ".join(said) + "."
