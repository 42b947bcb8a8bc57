"""Write the tables of docs/pyg.md from the tests that show what works with PyG, and the records of its numbers.

    python scripts/pyg_page.py

Each row is the first line of a test's docstring, "what: how"; a test that some packages are needed for says so. Numbers
come from results/pyg, where the scripts in benchmarks/ write them.
"""

import ast
import json
from pathlib import Path

from walksum.paper.report.document import fill_marks, markdown_table

ROOT = Path(__file__).parent.parent
GPU_LIMIT = 1.2  # times GAT's step
FILES = ("layer", "tools", "loaders")  # tests/pyg/test_pyg_NAME.py
NEEDS = {"sampler": "pyg-lib or torch-sparse", "sparse": "torch-sparse"}


def tested(name: str) -> str:
    """One line for each test of a file."""
    found = []
    for node in ast.parse((ROOT / "tests" / "pyg" / f"test_pyg_{name}.py").read_text()).body:
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
            continue
        text = ast.get_docstring(node)
        if text is None or ": " not in text:
            raise ValueError(f"test_pyg_{name}.py: {node.name} needs a docstring 'what: how'")
        what, how = text.replace("|", "\\|").split(": ", 1)
        names = [mark.id for mark in node.decorator_list if isinstance(mark, ast.Name) and mark.id in NEEDS]
        needs = f" (needs {NEEDS[names[0]]}, else the test is skipped)" if names else ""
        found.append([what, f"{' '.join(how.split())}{needs}", f"`{node.name}`"])
    return markdown_table(["what", "how", "test"], found)


def read(name: str) -> list[dict]:
    """The rows of a record without its first, which says how it was made."""
    lines = (ROOT / "results" / "pyg" / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines][1:]


def minibatch() -> str:
    """What parts of a graph do to accuracy."""

    def score(row: dict, where: str) -> str:
        found = row.get(where)
        if found is None:
            return ""
        if row["variant"] == "full batch":
            return f"{found['accuracy']:.1f}"
        return f"{found['accuracy']:.1f} ({found['minus_full']:+.1f} ± {found['standard_error']:.1f})"

    rows = [
        [
            row["variant"],
            score(row, "whole"),
            score(row, "parts"),
            f"{row['border_error']:.0%}" if "border_error" in row else "",
            f"{row.get('nodes_solved', 1):.1f}",
        ]
        for row in read("minibatch")
    ]
    return markdown_table(["training", "test, whole graph", "test, in parts", "border error", "nodes solved"], rows)


def batches() -> str:
    """The cost of a new graph in every batch."""
    found = [row for row in read("batches") if row["layer"] != "GAT"]
    columns = list(dict.fromkeys((row["graph"], row["shape"]) for row in sorted(found, key=lambda row: row["graph"])))
    cells = {(row["layer"], row["graph"], row["shape"]): _judged(row, "over_gat", row["limit"]) for row in found}
    layers = dict.fromkeys(row["layer"] for row in found)
    rows = [[layer, *(cells[layer, *column] for column in columns)] for layer in layers]
    asked = [row for row in found if row["limit"] is not None]
    met = sum(row["over_gat"] <= row["limit"] for row in asked)
    table = markdown_table(["layer", *(f"{graph}, {shape}" for graph, shape in columns)], rows)
    return f"{table}\n\n{met} of {len(asked)} values meet their aim."


def _judged(row: dict, name: str, limit: float | None, spread: list[float] | None = None) -> str:
    """A ratio and its range, bold above its limit."""
    text = f"{row[name]:.2f}" + (f" [{min(spread):.2f}, {max(spread):.2f}]" if spread else "")
    return f"**{text}**" if limit is not None and row[name] > limit else text


def training_steps() -> str:
    def ratio(row: dict, other: str) -> str:
        judged = other.startswith("gcn" if row["contestant"] == "glt-fixed" else "gat")
        return _judged(row, f"over_{other}", row["limit"] if judged else None, row[f"over_{other}_range"])

    others = {"gcn": "in GCN's", "gat": "in GAT's", "gcn-skip": "in gcn-skip's", "gat-skip": "in gat-skip's"}
    rows = [
        [row["graph"], row["contestant"], f"{1e3 * row['cpu_seconds']:.0f} ms", *(ratio(row, name) for name in others)]
        for row in read("steps_cpu")
    ]
    return markdown_table(["graph", "model", "CPU time", *others.values()], rows)


def gpu() -> str:
    """Training steps on a GPU."""
    rows = []
    for row in json.loads((ROOT / "results" / "bench" / "gpu.json").read_text())["records"]:
        if row["kind"] == "step":
            limit = GPU_LIMIT if row["contestant"].startswith("glt") else None
            in_gats = _judged(row, "over_gat", limit, [run["over_gat"] for run in row["runs"]])
            rows.append([row["graph"], row["mode"], row["contestant"], f"{1e3 * row['seconds']:.2f} ms", in_gats])
    return markdown_table(["graph", "mode", "model", "time", "in GAT's"], rows)


def graph_level() -> str:
    """Accuracy on whole graphs."""
    graphs = read("graph_level")
    rows = [[name, *(f"{row[name]:.1f} %" for row in graphs)] for name in graphs[0] if name != "seed"]
    return markdown_table(["model", *(f"seed {k}" for k in range(len(graphs)))], rows)


def layer_scale() -> str:
    """The default scale of a layer."""
    rows = [
        [str(row["scale"]), f"{row['mean']:.1f}", ", ".join(map(str, row["values"]))] for row in read("layer_scale")
    ]
    return markdown_table(["scale", "validation accuracy", "seeds 0 to 4"], rows)


def updated(text: str) -> str:
    """The page with every table between its marks made anew."""
    for name in FILES:
        text = fill_marks(text, name, tested(name))
    for make in (minibatch, batches, training_steps, gpu, graph_level, layer_scale):
        text = fill_marks(text, make.__name__, make())
    return text


if __name__ == "__main__":
    file = ROOT / "docs" / "pyg.md"
    file.write_text(updated(file.read_text()))
