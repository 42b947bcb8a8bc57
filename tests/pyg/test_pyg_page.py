import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_page_is_what_the_tests_say():
    write = runpy.run_path(str(ROOT / "scripts" / "pyg_page.py"))
    files = {path.name for path in Path(__file__).parent.glob("test_pyg_*.py")} - {Path(__file__).name}
    assert set(write["FILES"]) == files
    text = (ROOT / "docs" / "pyg.md").read_text()
    assert write["page"](text) == text, "run python scripts/pyg_page.py"
