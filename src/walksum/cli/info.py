"""walksum info, datasets and doctor: what a run is, what can be loaded, what is installed and right."""

from __future__ import annotations

import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer

from walksum.cli.console import EXTRAS, Console


def info(
    console: Console,
    run: Annotated[Path, typer.Argument(help="A folder written by 'walksum train'.")],
) -> None:
    """Say what a run is: its data, its model, its result.

    Example: walksum info runs/digits
    """
    from walksum.cli.progress import outcome_table, say_data, say_end
    from walksum.workflow.run import open_run

    trained = open_run(run)
    say_data(console, trained.metrics["data"])
    console.say("model: " + ", ".join(f"{name} {value}" for name, value in trained.used_settings.items()))
    columns = trained.encoding.columns
    console.say(f"columns: {', '.join(columns[:8])}{', ...' if len(columns) > 8 else ''}")
    console.table(outcome_table(trained.metrics))
    say_end(console, trained.metrics)
    console.result({"run": str(run), "config": trained.config, "metrics": trained.metrics})


PACKAGES = ("torch", "torch_geometric", "numpy", "scipy", "numba", "scikit-learn", "pandas", "safetensors")
TOLERANCE = 1e-9


def doctor(console: Console) -> None:
    """Say what is installed, what runs where, and whether solves are right.

    Example: walksum doctor
    """
    import walksum

    record: dict[str, Any] = {
        "walksum": walksum.__version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "extras": {name: _version(name) for name in EXTRAS},
        "device": _device(),
        "kernels": _kernels(),
        "data": _data(),
    }
    console.say(f"walksum {record['walksum']}, Python {record['python']}, {record['platform']}")
    console.say("packages: " + ", ".join(f"{name} {found}" for name, found in record["packages"].items()))
    for name, found in record["extras"].items():
        missing = f"not installed (pip install 'walksum[{EXTRAS[name]}]')"
        console.say(f"extra {name}: {found or missing}")
    console.say(f"device: {record['device']}")
    console.say(f"kernels: {record['kernels']}")
    for line in record["data"].values():
        console.say(line)
    record["self_test"] = checks = _self_test()
    for check in checks:
        console.say(f"self-test {check['solver']}: {'ok' if check['ok'] else 'WRONG'}, error {check['error']:.1e}")
    wrong = [check["solver"] for check in checks if not check["ok"]]
    if wrong:
        raise RuntimeError(f"{', '.join(wrong)} gave a wrong solution; reinstall, and report it if that does not help")
    console.say(f"all solves right, in {sum(check['seconds'] for check in checks):.1f} s")
    console.result(record)


def _version(name: str) -> str | None:
    try:
        return version(name.replace("_", "-"))
    except PackageNotFoundError:
        return None


def _device() -> str:
    import torch

    cpu = f"CPU, {torch.get_num_threads()} threads"
    return f"{torch.cuda.get_device_name()} and {cpu}" if torch.cuda.is_available() else f"{cpu}; no CUDA device"


def _kernels() -> str:
    import numba

    from walksum import backends

    folder = Path(str(numba.config.CACHE_DIR)) if numba.config.CACHE_DIR else Path(str(backends.__file__)).parent
    count = len(list(folder.rglob("*.nbi")))
    if count:
        return f"{count} compiled, under {folder}"
    return "not compiled yet; the first use of each compiles it, up to half a minute in all"


def _data() -> dict[str, str]:
    from walksum.data.cache import cache_root, data_root
    from walksum.data.datasets import names, on_disk

    root, cache = data_root(), cache_root()
    return {
        "root": f"data root: {root} ({'exists' if root.is_dir() else 'does not exist'}; set WALKSUM_DATA to change it)",
        "cache": f"cache: {cache}",
        "present": f"datasets without a download: {', '.join(filter(on_disk, names()))}",
    }


def _self_test() -> list[dict[str, Any]]:
    """Solves on a small random graph against numpy's dense one."""
    import torch

    from walksum import CG, Direct, FixedLaplacian, GaBP, Graph, Hybrid

    draw = torch.Generator().manual_seed(0)
    graph = Graph.from_edge_index(torch.randint(300, (2, 600), generator=draw), 300)
    J = FixedLaplacian(scale=0.9)(graph).to(torch.float64)
    h = torch.randn(300, 4, generator=draw, dtype=torch.float64)
    truth = torch.linalg.solve(J.to_dense()[0], h)
    found = []
    for solver in (Direct(), Hybrid(), CG(), GaBP(damping=1.0, tol=1e-12)):
        started = time.perf_counter()
        error = float((solver.prepare(J)(h).value - truth).abs().max())
        found.append(
            {"solver": solver.name, "ok": error < TOLERANCE, "error": error, "seconds": time.perf_counter() - started}
        )
    return found


def datasets(console: Console) -> None:
    """List the datasets that --dataset knows.

    Example: walksum datasets
    """
    from walksum.data.datasets import names, on_disk
    from walksum.data.sources import SIZES

    found = {name: (*SIZES[name], on_disk(name)) for name in names()}
    for name, (nodes, columns, classes, here) in found.items():
        where = "on disk" if here else "to download"
        console.say(f"{name:21} {nodes:8,} nodes {columns:6,} columns {classes:3} classes  {where}", always=True)
    keys = ("nodes", "columns", "classes", "on_disk")
    details = {name: dict(zip(keys, each, strict=True)) for name, each in found.items()}
    console.result({"datasets": names(), "details": details})
