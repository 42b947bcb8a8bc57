"""The learning curve of a run: losses, and the validation score its weights were chosen by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from walksum.plot.theme import finish, make_figure, themed


def learning(
    history: Sequence[Any], best: int | None = None, score: str = "accuracy", *, theme: str = "light"
) -> Figure:
    """Loss and validation score by epoch.

    Args:
        history: the epochs of a training (``outcome.history``).
        best: the epoch whose weights were kept; by default the one with the best score.
        score: the name of the score.
        theme: "light" or "dark".
    """
    epochs = [epoch.number for epoch in history]
    if best is None and history:
        best = max(history, key=lambda epoch: (epoch.val_score, -epoch.val_loss)).number
    with themed(theme) as look:
        figure = make_figure(8.6, 2.9)
        losses, scores = figure.subplots(1, 2)
        losses.plot(epochs, [epoch.train_loss for epoch in history], label="training", color=look.categories[0])
        losses.plot(epochs, [epoch.val_loss for epoch in history], "--", label="validation", color=look.categories[1])
        losses.set(title="loss", xlabel="epoch")
        losses.legend()
        scores.plot(epochs, [epoch.val_score for epoch in history], color=look.categories[1])
        scores.set(title=f"validation {score}", xlabel="epoch")
        for axes in (losses, scores):
            axes.grid(True)
            if best is not None:
                axes.axvline(best, color=look.faint, lw=0.9)
        if best is not None:
            scores.text(
                best, 0.02, f" kept: {best}", color=look.faint, fontsize=8, transform=scores.get_xaxis_transform()
            )
        return finish(figure, look)
