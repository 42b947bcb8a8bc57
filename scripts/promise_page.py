"""Writes the figures of docs/promise.md from the records in results/trust: ``python scripts/promise_page.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from walksum.paper.report.document import fill_marks, markdown_table

ROOT = Path(__file__).parents[1]
RECORDS, PAGE = ROOT / "results" / "trust", ROOT / "docs" / "promise.md"


def read(name: str) -> dict[str, Any] | None:
    path = RECORDS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def fuzz() -> list[str]:
    record = read("fuzz")
    if record is None:
        return ["No record yet: `make fuzz` writes results/trust/fuzz.json."]
    tried, seconds = record["systems"].get("all", 0), record["processor seconds"]
    lines = [
        f"{_short(tried, 100_000)}"
        f"{_tried(record)}, over {len(record['done']):,} chunks of {record['chunk']} numbers. "
        f"One system took {1000 * seconds / max(tried, 1):.0f} ms of one processor, compiling included.",
        *_mended(record),
        "",
        _table("class", "systems", {n: c for n, c in record["systems"].items() if n != "all"}),
        "",
        "What was tried on them, and how it ended (forks, interrupts, other processes, equal bits and gradients on a "
        "drawn part of them; gradients where the condition number is below 1000 and solves converged):",
        "",
        _table("check", "times, outcomes", {n: _ended(record, n, c) for n, c in record["checks"].items()}),
    ]
    return lines


def fuzz_gpu() -> list[str]:
    record = read("fuzz_gpu")
    if record is None:
        return ["No record yet: `python tests/fuzz/run.py --device cuda --out results/trust/fuzz_gpu.json`."]
    return [f"On a GPU, against the same twins: {_tried(record)}.", *_mended(record)]


def _short(done: int, asked: int) -> str:
    return f"**{done:,} of the {asked:,} asked for so far.** " if done < asked else ""


def _tried(record: dict[str, Any]) -> str:
    solves, said = _sum(record["checks"], "solve "), _sum(record["outcomes"], "solve ", ": converged")
    broken = len(record["violations"])
    return (
        f"{record['systems'].get('all', 0):,} systems, {solves:,} solves, {sum(record['checks'].values()):,} checks: "
        f"{broken} broken promise{'s' * (broken != 1)}. {said:,} solves said `converged`, the others why not"
    )


def _mended(record: dict[str, Any]) -> list[str]:
    """Promises that were broken when they were first tried and are kept by the source of today."""
    if not record["mended"]:
        return []
    numbers = sorted({int(each["seed"]) for each in record["mended"]})
    return ["", f"Broken when first tried, mended since and tried again: systems {', '.join(map(str, numbers))}."]


def _ended(record: dict[str, Any], check: str, count: int) -> str:
    start = f"{check}: " if check != "interrupt" else "interrupt"
    found = {n.removeprefix(start).strip(": "): c for n, c in record["outcomes"].items() if n.startswith(start)}
    return f"{count:,}" + (f": {_listed(found)}" if found else "")


def _table(name: str, value: str, rows: dict[str, Any]) -> str:
    return markdown_table([name, value], ([n, v if isinstance(v, str) else f"{v:,}"] for n, v in rows.items()))


def gradients() -> list[str]:
    first, second = read("gradients"), read("gradients_second")
    if first is None or second is None:
        return ["No record yet: `make fuzz` writes results/trust/gradients.json and gradients_second.json."]
    return [
        f"- First run: {_compared(first)} The rule is the second one: with one step of 1e-5 and a limit of 1e-5, six "
        "of these systems disagreed, most of them by the error of the differences; the best of several steps and the "
        "share of the condition number were allowed after that.",
        f"- Second run, other systems, the rule fixed before: {_compared(second)}",
        "",
        f"Allowed: {second['allowed']}.",
    ]


def _compared(record: dict[str, Any]) -> str:
    worst, broken = record["largest disagreement over what is allowed"], len(record["violations"])
    return (
        f"{record['systems']:,} systems from number {record['first seed']} on, {len(record['designs'])} designs and "
        f"{len(record['solvers'])} solvers: {record['compared']:,} compared, {record['said not to have converged']} "
        f"said not to have converged, {broken} wrong; the largest disagreement was {worst:.2g} of what is allowed."
    )


def faults() -> list[str]:
    record = read("faults")
    if record is None:
        return ["No record yet: `make faults` writes results/trust/faults.json."]
    lost, scratch = record["lost, doubled, torn or half-written"], record["hidden scratch folders and files left"]
    again = record["finished afterwards by the same command"]
    return [
        f"{_short(record['moments'], 200)}"
        f"{record['moments']} kills: {lost} lost, doubled, torn or half-written; {scratch} hidden scratch folders or "
        f"files were left; {again} of the killed trainings and sweeps were begun again and ended whole.",
        "",
        _table("command", "found after the kill", {n: _listed(f) for n, f in record["found after the kill"].items()}),
    ]


def load() -> list[str]:
    record = read("load")
    if record is None:
        return ["No record yet: `python -m benchmarks.load` writes results/trust/load.json."]
    return [f"- {_loaded(name, found)}" for name, found in record.items()]


def _loaded(name: str, found: dict[str, Any]) -> str:
    words = (
        "requests to the explorer by 8 clients" if name == "explorer" else name.replace("training", "training steps")
    )
    text = f"{found['count']:,} {words}: {found['errors']} errors"
    for kind in ("", "GPU "):
        if (early := found.get(f"{kind}megabytes at a tenth")) is not None:
            late = found[f"{kind}megabytes at the end"]
            text += f"; {kind}memory {early:.0f} MB after a tenth of them, {late:.0f} MB at the end"
    return text + "."


def audit() -> list[str]:
    record = read("audit")
    if record is None:
        return ["No record yet: `make audit`."]
    every = record["dependencies"]
    skipped = [each for each in every if "skip_reason" in each]
    known = [each["name"] for each in every if each.get("vulns")]
    text = f"`make audit` (pip-audit): {len(every) - len(skipped)} of {len(every)} packages could be asked about"
    if len(skipped) < len(every):
        text += f", {len(known)} with known vulnerabilities{': ' + ', '.join(known) if known else ''}"
    if skipped:
        text += (
            ". The rest could not: the index of packages there serves files and no list of vulnerabilities, and "
            "pip-audit without `--strict` calls that a success. So this promise is not shown yet"
        )
    return [text + "."]


def _sum(counts: dict[str, int], start: str, end: str = "") -> int:
    return sum(count for name, count in counts.items() if name.startswith(start) and name.endswith(end))


def _listed(found: dict[str, int]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in found.items())


def updated(text: str) -> str:
    """The page with the figures of today's records between its marks."""
    for make in (fuzz, fuzz_gpu, gradients, faults, audit, load):
        text = fill_marks(text, make.__name__, "\n".join(make()))
    return text


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
