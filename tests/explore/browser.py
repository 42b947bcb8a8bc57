"""The page as a reader uses it: one method per action, each waiting for what it should bring about."""

import json

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

PATIENCE = 60  # seconds, on a machine that does other things too
FLAGS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1280,800")


def start_chromium(chromium, driver, downloads):
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


class Page:
    def __init__(self, driver, served):
        self.driver, self.served = driver, served

    def open(self, query="?node="):
        """By default without a node; the bare address opens on a useful one."""
        self.driver.get("about:blank")
        self.driver.get(self.served.url + query)
        self.wait(lambda: self.texts("#answer h2"), "the page to load")
        return self

    # ---- looking ----

    def wait(self, condition, what, patience=PATIENCE):
        """The first true value of ``condition``; what React redraws meanwhile is looked at again."""

        def look(_):
            try:
                return condition()
            except StaleElementReferenceException:
                return False

        return WebDriverWait(self.driver, patience, poll_frequency=0.05).until(look, f"waited for {what}")

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def texts(self, selector):
        return self.js(
            "return Array.from(document.querySelectorAll(arguments[0])).map(e => e.innerText ?? e.textContent)",
            selector,
        )

    def text(self, selector):
        found = self.texts(selector)
        return found[0] if found else ""

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def cy(self, script, *arguments):
        return self.js(f"const cy = document.getElementById('graph')._cyreg.cy; {script}", *arguments)

    @property
    def heading(self):
        return self.text("#answer h2").split("\n")[0]

    def sources(self):
        """id, label, hops, influence as printed, share as printed; of each row."""
        return self.js(
            "return Array.from(document.querySelectorAll('#sources tbody tr')).map(row => [row.dataset.source, "
            "...Array.from(row.cells).slice(1, 5).map(cell => cell.innerText)])"
        )

    def query(self):
        return self.js("return window.location.search")

    def bars(self, name):
        rows = self.js(
            f"return Array.from(document.querySelectorAll('#by-{name} tbody tr')).map("
            "row => [row.cells[0].innerText, row.cells[2].innerText])"
        )
        return dict(rows)

    # ---- acting ----

    def shows(self, name):
        self.wait(lambda: self.heading == f"Node {name}", f"node {name} to be shown")
        return self

    def until_sources(self, expected):
        """Wait until the list is exactly this: it is what ws.solve gave."""
        self.wait(
            lambda: [row[0::3] for row in self.sources()] == expected, f"{expected[:3]}...; have {self.sources()[:3]}"
        )

    def tap(self, node):
        """A real click on the canvas where the node is drawn."""
        self.wait(lambda: self.cy("return cy.getElementById(arguments[0]).length", f"n{node}"), "the node to be drawn")
        self.wait(lambda: self.cy("return !!cy.scratch('walksum')"), "the drawing to listen")
        x, y = self.cy("const p = cy.getElementById(arguments[0]).renderedPosition(); return [p.x, p.y]", f"n{node}")
        canvas = self.find("#graph")
        middle = canvas.size["width"] / 2, canvas.size["height"] / 2
        actions = ActionChains(self.driver, duration=0)
        actions.move_to_element_with_offset(canvas, round(x - middle[0]), round(y - middle[1])).click().perform()

    def choose(self, name, value):
        Select(self.find(f"#{name}")).select_by_value(value)

    def search(self, text):
        field = self.find("#search")
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text, Keys.ENTER)

    def fill(self, selector, text):
        field = self.find(selector)
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text)

    def press(self, selector):
        self.find(selector).click()

    def panel(self, name, patience=PATIENCE):
        self.press(f"#tab-{name}")
        self.wait(
            lambda: (
                self.find("#panel-body").get_attribute("aria-labelledby") == f"tab-{name}"
                and self.texts("#panel-body p")
            ),
            f"the panel {name}",
            patience,
        )

    def state(self):
        return json.loads(self.wait(lambda: self.find("#controls").get_attribute("data-synced"), "the view"))

    def downloaded(self, folder, name):
        """Its bytes, once it has arrived whole: Chromium renames it at the end."""
        self.wait(lambda: (folder / name).is_file() and (folder / name).stat().st_size > 0, f"{name} to arrive")
        return (folder / name).read_bytes()
