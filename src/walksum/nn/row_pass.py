"""``residual + linear(dropout(act(norm(x))))`` on a CPU in one pass over the nodes, and one more for all gradients.

In torch operations each of these steps goes through memory once forth and twice back, and together they take as long as
the product. The masks are those of :class:`walksum.nn.dropout.Dropout`; sums run in another order than torch's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

from walksum._torch import Function, transforms_active, watched
from walksum.backends.cpu.pointers import ZERO, blank
from walksum.backends.cpu.simd import WIDTHS, registers
from walksum.backends.cpu.threads import over_columns
from walksum.designs.fused import again
from walksum.nn.dropout import LANES, Dropout, _Dropout
from walksum.nn.layer_norm import LayerNorm

CHUNK, GROUP = 32, 8  # channels of a layer and of a norm come in multiples of these; narrower rows gain nothing
WIDEST = 1 << 16  # weights, up to which they stay in the caches next to the core
LEAST_ROWS = 2048  # of a block that a thread takes


@dataclass(frozen=True)
class Steps:
    """What happens to a row before the product."""

    norm: nn.LayerNorm | None = None
    slope: float = 1.0  # of the activation below zero; 0 is a ReLU
    p: float = 0.0  # of dropout


def read_steps(modules: Sequence[nn.Module]) -> Steps | None:
    """A LayerNorm, a (leaky) ReLU and a Dropout, each of which may be missing; None for any other modules."""
    left = [module for module in modules if not _idle(module)]
    if any(watched(module) or getattr(module, "inplace", False) for module in left):
        return None
    norm = left.pop(0) if left and type(left[0]) in (nn.LayerNorm, LayerNorm) else None
    act = left.pop(0) if left and type(left[0]) in (nn.LeakyReLU, nn.ReLU) else None
    drop = left.pop(0) if left and type(left[0]) is Dropout and left[0].p < 1 else None
    slope = 1.0 if act is None else getattr(act, "negative_slope", 0.0)
    if slope == 0 and type(act) is nn.LeakyReLU:  # of minus infinity torch makes NaN
        return None
    return None if left else Steps(norm, slope, 0.0 if drop is None else drop.p)  # type: ignore[arg-type]


def _idle(module: nn.Module) -> bool:
    # not a subclass, which may drop in evaluation too
    off = type(module) in (nn.Dropout, Dropout) and (not module.training or module.p == 0)
    return (off or type(module) is nn.Identity) and not watched(module)


def has_memory(tensor: Tensor) -> bool:
    """Whether a kernel may go to the address of a tensor: sparse, fake and quantized ones have no numbers there."""
    return type(tensor) in (Tensor, nn.Parameter) and tensor.is_cpu and tensor.layout is torch.strided


def serves(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, steps: Steps) -> bool:
    """Whether the kernels take these; x ``[N, F]`` or ``[N, H, F]``, on a CPU and of the dtype of the weights."""
    outputs, inputs = weight.shape
    plain = x.is_contiguous() and x.numel() == x.size(0) * inputs
    if not plain or weight.numel() > WIDEST or inputs % CHUNK or outputs % CHUNK or not x.size(0):
        return False
    if residual is not None and residual.shape != (x.size(0), outputs):
        return False
    norm = steps.norm
    affine = () if norm is None else (norm.weight, norm.bias)
    if any(t is None or not t.is_contiguous() or t.shape != norm.normalized_shape for t in affine):  # type: ignore[union-attr]
        return False
    if bias is not None and bias.shape != (outputs,):  # which torch refuses or repeats
        return False
    others = *affine, *(t for t in (bias, residual) if t is not None)
    if not all(has_memory(t) and t.dtype is x.dtype for t in others):
        return False
    if norm is None:
        return True
    return norm.normalized_shape == (x.size(-1),) and x.size(-1) % GROUP == 0


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, steps: Steps) -> Tensor:
    """``residual + linear(steps(x))``, ``[N, O]``."""
    norm = steps.norm
    gamma, beta, epsilon = (None, None, 0.0) if norm is None else (norm.weight, norm.bias, norm.eps)
    seed = int(torch.randint(2**62, (1,), device="cpu")) if steps.p else 0
    numbers = 0 if norm is None else x.size(-1), epsilon, steps.slope, seed, steps.p
    if residual is not None:
        residual = residual.contiguous()
    return _Layer.apply(x.flatten(1), weight, bias, gamma, beta, residual, numbers)


def _composed(numbers: tuple, x: Tensor, weight: Tensor, bias: Any, gamma: Any, beta: Any) -> Tensor:
    """The same in torch operations, without the residual."""
    size, epsilon, slope, seed, p = numbers
    if size:
        x = nnf.layer_norm(x.unflatten(1, (-1, size)), (size,), gamma, beta, epsilon).flatten(1)
    if slope != 1:
        x = nnf.leaky_relu(x, slope) if slope else nnf.relu(x)
    x = _Dropout.apply(x.unsqueeze(0), torch.tensor([seed], device="cpu"), p).squeeze(0) if p else x
    return nnf.linear(x, weight, bias)


class _Layer(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Any, gamma: Any, beta: Any, residual: Any, numbers: tuple
    ) -> Tensor:
        from walksum.backends.cpu.node_linear import forward

        nodes, (outputs, inputs) = x.size(0), weight.shape
        ctx.numbers = numbers
        ctx.save_for_backward(x, weight, bias, gamma, beta)
        out = blank(x) if inputs == outputs else x.new_empty(nodes, outputs)
        offset, table = weight.new_zeros(outputs) if bias is None else bias.contiguous(), weight.t().contiguous()
        narrow, zero, before = _before(x, gamma, beta, numbers)
        addresses = x.data_ptr(), table.data_ptr(), offset.data_ptr(), _address(residual), out.data_ptr()
        given = registers(outputs, x.element_size()), narrow, zero, (nodes, inputs, outputs), before
        owners = x, table, offset, residual, gamma, beta, out
        over_columns(
            forward, nodes, float(nodes * weight.numel()), *given, *addresses, width=block_rows(x), owners=owners
        )
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        inputs, grad = ctx.saved_tensors, grads[0]
        if torch.is_grad_enabled() or transforms_active():  # someone will differentiate this again
            found: Sequence[Any] = again(partial(_composed, ctx.numbers), inputs, grad)
        else:
            found = _gradients(ctx.numbers, grad.contiguous(), *inputs)
        return *found, grad if ctx.needs_input_grad[5] else None, None


def _gradients(numbers: tuple, grad: Tensor, x: Tensor, weight: Tensor, bias: Any, gamma: Any, beta: Any) -> tuple:
    from walksum.backends.cpu.node_linear import backward

    nodes, (outputs, inputs), size, room = x.size(0), weight.shape, numbers[0], block_rows(x)
    d_x, whole = blank(x), weight.contiguous()
    sums = x.new_zeros(-(-nodes // room), weight.numel() + outputs + 2 * size)
    narrow, zero, before = _before(x, gamma, beta, numbers)
    given = registers(inputs, x.element_size()), registers(outputs, x.element_size()), narrow, zero
    addresses = (t.data_ptr() for t in (x, whole, grad, d_x, sums))
    owners = x, whole, grad, d_x, sums, gamma, beta
    work = 2.0 * nodes * weight.numel()
    over_columns(
        backward, nodes, work, *given, (nodes, inputs, outputs), before, *addresses, room, width=room, owners=owners
    )
    total = sums[0] if sums.size(0) == 1 else sums.sum(0)
    d_weight, d_bias, d_gamma, d_beta = total.split((weight.numel(), outputs, size, size))
    d_bias = None if bias is None else d_bias
    return d_x, d_weight.view_as(weight), d_bias, *((d_gamma, d_beta) if size else (None, None))


def _before(x: Tensor, gamma: Tensor | None, beta: Tensor | None, numbers: tuple) -> tuple:
    """Channels that are normalised at once, the zero of the dtype, and the steps as kernels take them."""
    (size, epsilon, slope, seed, p), zero = numbers, ZERO[x.dtype]
    kind = type(zero)
    dropped = seed, round(p * LANES), kind(1 / (1 - p))
    before = _address(gamma), _address(beta), size, kind(epsilon), kind(slope), *dropped
    return WIDTHS[math.gcd(size or x.size(1), 64)], zero, before


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def block_rows(x: Tensor) -> int:
    """Rows of a block: the same blocks, and so the same bits, for every number of threads; at most 16 partial sums."""
    return max(LEAST_ROWS, -(-x.size(0) // 16))
