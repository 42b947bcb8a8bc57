"""The lowest versions that pyproject.toml allows, as constraints: ``python scripts/lowest.py > lowest.txt``."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
BOUND = re.compile(r"^([A-Za-z0-9_.-]+)\s*>=\s*([0-9][0-9.]*)")


def lowest(dependencies: list[str]) -> list[str]:
    """``name>=1.2`` becomes ``name==1.2.*``: the newest repair of the oldest version."""
    found = (BOUND.match(each) for each in dependencies)
    return [f"{each[1]}=={each[2]}.*" if each[2].count(".") < 2 else f"{each[1]}=={each[2]}" for each in found if each]


if __name__ == "__main__":
    project = tomllib.loads(PROJECT.read_text())["project"]
    extras = project["optional-dependencies"]
    print("\n".join(lowest([*project["dependencies"], *extras["explore"], *extras["search"], *extras["multigrid"]])))
