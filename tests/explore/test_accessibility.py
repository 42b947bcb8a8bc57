"""Report, explorer and site as every reader needs them, in a real browser: contrast, names, keyboard, console."""

import functools
import http.server
import importlib.util
import os
import threading
from pathlib import Path

import pytest
from village import Served, trained_on

pytest.importorskip("dash_cytoscape")
pytest.importorskip("selenium")

ROOT = Path(__file__).parent.parent.parent
PHONE = (390, 844)
BAD = """<!doctype html><html><body style="background: #fff">
<p style="color: #999">too pale</p><p style="color: #767676">just enough</p>
<svg width="200" height="40"><rect width="200" height="40" fill="#333"/>
<text y="20" fill="#222">in the dark</text></svg>
<input id="nameless"><button tabindex="-1">never reached</button><button style="outline: none">no ring</button>
<script>console.error("a complaint")</script></body></html>"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        """No line per request."""


@pytest.fixture
def window(driver):
    """Chromium as it was, whatever a test makes of it."""
    driver.get_log("browser")  # what other pages have said
    yield driver
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.fixture
def serve(window):
    opened = []
    yield lambda trained: opened.append(Served(trained)) or opened[-1]
    window.get("about:blank")  # a page whose server has gone complains
    for each in opened:
        each.close()


def faults(page, look="light"):
    """By check, without the empty ones."""
    from audit import audit, set_scheme, set_size

    set_scheme(page.driver, "dark" if look == "dark" else "light")
    set_size(page.driver, *(PHONE if look == "phone" else (1280, 900)))
    record = audit(page)
    assert record["texts"] > 5
    return {name: found for name, found in record["faults"].items() if found}


def opened_at(driver, address):
    from browser import Page

    driver.get("about:blank")
    driver.get(address)
    return Page(driver, None)


def test_the_checks_find_what_is_wrong(window, tmp_path):
    from audit import audit

    (tmp_path / "bad.html").write_text(BAD)
    found = audit(opened_at(window, (tmp_path / "bad.html").as_uri()))["faults"]
    assert [each.split(": ")[1].split(" <")[0] for each in found["contrast"]] == ["too pale", "in the dark"]
    assert [each.split(":")[0] for each in found["names"]] == [
        "a textbox without a name", "the page lacks a language", "the page lacks a title",
        "the page lacks one first heading", "the page lacks a viewport",
    ]  # fmt: skip
    assert [each.split(" <")[0] for each in found["keyboard"]] == ["focus is not seen:", "Tab does not reach"]
    assert "a complaint" in found["console"][0]


@pytest.mark.parametrize("which", ["numbers", "class_run"])
def test_reports(window, request, tmp_path, which):
    request.getfixturevalue(which)[0].report(tmp_path / "report.html")
    for look in ("light", "dark", "phone"):
        page = opened_at(window, (tmp_path / "report.html").as_uri())
        assert faults(page, look) == {}
        assert page.js("return document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("which", ["numbers", "small"])
def test_explorers(window, serve, request, which):
    from browser import Page

    trained = request.getfixturevalue(which)
    page = Page(window, serve(trained[1] if which == "numbers" else trained))
    for look in ("light", "dark", "phone"):
        page.open("")
        assert faults(page, look) == {}
        assert page.js("return document.documentElement.scrollWidth <= innerWidth")


def test_panels_of_the_explorer(window, serve, small):
    from browser import Page

    from walksum.explore.panels import PANELS

    page = Page(window, serve(small)).open("")
    for name in PANELS:
        page.panel(name)
        page.wait(lambda: not page.all("[data-dash-is-loading=true]"), name)
        assert faults(page) == {}, name


@pytest.mark.data
def test_explorers_of_counties_and_cora(window, serve):
    from browser import Page

    from walksum.data.datasets import load
    from walksum.data.node_table import Columns
    from walksum.data.problem import from_data
    from walksum.workflow.problem import Source
    from walksum.workflow.tables import read_problem

    counties = Path(os.environ["WALKSUM_DATA"]) / "counties"
    source = Source(nodes=counties / "nodes.csv", edges=counties / "edges.csv")
    for problem in (read_problem(source, Columns(target="election_margin")), from_data("cora", load("cora"))):
        page = Page(window, serve(trained_on(problem, learned=False, epochs=2))).open("")
        for look in ("light", "dark"):
            assert faults(page, look) == {}


def test_the_first_page_of_the_site(window, tmp_path):
    pytest.importorskip("material")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "scripts" / "site_hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    some = {"hooks": [], "plugins": ["search"], "nav": [{"Start": "index.md"}], "strict": False}
    without = "*.md\n!index.md"  # one page is built in a second, all in ten
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), exclude_docs=without, **some))
    first = tmp_path / "index.html"
    first.write_text(hooks.on_post_page(first.read_text(), None, None))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        for look in ("light", "dark", "phone"):
            assert faults(opened_at(window, f"http://127.0.0.1:{server.server_port}/"), look) == {}
    finally:
        server.shutdown()
        server.server_close()


def test_a_formula_of_the_site_scrolls_by_itself(window, tmp_path):
    from audit import set_size
    from latex2mathml.converter import convert

    style = (ROOT / "docs" / "wide.css").read_text()
    formula = convert(r"p(x) \propto \exp(" + "-x^2 + h y " * 20 + r"\frac{1}{2})", display="block")
    head = '<meta name="viewport" content="width=device-width">'
    (tmp_path / "page.html").write_text(f"<!doctype html>{head}<style>{style}</style><p>A {formula}</p>")
    set_size(window, *PHONE)
    page = opened_at(window, (tmp_path / "page.html").as_uri())
    assert page.js("return document.documentElement.scrollWidth <= innerWidth")
    wide, seen = page.js("const m = document.querySelector('math'); return [m.scrollWidth, m.clientWidth]")
    assert wide > 2 * seen


def test_no_legend_covers_the_curves_on_a_phone(window, serve, small):
    from audit import set_size
    from browser import Page

    set_size(window, *PHONE)
    page = Page(window, serve(small)).open("")
    page.panel("convergence")
    page.wait(lambda: page.all("#panel-body .legend"), "the legend")
    box = "return document.querySelector(arguments[0]).getBoundingClientRect().toJSON()"
    legend, curves = (page.js(box, f"#panel-body {part}") for part in (".legend", ".nsewdrag"))
    assert legend["top"] >= curves["bottom"] - 1
