"""Write the tables of docs/pyg.md from the tests that show what works with PyG, and the records of its numbers.

    python scripts/pyg_page.py

Each row is the first line of a test's docstring, "what: how"; a test that some packages are needed for says so. Numbers
come from results/pyg, where the scripts in benchmarks/ write them.
"""

import ast
import json
from pathlib import Path

from walksum.paper.report.document import fill_marks

ROOT = Path(__file__).parent.parent
GPU_LIMIT = 1.2  # times GAT's step
FILES = {
    "test_pyg_layer.py": "Layers and models",
    "test_pyg_tools.py": "Wrappers, explainers, compilers",
    "test_pyg_loaders.py": "Loaders and mini-batches",
}
NEEDS = {"sampler": "pyg-lib or torch-sparse", "sparse": "torch-sparse"}
END = """## Limits

- Compiled code (`torch.compile`) notices another `layer.design` or `layer.solver`, but not what is changed within a
  design after it was compiled, and does not write `last_solve`. Edge features need a `walksum.Graph` there, and the
  list of Graphs of a batch and the samples `[B, N, F]` of a `GLTConv` or `GLT` are taken outside compiled code only.
- Compiled code is there to be whole, not to be quick: its backward pass makes J once more. A compiled step of one layer
  is slower than the eager one on a CPU thread; by how much has no record yet.
- `torch.export` takes an `edge_index`; a design outside `walksum.designs.DESIGNS` stays in its process.
- `MessagePassing` is the base class only so that PyG's tools know a graph layer: there are no messages, and hooks on
  `propagate`, `message` or `aggregate` never fire, except that message hooks get `alpha`.
- A sampled mini-batch is a smaller graph with a J of its own: influence ends at its border (see above).
- `torch.jit.script`, `torch.jit.trace` and `torch.fx` tracing are not supported; use `torch.compile` and
  `torch.export`.
"""

MINIBATCH = """## Parts of one large graph

A part is solved as a graph of its own, so influence ends at its border: every output is biased towards what its own
part says. PubMed, ten parts, `PredictThenPropagate` with scale 0.9, 10 random splits, the difference to the full batch
on the same splits with its standard error (`benchmarks/minibatch.py`). The gradients of all parts are added up before a
step, so that only the border differs. The border error is the relative error of propagated features, nodes solved is
the work in multiples of the full graph.

The halo, each part solved together with its neighbours of 1 or 2 hops, is the boundary correction. It removes most of
the border error, at 1.4 and 3.6 times the work; in accuracy all variants lie within two standard errors of the full
batch, so whether it pays on PubMed is not shown. Random parts and steps per drawn batch (`ClusterLoader`) have no
record yet. With few labels, a step per single METIS part follows the classes of that part: add the gradients up, or
draw several parts per batch.
"""
BATCHES = """## A new graph in every batch

Forward + backward of one layer with 64 channels on one CPU thread, in multiples of GAT with 8 heads on a new graph in
the same run (medians of three runs, `benchmarks/batches.py`; the record has the ranges). The aim is at most 1.0 on a
new graph, and on the same graph again 0.3 for fixed and 0.6 for learned designs. Bold: over it. This record was made on
a server's core; on a small, busy machine the same commands had three of 54 over their aims (`batches-second.jsonl`:
eight heads, 5,000 nodes, the same graph again, 0.63 to 0.77).
"""
STEPS = """## Training steps on one CPU thread

Two layers, 64 hidden units, 8 heads, Adam, the same dropout implementation for all (`benchmarks/host_time.py --device
cpu --parts training`; median and range of three runs). The aim is at most 1.2 times GCN's for the fixed GLT
and at most GAT's for the learned one. Bold: over it.

A GLT skips the zeros of its input features, and in the backward pass of its linear layers the nodes without a gradient.
Its linear layers take norm, activation, dropout and residual with them in one pass. PyG's layers do none of this.
The last two columns compare with PyG's GCN and GAT given the same input layer (`gcn-skip` and `gat-skip`): what is
left there is the model. A block of the paper's GLT has four linear layers of 64 x 64 beside
its solve, and a layer of GCN none but its projection. On PubMed the fixed GLT falls short of its aim, and the learned
one of its own; with the same input layer for all every one does. This record and the one before
(`steps_cpu-fourth.jsonl`, torch's operations between the linear layers) were made on small, busy machines, one graph
after the other; `steps_cpu-before.jsonl` is the earlier code on the machine and day of this record;
`steps_cpu-third.jsonl` was made on a server's core, before zeros were skipped.
"""
GPU = """## On a GPU

H200, steps as above, eager against eager and captured as a CUDA graph against captured (`python -m benchmarks.gpu
--parts steps`, `results/bench/gpu.json`; median and range of three runs). The aim is at most 1.2 times GAT's. Bold:
over it. An eager step waits for Python, which launches as many kernels for a GLT as for GAT and 40 more to learn J; of
a captured one on PubMed the solves are six tenths (`results/bench/launches.jsonl`, made with torch's layer norms). With
those norms captured steps took 1.80 and 2.28 times GAT's on Cora, 2.44 and 2.89 times on PubMed (`host_time.jsonl`).
"""
SOLVES = """
Forward + backward of `walksum.solve` called from Python without capturing, in multiples of the paper's algorithm in
torch. The aim is at least 50; "nothing" is an autograd function with nothing in it, the most that any eager pass can
reach.
"""
GRAPH_LEVEL = """## Whole graphs

`examples/graph_classification.py`: two marked nodes are in the same part of a graph of 64 nodes or not, and lie at
least 13 hops from the edges that decide. Two layers with J^-1 of reach 32 reach them; two and twelve layers of GCN
cannot, thirty-two could and do not learn it in the same 15 epochs (`benchmarks/graph_level.py`, 200 new graphs). In an
earlier, smaller form of the task, 24 nodes, twelve layers of GCN had 100 % too (`graph_level-first.jsonl`).
"""
LAYER_SCALE = """## The default scale of `GLTConv`

Two `GLTConv(learned=False)` on Cora, 5 random splits, the best of 60 epochs on validation nodes
(`benchmarks/layer_scale.py`). The default is 0.7: 0.8 fails with one seed, and from 0.9 on two layers without a norm
between them keep little but what all nodes share.
"""


def rows(path: Path) -> list[str]:
    """One line of the table for each test of a file."""
    found = []
    for node in ast.parse(path.read_text()).body:
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
            continue
        text = ast.get_docstring(node)
        if text is None or ": " not in text:
            raise ValueError(f"{path.name}: {node.name} needs a docstring 'what: how'")
        what, how = text.replace("|", "\\|").split(": ", 1)
        names = [mark.id for mark in node.decorator_list if isinstance(mark, ast.Name) and mark.id in NEEDS]
        needs = f" (needs {NEEDS[names[0]]}, else the test is skipped)" if names else ""
        found.append(f"| {what} | {' '.join(how.split())}{needs} | `{node.name}` |")
    return found


def read(name: str) -> list[dict]:
    """The rows of a record without its first, which says how it was made; nothing where there is no record."""
    path = ROOT / "results" / "pyg" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()][1:] if path.exists() else []


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


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
            f"{row['nodes_solved']:.1f}" if "nodes_solved" in row else "1.0",
        ]
        for row in read("minibatch")
    ]
    head = ["training", "test, whole graph", "test, in parts", "border error", "nodes solved"]
    return MINIBATCH + "\n" + table(head, rows)


def batches() -> str:
    """The cost of a new graph in every batch."""
    found = [row for row in read("batches") if row["layer"] != "GAT"]
    layers = list(dict.fromkeys(row["layer"] for row in found))
    columns = list(dict.fromkeys((row["graph"], row["shape"]) for row in sorted(found, key=lambda row: row["graph"])))
    values = {(row["layer"], row["graph"], row["shape"]): row for row in found}

    def cell(layer: str, graph: str, shape: str) -> str:
        row = values[layer, graph, shape]
        text = f"{row['over_gat']:.2f}"
        return f"**{text}**" if row["limit"] is not None and row["over_gat"] > row["limit"] else text

    rows = [[layer, *(cell(layer, *column) for column in columns)] for layer in layers]
    asked = [row for row in found if row["limit"] is not None]
    met = sum(row["over_gat"] <= row["limit"] for row in asked)
    told = f"\n{met} of {len(asked)} values meet their aim.\n"
    return BATCHES + "\n" + table(["layer", *(f"{graph}, {shape}" for graph, shape in columns)], rows) + told


def training_steps() -> str:
    def ratio(row: dict, other: str) -> str:
        if f"over_{other}" not in row:
            return ""
        low, high = row[f"over_{other}_range"]
        text = f"{row[f'over_{other}']:.2f} [{low:.2f}, {high:.2f}]"
        judged = row["limit"] is not None and other.startswith("gcn" if row["contestant"] == "glt-fixed" else "gat")
        return f"**{text}**" if judged and row[f"over_{other}"] > row["limit"] else text

    others = {"gcn": "in GCN's", "gat": "in GAT's", "gcn-skip": "in gcn-skip's", "gat-skip": "in gat-skip's"}
    rows = [
        [row["graph"], row["contestant"], f"{1e3 * row['cpu_seconds']:.0f} ms", *(ratio(row, name) for name in others)]
        for row in read("steps_cpu")
    ]
    return STEPS + "\n" + table(["graph", "model", "CPU time", *others.values()], rows) if rows else ""


def gpu() -> str:
    """Training steps and solves on a GPU, where they were measured."""
    found = read("host_time")
    bench = json.loads((ROOT / "results" / "bench" / "gpu.json").read_text())["records"]
    steps = [
        [row["graph"], row["mode"], row["contestant"], f"{1e3 * row['seconds']:.2f} ms", _in_gats(row)]
        for row in bench
        if row["kind"] == "step"
    ]
    solves = [
        [row["graph"], row["design"], str(row["heads"]), row["contestant"], _times(row)]
        for row in found
        if "ratio" in row and "design" in row
    ]
    text = GPU + "\n" + table(["graph", "mode", "model", "time", "in GAT's"], steps) if steps else ""
    head = ["graph", "design", "heads", "solver", "times the yardstick"]
    return text + (SOLVES + "\n" + table(head, solves) if solves else "")


def _in_gats(row: dict) -> str:
    """The step in multiples of GAT's, bold where it misses its aim."""
    values = [run["over_gat"] for run in row["runs"]]
    text = f"{row['over_gat']:.2f} [{min(values):.2f}, {max(values):.2f}]"
    return f"**{text}**" if row["contestant"].startswith("glt") and row["over_gat"] > GPU_LIMIT else text


def _times(row: dict) -> str:
    """Times the yardstick, bold where it misses its aim."""
    text = f"{row['ratio']:.0f}"
    return f"**{text}**" if row.get("limit") is not None and row["ratio"] < row["limit"] else text


def _scales(found: list[dict]) -> str:
    rows = [[str(row["scale"]), f"{row['mean']:.1f}", ", ".join(map(str, row["values"]))] for row in found]
    return table(["scale", "validation accuracy", "seeds 0 to 4"], rows)


def choices() -> str:
    """Whole graphs, and the default scale."""
    graphs, scales = read("graph_level"), read("layer_scale")
    if not graphs:
        return LAYER_SCALE + "\n" + _scales(scales)
    names = [name for name in graphs[0] if name != "seed"]
    level = [[name, *(f"{row[name]:.1f} %" for row in graphs)] for name in names]
    return "\n".join(
        [
            GRAPH_LEVEL,
            table(["model", *(f"seed {k}" for k in range(len(graphs)))], level),
            LAYER_SCALE,
            _scales(scales),
        ]
    )


def updated(text: str) -> str:
    """The page with every table between its marks made anew."""
    parts = []
    for name, title in FILES.items():
        lines = ["| what | how | test |", "|---|---|---|", *rows(ROOT / "tests" / "pyg" / name)]
        parts.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
    parts += [minibatch(), batches(), training_steps(), gpu(), choices(), END]
    return fill_marks(text, "tested", "\n".join(part for part in parts if part))


if __name__ == "__main__":
    file = ROOT / "docs" / "pyg.md"
    file.write_text(updated(file.read_text()))
