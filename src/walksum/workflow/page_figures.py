"""The figures of the page of a run: the same as 'walksum figures' draws, as far as seconds allow."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from walksum import plot
from walksum.analysis.correlation import ordered
from walksum.analysis.hops import hop_shares, sample
from walksum.nn import GLT
from walksum.plot.theme import write
from walksum.workflow.figures import spectral_response
from walksum.workflow.subject import Drawing, Listener, Subject

if TYPE_CHECKING:
    from walksum.workflow.fit import Result

MOST_INVERTED = 1000  # nodes up to which all correlations are shown, and the whole spectrum
ASKED, WORK = 8, 2.4e7  # nodes asked for their influence, and numbers in the gradients of one output: a second
DPI = 100


def page_figures(result: Result) -> Iterator[tuple[str, str | None, str]]:
    """Title, PNG in base64 and what it shows. A figure that cannot be drawn has no picture and says why."""
    subject = Subject(result.job, result.problem, result.model, result.prepared.x, result.prepared)
    for title, make in _wanted(subject, result):
        notes: list[str] = []
        try:
            drawing, text = make(Listener(note=notes.append))
            picture = io.BytesIO()
            write(drawing.draw("light"), picture, "png", DPI)
        except (ValueError, RuntimeError) as error:  # a training that diverged is still worth its page
            yield title, None, f"could not be drawn: {error}"
            continue
        yield title, base64.b64encode(picture.getvalue()).decode(), " ".join([text, *(f"{n}." for n in notes)])


Make = Callable[[Listener], tuple[Drawing, str]]


def _wanted(subject: Subject, result: Result) -> Iterator[tuple[str, Make]]:
    yield "How it learned", lambda listener: _learning(result)
    if isinstance(subject.model, GLT):
        yield "The graph as a Gaussian graphical model", lambda listener: _graph(subject, result)
        yield "Which nodes move together", lambda listener: _correlation(subject, listener)
        yield "What it lets pass", lambda listener: _response(subject, listener)
    yield "How far it looks", lambda listener: _hops(subject)


def _learning(result: Result) -> tuple[Drawing, str]:
    outcome, score = result.outcome, "R²" if result.problem.regression else "accuracy"
    draw = Drawing("learning", lambda theme: plot.learning(outcome.history, outcome.best.number, score, theme=theme))
    return draw, "Losses and the validation score, by which the kept weights were chosen."


def _graph(subject: Subject, result: Result) -> tuple[Drawing, str]:
    J, ids = subject.precision(-1), [str(name) for name in subject.problem.ids]
    sure = None if result.variance is None else 1 / result.variance  # of the last layer; seconds on large graphs
    text = (
        "The last layer: nodes shaded by their confidence, edges coloured by whether they pull their ends together or "
        "push them apart, and as wide as they are strong."
    )
    return Drawing("graph", lambda theme: plot.graphical_model(J, confidence=sure, labels=ids, theme=theme)), text


def _correlation(subject: Subject, listener: Listener) -> tuple[Drawing, str]:
    J = subject.precision()
    shown = ordered(J, most=MOST_INVERTED)
    if shown.note:
        listener.note(shown.note[:1].upper() + shown.note[1:])
    heads = f", the mean over {J.heads} heads" if J.heads > 1 else ""
    text = f"Correlations of the first layer's Gaussian before anything is observed{heads}, beside the couplings."
    return Drawing("correlation", lambda theme: plot.correlations(shown, theme=theme)), text


def _response(subject: Subject, listener: Listener) -> tuple[Drawing, str]:
    drawing = spectral_response(subject, 0, Listener(), MOST_INVERTED)
    return drawing, "The gain of the first layer's mixing for signals from smooth to alternating over the edges."


def _hops(subject: Subject) -> tuple[Drawing, str]:
    nodes = sample(subject.x, WORK)[:ASKED]
    found = {subject.job.title: hop_shares(subject.model, subject.x, subject.edges, subject.problem.graph, nodes)}
    text = f"The share of a node's output that comes from so many hops away, by the Jacobian at {nodes.numel()} nodes."
    return Drawing("influence-by-hop", lambda theme: plot.hops(found, theme=theme)), text
