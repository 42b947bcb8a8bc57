"""The tables and charts of docs/benchmarks.md and the headline in docs/results.md, from results/bench/*.json.

python -m benchmarks.report [--results results/bench] [--docs docs]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.charts import draw
from benchmarks.records import Record
from benchmarks.targets import MISSED, NOISE, counted, interval_text, matching, number, runs_of, verdicts
from walksum.paper.report.document import fill_marks, markdown_table

FIRST = " What was measured before stands in `results/bench/{bench}-*.json`."
CALLED = {"auto": "", "auto-captured": ", as a CUDA graph"}  # what a newcomer sees of the contestants
HOST = (
    "`auto` is called from Python for every pass. A pass of the same kind through autograd with nothing in it, one "
    "small kernel and one number read each way, takes {taken} on this host: a solver that is called so cannot take "
    "much less, while the yardstick's time falls with its steps. Much of it is a hand-over between threads, which "
    "can be avoided: [Solvers](solvers.md#on-a-gpu). `auto-captured` is the same solve, forward and "
    "backward, recorded once as a CUDA graph and replayed, as `ws.TrainingStep` does with a whole training step.\n\n"
)


def table(head: list[str], rows: list[list[str]]) -> str:
    return markdown_table(head, rows) + "\n"


def short(seconds: Any) -> str:
    value = number(seconds)
    for unit, scale in (("s", 1), ("ms", 1e3)):
        if value * scale >= 1:
            return f"{value * scale:.3g} {unit}"
    return f"{value * 1e6:.3g} us"


def size(count: Any) -> str:
    value = number(count)
    return "-" if value != value else f"{value / 2**20:.3g} MiB"


def error(record: Record) -> str:
    found = [number(record[k]) for k in ("error_mu", "error_g") if record.get(k) is not None]
    return f"{max(found):.0e}" if found and not any(v != v for v in found) else "-"


def unique(records: list[Record], name: str) -> list[Any]:
    return list(dict.fromkeys(r[name] for r in records))


def faster(record: Record, name: str = "ratio") -> str:
    if name not in record:
        return f"{short(record['seconds'])} / {error(record)}" if "seconds" in record else "failed"
    return f"{times(record, name)}x / {error(record)}"


def times(record: Record, name: str) -> str:
    return f"{'~' if record['extrapolated'] else ''}{record[name]:.3g}"


TITLES = {
    "ratio": "times faster than the yardstick / error",
    "tuned_ratio": "times faster than the tuned yardstick / error",
    "new_ratio": "a new graph, times faster than the yardstick / error",
}


def overview(records: list[Record], heads: int, contestant: str = "auto", name: str = "ratio") -> str:
    """One contestant on every graph and design."""
    mine = matching(records, kind="solve", heads=heads, contestant=contestant)
    if not mine or (name != "ratio" and not any(name in r for r in mine)):
        return ""
    designs = unique(mine, "design")
    rows = []
    for graph in unique(mine, "graph"):
        here = {r["design"]: faster(r, name) for r in matching(mine, graph=graph)}
        rows.append([graph, *(here.get(design, "") for design in designs)])
    layout = "One head, 64 columns" if heads == 1 else f"{heads} heads, {mine[0]['columns']} columns each"
    return f"### {layout}: `{contestant}`, {TITLES[name]}\n\n{table(['', *designs], rows)}\n"


def hosts(records: list[Record]) -> str:
    """What the host alone takes, and the solves that leave it out."""
    rounds = matching(records, kind="host")
    if not rounds:
        return ""
    taken = ", ".join(f"{short(r['seconds'])} ({r['graph']})" for r in rounds)
    return f"{overview(records, 1, 'auto-captured')}{HOST.format(taken=taken)}"


def details(records: list[Record], graph: str) -> str:
    """Everybody on one graph."""
    rows = []
    for r in matching(records, kind="solve", graph=graph):
        where = [f"{r['design']}, {r['heads']} x {r['columns']}", r["contestant"]]
        if "seconds" not in r:
            rows.append([*where, _why(r), *[""] * 7])
            continue
        share = "" if "floor_share" not in r else f"{100 * r['floor_share']:.0f} %"
        taken = " + ".join(map(str, r["steps"]))
        tuned, new = (f"{times(r, name)}x" if name in r else "" for name in ("tuned_ratio", "new_ratio"))
        speeds = [short(r["seconds"]), faster(r), tuned, short(r["new_seconds"]) if "new_seconds" in r else "", new]
        rows.append([*where, *speeds, taken, size(r["peak_bytes"]), f"{r['status']} {share}".strip()])
    head = ["design", "", "known graph", "faster / error", "than tuned", "new graph", "faster", "steps", "memory"]
    head += ["status"]
    filled = [k for k in range(len(head)) if any(row[k] for row in rows)]  # old records have no tuned or new column
    head, rows = [head[k] for k in filled], [[row[k] for k in filled] for row in rows]
    nodes, edges = (f"{matching(records, kind='solve', graph=graph)[0][k]:,}" for k in ("nodes", "edges"))
    return f"### {graph}: {nodes} nodes, {edges} edges\n\n{table(head, rows)}\n"


def _why(record: Record) -> str:
    left_out = record.get("left_out")
    return f"left out: {left_out}" if left_out else record.get("failure", "-")


def kernels(records: list[Record]) -> str:
    rows = [
        [f"{r['graph']} ({r['nodes']:,} nodes, {2 * r['edges']:,} directed edges)", r["contestant"]]
        + [short(r["seconds"]) if "seconds" in r else r.get("failure", "-")]
        + [f"{r[k]:.2f}" if k in r else "" for k in ("floor_share", "over_cusparse", "over_floor")]
        for r in matching(records, kind="kernel")
    ]
    head = ["graph", "", "time", "share of the floor", "times faster than cuSPARSE", "time over the floor"]
    return f"### Kernels\n\n{table(head, rows)}\n" if rows else ""


def model_steps(records: list[Record]) -> str:
    rows = [
        [r["graph"], f"{r['mode']}, {r['dropout']} dropout", r["contestant"], short(r["seconds"])]
        + [interval_text(runs_of(r, f"over_{k}")) if f"over_{k}" in r else "" for k in ("gcn", "gat", "appnp")]
        for r in matching(records, kind="step")
        if "mode" in r
    ]
    head = ["graph", "condition", "model", "training step", "over GCN", "over GAT", "over APPNP"]
    return f"### Training steps, two layers of width 64\n\n{table(head, rows)}\n" if rows else ""


def _points(record: Record) -> str:
    return ", ".join(f"{p['size']:,}: {short(p['seconds'])}" for p in record["points"])


def growth(records: list[Record]) -> str:
    rows = [
        [r["design"], f"{r['exponent']:.2f}", f"{number(r['memory_exponent']):.2f}", _points(r)]
        for r in matching(records, kind="scaling")
    ]
    return f"### Growth\n\n{table(['in', 'exponent of time', 'of memory', 'measured'], rows)}\n" if rows else ""


def aims(records: list[Record], bench: str) -> str:
    found = verdicts(records, bench)
    rows = [[t.name, t.bound, interval_text(worst), v] for t, v, worst in found]
    return f"### Targets\n\n{table(['target', 'bound', 'worst value', 'verdict'], rows)}\n**{counted(found)}.**\n\n"


def section(held: dict[str, Any], images: Path) -> str:
    records, bench, where = held["records"], held["bench"], held["machine"]
    used = ", ".join(f"{name} {version}" for name, version in held["versions"].items())
    device = where["device"] if bench == "gpu" else f"{where['cpu']}, {where['threads']} thread(s)"
    about = f"{device}; copy bandwidth {held['bandwidth'] / 1e9:.3g} GB/s; commit {held['commit']}; {held['written']}."
    about += _earlier(records) + (FIRST.format(bench=bench) if held.get("first") else "")
    if "clock" in held:
        about += f" The seconds of this commit's records are {held['clock']}, as the machine had other work."
    quick = "\n**A quick run: its times are rough.**\n" if held.get("quick") else ""
    pictures = "".join(f"![{text}](images/{name})\n\n" for name, text in draw(records, bench, images))
    graphs = unique(matching(records, kind="solve"), "graph")
    parts = [
        overview(records, 1),
        overview(records, 1, name="tuned_ratio"),
        overview(records, 1, name="new_ratio"),
        hosts(records),
        overview(records, 8),
        kernels(records),
        model_steps(records),
        growth(records),
    ]
    parts += [aims(records, bench), *(details(records, graph) for graph in graphs)]
    return f"## {bench.upper()}\n\n{about} {used}.\n{quick}\n{pictures}{''.join(parts)}"


def _earlier(records: list[Record]) -> str:
    """Records that were not measured again are of the code of their time."""
    kept = [r for r in records if "earlier" in r]
    if not kept:
        return ""
    kinds, days = (", ".join(sorted({r[name] for r in kept})) for name in ("kind", "earlier"))
    return f" {len(kept)} records ({kinds}) are of an earlier run ({days}) and were not measured again."


def headline(held: dict[str, Any]) -> str:
    """The few lines of one bench that a newcomer reads."""
    records, bench = held["records"], held["bench"]
    mine = [r for r in matching(records, kind="solve", heads=1, contestant=tuple(CALLED)) if "ratio" in r]
    designs, rows = unique(mine, "design"), []
    for graph in unique(mine, "graph"):
        for contestant, how in CALLED.items():
            here = {r["design"]: r for r in matching(mine, graph=graph, contestant=contestant)}
            if here:
                one = next(iter(here.values()))
                label = f"{graph} ({one['nodes']:,} nodes, {one['edges']:,} edges){how}"
                rows.append([label, *(_times(here[d]) if d in here else "" for d in designs)])
    about = held["machine"]["device"] if bench == "gpu" else f"one thread of {held['machine']['cpu']}"
    return f"On {about}:\n\n{table(['', *designs], rows)}\n{_verdict(records, bench)}\n"


def _times(record: Record) -> str:
    mark = "~" if record["extrapolated"] else ""
    new = f" ({mark}{record['new_ratio']:,.0f})" if "new_ratio" in record else ""
    return f"{mark}{record['ratio']:,.0f}{new}"


def _verdict(records: list[Record], bench: str) -> str:
    found = verdicts(records, bench)
    short_of = [[t.name, t.bound, interval_text(worst)] for t, v, worst in found if v in (MISSED, NOISE)]
    said = f"\n\n{table(['missed or within noise', 'target', 'measured'], short_of)}" if short_of else ""
    return f"Targets: {counted(found)}.{said}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.report", description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path("results/bench"))
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    args = parser.parse_args(argv)
    found = [path for name in ("cpu", "gpu") if (path := args.results / f"{name}.json").exists()]
    if not found:
        parser.error(f"no cpu.json or gpu.json in {args.results}; run python -m benchmarks.cpu first")
    images = args.docs / "images"
    images.mkdir(parents=True, exist_ok=True)
    benches = [
        json.loads(path.read_text()) | {"first": path.with_name(f"{path.stem}-first.json").exists()} for path in found
    ]
    for name, mark, parts in (
        ("benchmarks.md", "benches", [section(held, images) for held in benches]),
        ("results.md", "measured", map(headline, benches)),
    ):
        page = args.docs / name
        page.write_text(fill_marks(page.read_text(), mark, "\n".join(parts)))
    print(f"wrote the tables of {args.docs}/benchmarks.md and results.md from {', '.join(map(str, found))}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
