"""What is kept for later calls must not bear the marks of the call that happened to make it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.autograd.forward_ad import unpack_dual


def differentiated(tensor: Tensor | None) -> bool:
    """Someone derives by it, in either mode: what is made of it belongs to this call."""
    if tensor is None:
        return False
    return tensor.requires_grad or is_wrapped(tensor) or unpack_dual(tensor).tangent is not None


def is_wrapped(tensor: Tensor) -> bool:
    """By a torch.func transform that is under way."""
    return is_functorch_wrapped_tensor(tensor)


@contextmanager
def lasting(of: Tensor | None = None) -> Iterator[None]:
    """Steps out of inference mode, whose tensors no training may save, and of torch.func's transforms, whose
    wrappers die with them. What is made ``of`` a wrapped tensor stays inside its transform.
    """
    grad = torch.is_grad_enabled()  # leaving inference mode would turn gradients on
    with ExitStack() as stack:
        if not (isinstance(of, Tensor) and is_wrapped(of)):
            stack.enter_context(temporarily_clear_interpreter_stack())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(grad))
        yield
