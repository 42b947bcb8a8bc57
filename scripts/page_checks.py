"""Check the pages as a reader needs them: ``python scripts/page_checks.py RUN [RUN ...] [--site SITE] [--out FILE]``.

Contrast (WCAG AA), names of all controls, keyboard, errors in the console and weight, in Chromium: of each run's
report.html (light, dark, on a phone) and of its explorer (light and dark, every panel), and of the first page of the
site that ``make docs`` has built. A run on tables needs ``--nodes`` and ``--edges``. Adds what was looked at and every
fault to FILE (pages that are there already are renewed) and exits with 1 if there is one. Needs walksum[dev] and
Debian's chromium and chromium-driver.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import json
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests" / "explore"), str(ROOT / "scripts")]

from audit import audit, set_scheme, set_size  # noqa: E402
from browser import Page, start_chromium  # noqa: E402
from screenshots import serve, wait_until_drawn  # noqa: E402

from walksum._files import write_file  # noqa: E402

WINDOWS = {"light": ("light", 1280, 900), "dark": ("dark", 1280, 900), "phone": ("light", 390, 844)}
PATIENCE = 600  # seconds for a panel: what it computes is not what is checked here
PANELS = ("whole", "model", "correlation", "spectrum", "convergence", "walks")


def look(page: Page, window: str) -> None:
    scheme, width, height = WINDOWS[window]
    set_scheme(page.driver, scheme)
    set_size(page.driver, width, height)


def check_file(page: Page, address: str) -> dict[str, Any]:
    found = {}
    for window in WINDOWS:
        look(page, window)
        page.driver.get("about:blank")
        page.driver.get(address)
        found[window] = audit(page)
    return found


def check_explorer(page: Page) -> dict[str, Any]:
    found = {}
    for window in WINDOWS:
        look(page, window)
        page.open("")
        wait_until_drawn(page)
        found[window] = audit(page)
    for window in ("light", "dark"):
        look(page, window)
        page.open("")
        for name in PANELS:
            page.panel(name, PATIENCE)
            wait_until_drawn(page)
            found[f"{window}, panel {name}"] = audit(page)
    return found


class SiteServer:
    """The built site on this machine."""

    def __init__(self, folder: Path):
        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *args: Any) -> None:
                """No line per request."""

        handler = functools.partial(Quiet, directory=str(folder))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--nodes", type=Path, help="of runs on tables")
    parser.add_argument("--edges", type=Path)
    parser.add_argument("--site", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "pages.json")
    options = parser.parse_args()
    found: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    with tempfile.TemporaryDirectory() as downloads:
        chromium = start_chromium(shutil.which("chromium"), shutil.which("chromedriver"), downloads)
        try:
            for folder in options.runs:
                page = Page(chromium, serve(folder, options.nodes, options.edges))
                found[f"report of {folder.name}"] = check_file(page, (folder / "report.html").resolve().as_uri())
                found[f"explorer of {folder.name}"] = check_explorer(page)
                write_file(options.out, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
            if options.site:
                served = SiteServer(options.site)
                found["first page of the site"] = check_file(Page(chromium, served), served.url)
        finally:
            chromium.quit()
    write_file(options.out, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    faults = [
        f"{name}, {window}: {kind}: {each}"
        for name, windows in found.items()
        for window, record in windows.items()
        for kind, some in record["faults"].items()
        for each in some
    ]
    print("\n".join([*faults, f"{len(faults)} faults on {sum(map(len, found.values()))} pages"]))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
