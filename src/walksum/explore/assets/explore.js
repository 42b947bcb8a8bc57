// What the page does without asking the server: it sends actions, sets native controls and colours the drawing.
(function () {
  "use strict";
  let stamp = 0;

  function tell(store, data) {
    window.dash_clientside.set_props(store, { data: data });
  }

  // Dash says nothing where no server answers
  const usual = window.fetch;
  window.fetch = (...given) => usual(...given).catch((error) => {
    const words = "No answer: the explorer has ended. Start walksum explore again and reload this page.";
    const said = { type: "P", namespace: "dash_html_components", props: { children: words } };
    window.dash_clientside.set_props("message", { children: said });
    throw error;
  });

  // every action carries a number, so that asking for the same thing twice is two actions
  function ask(wanted) {
    stamp += 1;
    tell("asked", Object.assign({ stamp: stamp }, wanted));
  }

  function cy() {
    const place = document.getElementById("graph");
    return place && place._cyreg ? place._cyreg.cy : null;
  }

  function whenDrawn(action, tries) {
    const drawn = cy();
    if (drawn) action(drawn);
    else if (tries > 0) setTimeout(() => whenDrawn(action, tries - 1), 50);
  }

  function choosePanel(tab) {
    document.querySelectorAll("[role=tab]").forEach((each) => {
      each.setAttribute("aria-selected", each === tab ? "true" : "false");
      each.tabIndex = each === tab ? 0 : -1;
    });
    tab.focus();
    // until its own content is there the panel shows nothing, and never that of another tab
    const body = document.getElementById("panel-body");
    if (body && body.getAttribute("aria-labelledby") !== tab.id) body.dataset.pending = "true";
    const first = document.getElementById("whatif");
    if (body && first) { body.hidden = tab.dataset.panel === "whatif"; first.hidden = !body.hidden; }
    tell("panel", tab.dataset.panel);
  }

  // an edge by its id, "e3|17": of a dense graph not all are drawn, those on a path always are
  function pathEdge(drawn, id) {
    const found = drawn.getElementById(id);
    if (found.length) return found;
    const ends = id.slice(1).split("|");
    return drawn.add({ group: "edges", data: { id: id, source: "n" + ends[0], target: "n" + ends[1] } });
  }

  function zoom(how) {
    const drawn = cy();
    if (!drawn) return;
    if (how === "fit") return drawn.fit(undefined, 24);
    const middle = { x: drawn.width() / 2, y: drawn.height() / 2 };
    drawn.zoom({ level: drawn.zoom() * Number(how), renderedPosition: middle });
  }

  document.addEventListener("click", (event) => {
    const found = event.target.closest("[data-node], [data-panel], [data-zoom]");
    if (!found) return;
    if (found.dataset.node !== undefined) ask({ node: found.dataset.node });
    else if (found.dataset.panel) choosePanel(found);
    else zoom(found.dataset.zoom);
  });

  document.addEventListener("change", (event) => {
    const data = event.target.dataset || {};
    if (data.control) ask({ [data.control]: event.target.value });
    else if (data.store) tell(data.store, event.target.value);
  });

  document.addEventListener("input", (event) => {
    if (event.target.id === "scale") {
      document.getElementById("scale-said").textContent = Number(event.target.value).toFixed(3);
    }
  });

  // Dash has no native range: its own slider has no name that a screen reader could say
  function slider() {
    const place = document.getElementById("scale-place");
    if (place.firstChild) return place.firstChild;
    const made = document.createElement("input");
    const settings = { id: "scale", type: "range", min: place.dataset.low, max: place.dataset.high, step: 0.001 };
    Object.assign(made, settings);
    made.dataset.control = "scale";
    place.appendChild(made);
    return made;
  }

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      const search = document.getElementById("search");
      if (search) { event.preventDefault(); search.focus(); search.select(); }
    } else if (event.key === "Escape" && (!typing || typing.id === "search")) {
      ask({ node: null });
    } else if (event.target.getAttribute && event.target.getAttribute("role") === "tab") {
      const tabs = Array.from(document.querySelectorAll("[role=tab]"));
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) choosePanel(tabs[(tabs.indexOf(event.target) + step + tabs.length) % tabs.length]);
    }
  });

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    explore: {
      scheme: function () {
        const dark = window.matchMedia("(prefers-color-scheme: dark)");
        if (!window.walksumListens) {
          window.walksumListens = true;
          dark.addEventListener("change", () => tell("scheme", dark.matches ? "dark" : "light"));
        }
        return dark.matches ? "dark" : "light";
      },

      // after the options of the selects were drawn
      sync: function (view) {
        if (!view) return window.dash_clientside.no_update;
        setTimeout(() => {
          const scale = slider();
          scale.value = view.scale;
          scale.disabled = view.design === "trained";
          document.querySelectorAll("select[data-control]").forEach((each) => {
            each.value = String(view[each.dataset.control]);
          });
        }, 0);
        return JSON.stringify(view);
      },

      attach: function (elements) {
        whenDrawn((drawn) => {
          if (drawn.scratch("walksum")) return;
          drawn.scratch("walksum", true);
          drawn.on("tap", "node", (event) => ask({ node: event.target.data("name") }));
          drawn.on("tap", "edge", (event) => {
            stamp += 1;
            const ends = { from: event.target.source().data("name"), to: event.target.target().data("name") };
            tell("edge", Object.assign({ stamp: stamp }, ends));
          });
          new ResizeObserver(() => { drawn.resize(); drawn.fit(undefined, 24); }).observe(drawn.container());
          drawn.on("mouseover", "node", () => { drawn.container().style.cursor = "pointer"; });
          drawn.on("mouseout", "node", () => { drawn.container().style.cursor = ""; });
        }, 100);
        return String((elements || []).length);
      },

      arrived: function () {
        document.getElementById("panel-body").removeAttribute("data-pending");
        stamp += 1;
        return String(stamp);
      },

      // a whole drawing stays; only its colours, the chosen node and the paths change
      recolour: function (colours) {
        if (!colours) return window.dash_clientside.no_update;
        whenDrawn((drawn) => drawn.batch(() => {
          drawn.nodes(".chosen").removeClass("chosen").removeData("caption");
          drawn.edges(".path").removeClass("path");
          if (colours.tones) {
            colours.tones.forEach((tone, k) => drawn.getElementById("n" + k).data("tone", tone));
            drawn.nodes().addClass("toned");
          } else {
            colours.hues.forEach((hue, k) => drawn.getElementById("n" + k).data("hue", hue));
            drawn.nodes().removeClass("toned");
          }
          if (!colours.chosen) return;
          drawn.getElementById(colours.chosen).data("caption", colours.caption).addClass("chosen");
          colours.paths.forEach((edge) => pathEdge(drawn, edge).addClass("path"));
        }), 100);
        stamp += 1;
        return String(stamp);
      },
    },
  });
})();
