"""The pages in docs, and the README's table, say what the records in results hold."""

import runpy
from pathlib import Path

import pytest

from walksum.report.make import Order, make

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("table", ["table1", "table2"])
def test_a_page_is_made_from_its_records(table, monkeypatch):
    monkeypatch.chdir(ROOT)
    order = Order(Path("results") / table, "md", Path(f"docs/{table}.md"))
    assert make(order).content == order.out.read_text(encoding="utf-8"), f"run: {order.command}"


def test_the_readme_holds_the_table_of_the_records(monkeypatch):
    monkeypatch.chdir(ROOT)
    script = runpy.run_path("scripts/readme_table.py")
    text = Path("README.md").read_text(encoding="utf-8")
    assert script["updated"](text) == text, "run: python scripts/readme_table.py"
