"""Observations of a field: which nodes, what values, how noisy; and their checks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walksum._checks import check_unmasked
from walksum._torch import unwrapped

LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Observations:
    """Nodes ``[n]`` as they were given, values ``[..., n]``, variances of the noise ``[..., n]``; None: exact."""

    nodes: Tensor
    values: Tensor
    noise: Tensor | None


def as_tensor(name: str, given: Any, **kind: Any) -> Tensor:
    """``torch.as_tensor`` of real numbers; of a column of a table in the order of its rows, whatever their labels."""
    if isinstance(given, Tensor):
        given = given if given.layout is torch.strided else given.to_dense()
    elif hasattr(given, "__array__"):
        check_unmasked(name, given)
        given = np.array(given)  # a copy: torch warns of arrays that cannot be written to, as pandas gives
        if not given.dtype.isnative:
            given = given.astype(given.dtype.newbyteorder("="))
    if "complex" in str(getattr(given, "dtype", "")):
        raise ValueError(f"{name} has dtype {given.dtype}; expected real numbers, use {name}.real")
    try:
        return torch.as_tensor(given, **kind)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} holds something else than real numbers: {error}") from error


def is_finite(values: Tensor) -> bool:
    """Whether all values are; also inside a transform of torch.func, which hides them from ordinary conditions."""
    plain = unwrapped(values.detach())
    return plain is None or bool(torch.isfinite(plain).all())


def check_nodes(nodes: Any, num_nodes: int, device: torch.device) -> Tensor:
    """Distinct numbers of nodes ``[n]``; a mask of N booleans will do."""
    nodes = as_tensor("nodes", nodes, device=device)
    if nodes.dtype == torch.bool:
        if nodes.shape != (num_nodes,):
            raise ValueError(f"nodes is a mask of shape {tuple(nodes.shape)}; expected [{num_nodes}]")
        return nodes.nonzero().squeeze(1)
    if nodes.numel() == 0:
        return nodes.new_empty(0, dtype=torch.int64)
    if nodes.dim() != 1 or nodes.is_floating_point() or nodes.is_complex():
        raise ValueError(f"nodes has shape {tuple(nodes.shape)} and dtype {nodes.dtype}; expected whole numbers [n]")
    nodes = nodes.long()
    low, high = int(nodes.min()), int(nodes.max())
    if low < 0 or high >= num_nodes:
        raise ValueError(f"nodes contains {low if low < 0 else high}; the field has nodes 0 to {num_nodes - 1}")
    if torch.unique(nodes).numel() != nodes.numel():
        found, count = torch.unique(nodes, return_counts=True)
        raise ValueError(
            f"nodes contains {int(found[count.argmax()])} {int(count.max())} times; observe a node once, "
            "with the mean of its values and the noise divided by their number"
        )
    return nodes


def check_observations(
    nodes: Any, values: Any, noise: Any, num_nodes: int, batch: torch.Size, like: Tensor
) -> Observations:
    """Observations of a field of this batch shape, in the dtype and on the device of ``like``."""
    nodes = check_nodes(nodes, num_nodes, like.device)
    values = as_tensor("values", values, dtype=like.dtype, device=like.device)
    count = nodes.numel()
    if values.dim() == 0 or values.size(-1) != count:
        raise ValueError(f"values has shape {tuple(values.shape)} for {count} nodes; expected [..., {count}]")
    try:
        torch.broadcast_shapes(values.shape[:-1], batch)
    except RuntimeError:
        raise ValueError(
            f"values has shape {tuple(values.shape)}, which does not fit the heads {tuple(batch)} of the field; "
            f"expected [{count}] for all heads, or [..., {', '.join(map(str, batch))}, {count}]"
        ) from None
    if not is_finite(values):
        raise ValueError("values contains NaN or infinity; leave the missing nodes out of nodes")
    return Observations(nodes, values, None if noise is None else _check_noise(noise, count, batch, like))


def _check_noise(noise: Any, count: int, batch: torch.Size, like: Tensor) -> Tensor:
    noise = as_tensor("noise", noise, dtype=like.dtype, device=like.device)
    if noise.dim() and noise.size(-1) not in (1, count):
        raise ValueError(f"noise has shape {tuple(noise.shape)}; expected a number or one variance per node, [{count}]")
    if noise.dim() > 2 or (noise.dim() == 2 and noise.size(0) not in (1, batch[-1])):
        raise ValueError(
            f"noise has shape {tuple(noise.shape)}; expected [{count}] or [{batch[-1]}, {count}]: noise changes J, of "
            "which there is one per head"
        )
    if not is_finite(noise.log()):
        raise ValueError("noise must be positive and finite: it is a variance. For exact observations use noise=None")
    if not is_finite(1 / noise):
        raise ValueError(
            f"noise holds a variance whose inverse lies beyond the largest number of {noise.dtype}; "
            "for exact observations use noise=None"
        )
    return noise.expand(*noise.shape[:-1], count) if noise.dim() else noise.expand(count)
