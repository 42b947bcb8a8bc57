"""The page in a real browser. What it prints is compared with ws.solve called directly."""

import csv
import io
import json
import time

import numpy as np
import pytest
import torch
from village import ODD

import walksum as ws
from walksum.explore.answer import COLUMNS
from walksum.explore.answer_panel import percent
from walksum.workflow.fit import predict

pytest.importorskip("dash_cytoscape")
pytest.importorskip("selenium")


@pytest.fixture(scope="module")
def page(driver, served):
    from browser import Page

    return Page(driver, served)


def expected_sources(trained, J, node, count=20):
    """id and influence of the strongest sources, as the page prints them."""
    unit = torch.zeros(J.num_nodes, 1, dtype=torch.float64)
    unit[node] = 1
    row = ws.solve(J, unit).squeeze(1).numpy()
    order = np.argsort(-np.abs(row), kind="stable")[:count]
    return [[trained.name(k), f"{row[k]:+.4g}"] for k in order]


def trained_J(trained, layer=-1, head=0):
    J = trained.model.precisions(trained.x, trained.graph)[layer].to(torch.float64)
    return ws.Precision(J.graph, J.diag[head], J.off[head])


def fixed_J(trained, design):
    return design(trained.graph, trained.x.double(), torch.empty(0, dtype=torch.float64))


def test_the_page_loads_from_this_machine_alone_and_says_where_to_start(page, small):
    page.open()
    assert page.heading == "Choose a node"
    assert len(page.all("#answer .suggestions button")) == len(small.suggestions)
    loaded = page.js("return performance.getEntriesByType('resource').map(each => each.name)")
    assert loaded
    assert all(name.startswith(page.served.url) for name in loaded)
    assert page.cy("return cy.nodes().length") == small.num_nodes
    assert page.cy("return cy.edges().length") == small.graph.num_edges
    assert "predicted:" in page.text("#legend")


def test_a_click_on_a_node_answers_why(page, small):
    page.open()
    page.tap(3)
    page.shows("house-3")
    J = trained_J(small)
    page.until_sources(expected_sources(small, J, 3))
    unit = torch.zeros(J.num_nodes, 1, dtype=torch.float64)
    unit[3] = 1
    row = ws.solve(J, unit).squeeze(1)
    assert page.text("#fact-label") == "north"
    assert page.text("#fact-predicted") == small.problem.classes[int(small.output[3].argmax())]
    assert page.text("#fact-probability") == percent(float(small.output[3].max()))
    assert page.text("#fact-variance") == f"{float(row[3]):.4g}"
    own = float(row[3].abs() / row.abs().sum())
    assert page.bars("hops")["itself"] == percent(own)
    assert page.sources()[0][:3] == ["house-3", "north", "0"]
    tone = page.wait(lambda: page.cy("return cy.getElementById('n3').data('tone')"), "the colours")
    assert tone == 1
    assert page.cy("return cy.nodes('.chosen').map(n => n.data('name'))") == ["house-3"]
    assert page.all("#paths li")
    assert page.text("#spoken").startswith("Node house-3: label north")


def test_the_bare_address_opens_on_a_useful_node(page, small):
    page.open("")
    page.shows(small.name(small.suggestions[0][1]))
    assert page.query() == ""


def test_nodes_are_coloured_by_what_is_chosen(page, small):
    from walksum.explore.colours import node_colours

    page.open("?node=house-3").shows("house-3")
    for colour in ("prediction", "truth", "error"):
        page.choose("colour", colour)
        expected = node_colours(small, colour).hues
        hues = "return Array.from(Array(cy.nodes().length).keys()).map(k => cy.getElementById('n' + k).data('hue'))"
        page.wait(lambda hues=hues, expected=expected: page.cy(hues) == expected, colour)
        page.wait(lambda: page.cy("return cy.nodes('.toned').length") == 0, "no tones of influence")
    assert "error: 0 1" in " ".join(page.text("#legend").split())
    assert "colour=error" in page.query()
    page.choose("colour", "influence")
    page.wait(lambda: page.cy("return cy.nodes('.toned').length") == 60, "the influence again")


def test_a_panel_never_shows_what_belongs_to_another(page, monkeypatch):
    from walksum.explore import callbacks

    usual = callbacks.panel
    monkeypatch.setattr(callbacks, "panel", lambda *given: (time.sleep(1), usual(*given))[1])
    page.open("?node=house-11").shows("house-11")
    page.panel("walks")
    page.press("#tab-spectrum")
    seen = page.js("return getComputedStyle(document.querySelector('#panel-body > *')).visibility")
    assert seen == "hidden"
    page.wait(lambda: "Spectral" in "".join(page.texts("#panel-body .gtitle")), "its own content")
    page.wait(
        lambda: page.js("return getComputedStyle(document.querySelector('#panel-body > *')).visibility") == "visible",
        "it to be seen",
    )


def test_the_whole_models_influence_is_the_gradient(page, small):
    page.open("?node=house-3").shows("house-3")
    page.panel("whole")
    x = small.x.clone().requires_grad_()
    p = small.model(x, small.graph).softmax(-1)[3]
    p = p[int(p.argmax())]
    gradient = torch.autograd.grad((p / (1 - p)).log(), x)[0].double()
    size, adds = gradient.abs().sum(1), (gradient * (small.x - small.x.mean(0))).sum(1)
    order, share = np.argsort(-size.numpy(), kind="stable")[:15], size / size.sum()
    shown = page.js(
        "return Array.from(document.querySelectorAll('#whole-sources tbody tr')).map(row => [row.dataset.source, "
        "row.cells[3].innerText, row.cells[4].innerText])"
    )
    assert [row[0] for row in shown] == [small.name(k) for k in order]
    assert [row[1] for row in shown] == [percent(float(share[k])) for k in order]
    assert [float(row[2]) for row in shown] == pytest.approx([float(adds[k]) for k in order], rel=5e-3, abs=1e-4)
    hops = small.graph.hop_distances([3])[0].numpy()
    itself = page.js("return document.querySelector('#whole-hops [data-hops=\"1 hop\"]').cells[1].innerText")
    assert itself == percent(float(share[hops == 1].sum()))
    button = page.find("#whole-sources tbody tr:nth-child(2) button")
    name = button.get_attribute("data-node")
    button.click()
    page.shows(name)


def test_the_whole_panel_of_another_node_is_never_seen(page, monkeypatch):
    from walksum.explore import callbacks

    usual = callbacks.panel
    page.open("?node=house-12").shows("house-12")
    page.panel("whole")
    page.wait(lambda: "of node house-12" in page.text("#panel-body"), "its own node")
    monkeypatch.setattr(callbacks, "panel", lambda *given: (time.sleep(1), usual(*given))[1])
    page.search("house-13")
    page.shows("house-13")
    seen = "return [getComputedStyle(document.querySelector('#panel-body > *')).visibility, arguments[0]]"
    words = page.text("#panel-body")
    assert page.js(seen, "")[0] == "hidden" or "of node house-13" in words
    page.wait(lambda: "of node house-13" in page.text("#panel-body"), "the other node")


def test_what_if_one_column_is_another(page, small):
    from selenium.webdriver.common.keys import Keys

    page.open("?node=house-4").shows("house-4")
    page.wait(lambda: page.find("#if-node").get_attribute("value") == "house-4", "the node to be named")
    page.choose("if-column", "x1")
    page.fill("#if-value", "2.5")
    page.press("#if-set")
    page.wait(lambda: "house-4 has x1 = 2.5" in page.text("#if-result"), "the result")
    x = small.x.clone()
    x[4, 1] = 2.5
    after = predict(small.model, x, small.problem, small.encoding)[4]
    assert {name: row[1] for name, row in probabilities(page).items()} == {
        name: percent(float(after[k])) for k, name in enumerate(small.problem.classes)
    }
    page.fill("#if-value", "much")
    page.find("#if-value").send_keys(Keys.ENTER)  # as the button does
    page.wait(lambda: "x1 takes a number, not 'much'" in page.text("#if-message"), "the message")


def test_a_spinner_turns_while_an_answer_is_made(page):
    page.open()
    page.js(
        "window.seen = []; new MutationObserver(all => all.forEach(each => window.seen.push("
        "each.target.getAttribute(each.attributeName)))).observe(document.getElementById('answer'), "
        "{attributes: true, attributeFilter: ['data-dash-is-loading']})"
    )
    page.search("house-3")
    page.shows("house-3")
    page.wait(lambda: page.js("return window.seen.includes('true')"), "the sign of work")
    page.wait(lambda: page.find("#answer").get_attribute("data-dash-is-loading") != "true", "its end")


def test_a_source_in_the_list_is_the_next_question(page, small):
    page.open("?node=house-3").shows("house-3")
    following = page.sources()[1][0]
    page.press(f'#sources tbody tr[data-source="{following}"] button')
    page.shows(following)
    page.until_sources(expected_sources(small, trained_J(small), small.node(following)))


def test_layers_and_heads_are_the_models_own(page, small):
    page.open("?node=house-4").shows("house-4")
    page.choose("layer", "1")
    page.until_sources(expected_sources(small, trained_J(small, 0, 0), 4))
    page.wait(lambda: len(page.all("#head option")) == 8, "eight heads")
    page.choose("head", "6")
    page.until_sources(expected_sources(small, trained_J(small, 0, 5), 4))
    page.choose("layer", "2")  # which has one head only
    page.until_sources(expected_sources(small, trained_J(small, 1, 0), 4))


def test_designs_signs_and_solvers(page, small):
    page.open("?node=house-4").shows("house-4")
    assert not page.find("#coupling").is_enabled()
    page.choose("design", "laplacian")
    page.until_sources(expected_sources(small, fixed_J(small, ws.FixedLaplacian(0.99)), 4))
    page.wait(lambda: page.find("#coupling").is_enabled(), "the sign to be free")
    page.choose("coupling", "repulsive")
    page.until_sources(expected_sources(small, fixed_J(small, ws.FixedLaplacian(0.99, "repulsive")), 4))
    assert any(row[3].startswith("-") for row in page.sources())
    page.choose("design", "pairwise-normal")
    page.until_sources(expected_sources(small, fixed_J(small, ws.FixedPairwiseNormal(0.99)), 4))
    page.choose("solver", "cg")
    page.wait(lambda: page.text("#solved").startswith("CG:"), "the solver to change")
    page.until_sources(expected_sources(small, fixed_J(small, ws.FixedPairwiseNormal(0.99)), 4))


def test_the_scale_slider(page, small):
    from selenium.webdriver.common.keys import Keys

    page.open("?node=house-4&design=laplacian&scale=0.9").shows("house-4")
    page.until_sources(expected_sources(small, fixed_J(small, ws.FixedLaplacian(0.9)), 4))
    for _ in range(3):
        page.find("#scale").send_keys(Keys.ARROW_LEFT)
    page.wait(lambda: page.text("#scale-said") == "0.897", "the scale to move")
    page.until_sources(expected_sources(small, fixed_J(small, ws.FixedLaplacian(0.897)), 4))
    page.find("#scale").send_keys(Keys.HOME)
    page.until_sources(expected_sources(small, fixed_J(small, ws.FixedLaplacian(0.5)), 4))
    assert "scale=0.5" in page.query()


def test_search_finds_by_id_and_by_part_and_says_what_it_does_not_find(page, small):
    page.open()
    page.search("house-12")
    page.shows("house-12")
    page.search("house-4")
    page.shows("house-4")
    page.search("HOUSE-3")  # one id is that, twelve begin with it
    page.wait(lambda: len(page.all("#matches button")) > 1, "several matches")
    page.press("#matches button")
    page.shows("house-3")
    page.search("odd & ")
    page.shows(ODD)
    assert page.all("#answer h2 b") == []  # shown as text
    page.search("castle")
    page.wait(lambda: "No node has the id 'castle'" in page.text("#message"), "the message")
    assert "There are 60 nodes" in page.text("#message")
    assert page.heading == f"Node {ODD}"


def test_what_if_features_and_edges(page, small):
    page.open("?node=house-4").shows("house-4")
    page.wait(lambda: page.find("#if-node").get_attribute("value") == "house-4", "the node to be named")
    page.choose("if-class", "east")
    page.press("#if-features")
    page.wait(lambda: page.text("#moved"), "the result")
    x = small.x.clone()
    x[4] = small.x[small.problem.y == 2].mean(0)
    after = predict(small.model, x, small.problem, small.encoding)[4]
    shown = probabilities(page)
    assert shown == {
        name: [percent(float(small.output[4, k])), percent(float(after[k]))]
        for k, name in enumerate(small.problem.classes)
    }
    page.press("#if-clear")
    page.wait(lambda: "Nothing is changed" in page.text("#if-result"), "the changes to go")

    edge = next(k for k, pair in enumerate(small.graph.edges.t().tolist()) if 4 in pair)
    a, b = small.graph.edges[:, edge].tolist()
    page.fill("#if-from", small.name(a))
    page.fill("#if-to", small.name(b))
    page.press("#if-drop")
    page.wait(lambda: "without the edge" in page.text("#if-result"), "the edge to go")
    kept = torch.arange(small.graph.num_edges) != edge
    graph = ws.Graph(small.graph.edges[:, kept], small.num_nodes)
    with torch.no_grad():
        after = small.model(small.x, graph).softmax(-1)[4]
    assert {name: row[1] for name, row in probabilities(page).items()} == {
        name: percent(float(after[k])) for k, name in enumerate(small.problem.classes)
    }
    page.press("#if-flip")
    page.wait(lambda: "other sign" in page.text("#if-result"), "the sign to turn")
    assert "without the edge" not in page.text("#if-result")
    page.fill("#if-to", "nowhere")
    page.press("#if-drop")
    page.wait(lambda: "No node has the id 'nowhere'" in page.text("#if-message"), "the message")


def test_changes_made_while_a_result_is_computed_add_up(page, small, monkeypatch):
    from walksum.explore import whatif_panel

    usual = whatif_panel._result
    page.open("?node=house-4").shows("house-4")
    page.wait(lambda: page.find("#if-node").get_attribute("value") == "house-4", "the node to be named")
    page.wait(lambda: "Nothing is changed" in page.text("#if-result"), "the first result")
    monkeypatch.setattr(whatif_panel, "_result", lambda *given: (time.sleep(2), usual(*given))[1])
    a, b = small.graph.edges[:, 0].tolist()
    page.fill("#if-from", small.name(a))
    page.fill("#if-to", small.name(b))
    page.choose("if-class", "east")
    page.press("#if-features")
    time.sleep(0.5)  # less than the result takes
    page.press("#if-drop")
    page.wait(lambda: "without the edge" in page.text("#if-result"), "the second change")
    assert "mean features of east" in page.text("#if-result")


def probabilities(page):
    rows = page.js(
        "return Array.from(document.querySelectorAll('#before-after tbody tr')).map("
        "row => [row.dataset.class, row.cells[1].innerText, row.cells[2].innerText])"
    )
    return {name: [before, after] for name, before, after in rows}


def test_a_click_on_an_edge_names_it(page, small):
    page.open()
    page.wait(lambda: page.cy("return !!cy.scratch('walksum')"), "the drawing to listen")
    page.cy("cy.edges()[0].emit('tap')")
    a, b = small.graph.edges[:, 0].tolist()
    page.wait(lambda: page.find("#if-from").get_attribute("value") == small.name(a), "one end")
    assert page.find("#if-to").get_attribute("value") == small.name(b)


LINK = "?node=house-9&layer=1&head=3&design=laplacian&coupling=repulsive&scale=0.7&solver=cg"


def test_a_link_restores_the_view(page, small):
    page.open(LINK).shows("house-9")
    expected = {"node": "house-9", "layer": 1, "head": 3, "design": "laplacian", "coupling": "repulsive"}
    assert page.state() == {**expected, "scale": 0.7, "solver": "cg", "colour": "influence"}
    for name in ("layer", "design", "coupling", "solver"):
        page.wait(
            lambda name=name: page.js(f"return document.getElementById('{name}').value") == str(page.state()[name]),
            name,
        )
    page.until_sources(expected_sources(small, fixed_J(small, ws.FixedLaplacian(0.7, "repulsive")), 9))
    page.choose("design", "diagonally-dominant")
    page.wait(lambda: "design=diagonally-dominant" in page.query(), "the address to follow")
    page.open(page.query()).shows("house-9")
    dominant = fixed_J(small, ws.FixedDiagonallyDominant("repulsive"))
    weaker = ws.Precision(dominant.graph, dominant.diag, 0.7 * dominant.off)
    page.until_sources(expected_sources(small, weaker, 9))


def test_the_back_button_goes_back(page):
    page.open("?node=house-9").shows("house-9")
    page.search("house-3")
    page.shows("house-3")
    page.driver.back()
    page.shows("house-9")


def test_a_link_with_wrong_values_opens_with_a_message(page):
    page.open("?node=castle&design=magic&scale=3&layer=9")
    page.wait(lambda: len(page.all("#message p")) == 4, "four messages")
    words = page.text("#message")
    for part in ("'castle'", "'magic'", "scale 3", "no layer 9"):
        assert part in words
    assert page.heading == "Choose a node"


def test_pictures_arrive_as_valid_images(page, downloads):
    from PIL import Image

    page.open("?node=house-3").shows("house-3")
    page.press("#save-png")
    content = page.downloaded(downloads, "influence-house-3.png")
    picture = Image.open(io.BytesIO(content))
    picture.load()
    assert picture.format == "PNG"
    assert min(picture.size) > 100
    assert len(picture.convert("RGB").getcolors(maxcolors=1 << 24)) > 20
    page.press("#save-svg")
    content = page.downloaded(downloads, "influence-house-3.svg")
    import xml.etree.ElementTree as ElementTree

    assert ElementTree.fromstring(content).tag.endswith("svg")


def test_data_arrive_with_every_node(page, small, downloads):
    page.open("?node=house-3").shows("house-3")
    page.press("#save-csv")
    rows = list(csv.DictReader(io.StringIO(page.downloaded(downloads, "influence-village-house-3.csv").decode())))
    assert tuple(rows[0]) == COLUMNS
    J = trained_J(small)
    exact = torch.linalg.inv(J.to_dense()[0])[3]
    assert len(rows) == small.num_nodes
    for row in rows:
        assert float(row["influence"]) == pytest.approx(float(exact[small.node(row["id"])]), abs=1e-10)
    page.press("#save-json")
    record = json.loads(page.downloaded(downloads, "influence-village-house-3.json"))
    assert record["view"]["node"] == "house-3"
    assert record["sources"][0]["id"] == rows[0]["id"]


def test_panels_show_what_the_library_computes(page, small):
    page.open("?node=house-3").shows("house-3")
    page.panel("walks")
    low, high = trained_J(small).walk_summability()
    assert page.text("#statement") == "J is walk-summable."
    assert f"between {low:.6g} and {high:.6g}" in page.text("#panel-body")
    for name, title in (
        ("correlation", "Around node house-3"),
        ("spectrum", "Spectral response"),
        ("convergence", "Residual"),
    ):
        page.panel(name)
        page.wait(lambda title=title: title in "".join(page.texts("#panel-body .gtitle, #panel-body .plot")), title)
        page.wait(lambda: page.all("#panel-body .main-svg"), "the figure")
    page.press("#tab-whatif")
    page.wait(lambda: page.find("#whatif").is_displayed() and not page.find("#panel-body").is_displayed(), "what if")


def test_the_keyboard_is_enough(page, small):
    from selenium.webdriver.common.keys import Keys

    page.open()
    body = page.find("body")
    body.send_keys("/")
    page.wait(lambda: page.js("return document.activeElement.id") == "search", "the search field")
    page.driver.switch_to.active_element.send_keys("house-3", Keys.ENTER)
    page.shows("house-3")
    button = page.find("#sources tbody tr:nth-child(2) button")
    name = button.text
    button.send_keys(Keys.ENTER)
    page.shows(name)
    tab = page.find("#tab-whatif")
    tab.send_keys(Keys.ARROW_LEFT)
    page.wait(lambda: page.text("#statement"), "the last panel")
    page.find("#tab-walks").send_keys(Keys.ESCAPE)
    page.wait(lambda: page.heading == "Choose a node", "the selection to go")
    assert page.text("#spoken") == "No node is chosen."


def test_every_control_has_a_name_for_a_screen_reader(page):
    page.open("?node=house-3").shows("house-3")
    nameless = page.js(
        "return Array.from(document.querySelectorAll('select, input, button')).filter(e => e.offsetParent && "
        "!(e.labels && e.labels.length) && !e.getAttribute('aria-label') && !e.innerText.trim()).map(e => e.outerHTML)"
        ".filter(html => !html.includes('modebar'))"
    )
    assert nameless == []
    assert page.find("#spoken").get_attribute("aria-live") == "polite"


def test_dark_and_narrow(page):
    page.open("?node=house-3").shows("house-3")
    driver = page.driver
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = page.js(ground)
    try:
        dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
        page.wait(lambda: page.js(ground) != light, "the dark colours")
        size = {"width": 800, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        page.wait(lambda: page.js("return window.innerWidth") == 800, "the narrow window")
        assert page.js("return document.documentElement.scrollWidth") <= 800
        assert page.find("#sources").is_displayed()
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_large_graph_shows_the_surroundings_of_the_chosen_node(driver, served_large, large):
    from browser import Page

    page = Page(driver, served_large).open()
    assert page.cy("return cy.nodes().length") == 0
    assert page.text("#no-graph") == "Choose a node to draw its surroundings."
    page.search("17")
    page.shows("17")
    page.until_sources(expected_sources(large, trained_J(large), 17))
    assert page.wait(lambda: page.cy("return cy.nodes().length"), "the drawing") == 150
    assert "of 2,500" in page.text("#drawing-note")
    following = page.sources()[1][0]
    page.tap(int(following))
    page.shows(following)


def test_of_a_dense_graph_the_edges_of_the_paths_are_added(page, small, monkeypatch):
    from walksum.explore import drawing
    from walksum.explore.answer import Session
    from walksum.explore.view import View

    monkeypatch.setattr(drawing, "MOST_EDGES", 10)
    page.open()
    page.wait(lambda: page.cy("return cy.edges().length") == 10, "few edges")
    page.search("house-4")
    page.shows("house-4")
    expected = sorted(drawing.recolour(small, Session(small).answer(View("house-4", 2)))["paths"])
    page.wait(lambda: page.cy("return cy.edges('.path').map(e => e.id()).sort()") == expected, "the paths")


def test_an_error_nobody_foresaw_is_said_on_the_page(page, monkeypatch, capfd):
    def fail(*args):
        raise RuntimeError("the moon is full")

    page.open()
    with monkeypatch.context() as patch:
        patch.setattr("walksum.explore.callbacks.shown_view", fail)
        page.search("house-3")
        page.wait(lambda: "RuntimeError: the moon is full" in page.text("#message"), "the message")
    page.search("house-4")
    page.shows("house-4")
    assert "the moon is full" in capfd.readouterr().err


def test_nothing_is_complained_about_in_the_console(page):
    page.open(LINK).shows("house-9")
    severe = [entry for entry in page.driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert severe == []


def test_a_panel_that_is_being_made_stands_there_at_once(page, monkeypatch):
    from walksum.explore import callbacks

    usual = callbacks.panel
    monkeypatch.setattr(callbacks, "panel", lambda *given: (time.sleep(2), usual(*given))[1])
    page.open("?node=house-21").shows("house-21")
    page.press("#tab-walks")
    assert not page.find("#whatif").is_displayed()
    assert page.find("#panel-body").is_displayed()
    page.wait(lambda: "The radius lies" in page.text("#panel-body"), "the panel")
    page.press("#tab-whatif")
    page.wait(lambda: page.find("#whatif").is_displayed(), "what if again")
    assert not page.find("#panel-body").is_displayed()


def test_a_page_whose_server_has_ended_says_so(driver, small):
    from browser import Page
    from village import Served

    served = Served(small)
    page = Page(driver, served).open("?node=house-3").shows("house-3")
    served.close()
    page.press("#sources tbody tr:nth-child(2) button")
    page.wait(lambda: "the explorer has ended" in page.text("#message"), "the message")
    driver.get("about:blank")
    driver.get_log("browser")  # which complains, too
