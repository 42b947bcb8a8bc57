"""An import names only what stands above it on the way of the data; the layer needs six packages and no more."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import walksum as ws

SOURCE = Path(ws.__file__).parent
# from the top: what a module may import stands before its own place
ORDER = ["_checks", "_files", "_torch", "graph", "backends", "ops", "precision", "designs", "solvers"]
ORDER += [
    "solving",
    "field",
    "nn",
    "analysis",
    "plot",
    "data",
    "training",
    "distributed",
    "portfolio",
    "workflow",
    "estimators",
    "explore",
    "paper",
    "cli",
]
BASE = ["pandas", "sklearn", "matplotlib", "typer", "rich"]  # of every install, but not of the layer
# torch itself brings the rest
OTHERS = [*BASE, "torchdiffeq", "ray", "dash", "dash_cytoscape", "plotly", "pyamg", "triton"]


def imports(source: str) -> set[str]:
    """The modules of walksum that a source text names, wherever the import stands."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("walksum.")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "walksum":
            whole = node.module == "walksum"
            found |= {f"walksum.{alias.name}" for alias in node.names} if whole else {node.module}
    return found


def backward(room: str, source: str) -> list[str]:
    """The imports of a module in ``room`` that name something below it."""
    place = ORDER.index(room)
    named = {name.split(".")[1] for name in imports(source)}
    return sorted(name for name in named if name in ORDER and ORDER.index(name) > place)


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_imports_look_up_the_list():
    modules = [path for path in SOURCE.rglob("*.py") if room_of(path) not in ("__init__", "__main__")]
    assert {room_of(path) for path in modules} <= set(ORDER)
    wrong = {str(path.relative_to(SOURCE)): backward(room_of(path), path.read_text()) for path in modules}
    assert {path: names for path, names in wrong.items() if names} == {}


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("graph", "from walksum.precision import Precision"),
        ("workflow", "def f():\n    from walksum.paper.models import MODELS"),
        ("nn", "from walksum import training"),
        ("backends", "import walksum.solvers.base"),
    ],
)
def test_a_forbidden_import_is_found(room, line):
    assert backward(room, line)


PROGRAM = f"""
import sys
sys.modules.update(dict.fromkeys({OTHERS!r}))  # None: cannot be imported
import warnings
import torch, walksum as ws
warnings.filterwarnings("error", "kernels in plain torch")  # they serve where numba is missing, not for want of these
edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
x = torch.randn(4, 5, requires_grad=True)
ws.GLT(5, 8, 2, 3)(x, edges).sum().backward()
ws.solve(ws.FixedLaplacian()(ws.Graph.from_edge_index(edges)), x.detach(), ws.CG())
ws.GaBP()
assert x.grad.isfinite().all()
print("the layer")

for name in {BASE!r}:
    del sys.modules[name]
from walksum.training.models import model_by_name
assert not any(name.startswith("walksum.paper") for name in sys.modules)
model_by_name("gde").make(5, 3, num_nodes=4)(x, edges)
print("compared models")

import walksum.cli, walksum.analysis.influence, walksum.explore.answer, walksum.explore.drawing
print("the command")
"""


@pytest.fixture(scope="module")
def steps():
    """What works where packages are missing: of one process for all tests, since it takes seconds to import torch."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    return done.stdout.splitlines(), done.stderr


def test_the_layer_runs_where_nothing_else_can_be_imported(steps):
    assert "the layer" in steps[0], steps[1]


def test_compared_models_are_imported_when_asked_for_and_need_no_extra_by_default(steps):
    assert "compared models" in steps[0], steps[1]


def test_the_library_and_the_command_do_without_extras(steps):
    assert "the command" in steps[0], steps[1]


def test_what_scripts_and_benchmarks_import_is_there():
    """They are run by hand, so a name that moved would be noticed only when a record is made again."""
    root, missing = Path(__file__).parents[1], []
    for path in [*root.glob("scripts/*.py"), *root.glob("benchmarks/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("walksum", "benchmarks"):
                module = importlib.import_module(node.module)
                names = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                missing += [
                    f"{path.name}: {node.module}.{name}"
                    for name in names
                    if importlib.util.find_spec(f"{node.module}.{name}") is None
                ]
    assert missing == []
