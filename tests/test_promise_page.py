"""The page of promises says what the records say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_figures_are_those_of_the_records():
    done = subprocess.run([sys.executable, ROOT / "scripts" / "promise_page.py", "--check"], capture_output=True)
    assert done.returncode == 0, "run: python scripts/promise_page.py"
