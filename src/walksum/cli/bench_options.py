"""Parse rows, columns and settings of a table from the options of a command."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from walksum.data.datasets import names
from walksum.paper.rows import DATASETS, ROWS, TABLE1, row_of
from walksum.paper.sweep.spec import RunSpec

SEPARATE = ("model", "dataset", "seed", "protocol", "options")  # fields with an option of their own, or set by parts


def _group(name: str) -> list[str]:
    return [row.name for row in ROWS.values() if row.group == name]


GROUPS: dict[str, Callable[[], list[str]]] = {
    "paper": lambda: list(TABLE1),
    "glt": lambda: _group("glt"),
    "baselines": lambda: _group("baseline"),
    "sign": lambda: _group("sign"),
    "extra": lambda: _group("extra"),
    "all": lambda: list(ROWS),
}


def words(*values: str) -> list[str]:
    """Split values at commas; an option may also be given several times."""
    return [word.strip() for value in values for word in value.split(",") if word.strip()]


def whole_numbers(option: str, text: str, least: int, expected: str) -> list[int]:
    """Parse whole numbers from a list with commas."""
    found = words(text)
    if not all(word.isdecimal() and int(word) >= least for word in found):
        raise ValueError(f"--{option} {text!r}; expected {expected} from {least} on, such as {least},10,100")
    return [int(word) for word in found]


def chosen_models(values: list[str]) -> list[str]:
    """Names and groups as rows, each once, in the order of the table."""
    chosen: set[str] = set()
    for word in words(*values):
        if word not in GROUPS and word not in ROWS:
            raise ValueError(
                f"--models {word!r} is unknown; choose of the groups {', '.join(GROUPS)} or {', '.join(ROWS)}"
            )
        chosen.update(GROUPS[word]() if word in GROUPS else [row_of(word).name])
    return [name for name in ROWS if name in chosen]


def chosen_datasets(values: list[str]) -> list[str]:
    chosen = list(dict.fromkeys(words(*values))) or list(DATASETS)
    for word in chosen:
        if word not in names():
            raise ValueError(f"--datasets {word!r} is unknown; choose of {', '.join(names())}")
    return chosen


def changes_of(settings: list[str], max_epochs: int | None) -> dict[str, Any]:
    """Fields of a RunSpec from --set NAME=VALUE."""
    changes: dict[str, Any] = {} if max_epochs is None else {"max_epochs": max_epochs}
    options: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ValueError(f"--set {setting!r}; write NAME=VALUE, such as lr=0.01")
        if name.startswith("options."):
            options[name.removeprefix("options.")] = _plain(text)
        else:
            changes[name] = _value(name, text)
    return {**changes, "options": tuple(sorted(options.items()))} if options else changes


def check_taken(models: list[str], changes: dict[str, Any]) -> None:
    """Refuse a setting that a chosen model ignores: it would be recorded as if it had been tried."""
    for name in changes:
        if ignoring := [model for model in models if not row_of(model).takes(name)]:
            raise ValueError(
                f"--set {name} means nothing to {', '.join(ignoring)}; leave out the setting or these rows"
            )


def _value(name: str, text: str) -> Any:
    kinds: dict[str, type] = {
        field.name: type(field.default) for field in fields(RunSpec) if field.name not in SEPARATE
    }
    if name not in kinds:
        raise ValueError(f"--set {name}: no such setting; choose of {', '.join(kinds)}, options.NAME")
    try:
        if name == "heads":
            first, last = map(int, text.split(","))
            return first, last
        return kinds[name](text)
    except ValueError:
        example = "8,1" if name == "heads" else kinds[name].__name__
        raise ValueError(f"--set {name}={text}; expected {example}") from None


def _plain(text: str) -> Any:
    """A number, true, false or null; anything else is a word."""
    try:
        return json.loads(text)
    except ValueError:
        return text
