"""Which kind of store a folder is, and what is in it that was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from walksum.data.splits import PROTOCOLS
from walksum.paper.rows import row_of
from walksum.paper.solve_record import FILE as SOLVES
from walksum.paper.solve_record import SolveRecord, read_solves
from walksum.paper.sweep.record import RunRecord
from walksum.paper.sweep.store import RECORDS, read_records

HINT = "fill one with 'walksum bench table1' or 'walksum bench table2'"


@dataclass(frozen=True)
class Wanted:
    """What to show; empty: everything."""

    models: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for model in self.models:
            row_of(model)
        for protocol in self.protocols:
            if protocol not in PROTOCOLS:
                raise ValueError(f"protocol={protocol!r} is unknown; choose among {', '.join(PROTOCOLS)}")

    def takes(self, model: str, dataset: str, protocol: str) -> bool:
        pairs = ((self.models, model), (self.datasets, dataset), (self.protocols, protocol))
        return all(not chosen or value in chosen for chosen, value in pairs)


def kind_of(store: Path) -> str:
    """ "table1" or "table2", by the file a folder holds."""
    if not store.is_dir():
        what = "is a file, not a folder" if store.exists() else "does not exist"
        raise ValueError(f"store {store} {what}; name a folder with {RECORDS} or {SOLVES}, or {HINT}")
    for name, kind in ((RECORDS, "table1"), (SOLVES, "table2")):
        if (store / name).is_file():
            return kind
    raise ValueError(f"store {store} holds neither {RECORDS} nor {SOLVES}; {HINT}")


def runs_of(store: Path, wanted: Wanted) -> list[RunRecord]:
    held = read_records(store)
    found = [r for r in held if wanted.takes(r.spec.model, r.spec.dataset, r.spec.protocol)]
    held_names = sorted({(r.spec.model, r.spec.dataset, r.spec.protocol) for r in held})
    return _not_empty(found, store, held_names)


def solves_of(store: Path, wanted: Wanted) -> list[SolveRecord]:
    held = read_solves(store)
    found = [r for r in held if wanted.takes(r.model, r.dataset, "random")]
    return _not_empty(found, store, sorted({(r.model, r.dataset, "random") for r in held}))


def _not_empty(found: list, store: Path, held: list[tuple[str, str, str]]) -> list:
    if not held:
        raise ValueError(f"store {store} is empty; {HINT}")
    if not found:
        models, datasets, protocols = (", ".join(dict.fromkeys(names)) for names in zip(*held, strict=True))
        raise ValueError(
            f"store {store} has nothing of what was asked for; it holds the models {models}, the datasets {datasets} "
            f"and the protocols {protocols}"
        )
    return found
