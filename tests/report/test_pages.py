"""The pages in docs say what the records in results hold."""

from pathlib import Path

from walksum.report.make import Order, make

ROOT = Path(__file__).parents[2]


def test_the_page_of_table2_is_made_from_its_records(monkeypatch):
    monkeypatch.chdir(ROOT)
    order = Order(Path("results/table2"), "md", Path("docs/table2.md"))
    assert make(order).content == order.out.read_text(encoding="utf-8"), f"run: {order.command}"
