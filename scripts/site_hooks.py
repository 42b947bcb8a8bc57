"""Pages of the reference: one per public name of walksum, made when the site is built."""

from __future__ import annotations

from typing import Any

from mkdocs.structure.files import File, Files

import walksum as ws

GROUPS = {
    "graph": "Graph and J",
    "precision": "Graph and J",
    "solving": "Solving",
    "designs": "Designs",
    "solvers": "Solvers",
    "field": "Gaussian fields",
    "nn": "Layers and models",
    "training.cuda_graph": "Layers and models",
    "workflow": "Tables and runs",
    "estimators": "Estimators",
}


def pages() -> dict[str, dict[str, str]]:
    """Group -> name -> where it is defined; every public name once."""
    found: dict[str, dict[str, str]] = {}
    for module, names in ws._PUBLIC.items():
        group = found.setdefault(GROUPS.get(module, module), {})
        group |= {name: f"walksum.{module}.{name}" for name in names}
    found["Modules"] = {name: f"walksum.{name}" for name in ws._MODULES}
    return found


def content(name: str, place: str, module: bool) -> str:
    members = "\n    options:\n      members: false" if module else ""
    return f"# {name}\n\n`import walksum as ws; ws.{name}`\n\n::: {place}{members}\n"


def index() -> str:
    lines = ["# Reference", "", "Every public name, by what it is for. Everything else may change without notice."]
    for group, names in pages().items():
        lines += ["", f"## {group}", "", *(f"- [`{name}`]({name}.md)" for name in names)]
    return "\n".join(lines) + "\n"


def on_config(config: Any) -> Any:
    groups = [{group: [{name: f"api/{name}.md"} for name in names]} for group, names in pages().items()]
    place = next(k for k, entry in enumerate(config.nav) if "When not to use it" in entry)
    config.nav.insert(place, {"Reference": ["api/index.md", *groups]})
    return config


def on_files(files: Files, config: Any) -> Files:
    files.append(File.generated(config, "api/index.md", content=index()))
    for group, names in pages().items():
        for name, place in names.items():
            text = content(name, place, group == "Modules")
            files.append(File.generated(config, f"api/{name}.md", content=text))
    return files


def on_post_page(output: str, page: Any, config: Any) -> str:
    """The theme's icons stand beside words or in named buttons: a screen reader need not say them."""
    return output.replace("<svg xmlns=", '<svg aria-hidden="true" xmlns=')
