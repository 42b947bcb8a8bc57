"""The registry of designs: a new design is one file and one entry here."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from walksum._checks import check_choice, check_positive
from walksum.designs.base import SIGN, Design
from walksum.designs.dominant import FixedDiagonallyDominant, LearnedDiagonallyDominant
from walksum.designs.fields import CAR, SAR, Intrinsic, Leroux, Matern, RandomWalk, Squared
from walksum.designs.laplacian import FixedLaplacian, LearnedLaplacian
from walksum.designs.pairwise import FixedPairwiseNormal, LearnedPairwiseNormal
from walksum.designs.similarity import Similarity

#: the value of a design's setting: scale, reach, epsilon, margin, similarity, ...
Setting: TypeAlias = float | str | Similarity | Callable[..., Any] | None
SIZES = ("in_channels", "channels", "heads")  # arguments of a design's constructor that the layer knows
COUPLINGS = tuple(SIGN)


@dataclass(frozen=True)
class DesignEntry:
    """A design by name, in up to two variants.

    Attributes:
        name: what ``design=`` of a layer takes.
        title: what tables and figures say.
        fixed: the variant without parameters, or None.
        learned: the variant with parameters, or None. Its constructor takes what it needs of ``in_channels`` (the
            width of x), ``channels`` (the width of h in one head) and ``heads``.
        scale_setting: the setting of the fixed variant to which all couplings are proportional, if there is one.
    """

    name: str
    title: str
    fixed: type[Design] | None
    learned: type[Design] | None
    scale_setting: str | None = None

    def variant(self, learned: bool) -> type[Design]:
        """The class of one variant."""
        found = self.learned if learned else self.fixed
        if found is None:
            raise ValueError(f"learned={learned!r}; design={self.name!r} has only the other variant")
        return found

    def settings(self, learned: bool) -> tuple[str, ...]:
        """The names of what can be set beside the coupling; ``reach`` is another way to give ``scale``."""
        names = [name for name in self._parameters(learned) if name not in (*SIZES, "coupling")]
        return (*names, "reach") if "scale" in names else tuple(names)

    def default_coupling(self, learned: bool) -> str | None:
        """The coupling that the paper takes; None for a field, which has no choice of sign."""
        coupling = self._parameters(learned).get("coupling")
        return None if coupling is None else coupling.default

    def _parameters(self, learned: bool) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.variant(learned)).parameters


DESIGNS = {
    entry.name: entry
    for entry in (
        DesignEntry("pairwise-normal", "pairwise normal", FixedPairwiseNormal, LearnedPairwiseNormal, "epsilon"),
        DesignEntry("diagonally-dominant", "diagonally dominant", FixedDiagonallyDominant, LearnedDiagonallyDominant),
        DesignEntry("laplacian", "Laplacian", FixedLaplacian, LearnedLaplacian, "scale"),
        DesignEntry("car", "conditional autoregressive", None, CAR),
        DesignEntry("sar", "simultaneous autoregressive", None, SAR),
        DesignEntry("leroux", "Leroux", None, Leroux),
        DesignEntry("intrinsic", "intrinsic", None, Intrinsic),
        DesignEntry("matern", "Matern", None, Matern),
        DesignEntry("random-walk", "random walk", None, RandomWalk),
        DesignEntry("squared", "signed square", None, Squared),
    )
}
#: the designs of the paper, walk-summable by construction, each fixed or learned
NAMES = ("pairwise-normal", "diagonally-dominant", "laplacian")


def check_design(
    name: str, learned: bool = True, coupling: str | None = None, **settings: Setting
) -> dict[str, Setting]:
    """Raise a ValueError unless there is such a design with such settings; return the constructor's settings."""
    check_choice("design", name, DESIGNS, "or a Design object")
    known = DESIGNS[name].settings(learned)
    given: dict[str, Setting] = {key: value for key, value in settings.items() if value is not None}
    for key in given:
        if key not in known:
            kind = "learned" if learned else "fixed"
            raise ValueError(f"{key}={given[key]!r}; the {kind} design {name!r} has {_listed(known)}")
    if coupling is not None:
        check_choice("coupling", coupling, COUPLINGS)
        if DESIGNS[name].default_coupling(learned) is None:
            raise ValueError(f"coupling={coupling!r}; the design {name!r} has no choice of sign")
        given["coupling"] = coupling
    if "reach" in given:
        if "scale" in given:
            raise ValueError(f"reach={given['reach']!r} and scale={given['scale']!r}; give one of them")
        given["scale"] = scale_for_reach(given.pop("reach"))  # type: ignore[arg-type]
    return given


def _listed(known: tuple[str, ...]) -> str:
    return f"only these settings: {', '.join(known)}" if known else "no settings but the coupling"


def make_design(
    name: str,
    learned: bool,
    in_channels: int,
    channels: int,
    heads: int,
    coupling: str | None = None,
    **settings: Setting,
) -> Design:
    """The design of that name for a layer whose x has ``in_channels`` and whose h has ``channels`` per head.

    Args:
        settings: what :meth:`DesignEntry.settings` lists; None stands for the default.

    Example:
        >>> from walksum.designs import make_design
        >>> make_design("laplacian", learned=False, in_channels=16, channels=8, heads=1, reach=3).scale
        0.946...
    """
    given: dict[str, Any] = check_design(name, learned, coupling, **settings)
    variant: Callable[..., Design] = DESIGNS[name].variant(learned)
    takes = inspect.signature(variant).parameters
    sizes = {"in_channels": in_channels, "channels": channels, "heads": heads}
    return variant(**{size: value for size, value in sizes.items() if size in takes}, **given)


def scale_for_reach(reach: float) -> float:
    r"""The scale s with which influence along a path falls to 1/e after ``reach`` edges.

    On an endless path :math:`J = I - s A / 2`, and :math:`J^{-1}` decays by a factor :math:`\lambda` per edge with
    :math:`\lambda + 1 / \lambda = 2 / s`. With :math:`\lambda = e^{-1/k}` that is
    :math:`s = 1 / \cosh(1 / k) \approx 1 - 1 / (2 k^2)`.
    """
    check_positive(reach=reach)
    scale = 1 / math.cosh(min(1 / reach, 700.0))
    if not scale < 1:
        raise ValueError(f"reach={reach!r}; a scale that large rounds to 1, where J is singular: at most about 1e7")
    return scale
