"""The linear operators inside a trained model: each with its J, and how much every known target adds through it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from walksum.field.fit import residual_precision
from walksum.graph import Graph
from walksum.nn import GLT
from walksum.portfolio.blend import Blend
from walksum.portfolio.columns import LABEL_SCALES, NEAR_LABELS, WALKS, kinds_of_directions, needs_targets
from walksum.portfolio.deep import SCALES as DEEP_SCALES
from walksum.portfolio.deep import DeepBanks
from walksum.portfolio.features import SCALES
from walksum.portfolio.fit import ELSEWHERE, HERE, WITHOUT_TARGETS, Portfolio
from walksum.portfolio.labels import LabelPropagation
from walksum.portfolio.residual import ResidualField
from walksum.portfolio.schedule import Member
from walksum.portfolio.spread import layer
from walksum.portfolio.stacked import StackedNetworks
from walksum.portfolio.tabular import Tabular
from walksum.precision import Precision

TELLS = 0.02  # share of the residuals' squares from which a field is worth the first look


@dataclass(frozen=True)
class ModelOperator:
    """One linear operator of a model; row i of its J^-1 holds what every node contributes to node i.

    Attributes:
        name: for a list of choices.
        J: its precision matrix, all heads, in float64.
        about: what it carries, in a sentence.
        targets: what it carries from each node with a known target ``[N]``, NaN at others: numbers, or 1 for classes;
            None where it carries features instead.
        noise: of a field, the variance with which the targets were observed; None for a weighted mean of targets.
    """

    name: str
    J: Precision
    about: str
    targets: np.ndarray | None = None
    noise: float | None = None

    def adds(self, node: int, row: np.ndarray) -> np.ndarray | None:
        """The contribution of each known target to ``node``; a node's own target does not count."""
        if self.targets is None:
            return None
        carried = np.nan_to_num(self.targets)
        weight = np.where(np.isnan(self.targets), 0.0, row)
        own = weight[node]
        weight[node] = 0.0
        if self.noise is not None:
            # without its own observation J_ii is less by 1 / noise, which scales the row (Sherman and Morrison)
            return weight / self.noise / (1 - own / self.noise) * carried
        total = weight.sum()
        return np.zeros_like(row) if abs(total) < 1e-12 else weight / total * carried


def operators_of(
    model: object, x: Tensor, graph: Graph, targets: np.ndarray, residuals: np.ndarray | None, scale: float = 1.0
) -> list[ModelOperator]:
    """The operators of a GLT (one per layer) or of a portfolio (the heaviest first); none of other models.

    Args:
        model: the trained model.
        x: encoded features.
        graph: the graph they belong to.
        targets: known targets ``[N]``, NaN where not known; codes of classes count as known.
        residuals: of a regression by a portfolio, out-of-fold residuals in the target's units ``[N]``.
        scale: size of a standardised target in the target's units.
    """
    if isinstance(model, GLT):
        found = [J.detach().to(torch.float64) for J in model.precisions(x, graph)]
        return [
            ModelOperator(f"layer {k + 1} of {len(found)}", J, "It mixes this layer's features.")
            for k, J in enumerate(found)
        ]
    if not isinstance(model, Portfolio) or not graph.num_edges:
        return []
    return list(_of_portfolio(model, graph, targets, residuals, scale))


def _of_portfolio(
    portfolio: Portfolio, graph: Graph, targets: np.ndarray, residuals: np.ndarray | None, scale: float
) -> Iterator[ModelOperator]:
    field, carried = portfolio.fields.get(ELSEWHERE), []
    if field is not None and residuals is not None and not np.isnan(residuals).all():
        carried.append(_field_operator(field, graph, residuals, scale))
    if field is not None and field.gain >= TELLS:
        yield from carried
    blend = next(portfolio.blends[name] for name in (ELSEWHERE, HERE, WITHOUT_TARGETS) if name in portfolio.blends)
    label, mixing = _weights(portfolio, blend)
    known = targets if portfolio.problem.classes == 0 else np.where(np.isnan(targets), np.nan, 1.0)
    if not np.isnan(known).all():
        for s in sorted(label, key=lambda s: -label[s]):
            about = "A weighted mean of the known targets of other nodes."
            yield ModelOperator(f"known targets, scale {s:g}", _spread(graph, s, False), about, known)
    if field is not None and field.gain < TELLS:
        yield from carried
    for s, loops in sorted(mixing, key=lambda key: -mixing[key]):
        name = f"propagation, scale {s:g}" + (", loops" if loops else "")
        about = f"It spreads features; members with {100 * mixing[s, loops]:.0f} % of the weight use it."
        yield ModelOperator(name, _spread(graph, s, loops), about)


def _field_operator(field: ResidualField, graph: Graph, residuals: np.ndarray, scale: float) -> ModelOperator:
    """The Gaussian field of the residuals of the other members, given the known residuals."""
    prior = residual_precision(graph.to("cpu"), field.a, field.precision)
    observed = torch.from_numpy(np.where(np.isnan(residuals), 0.0, 1 / field.noise))
    J = Precision(prior.graph, prior.diag + observed, prior.off)
    about = "A Gaussian field: what the other members left over at nodes with a known target, carried to this one."
    return ModelOperator("residual field", J, about, residuals * scale, field.noise)


def _weights(portfolio: Portfolio, blend: Blend) -> tuple[dict[float, float], dict[tuple[float, bool], float]]:
    """Weight of the members that read known targets through each scale, and of those that spread features by it."""
    label: dict[float, float] = {}
    mixing: dict[tuple[float, bool], float] = {}
    for member, weight in zip(portfolio.members, blend.weights, strict=True):
        if weight > 0:
            for s in _label_scales(member):
                label[s] = label.get(s, 0.0) + weight
            for key in _mixing(member):
                mixing[key] = mixing.get(key, 0.0) + weight
    return label, mixing


def _label_scales(member: Member) -> tuple[float, ...]:
    model = member.model
    if isinstance(model, LabelPropagation):
        return (model.scales[member.index],)
    columns = _columns(member)
    return LABEL_SCALES if columns is not None and needs_targets(columns) and columns != NEAR_LABELS else ()


def _mixing(member: Member) -> list[tuple[float, bool]]:
    model, columns = member.model, _columns(member)
    found: list[tuple[float, bool]] = []
    if isinstance(model, StackedNetworks):
        networks = model.turns[0]
        used = networks.uses[member.index * model.folds].tolist()
        some = [op for op, use in zip(networks.operators, used, strict=True) if use and op.scale != 0]
        some += [networks.before] if networks.before is not None else []
        found = list(dict.fromkeys((op.scale, op.loops) for op in some))
    if isinstance(model, DeepBanks):
        found = [(s, False) for s in DEEP_SCALES]
    if columns is not None and columns.startswith("directions"):
        scales = (WALKS[kind][1] for kind in kinds_of_directions(columns))
        found = [(s, True) for s in scales if s]
    if columns is not None and "surroundings" in columns:
        found += [(s, False) for s in SCALES if (s, False) not in found]
    return found


def _columns(member: Member) -> str | None:
    """The set of columns that a member reads."""
    if isinstance(member.model, Tabular):
        return member.model.columns
    return member.model.inputs if isinstance(member.model, StackedNetworks) else None


def _spread(graph: Graph, scale: float, loops: bool) -> Precision:
    """J of ``P_s = (1 - |s|) (I - s S)^-1``: its inverse is P_s itself."""
    J = layer((scale, loops)).precision(graph, torch.float64)
    return Precision(J.graph, J.diag / (1 - abs(scale)), J.off / (1 - abs(scale)))
