"""Checks of a page that is open in Chromium: contrast, names, keyboard, console, weight; each gives its faults."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

MOST_BYTES = 5_000_000
MOST_TABS = 400
NAMED = {"button", "checkbox", "combobox", "link", "listbox", "menuitem", "radio", "searchbox", "slider", "spinbutton"}
NAMED |= {"switch", "tab", "textbox", "DisclosureTriangle", "image", "img"}  # roles that must say what they are

# WCAG 2.1, 1.4.3: 4.5 to 1, of large text 3 to 1; disabled controls and invisible text are exempt
CONTRAST = r"""
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true }), known = {};
function rgba(colour) {
  if (known[colour]) return known[colour];
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
  return known[colour] = [r, g, b, a / 255];
}
function over(top, below) { return [0, 1, 2].map(k => top[3] * top[k] + (1 - top[3]) * below[k]).concat(1); }
function luminance(c) {
  const [r, g, b] = c.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function faded(colour, part) { return [...colour.slice(0, 3), colour[3] * part]; }
function ground(element) {  // what is painted below an element: the backgrounds of its ancestors
  const layers = [];
  for (let each = element; each; each = each.parentElement) {
    const style = getComputedStyle(each), colour = rgba(style.backgroundColor);
    if (style.backgroundImage.includes("gradient")) return null;  // of several colours: not decided here
    layers.push(colour);
    if (colour[3] === 1) break;
  }
  const dark = matchMedia("(prefers-color-scheme: dark)").matches && getComputedStyle(document.documentElement)
    .colorScheme.includes("dark");
  return layers.reverse().reduce((below, top) => over(top, below), dark ? [18, 18, 18, 1] : [255, 255, 255, 1]);
}
function shapesBelow(text, below) {  // in a drawing, what is painted before the text at its middle
  const box = text.getBoundingClientRect();
  const shapes = document.elementsFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  const own = shapes.filter(e => e !== text && text.ownerSVGElement.contains(e) && e !== text.ownerSVGElement)
    .filter(e => e.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING && e.localName !== "g");
  return own.reverse().reduce((under, e) => {
    const style = getComputedStyle(e);
    return style.fill === "none" || e.localName === "text" ? under
      : over(faded(rgba(style.fill), Number(style.fillOpacity) * Number(style.opacity)), under);
  }, below);
}
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
let count = 0;
while (walker.nextNode()) {
  const words = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
  if (!words || !element || ["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "title"].includes(element.nodeName)) continue;
  if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
  if (element.closest("math") || element.closest(":disabled, .unseen, [aria-hidden=true]")) continue;
  if (element.closest("option") && element.closest("select").disabled) continue;
  const svg = element.ownerSVGElement, style = getComputedStyle(element);
  if (svg) element.scrollIntoView({ block: "center", behavior: "instant" });
  let below = ground(svg ? svg.parentElement : element);
  if (!below) continue;
  if (svg) below = shapesBelow(element, below);
  let shown = 1;
  for (let each = element; each; each = each.parentElement) shown *= Number(getComputedStyle(each).opacity);
  const ink = over(faded(rgba(svg ? style.fill : style.color), shown), below);
  const [light, dark] = [luminance(ink), luminance(below)].sort((a, b) => b - a);
  const ratio = (light + 0.05) / (dark + 0.05);
  const size = parseFloat(style.fontSize), bold = Number(style.fontWeight) >= 700;
  const least = size >= 24 || (bold && size >= 18.66) ? 3 : 4.5;
  count += 1;
  const said = `<${element.localName} class="${element.getAttribute("class") || ""}">`;
  const colours = `${ink.slice(0, 3).map(Math.round)} on ${below.slice(0, 3).map(Math.round)}`;
  if (ratio < least - 0.005) found.push(`${ratio.toFixed(2)} < ${least}: ${words.slice(0, 40)} ${said} ${colours}`);
}
window.scrollTo(0, 0);
return [count, found];
"""

# a tab list and a group of radio buttons have one stop, as their roles ask: arrow keys move inside them
CONTROLS = r"""
const all = "a[href], button, input, select, textarea, summary, [tabindex='0']";
window.auditStops = Array.from(document.querySelectorAll(all)).filter(e => !e.disabled && e.type !== "hidden"
  && e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && !e.closest("[inert]")
  && !(e.getAttribute("role") === "tab" && e.tabIndex < 0)
  && !(e.type === "radio" && !e.checked && document.querySelector(`[name="${e.name}"]:checked`)));
return window.auditStops.length;
"""

# Tab goes on from here: the beginning of the page
START = r"""
const first = document.createElement("span");
first.tabIndex = -1;
document.body.prepend(first);
first.focus();
first.remove();
window.scrollTo(0, 0);
"""

# wherever the focus comes: its number among the controls, whether a reader sees it, and what it is
FOCUS = r"""
const ring = (s) => (s.outlineStyle !== "none" && parseFloat(s.outlineWidth) > 0) || s.boxShadow !== "none";
window.auditFocus = [];
function look() {
  const now = document.activeElement, style = getComputedStyle(now), box = now.getBoundingClientRect();
  const label = now.nextElementSibling;  // of a radio button that is drawn as its label
  let seen = ring(style) || (now.type === "radio" && label.localName === "label" && ring(getComputedStyle(label)));
  for (let each = now.parentElement, k = 0; each && k < 2 && !seen; each = each.parentElement, k += 1)
    seen = each.matches(":focus-within") && ring(getComputedStyle(each));
  seen = seen && (now.type === "radio" || (box.width > 0 && box.height > 0 && box.right > 0 && box.left < innerWidth));
  const words = now.outerHTML.replace(/\s+/g, " ").slice(0, 120);
  window.auditFocus.push([window.auditStops.indexOf(now), seen, words]);
}
document.addEventListener("focusin", look);
window.auditEnd = () => { document.removeEventListener("focusin", look); return window.auditFocus; };
"""


def audit(page, weight=None):
    """All faults of the open page, by check, and how much was looked at."""
    texts, contrast = page.js(CONTRAST)
    stops, keyboard = keyboard_faults(page)
    size = page_bytes(page) if weight is None else weight
    return {
        "texts": texts,
        "controls": stops,
        "bytes": size,
        "faults": {
            "contrast": contrast,
            "names": nameless(page) + missing_head(page),
            "keyboard": keyboard,
            "console": [each["message"] for each in page.driver.get_log("browser") if each["level"] == "SEVERE"],
            "weight": [f"{size:,} bytes"] if size > MOST_BYTES else [],
        },
    }


def nameless(page):
    """Controls and pictures that Chromium's own accessibility tree has no name for."""
    tree = {each["nodeId"]: each for each in page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]}
    return [
        f"a {_role(each)} without a name: {_source(page, each)}"
        for each in tree.values()
        if not each.get("ignored") and _role(each) in NAMED and not _name(each) and not _inside_control(tree, each)
    ]


def _role(each):
    return each.get("role", {}).get("value")


def _name(each):
    return str(each.get("name", {}).get("value", "")).strip()


def _inside_control(tree, each):
    """An icon is said by the name of its button or link."""
    while each.get("parentId") in tree:
        each = tree[each["parentId"]]
        if _role(each) in NAMED | {"LabelText"} and _name(each):
            return True
    return False


def _source(page, each):
    place = {"backendNodeId": each["backendDOMNodeId"]}
    return " ".join(page.driver.execute_cdp_cmd("DOM.getOuterHTML", place)["outerHTML"].split())[:120]


def missing_head(page):
    """What a reader of the head needs: a language, a title, a first heading, the width of a phone."""
    has = {
        "a language": "return document.documentElement.lang",
        "a title": "return document.title",
        "one first heading": "return document.querySelectorAll('h1').length === 1",
        "a viewport": "return !!document.querySelector('meta[name=viewport]')",
    }
    return [f"the page lacks {name}" for name, script in has.items() if not page.js(script)]


def keyboard_faults(page):
    """Press Tab until the focus has been everywhere: each control once, in the order of the page, and visible."""
    expected = page.js(CONTROLS)
    page.js(START)
    page.js(FOCUS)
    ActionChains(page.driver).send_keys(Keys.TAB * min(MOST_TABS, 2 * expected + 10)).perform()
    reached, faults = [], []
    for place, seen, words in page.js("return window.auditEnd()"):
        if place in reached:
            break
        if not seen:
            faults.append(f"focus is not seen: {words}")
        if place >= 0:
            reached.append(place)
    missed = sorted(set(range(expected)) - set(reached))
    words = "return window.auditStops[arguments[0]].outerHTML.replace(/\\s+/g, ' ').slice(0, 120)"
    faults += [f"Tab does not reach {page.js(words, k)}" for k in missed]
    if reached != sorted(reached):
        faults.append(f"the order of Tab is not that of the page: {reached}")
    return expected, faults


def page_bytes(page):
    """Of the page and all it has loaded, as they were sent."""
    address = urlsplit(page.js("return location.href"))
    if address.scheme == "file":
        return Path(unquote(address.path)).stat().st_size
    return int(
        page.js(
            "return [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
            ".reduce((sum, each) => sum + Math.max(each.transferSize, each.encodedBodySize), 0)"
        )
    )


def set_scheme(driver, scheme):
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)


def set_size(driver, width, height):
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
