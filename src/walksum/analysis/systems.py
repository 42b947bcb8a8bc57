"""The linear systems of a training step, recorded as they are solved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from walksum.nn import GLT, GLTConv
from walksum.precision import Precision


@dataclass(frozen=True)
class RecordedSystem:
    """What one layer solved in one direction of one training step: J mu = h, or J g = dL/dmu."""

    layer: int
    direction: str
    J: Precision
    h: Tensor


@contextmanager
def record_systems(model: GLT) -> Iterator[list[RecordedSystem]]:
    """Collect the systems that every mixing layer solves inside the block."""
    systems: list[RecordedSystem] = []
    handles = [hook for k, mix in enumerate(model.mixers) for hook in _record_layer(k, mix, systems)]
    try:
        yield systems
    finally:
        for handle in handles:
            handle.remove()


def _record_layer(layer: int, mix: GLTConv, systems: list[RecordedSystem]) -> list[Any]:
    def on_design(module: Any, args: tuple, J: Precision) -> None:
        plain = Precision(J.graph, J.diag.detach().clone(), J.off.detach().clone())
        systems.append(RecordedSystem(layer, "forward", plain, args[2].detach().clone().contiguous()))

    def on_output(module: Any, args: tuple, out: Tensor) -> None:
        J = next(s.J for s in reversed(systems) if s.layer == layer)

        def on_gradient(grad: Tensor) -> None:
            g = grad.view(-1, mix.heads, mix.out_channels).transpose(0, 1)
            systems.append(RecordedSystem(layer, "backward", J, g.detach().clone().contiguous()))

        out.register_hook(on_gradient)

    return [mix.design.register_forward_hook(on_design), mix.register_forward_hook(on_output)]
