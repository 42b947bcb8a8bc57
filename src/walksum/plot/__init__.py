"""The paper's figures, and those it lacks: each function takes library objects and returns a matplotlib Figure.

``ws.plot.save(figure, path)`` writes one. Nothing here touches pyplot or changes matplotlib's settings.
"""

from walksum.plot.convergence import residuals, steps
from walksum.plot.correlation import correlations, heads
from walksum.plot.graphical_model import graphical_model
from walksum.plot.hops import hops
from walksum.plot.overview import learning, member_weights, overview
from walksum.plot.response import responses
from walksum.plot.sketch import how_J_is_made, layer
from walksum.plot.theme import FORMATS, THEMES, save
from walksum.plot.walks import walk_sums

__all__ = ["graphical_model", "correlations", "heads", "responses", "hops", "residuals", "steps", "learning"]
__all__ += ["walk_sums", "overview", "member_weights", "layer", "how_J_is_made", "save", "THEMES", "FORMATS"]
