"""What can be asked of a picture without looking at it."""

import io

import numpy as np
from PIL import Image

from walksum.plot.theme import THEMES, write


def pixels(figure):
    file = io.BytesIO()
    write(figure, file, "png", 60)
    return np.asarray(Image.open(file).convert("RGB")).astype(int)


def check_drawn(figure, theme):
    """The corner is the theme's background, and a good part of the picture is something else."""
    image = pixels(figure)
    background = [int(THEMES[theme].background[k : k + 2], 16) for k in (1, 3, 5)]
    assert image[0, 0].tolist() == background
    assert (np.abs(image - background).sum(2) > 60).mean() > 0.01


def texts(figure):
    from matplotlib.text import Text

    return " | ".join(text.get_text() for text in figure.findobj(Text) if text.get_text())
