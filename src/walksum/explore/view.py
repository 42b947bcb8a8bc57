"""View: what the page shows now. It is a link: query string -> View -> query string."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any
from urllib.parse import parse_qs, urlencode

from walksum.designs import NAMES
from walksum.designs.base import SIGN
from walksum.nn import GLT
from walksum.workflow.trained_run import TrainedRun

AS_TRAINED = "trained"
USUAL = "usual"
PLAIN = "laplacian"  # where the model has no J of its own
DESIGNS = (AS_TRAINED, *NAMES)
COUPLINGS = (USUAL, *SIGN)
SOLVERS = ("auto", "direct", "cg", "gabp", "hybrid", "chebyshev", "multigrid", "dense")
SCALE = (0.5, 0.999)
INFLUENCE, PREDICTION, TRUTH, ERROR, DEVIATION = "influence", "prediction", "truth", "error", "deviation"
COLOURS = (INFLUENCE, PREDICTION, TRUTH, ERROR, DEVIATION)
DIRECT_EDGES, DENSE_NODES = 60_000, 3_000  # beyond, their preparation takes minutes


@dataclass(frozen=True)
class View:
    """The chosen node, the J it is looked at by, and how the page shows it.

    Attributes:
        node: its id; None: none yet.
        layer, head: which J of the trained model, counted from 1; without meaning for other designs. The layers of a
            portfolio are its operators.
        design: "trained" (the model's own J) or a design on the same graph.
        coupling: its sign; "usual" is the paper's for the design.
        scale: how strong the couplings are, of the design's limit 1.
        solver: by name.
        colour: what the nodes are coloured by.
    """

    node: str | None = None
    layer: int = 1
    head: int = 1
    design: str = AS_TRAINED
    coupling: str = USUAL
    scale: float = 0.99
    solver: str = "auto"
    colour: str = INFLUENCE

    @property
    def matrix(self) -> tuple[Any, ...]:
        """What J depends on."""
        if self.design == AS_TRAINED:
            return AS_TRAINED, self.layer, self.head
        return self.design, self.coupling, self.scale


def stored_view(now: Any) -> View:
    """The view as the page holds it; a bad request where another program wrote it."""
    from werkzeug.exceptions import BadRequest

    names = {each.name for each in fields(View)}
    if not isinstance(now, dict) or set(now) != names:
        raise BadRequest(f"A view has the fields {', '.join(sorted(names))}.")
    view = View(**now)
    usual = asdict(View())
    for name, value in now.items():
        kind = str if name == "node" else type(usual[name])
        whole_for_float = kind is float and type(value) is int  # JavaScript knows no difference
        if type(value) is not kind and not whole_for_float and not (name == "node" and value is None):
            raise BadRequest(f"The view's {name} is of another kind.")
    return view


def first_view(trained: TrainedRun) -> View:
    """A node worth a look, by the model's last layer or heaviest operator; by the graph alone if it has neither."""
    node = trained.name(trained.suggestions[0][1])
    if not trained.operators:
        return View(node, design=PLAIN)
    return View(node, layer=len(trained.operators) if isinstance(trained.model, GLT) else 1)


def known_designs(trained: TrainedRun) -> tuple[str, ...]:
    return DESIGNS if trained.operators else tuple(NAMES)


def known_colours(trained: TrainedRun) -> tuple[str, ...]:
    return COLOURS if trained.deviation is not None else COLOURS[:-1]


def refused_solvers(trained: TrainedRun) -> dict[str, str]:
    """Solvers this graph is too large for, and why."""
    found = {}
    if trained.graph.num_edges > DIRECT_EDGES:
        found["direct"] = f"elimination is only offered up to {DIRECT_EDGES:,} edges"
    if trained.num_nodes > DENSE_NODES:
        found["dense"] = f"a dense factorisation is only offered up to {DENSE_NODES:,} nodes"
    try:
        import pyamg  # noqa: F401
    except ImportError:
        found["multigrid"] = "it needs the package pyamg: pip install 'walksum[multigrid]'"
    return found


def changed(trained: TrainedRun, view: View, wanted: Mapping[str, Any]) -> tuple[View, list[str]]:
    """The view with new values; invalid ones are left out, with a message each."""
    messages = []
    for name in (each.name for each in fields(View)):
        if name in wanted:
            try:
                view = replace(view, **{name: _CHECKS[name](trained, view, wanted[name])})
            except ValueError as error:
                messages.append(str(error))
    if view.head > heads(trained, view):  # another layer may have fewer
        view = replace(view, head=1)
    return view, messages


def from_query(trained: TrainedRun, query: str | None) -> tuple[View, list[str]]:
    """The view a link names."""
    given = {name: values[-1] for name, values in parse_qs((query or "").lstrip("?"), keep_blank_values=True).items()}
    start = first_view(trained)
    return changed(trained, replace(start, node=None) if "node" in given else start, given)


def to_query(trained: TrainedRun, view: View) -> str:
    """The shortest query that restores the view: only what differs from the first one."""
    usual = asdict(first_view(trained))
    said = {name: "" if value is None else value for name, value in asdict(view).items() if value != usual[name]}
    return f"?{urlencode(said)}" if said else ""


def heads(trained: TrainedRun, view: View) -> int:
    """Number of heads of the chosen trained layer."""
    return trained.precisions[view.layer - 1].heads if trained.operators else 1


def _node(trained: TrainedRun, view: View, value: Any) -> str | None:
    if value is None or value == "":
        return None
    return trained.name(trained.node(str(value)))


def _whole(name: str, value: Any, most: int) -> int:
    if not str(value).isdecimal() or not 1 <= int(value) <= most:
        raise ValueError(f"There is no {name} {value}; choose 1 to {most}.")
    return int(value)


def _choice(name: str, known: Callable[[TrainedRun], tuple[str, ...]]) -> Callable[[TrainedRun, View, Any], str]:
    def check(trained: TrainedRun, view: View, value: Any) -> str:
        if value not in known(trained):
            raise ValueError(f"The {name} {value!r} is not known; choose {', '.join(known(trained))}.")
        return value

    return check


def _scale(trained: TrainedRun, view: View, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not SCALE[0] <= number <= SCALE[1]:
        raise ValueError(f"The scale {value} is not between {SCALE[0]} and {SCALE[1]}.")
    return round(number, 4)


def _solver(trained: TrainedRun, view: View, value: Any) -> str:
    name = _choice("solver", lambda _: SOLVERS)(trained, view, value)
    refused = refused_solvers(trained)
    if name in refused:
        raise ValueError(f"The solver {name} is not used here: {refused[name]}.")
    return name


_CHECKS: dict[str, Callable[[TrainedRun, View, Any], Any]] = {
    "node": _node,
    "layer": lambda trained, _, value: _whole("layer", value, max(1, len(trained.operators))),
    "head": lambda trained, _, value: _whole("head", value, max((J.heads for J in trained.precisions), default=1)),
    "design": _choice("design", known_designs),
    "coupling": _choice("coupling", lambda _: COUPLINGS),
    "scale": _scale,
    "solver": _solver,
    "colour": _choice("colour", known_colours),
}
