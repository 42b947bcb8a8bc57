"""The example on the US counties: short, and its intervals cover what they promise on each of ten splits."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "counties_field.py"


@pytest.mark.data
def test_intervals_of_the_counties_cover(tmp_path):
    assert len(EXAMPLE.read_text().splitlines()) < 60
    counties, picture = Path(os.environ["WALKSUM_DATA"]) / "counties", tmp_path / "map.png"
    command = [sys.executable, str(EXAMPLE), str(counties), "election_margin", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MPLBACKEND": "Agg"})
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^ +\d +([\d.]+) +([\d.]+) +([\d.]+)% ", done.stdout, flags=re.MULTILINE)
    assert len(rows) == 10
    for alone, both, covered in rows:
        assert float(both) > float(alone) + 0.3
        assert 93 <= float(covered) <= 97
    assert picture.stat().st_size > 10_000
