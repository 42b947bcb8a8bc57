"""Pictures of explorer and report for the docs, from real runs.

    walksum train --nodes counties/nodes.csv --edges counties/edges.csv --target election_margin --budget 120 --out runs/counties
    walksum train --dataset cora --budget 120 --out runs/cora
    walksum train
    walksum train --dataset cora --design diagonally-dominant --learned --coupling attractive --out runs/cora-glt
    python scripts/screenshots.py runs/counties --nodes counties/nodes.csv --edges counties/edges.csv
    python scripts/screenshots.py runs/cora runs/digits --panels runs/cora-glt

Each run folder gives docs/images/explorer-NAME.png and -dark.png on the node the page opens with, -whole.png (the panel
of the whole model), and report-NAME.png, -dark.png and -phone.png; ``--only`` keeps one of them. ``--panels`` names a GLT
that gives explorer-signs.png (the first layer's J as trained, whose couplings have both signs), explorer-design.png
(another design on the same graph) and the other panels. Needs walksum[dev] and Debian's chromium and chromium-driver.
"""  # noqa: E501

from __future__ import annotations

import argparse
import io
import shutil
import sys
from pathlib import Path

import torch
from PIL import Image

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "explore"))

from audit import set_scheme, set_size  # noqa: E402
from browser import Page, start_chromium  # noqa: E402
from village import Served  # noqa: E402

from walksum.analysis.inverse import apply_inverse, units  # noqa: E402
from walksum.workflow.problem import Source, problem_of_run, read_node_table  # noqa: E402
from walksum.workflow.run import open_run  # noqa: E402
from walksum.workflow.trained_run import open_trained_run  # noqa: E402

SIZE = (1280, 800)
LARGEST = 300_000  # bytes of a picture
CANDIDATES = 100  # nodes from which the pictured one is chosen
PANELS = ("correlation", "spectrum", "convergence")


def serve(folder: Path, nodes: Path | None, edges: Path | None) -> Served:
    run = open_run(folder)
    source = Source(nodes=nodes, edges=edges) if run.config["columns"] else Source()  # a dataset has a name
    problem = problem_of_run(run, source, labels=True)
    table = read_node_table(run, source, problem)
    return Served(open_trained_run(run, problem, title=folder.name, table=table))


def set_colour_scheme(page: Page, scheme: str) -> None:
    set_scheme(page.driver, scheme)
    page.wait(lambda: page.js(f"return matchMedia('(prefers-color-scheme: {scheme})').matches"), scheme)


def wait_until_drawn(page: Page) -> None:
    """Until nothing is being answered, and two frames were drawn."""
    page.wait(lambda: not page.all("[data-dash-is-loading=true]"), "answers")
    if page.all("#graph"):
        page.wait(lambda: page.cy("return cy.nodes().length"), "the drawing")
        page.cy("cy.forceRender()")
    page.driver.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 1500)))"
    )


def shoot(page: Page, path: Path, element: str | None = None) -> None:
    # first: a page without its scroll bar is wider, and the graph is drawn again
    page.js("document.querySelectorAll('html, #answer').forEach(e => { e.style.scrollbarWidth = 'none'; })")
    wait_until_drawn(page)
    content = page.find(element).screenshot_as_png if element else page.driver.get_screenshot_as_png()
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    picture.save(path, optimize=True)
    if path.stat().st_size > LARGEST:
        picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path} has {path.stat().st_size} bytes; pictures of the docs stay below {LARGEST}")
    print(path, path.stat().st_size)


def chosen_view(page: Page) -> tuple[str, int]:
    """Of the least sure nodes that are still right, the one with most negative influence in a head of the first J."""
    trained = page.served.trained
    right = torch.from_numpy(trained.prediction) == trained.problem.y
    nodes = trained.output.max(1).values.masked_fill(~right, 2.0).argsort()[:CANDIDATES]
    value = apply_inverse(trained.precisions[0], units(trained.num_nodes, nodes))
    share = value.clamp(max=0).abs().sum(1) / value.abs().sum(1)  # [heads, candidates]
    head, which = divmod(int(share.argmax()), len(nodes))
    return trained.name(int(nodes[which])), head + 1


VIEWS = {  # of a GLT: colour scheme, and what follows the node in the address
    "explorer-signs": ("light", "&layer=1&head={head}"),
    "explorer-design": ("light", "&design=pairwise-normal"),
}


def picture_of(page: Page, scheme: str, query: str, path: Path) -> None:
    set_colour_scheme(page, scheme)
    node, head = chosen_view(page)
    page.open(f"?node={node}{query.format(head=head)}")
    shoot(page, path)


def explorer_of(page: Page, name: str, wanted: str | None, out: Path) -> None:
    """The page as it opens, light and dark."""
    for suffix, scheme in (("", "light"), ("-dark", "dark")):
        if wanted in (None, f"explorer-{name}{suffix}"):
            set_colour_scheme(page, scheme)
            page.open("")
            shoot(page, out / f"explorer-{name}{suffix}.png")


def whole_of(page: Page, name: str, wanted: str | None, out: Path) -> None:
    """The panel of the whole model."""
    if wanted in (None, f"explorer-{name}-whole"):
        set_colour_scheme(page, "light")
        set_size(page.driver, SIZE[0], 3 * SIZE[1])  # a picture of an element ends where the window does
        page.open("")
        page.panel("whole")
        shoot(page, out / f"explorer-{name}-whole.png", ".panels")
        set_size(page.driver, *SIZE)


def report_of(page: Page, folder: Path, name: str, wanted: str | None, out: Path) -> None:
    """The report: light, dark, and on a phone."""
    for suffix, scheme, size in (("", "light", (1200, 1500)), ("-dark", "dark", (1200, 1500)),
                                 ("-phone", "light", (390, 1400))):  # fmt: skip
        if wanted in (None, f"report-{name}{suffix}"):
            set_colour_scheme(page, scheme)
            set_size(page.driver, *size)
            page.driver.get((folder / "report.html").resolve().as_uri())
            if page.js("return document.documentElement.scrollWidth") > size[0]:
                raise ValueError(f"{folder}/report.html is wider than a window of {size[0]} pixels")
            shoot(page, out / f"report-{name}{suffix}.png")
    set_size(page.driver, *SIZE)


def panels_of(page: Page, out: Path) -> None:
    set_colour_scheme(page, "light")
    set_size(page.driver, SIZE[0], 2 * SIZE[1])  # a picture of an element ends where the window does
    trained, node = page.served.trained, chosen_view(page)[0]
    page.open(f"?node={node}")
    for name in PANELS:
        page.panel(name)
        page.wait(lambda: page.all("#panel-body .main-svg"), name)
        shoot(page, out / f"explorer-{name}.png", ".panels")
    page.press("#tab-whatif")
    second = trained.output[trained.node(node)].argsort(descending=True)[1]
    page.choose("if-class", trained.problem.classes[int(second)])
    page.press("#if-features")
    page.wait(lambda: page.all("#before-after"), "before and after")
    shoot(page, out / "explorer-whatif.png", ".panels")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--nodes", type=Path, help="of runs on tables")
    parser.add_argument("--edges", type=Path)
    parser.add_argument("--only", help="one picture by its name, without .png")
    parser.add_argument("--panels", type=Path, help="a GLT whose views and panels are pictured")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    options = parser.parse_args()
    chromium = start_chromium(shutil.which("chromium"), shutil.which("chromedriver"), options.out)
    try:
        for folder in options.runs:
            page = Page(chromium, serve(folder, options.nodes, options.edges))
            set_size(page.driver, *SIZE)
            explorer_of(page, folder.name, options.only, options.out)
            whole_of(page, folder.name, options.only, options.out)
            report_of(page, folder, folder.name, options.only, options.out)
        if options.panels:
            page = Page(chromium, serve(options.panels, options.nodes, options.edges))
            set_size(page.driver, *SIZE)
            for key, view in VIEWS.items():
                picture_of(page, *view, options.out / f"{key}.png")
            panels_of(page, options.out)
    finally:
        chromium.quit()


if __name__ == "__main__":
    main()
