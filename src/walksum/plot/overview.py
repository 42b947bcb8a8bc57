"""A trained run at a glance: how it learned, how it compares, what it gets wrong, one node explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from walksum.plot.theme import Theme, finish, make_figure, themed

MOST_CLASSES = 30  # in a confusion matrix


@dataclass(frozen=True)
class Tile:
    """One node of an explanation: its image, or its name where it has none."""

    title: str
    name: str
    image: Tensor | None = None  # [side, side]
    framed: bool = False  # a training node


def overview(
    history: Sequence[Any],
    best: int,
    scores: Mapping[str, float],
    truth: Tensor,
    predicted: Tensor,
    classes: Sequence[str] = (),
    explanation: tuple[str, Sequence[Tile]] | None = None,
    *,
    score: str | None = None,
    weights: Mapping[str, float] | None = None,
    theme: str = "light",
) -> Figure:
    """Validation score by epoch, test scores by method, predictions over truth, and an explained node.

    Args:
        history: epochs as ``walksum.training.loop`` returns them.
        best: the epoch whose weights were kept.
        scores: test score by method, the model's own first: accuracy, or R^2 without classes.
        truth, predicted: of the test nodes, ``[n]``; class numbers, or numbers without classes.
        classes: names of the classes; empty for a regression.
        explanation: a sentence, and the node with those that add most to its mean.
        score: the name of the validation score; by default accuracy, or R^2 without classes.
        weights: of the members of a portfolio, shown in place of the epochs it does not have.
        theme: "light" or "dark".
    """
    with themed(theme) as look:
        figure: Any = make_figure(10, 3.1 if explanation is None else 5.2)
        top, bottom = figure, None
        if explanation is not None:
            top, bottom = figure.subfigures(2, 1, height_ratios=[1.5, 1], squeeze=False).ravel()
        curve, bars, last = top.subplots(1, 3)
        if weights is None:
            _validation(curve, history, best, score or ("accuracy" if classes else "R^2"), look)
        else:
            _member_weights(curve, weights, look)
        _comparison(bars, scores, bool(classes), look)
        if classes:
            _confusion(last, truth, predicted, classes)
        else:
            _against_truth(last, truth, predicted, look)
        if bottom is not None and explanation is not None:
            _explanation(bottom, *explanation, look)
        return finish(figure, look)


def member_weights(weights: Mapping[str, float], *, theme: str = "light") -> Figure:
    """The weights of a portfolio's members as bars."""
    with themed(theme) as look:
        figure: Any = make_figure(6, 0.6 + 0.32 * max(1, len(weights)))
        _member_weights(figure.subplots(), weights, look)
        return finish(figure, look)


def _validation(axes: Any, history: Sequence[Any], best: int, score: str, look: Theme) -> None:
    axes.plot([e.number for e in history], [e.val_score for e in history], color=look.categories[0])
    axes.axvline(best, color=look.faint, linewidth=0.8)
    axes.set(title=f"validation {score.replace('R^2', '$R^2$')}", xlabel="epoch")
    if score == "accuracy":  # R^2 may be far below 0
        axes.set_ylim(0, 1)


def _member_weights(axes: Any, weights: Mapping[str, float], look: Theme) -> None:
    names = [shortened(name, 28) for name in weights]
    axes.barh(range(len(names)), list(weights.values()), color=look.categories[0])
    axes.set(title="weight of the members", yticks=range(len(names)))
    axes.set_yticklabels(names, fontsize=7)
    axes.invert_yaxis()


def _comparison(axes: Any, scores: Mapping[str, float], accuracy: bool, look: Theme) -> None:
    own = next(iter(scores))
    ranked = sorted(scores, key=lambda name: -scores[name])
    values = [(100 if accuracy else 1) * scores[name] for name in ranked]
    colours = [look.categories[0] if name == own else look.faint for name in ranked]
    bars = axes.barh(range(len(ranked)), values, color=colours)
    axes.bar_label(bars, fmt="%.1f" if accuracy else "%.2f", padding=2, fontsize=8)
    axes.set(yticks=range(len(ranked)))
    axes.set_yticklabels([shortened(name, 28) for name in ranked], fontsize=7)
    axes.invert_yaxis()
    if accuracy:
        axes.set(title="test accuracy, %", xlim=(0, 118))
    else:
        lowest = min(0, *values)
        axes.set(title="test $R^2$", xlim=(lowest - 0.25 * (1 - lowest) * (lowest < 0), 1.18))


def _confusion(axes: Any, truth: Tensor, predicted: Tensor, classes: Sequence[str]) -> None:
    count = min(len(classes), MOST_CLASSES)
    shown = (truth < count) & (predicted < count)
    pairs = truth[shown] * count + predicted[shown]
    counts = torch.bincount(pairs, minlength=count**2).view(count, count).double()
    axes.imshow((counts / counts.sum(1, keepdim=True).clamp_min(1)).numpy(), cmap="Blues", vmin=0, vmax=1)
    names = [shortened(name) for name in classes[:count]]
    axes.set(title="prediction for each true class", xticks=range(count), yticks=range(count))
    axes.tick_params(labelsize=min(9, 130 / count))
    axes.set_xticklabels(names, rotation=90 if max(map(len, names)) > 2 else 0)
    axes.set_yticklabels(names)


def _against_truth(axes: Any, truth: Tensor, predicted: Tensor, look: Theme) -> None:
    axes.scatter(truth.numpy(), predicted.numpy(), s=6, color=look.categories[0], alpha=0.5, linewidths=0)
    both = (float(torch.minimum(truth, predicted).min()), float(torch.maximum(truth, predicted).max()))
    axes.plot(both, both, color=look.faint, linewidth=0.8)
    axes.set(title="predicted over true", xlabel="true", ylabel="predicted")


def _explanation(figure: Any, sentence: str, tiles: Sequence[Tile], look: Theme) -> None:
    figure.suptitle(sentence, x=0.01, ha="left", fontsize=9)
    for axes, tile in zip(figure.subplots(1, len(tiles)), tiles, strict=True):
        if tile.image is not None:
            axes.imshow(tile.image.numpy(), cmap="Greys")
        else:
            axes.text(0.5, 0.5, shortened(tile.name), ha="center", va="center", fontsize=8)
            axes.set_box_aspect(1)
        axes.set(xticks=[], yticks=[])
        for spine in axes.spines.values():
            spine.set(visible=tile.framed, color=look.categories[1], linewidth=2)
        axes.set_title(tile.title, fontsize=8, loc="center")


def shortened(name: str, most: int = 14) -> str:
    """A name that fits: long ones lose their middle, for names of one kind often begin alike."""
    half = most // 2
    return without_formulas(name if len(name) <= most else f"{name[: half - 1]}…{name[-half:]}")


def without_formulas(text: str) -> str:
    """Text that matplotlib shows as it is: between two dollar signs it would read a formula."""
    return text.replace("$", r"\$")


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
        scores.set(title=f"validation {score.replace('R^2', '$R^2$')}", xlabel="epoch")
        for axes in (losses, scores):
            axes.grid(True)
            if best is not None:
                axes.axvline(best, color=look.faint, lw=0.9)
        if best is not None:
            scores.text(
                best, 0.02, f" kept: {best}", color=look.faint, fontsize=8, transform=scores.get_xaxis_transform()
            )
        return finish(figure, look)
