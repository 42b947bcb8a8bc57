"""Spectral response: what J^-1 does to smooth and to alternating signals on the graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from walksum.analysis.spectrum import Response, response
from walksum.plot.theme import Theme, finish, make_panels, themed
from walksum.precision import Precision


def responses(
    designs: Precision | Response | Mapping[str, Precision | Response],
    before: Mapping[str, Precision | Response] | None = None,
    *,
    theme: str = "light",
) -> Figure:
    r"""Gain of J^-1 over the eigenvalues of the normalised adjacency, one panel per design.

    A dot is one eigenvector: :math:`g_k = u_k^\top J^{-1} u_k`, the mean over heads; the band is the range over heads.
    Where J is not a function of the adjacency, small dots show what leaves it, :math:`|J^{-1} u_k - g_k u_k|`.

    Args:
        designs: a J, or several by name; or what :func:`walksum.analysis.spectrum.response` made of one.
        before: the same before training, drawn in grey behind.
        theme: "light" or "dark".
    """
    many = designs if isinstance(designs, Mapping) else {"": designs}
    shown, earlier = _measure(many), _measure(before or {})
    with themed(theme) as look:
        figure, panels = make_panels(len(shown), 3, {1: 6.4, 2: 4.0}.get(len(shown), 3.4), 2.9, 0.6, sharex=True)
        for axes, (name, each) in zip(panels, shown.items(), strict=True):
            _panel(axes, name, each, earlier.get(name), look)
        figure.supxlabel("eigenvalue of the normalised adjacency (1: smooth over edges, -1: alternating)", fontsize=9)
        figure.supylabel("gain of $J^{-1}$", fontsize=9)
        handles = {
            label: mark for axes in panels for mark, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=4, fontsize=8, markerscale=2)
        return finish(figure, look)


def _measure(many: Mapping[str, Any]) -> dict[str, Response]:
    return {name: each if isinstance(each, Response) else response(each) for name, each in many.items()}


def _panel(axes: Any, name: str, each: Response, earlier: Response | None, look: Theme) -> None:
    values, trained = each.eigenvalues.numpy(), earlier is not None and not _same(each, earlier)
    if earlier is not None and trained:
        axes.plot(values, _mean(earlier.gain), ".", ms=3, color=look.faint, label="gain before training", zorder=1)
    if each.gain.size(0) > 1:
        low, high = each.gain.amin(0).numpy(), each.gain.amax(0).numpy()
        axes.fill_between(values, low, high, color=look.categories[0], alpha=0.2, lw=0, label="range over heads")
    if not each.diagonal:
        leak = _mean(each.spread)
        axes.plot(
            values, leak, ".", ms=1.6, color=look.categories[1], label="part that leaves the eigenvector", zorder=2
        )
    axes.plot(values, _mean(each.gain), ".", ms=4, color=look.categories[0], label="gain", zorder=3)
    axes.set(yscale="log", xlim=(1.05, -1.05), title=f"{name}: {each.kind}" if name else each.kind)
    axes.set_ylim(bottom=float(each.gain.mean(0).min()) / (1.6 if each.diagonal else 40))
    axes.grid(True)


def _mean(per_head: Tensor) -> Any:
    return per_head.mean(0).numpy()


def _same(a: Response, b: Response) -> bool:
    return a.gain.shape == b.gain.shape and bool(((a.gain - b.gain).abs() <= 1e-6 * a.gain.abs()).all())
