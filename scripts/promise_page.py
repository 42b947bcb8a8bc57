"""Writes the figures of docs/promise.md from the records in results/trust: ``python scripts/promise_page.py``.

With ``--check`` it writes nothing and fails if the page and the records differ.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORDS, PAGE = ROOT / "results" / "trust", ROOT / "docs" / "promise.md"
BEGIN, END = "<!-- figures: {} -->", "<!-- end -->"


def read(name: str) -> dict[str, Any] | None:
    path = RECORDS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def fuzz() -> list[str]:
    record = read("fuzz")
    if record is None:
        return ["No record yet: `make fuzz` writes results/trust/fuzz.json."]
    tried, solves = record["systems"].get("all", 0), _sum(record["checks"], "solve ")
    said = _sum(record["outcomes"], "", ": converged")
    broken = len(record["violations"])
    lines = [
        f"{tried:,} of 100,000 systems tried so far (numbers from {record['first seed']}), {solves:,} solves, "
        f"{sum(record['checks'].values()):,} checks: {broken} broken promise{'s' * (broken != 1)}.",
        f"{said:,} solves said `converged` and were right; the others said why not.",
        "",
        "| class | systems |",
        "|---|---|",
    ]
    return lines + [f"| {name} | {count:,} |" for name, count in record["systems"].items() if name != "all"]


def gradients() -> list[str]:
    record = read("gradients")
    if record is None:
        return ["No record yet: `make fuzz` writes results/trust/gradients.json."]
    worst, broken = record["largest disagreement over what is allowed"], len(record["violations"])
    return [
        f"{record['systems']:,} systems over {len(record['designs'])} designs and {len(record['solvers'])} solvers: "
        f"{record['compared']:,} compared, {record['said not to have converged']} said not to have converged, "
        f"{broken} wrong. Allowed: {record['allowed']}; the largest disagreement was {worst:.2g} of that. "
        "The rule is the second: with one step of 1e-5 and a limit of 1e-5 six of these systems disagreed, most "
        "of them by the error of the differences; the best of several steps and the share of the condition number "
        "came later.",
    ]


def faults() -> list[str]:
    record = read("faults")
    if record is None:
        return ["No record yet: `make faults` writes results/trust/faults.json."]
    rows = [f"| {name} | {_listed(found)} |" for name, found in record["found after the kill"].items()]
    lost = record["lost, doubled, torn or half-written"]
    return [
        f"{record['moments']} kills of a run of 200 moments: {lost} lost, doubled, torn or half-written.",
        "",
        "| command | found after the kill |",
        "|---|---|",
        *rows,
    ]


def load() -> list[str]:
    record = read("load")
    if record is None:
        return ["No record yet: `python -m benchmarks.load` writes results/trust/load.json."]
    named = {"explorer": "requests to the explorer by 8 clients", "training": "training steps"}
    lines = []
    for name, words in named.items():
        if found := record.get(name):
            early, late = found["megabytes at a tenth"], found["megabytes at the end"]
            lines.append(
                f"- {found['count']:,} {words}: {found['errors']} errors; memory {early:.0f} MB after a tenth of them, "
                f"{late:.0f} MB at the end."
            )
    return lines


def _sum(counts: dict[str, int], start: str, end: str = "") -> int:
    return sum(count for name, count in counts.items() if name.startswith(start) and name.endswith(end))


def _listed(found: dict[str, int]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in found.items())


def filled(text: str) -> str:
    """The page with the figures of today's records between its marks."""
    for make in (fuzz, gradients, faults, load):
        begin = BEGIN.format(make.__name__)
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(END), re.DOTALL)
        assert pattern.search(text), f"{PAGE} has no mark {begin}"
        block = "\n".join([begin, "", *make(), "", END])
        text = pattern.sub(lambda _, block=block: block, text)
    return text


def main() -> int:
    before = PAGE.read_text()
    after = filled(before)
    if "--check" in sys.argv:
        return int(before != after)
    PAGE.write_text(after)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
