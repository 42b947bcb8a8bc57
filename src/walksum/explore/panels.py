"""The panels below: what J does to the graph as a whole. Numbers from walksum.analysis, drawn with plotly."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from dash import dcc, html

from walksum.analysis import convergence, correlation, part, spectrum
from walksum.explore.answer import Answer, Session
from walksum.explore.colours import diverging, theme_of
from walksum.explore.view import View
from walksum.explore.whole_panel import model_panel, whole_panel
from walksum.plot.theme import Theme
from walksum.workflow.page_charts import short_name

NEAR, NEAR_IN_LARGE = 60, 24  # nodes of the correlation matrix around the selection
SAMPLED = 400  # nodes up to which the matrix of a whole graph is shown; of more, so many are sampled
SAMPLE_NODES = 20_000  # beyond, even a sample takes too long
WHOLE_SPECTRUM, BALL = 3_000, 1_000
TOL, MOST_STEPS, FEW_STEPS = 1e-10, 400, 15
MOST_TICKS, LETTERS = 30, 14  # of names beside a matrix
FEW_POINTS = 2
LARGE = 20_000  # nodes from which only the quickest solvers are compared, over few steps
CONFIG = {"displayModeBar": False, "responsive": True}  # its buttons are out of a keyboard's reach
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid")


def correlation_panel(session: Session, view: View, answer: Answer | None, of: Theme) -> list[Any]:
    matrix, graph = session.matrix(view), session.trained.graph
    figures, notes = [], []
    if answer is not None:
        count = min(NEAR if graph.num_nodes <= LARGE else NEAR_IN_LARGE, graph.num_nodes)
        nodes = torch.from_numpy(answer.influence.ranked(count).copy())
        near = correlation.correlation(matrix.J, nodes)[0].numpy()
        names = [session.trained.name(node) for node in nodes.tolist()]
        figures.append(_heatmap(near, names, f"Around node {_tick(str(view.node))}, by influence", of))
        if graph.num_nodes > count:
            notes.append(
                f"First: the {count} strongest sources of node {view.node}; the other nodes are averaged over."
            )
    if graph.num_nodes <= SAMPLE_NODES:
        whole = correlation.ordered(matrix.J, most=SAMPLED)
        names = [session.trained.name(node) for node in whole.nodes.tolist()]
        title = "The graph, in Fiedler order" + (f" ({whole.note.split(',')[0]})" if whole.note else "")
        figures.append(_heatmap(whole.matrix.numpy(), names, title, of))
        notes += [f"The whole graph is sampled: {whole.note}."] if whole.note else []
    else:
        notes.append(f"Above {SAMPLE_NODES:,} nodes only the surroundings of the chosen node are shown.")
    if not figures:
        return [html.P("Choose a node to see the correlations around it.", className="empty")]
    return [
        _explanation(
            "How much two nodes move together: J⁻¹ scaled to a unit diagonal. Red together, blue apart. "
            "Drag to zoom in, double-click to zoom out."
        ),
        html.Div([_graph(figure, "correlation matrix") for figure in figures], className="side-by-side"),
        *[html.P(note, className="quiet") for note in notes],
    ]


def _heatmap(values: np.ndarray, names: list[str], title: str, of: Theme) -> go.Figure:
    off, every = values - np.diag(np.diag(values)), -(-len(names) // MOST_TICKS)
    # words: plotly would take ids that are numbers for positions, and < for the beginning of a tag
    words = [f"node {escape(name, quote=False)}" for name in names]
    limit = max(float(np.quantile(np.abs(off), 0.995)), 1e-3)
    trace = go.Heatmap(
        z=values.astype(np.float32),
        zmin=-limit,
        zmax=limit,
        colorscale=diverging(of),
        colorbar={"thickness": 10, "outlinewidth": 0},
        hovertemplate="%{x} and %{y}: %{z:.3f}<extra></extra>",
        x=words,
        y=words,
    )
    figure = go.Figure(trace)
    _plain(figure, of, title, height=430)
    figure.update_xaxes(constrain="domain", showticklabels=False, ticks="", showgrid=False)
    figure.update_yaxes(
        autorange="reversed",
        scaleanchor="x",
        constrain="domain",
        showticklabels=len(names) <= NEAR,
        tickvals=words[::every],
        ticktext=[_tick(name) for name in names[::every]],
        ticks="",
        showgrid=False,
        tickfont_size=8,
    )
    return figure


def _tick(name: str) -> str:
    return escape(short_name(name, LETTERS), quote=False)


def spectrum_panel(session: Session, view: View, answer: Answer | None, of: Theme) -> list[Any]:
    J, note = session.matrix(view).J, ""
    if J.num_nodes > WHOLE_SPECTRUM:
        middle = answer.node if answer is not None else int(J.graph.degree.argmax())
        J = part.restrict(J, part.ball(J.graph, middle, BALL))
        note = (
            f"Above {WHOLE_SPECTRUM:,} nodes: the part of the graph made of the {J.num_nodes:,} nodes nearest to "
            f"node {session.trained.name(middle)}."
        )
    found = spectrum.response(J)
    gain, spread = found.gain[0].numpy(), found.spread[0].numpy()
    trace = go.Scatter(
        x=found.eigenvalues.numpy(),
        y=gain,
        mode="markers",
        marker={"size": 4, "color": of.categories[0]},
        error_y=None if found.diagonal else {"array": spread, "color": of.edge, "thickness": 0.6, "width": 0},
        hovertemplate="eigenvalue %{x:.3f}: gain %{y:.3g}<extra></extra>",
    )
    figure = go.Figure(trace)
    _plain(figure, of, f"Spectral response: {found.kind}")
    figure.update_layout(margin_b=64)
    figure.update_xaxes(
        title="eigenvalue of the normalised adjacency<br>(1: smooth, -1: alternating)",
        title_standoff=12,
        range=[1.05, -1.05],
    )
    figure.update_yaxes(
        title="gain uᵀJ⁻¹u", title_standoff=12, type="log" if gain.min() > 0 and gain.max() > 20 * gain.min() else None
    )
    words = "How strongly J⁻¹ passes each pattern on the graph, from smooth (left) to alternating (right)."
    if not found.diagonal:
        words += " J is no function of the adjacency here; the grey lines tell how much of a pattern leaks into others."
    return [_explanation(words), _graph(figure, "spectral response"), html.P(note, className="quiet")]


def convergence_panel(session: Session, view: View, answer: Answer | None, of: Theme) -> list[Any]:
    if answer is None:
        return [html.P("Choose a node: the solvers are compared on its influence.", className="empty")]
    J = session.matrix(view).J
    h = torch.zeros(1, J.num_nodes, 1, dtype=J.dtype)
    h[0, answer.node] = 1
    large = J.num_nodes > LARGE
    solvers = convergence.standard_solvers(TOL, FEW_STEPS if large else MOST_STEPS)
    if large:
        solvers = {name: solvers[name] for name in ("CG, DIC", "Chebyshev")}
    figure = go.Figure()
    curves = convergence.residual_curves(J, h, solvers=solvers)
    for k, curve in enumerate(curves):
        line = {"color": of.categories[k % len(of.categories)], "dash": DASHES[k % len(DASHES)], "width": 2}
        mode = "lines" if len(curve.steps) > FEW_POINTS else "lines+markers"  # no line is seen of a single one
        figure.add_trace(go.Scatter(x=curve.steps, y=_positive(curve.residuals), name=curve.name, line=line, mode=mode))
    _plain(figure, of, "Residual by iteration, for the influence on the node", height=420)
    figure.update_layout(legend={"orientation": "h", "y": -0.2})  # beside them it would cover the curves on a phone
    figure.update_xaxes(title="iterations", type="log")
    figure.update_yaxes(title="backward error", title_standoff=12, type="log", exponentformat="power")
    ended = "; ".join(f"{each.name}: {each.steps[-1]}" for each in curves if each.converged)
    words = f"Iterations to {TOL:.0e}: {ended}." if ended else f"None reached {TOL:.0e} in the steps allowed."
    if large:
        words += f" Above {LARGE:,} nodes only the quickest are run, for {FEW_STEPS} steps at most."
    return [_explanation(words), _graph(figure, "convergence curves")]


def _positive(values: list[float]) -> list[float | None]:
    return [value if np.isfinite(value) and value > 0 else None for value in values]


def walk_panel(session: Session, view: View, answer: Answer | None, of: Theme) -> list[Any]:
    matrix = session.matrix(view)
    low, high = matrix.walk_summability
    summable = high < 1
    figure = go.Figure()
    figure.add_trace(
        go.Scatter(x=[0, 1], y=[0, 0], mode="lines", line={"color": of.edge, "width": 10}, hoverinfo="skip")
    )
    figure.add_trace(
        go.Scatter(
            x=[low, high],
            y=[0, 0],
            mode="lines+markers",
            line={"color": of.categories[0] if summable else of.positive, "width": 10},
            marker={"size": 16, "symbol": "line-ns", "line": {"width": 3, "color": of.categories[0]}},
            hovertemplate="%{x:.6f}<extra></extra>",
        )
    )
    _plain(figure, of, "Spectral radius of |R|, certified", height=170)
    figure.update_layout(showlegend=False)
    figure.update_yaxes(visible=False, range=[-1, 1])
    figure.update_xaxes(range=[0, max(1.08, 1.02 * high)], title="1 is the border", dtick=0.1)
    figure.add_vline(x=1, line_color=of.positive, line_dash="dash")
    statement = (
        "J is walk-summable."
        if summable
        else "Walk-summability is not proven."
        if low < 1
        else "J is not walk-summable."
    )
    said = f" The radius lies between {low:.6g} and {high:.6g}. {_half_life(high)}"
    return [
        html.P([html.Strong(statement, id="statement"), said]),
        _explanation(
            "Below 1 the influence is a sum over walks that converges, and so does belief propagation; the paths above "
            "are the largest terms of that sum."
        ),
        _graph(figure, "walk-summability interval"),
    ]


def _half_life(radius: float) -> str:
    if not 0 < radius < 1:
        return ""
    return f"At most, a walk loses half its weight in {np.log(0.5) / np.log(radius):.3g} steps."


PANELS: dict[str, tuple[str, Callable[[Session, View, Answer | None, Theme], list[Any]]]] = {
    "whole": ("Whole model", whole_panel),
    "model": ("Scores", model_panel),
    "correlation": ("Correlations", correlation_panel),
    "spectrum": ("Spectral response", spectrum_panel),
    "convergence": ("Convergence", convergence_panel),
    "walks": ("Walk-summability", walk_panel),
}


def panel(session: Session, name: str, view: View, scheme: str | None) -> list[Any]:
    """The content of a panel; what cannot be computed is said in its place."""
    try:
        return PANELS[name][1](session, view, session.answer(view), theme_of(scheme))
    except ValueError as error:
        return [html.P(str(error), className="warning")]


def _explanation(words: str) -> html.P:
    return html.P(words, className="explains")


def _graph(figure: go.Figure, words: str) -> html.Div:
    plot = dcc.Graph(figure=figure, config=CONFIG)
    return html.Div(plot, className="plot", role="img", **{"aria-label": words})


def _plain(figure: go.Figure, of: Theme, title: str, height: int = 340) -> None:
    figure.update_layout(
        template="none",
        title={"text": title, "font": {"size": 14}, "x": 0, "xref": "paper", "xanchor": "left"},
        height=height,
        margin={"l": 76, "r": 16, "t": 44, "b": 48},
        font={"family": "system-ui, sans-serif", "size": 12, "color": of.ink},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hoverlabel={"font": {"family": "system-ui, sans-serif"}},
    )
    figure.update_xaxes(gridcolor=of.edge, linecolor=of.edge, zeroline=False, tickcolor=of.edge)
    figure.update_yaxes(gridcolor=of.edge, linecolor=of.edge, zeroline=False, tickcolor=of.edge)
