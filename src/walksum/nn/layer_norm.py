"""LayerNorm: torch's, with kernels of its own where a GPU would spend a quarter of a training step in torch's."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as nnf
from torch import Tensor, nn

from walksum._torch import Function, in_forward_mode, transforms_active
from walksum.backends import uses_triton
from walksum.designs.fused import again
from walksum.solvers.deferred import open_logs

WIDEST = 1024  # channels
LARGE = 2**22  # numbers from which a pass over them takes longer than its launch from Python


class LayerNorm(nn.LayerNorm):
    """``torch.nn.LayerNorm``; in captured training steps and on large tables of a GPU by kernels for narrow rows."""

    def forward(self, input: Tensor) -> Tensor:
        if not self._fused(input):
            return super().forward(input)
        return _LayerNorm.apply(input.contiguous(), self.weight, self.bias, self.eps)

    def _fused(self, x: Tensor) -> bool:
        if torch.compiler.is_compiling() or not uses_triton(x) or transforms_active() or in_forward_mode():
            return False
        shape = self.normalized_shape
        if shape != x.shape[-1:] or shape[0] > WIDEST or not x.numel():
            return False
        # a kernel reads addresses: what torch would refuse, or what has no numbers there, is left to torch
        for t in (self.weight, self.bias):
            if not isinstance(t, Tensor) or not uses_triton(t) or t.shape != shape or t.device != x.device:
                return False
        if not all(type(t) in (Tensor, nn.Parameter) for t in (x, self.weight, self.bias)):
            return False
        # eager steps on small tables wait for Python, of which torch's own operation takes less
        return x.numel() >= LARGE or bool(open_logs(x.device))


class _LayerNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
        from walksum.backends.cuda.triton.layer_norm import forward  # imports triton

        ctx.epsilon = epsilon
        ctx.save_for_backward(x, gamma, beta)
        return forward(x, gamma.contiguous(), beta.contiguous(), epsilon)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        from walksum.backends.cuda.triton.layer_norm import backward

        x, gamma, beta = ctx.saved_tensors
        if torch.is_grad_enabled() or transforms_active():  # someone will differentiate this again
            return *again(partial(_composed, ctx.epsilon), (x, gamma, beta), grads[0]), None
        return *backward(x, gamma.contiguous(), grads[0].contiguous(), ctx.epsilon), None


def _composed(epsilon: float, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return nnf.layer_norm(x, x.shape[-1:], gamma, beta, epsilon)
