"""The notebooks run from top to bottom, are stored without outputs, and are short."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples" / "notebooks"
BOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("path", BOOKS, ids=lambda p: p.stem)
def test_notebooks_are_short_and_hold_no_outputs(path):
    nbformat = pytest.importorskip("nbformat")
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert sum(len(cell.source.splitlines()) for cell in code) < 60


@pytest.mark.slow
@pytest.mark.parametrize("path", BOOKS, ids=lambda p: p.stem)
def test_notebooks_run(path, tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    book = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    assert any(cell.get("outputs") for cell in book.cells)
