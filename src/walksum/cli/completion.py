"""What the shell completes."""

from __future__ import annotations


def of_datasets(incomplete: str) -> list[str]:
    from walksum.data.datasets import names

    return _starting(incomplete, names())


def of_designs(incomplete: str) -> list[str]:
    from walksum.designs import NAMES

    return _starting(incomplete, NAMES)


def of_models(incomplete: str) -> list[str]:
    from walksum.workflow.models import MODELS

    return _starting(incomplete, MODELS)


def of_rows(incomplete: str) -> list[str]:
    from walksum.cli.bench_options import GROUPS
    from walksum.paper.rows import ROWS

    return _starting(incomplete, (*GROUPS, *ROWS))


def of_solvers(incomplete: str) -> list[str]:
    from walksum.solvers import SOLVERS

    return _starting(incomplete, ("auto", *SOLVERS))


def of_couplings(incomplete: str) -> list[str]:
    return _starting(incomplete, ("attractive", "repulsive"))


def of_devices(incomplete: str) -> list[str]:
    from walksum.training.devices import DEVICES

    return _starting(incomplete, DEVICES)


def of_tasks(incomplete: str) -> list[str]:
    return _starting(incomplete, ("classification", "regression"))


def of_metrics(incomplete: str) -> list[str]:
    from walksum.training.scoring import METRICS

    return _starting(incomplete, METRICS)


def _starting(incomplete: str, names: object) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]  # type: ignore[attr-defined]
