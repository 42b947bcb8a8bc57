"""What can be changed on a finished model that is no sensible argument of it: each a function from model to model."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from walksum.designs import DESIGNS, Design
from walksum.graph import Graph
from walksum.nn import GLT, GLTBlock, GLTConv
from walksum.nn.dropout import Dropout
from walksum.precision import Precision

Change = Callable[[nn.Module], nn.Module]


def on_each(kind: type, act: Callable[[Any], object]) -> Change:
    """Do something to every module of this kind."""

    def change(model: nn.Module) -> nn.Module:
        for module in [module for module in model.modules() if isinstance(module, kind)]:
            act(module)
        return model

    return change


def on_mixers(**values: Any) -> Change:
    """Set attributes of every mixing layer."""
    return on_each(GLTConv, lambda mixer: _set(mixer, values))


def on_designs(**values: Any) -> Change:
    """Set attributes of the design of every mixing layer."""
    return on_each(GLTConv, lambda mixer: _set(mixer.design, values))


def _set(target: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(target, name, value)


def _glorot(layer: nn.Linear) -> None:
    nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


glorot = on_each(nn.Linear, _glorot)
without_norm = on_each(GLTBlock, lambda block: block.add_module("norm", nn.Identity()))
without_input_dropout = on_each(GLT, lambda model: setattr(model.dropout, "p", 0.0))
only_input_dropout = on_each(GLTBlock, on_each(Dropout, lambda layer: setattr(layer, "p", 0.0)))
linear_observation = on_mixers(act=None)


def heads_in_full_width(concat: bool) -> Change:
    """Every head as wide as the embedding; merged by a Linear from all of them, or averaged."""

    def widen(block: Any) -> None:
        old, width = block.mix, block.mix.in_channels
        kind = {"design": _name(old.design), "coupling": old.design.coupling}
        scale = {"scale": old.design.scale} if hasattr(old.design, "scale") else {}
        block.mix = GLTConv(width, width, old.heads, **kind, **scale)
        block.mix.on_nonconverged = "ignore"
        block.mix_norm = nn.LayerNorm(width)
        block.merge = nn.Linear(old.heads * width, width) if concat else _MeanOfHeads(old.heads, width)

    return on_each(GLTBlock, widen)


class _MeanOfHeads(nn.Module):
    def __init__(self, heads: int, width: int):
        super().__init__()
        self.heads, self.linear = heads, nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.unflatten(-1, (self.heads, -1)).mean(-2))


def _mixing_alone(self: GLTBlock, x: Tensor, *graph: Any, **options: Any) -> Tensor:
    mu = self.mix(self.norm(x), *graph, **options).view(-1, self.mix.heads, self.mix.out_channels)
    x = self.merge(self.dropout(self.act(self.mix_norm(mu)).flatten(1)))
    return x + self.ffn(x)


without_residual = on_each(GLTBlock, lambda block: setattr(block, "forward", _mixing_alone.__get__(block)))


def couplings_times(factor: float) -> Change:
    """Shrink the off-diagonals of the normalised J: a larger diagonal, or a smaller epsilon, in other words."""
    return _changed(lambda J: Precision(J.graph, J.diag, factor * J.off))


def _changed(change: Callable[[Precision], Precision]) -> Change:
    return on_each(GLTConv, lambda mixer: setattr(mixer, "design", _Changed(mixer.design, change)))


class _Changed(Design):
    def __init__(self, design: Design, change: Callable[[Precision], Precision]):
        super().__init__(design.coupling)
        self.design, self.change = design, change
        self.reads_input = design.reads_input
        self.fixed = not any(True for _ in design.parameters())
        self.known: tuple[Precision, Precision] | None = None

    def forward(self, graph: Graph, x: Tensor | None = None, h: Tensor | None = None) -> Precision:
        J = self.design(graph, x, h)
        if not self.fixed:
            return self.change(J)
        if self.known is None or self.known[0] is not J:  # solvers prepare a J that stays the same but once
            self.known = (J, self.change(J))
        return self.known[1]


# no gradient goes through J: it still follows h, but nothing learns to make it better
given_precision = _changed(lambda J: Precision(J.graph, J.diag.detach(), J.off.detach()))


class _Raw(Design):
    """J as it stands before the symmetric normalisation that ends every learned design."""

    def __init__(self, design: Design):
        super().__init__(design.coupling)
        self.design = design

    def forward(self, graph: Graph, x: Tensor | None = None, h: Tensor | None = None) -> Precision:
        found: list[Tensor] = []

        def instead(graph: Graph, diag: Tensor, off: Tensor) -> Tensor:
            found.append(torch.where(diag > 0, diag, 1.0))
            return off.expand(diag.size(0), -1)

        # while the design builds J, the name of its last operation means another one, and no kernel does all at once
        known = type(self.design).forward.__globals__
        names: dict[str, Any] = {"symmetric_scaling": instead, "fused": SimpleNamespace(serves=lambda *_: False)}
        before = {name: known[name] for name in names}
        known.update(names)
        try:
            J = self.design(graph, x, h)
        finally:
            known.update(before)
        return Precision(J.graph, found[0], J.off)


not_normalised = on_each(GLTConv, lambda mixer: setattr(mixer, "design", _Raw(mixer.design)))


def _name(design: Design) -> str:
    found = next((name for name, entry in DESIGNS.items() if type(design) in (entry.fixed, entry.learned)), None)
    assert found is not None
    return found
