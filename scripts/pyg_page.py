"""Write docs/pyg.md, the page "What works with PyG", from the tests that show it.

    python scripts/pyg_page.py

Each row is the first line of a test's docstring, "what: how"; a test that some packages are needed for says so.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
FILES = {
    "test_pyg_layer.py": "Layers and models",
    "test_pyg_tools.py": "Wrappers, explainers, compilers",
    "test_pyg_loaders.py": "Loaders and mini-batches",
}
NEEDS = {"sampler": "pyg-lib or torch-sparse", "sparse": "torch-sparse"}
INTRODUCTION = """# What works with PyG

`GLTConv`, `Propagate`, `GLT` and the other layers stand where PyG's layers stand. Each line of the tables is a test
(`tests/pyg`), and this page is written from those tests by `scripts/pyg_page.py`.

J is symmetric. So an edge counts in both directions whichever of them is given, and what is given for i -> j and for
j -> i (weights, edge features) is averaged. Where the direction matters, give `(x, x.clone())`: a node is then there
twice, as source and as target, and the edges lead from the one side to the other.
"""
END = """## Limits

- Compiled code (`torch.compile`) keeps the design and the solver that the layer had when it was compiled, and does not
  write `last_solve`. Edge features need a `walksum.Graph` there, and the list of Graphs of a batch is
  taken outside compiled code only.
- Compiled code is there to be whole, not to be quick: its backward pass makes J once more. A compiled step of one layer
  is slower than the eager one on a CPU thread; by how much has no record yet.
- `torch.export` takes an `edge_index`; a design outside `walksum.designs.DESIGNS` stays in its process.
- `MessagePassing` is the base class only so that PyG's tools know a graph layer: there are no messages, and hooks on
  `propagate`, `message` or `aggregate` never fire, except that message hooks get `alpha`.
- A sampled mini-batch is a smaller graph with a J of its own: influence ends at its border. Whole graphs, or parts with
  few cut edges, come closest to the full batch.
- `torch.jit.script` and `torch.fx` tracing are not supported; use `torch.compile` and `torch.export`.
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


def page() -> str:
    parts = [INTRODUCTION]
    for name, title in FILES.items():
        table = ["| what | how | test |", "|---|---|---|", *rows(ROOT / "tests" / "pyg" / name)]
        parts.append(f"## {title}\n\n" + "\n".join(table) + "\n")
    return "\n".join([*parts, END])


if __name__ == "__main__":
    (ROOT / "docs" / "pyg.md").write_text(page())
