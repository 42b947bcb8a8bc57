"""How commands speak where nobody listens, and where there is no terminal."""

import os

from rich.table import Table

from conftest import start
from walksum.cli.console import Voice


def test_a_reader_who_leaves_early_is_no_failure(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    process = start("datasets", cwd=tmp_path, stdout=writing)
    os.close(writing)
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")


def test_a_table_in_a_pipe_is_not_cut_to_eighty_columns(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    table = Table()
    for k in range(10):
        table.add_column(f"column {k}", no_wrap=True)
    Voice().table(table)
    assert "column 9" in capsys.readouterr().out
