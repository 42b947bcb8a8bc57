"""Pictures of the explorer for the docs: ``python scripts/screenshots.py runs/cora runs/digits``.

Each run folder (of a published dataset) gives docs/images/explorer-NAME.png; the first one also explorer-NAME-dark.png
and its panels. Needs walksum[dev] and Debian's chromium and chromium-driver.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import threading
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "explore"))

from browser import Page, start_chromium  # noqa: E402

from walksum.explore.server import open_server, url_of  # noqa: E402
from walksum.explore.subject import subject_of_run  # noqa: E402
from walksum.workflow.problem import Source, problem_of_run  # noqa: E402
from walksum.workflow.run import open_run  # noqa: E402

SIZE = (1280, 800)
LARGEST = 300_000  # bytes of a picture
PANELS = ("correlation", "spectrum", "convergence")


class Served:
    def __init__(self, folder: Path):
        run = open_run(folder)
        problem = problem_of_run(run, Source(), labels=True)
        self.subject = subject_of_run(run, problem, title=problem.name)
        self.server = open_server(self.subject, 0)
        self.url = url_of(self.server)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def dress(page: Page, scheme: str) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    page.wait(lambda: page.js(f"return matchMedia('(prefers-color-scheme: {scheme})').matches"), scheme)


def resize(page: Page, width: int, height: int) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def settle(page: Page) -> None:
    """Until nothing is being answered, and two frames were drawn."""
    page.wait(lambda: not page.all("[data-dash-is-loading=true]"), "answers")
    page.driver.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 700)))"
    )


def shoot(page: Page, path: Path, element: str | None = None) -> None:
    settle(page)
    for place in ("document.documentElement", "document.getElementById('answer')"):
        page.js(f"{place}.style.scrollbarWidth = 'none'")
    content = page.find(element).screenshot_as_png if element else page.driver.get_screenshot_as_png()
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    picture.save(path, optimize=True)
    if path.stat().st_size > LARGEST:
        picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path} has {path.stat().st_size} bytes; pictures of the docs stay below {LARGEST}")
    print(path, path.stat().st_size)


def asked_node(page: Page) -> str:
    """The node that is least sure, yet right: it has most to explain."""
    subject = page.served.subject
    return subject.name(dict(subject.suggestions).get("least sure, yet right", 0))


def picture_of(page: Page, scheme: str, path: Path) -> None:
    dress(page, scheme)
    page.open(f"?node={asked_node(page)}")
    shoot(page, path)


def panels_of(page: Page, out: Path) -> None:
    dress(page, "light")
    page.open(f"?node={asked_node(page)}&design=pairwise-normal")
    shoot(page, out / "explorer-signs.png")
    resize(page, SIZE[0], 2 * SIZE[1])  # a picture of an element ends where the window does
    page.open(f"?node={asked_node(page)}")
    for name in PANELS:
        page.panel(name)
        page.wait(lambda: page.all("#panel-body .main-svg"), name)
        shoot(page, out / f"explorer-{name}.png", ".panels")
    page.press("#tab-whatif")
    following = next(name for name in page.served.subject.problem.classes if name != page.text("#fact-predicted"))
    page.choose("if-class", following)
    page.press("#if-features")
    page.wait(lambda: page.all("#before-after"), "before and after")
    shoot(page, out / "explorer-whatif.png", ".panels")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    options = parser.parse_args()
    chromium = start_chromium(shutil.which("chromium"), shutil.which("chromedriver"), options.out)
    try:
        for number, folder in enumerate(options.runs):
            page = Page(chromium, Served(folder))
            resize(page, *SIZE)
            name = page.served.subject.problem.name
            picture_of(page, "light", options.out / f"explorer-{name}.png")
            if number == 0:
                picture_of(page, "dark", options.out / f"explorer-{name}-dark.png")
                panels_of(page, options.out)
    finally:
        chromium.quit()


if __name__ == "__main__":
    main()
