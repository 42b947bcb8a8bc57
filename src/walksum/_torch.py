"""Everything private of torch that walksum uses, each with a public fallback.

The private names save time (a microsecond matters on a graph of a few hundred nodes) or tell what no public name tells.
Where torch has renamed or removed one, the fallback is slower, never wrong, and ``import walksum`` works.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.forward_ad import unpack_dual
from torch.autograd.function import FunctionCtx

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

try:
    from torch._C import _are_functorch_transforms_active as transforms_active
    from torch._C._functorch import _add_batch_dim, _unwrap_batched, get_unwrapped, unwrap_if_dead
    from torch._C._functorch import is_functorch_wrapped_tensor as is_functorch_wrapped
    from torch._C._functorch import is_legacy_batchedtensor as _is_batched_by_autograd
    from torch._functorch.autograd_function import VmapInfo
    from torch._functorch.pyfunctorch import VmapInterpreter, retrieve_current_functorch_interpreter
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack as _no_interpreters

    _KNOWN_FUNCTORCH = True
except ImportError:
    _KNOWN_FUNCTORCH = False

    def transforms_active() -> bool:  # nobody can tell: the way that is right under transforms is right without them
        return True

    def is_functorch_wrapped(tensor: Tensor) -> bool:
        try:
            tensor.data_ptr()
        except RuntimeError:  # a wrapper has no memory of its own
            return True
        return False


try:
    from torch._C._dynamo import eval_frame as _frames

    _compiler, _set_strategy = _frames.get_eval_frame_callback, _frames.set_code_exec_strategy
    _skip = _frames._FrameExecStrategy(_frames._FrameAction.SKIP, _frames._FrameAction.DEFAULT)
except (AttributeError, ImportError, TypeError):
    _compiler = None  # type: ignore[assignment]

try:
    from torch.nn.modules.module import _has_any_global_hook as _has_global_hooks
except ImportError:

    def _has_global_hooks() -> Any:  # nobody can tell: without hooks, what is right with them only takes longer
        return True


try:
    from torch._C import _cuda_getCurrentRawStream as raw_stream
except ImportError:  # also in a torch without CUDA

    def raw_stream(device: int) -> int:
        """The address of the current CUDA stream of a device, as kernels take it."""
        return torch.cuda.current_stream(device).cuda_stream


def no_compile(function: F) -> F:
    """``torch.compiler.disable``: compiled code calls ``function`` as it is.

    torch's own imports the compiler, which takes two seconds, and costs a microsecond per call. This one looks
    whether a compiler is active on this thread and only then switches it off.
    """
    if _compiler is None:
        return torch.compiler.disable(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        compiler = _compiler()
        if compiler is None:
            return function(*args, **kwargs)
        _frames.set_eval_frame(None)
        try:
            return function(*args, **kwargs)
        finally:
            _frames.set_eval_frame(compiler)

    _set_strategy(call.__code__, _skip)  # type: ignore[attr-defined]
    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def cpu_by_default(function: F) -> F:
    """What ``function`` makes without naming a device lies on the CPU, whatever ``torch.set_default_device`` says."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.get_default_device().type == "cpu":  # a device as context costs a microsecond per operation
            return function(*args, **kwargs)
        with torch.device("cpu"):
            return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def needs_grad(tensor: Tensor | None) -> bool:
    """Whether derivatives by this tensor may be taken, in either mode: what is made of it must not be kept."""
    if tensor is None:
        return False
    return tensor.requires_grad or is_functorch_wrapped(tensor) or unpack_dual(tensor).tangent is not None


def in_forward_mode() -> bool:
    """Whether forward-mode derivatives may be taken, which an autograd function without that rule would refuse."""
    return getattr(forward_ad, "_current_level", 0) >= 0


def unwrapped(tensor: Tensor) -> Tensor | None:
    """The tensor under all wrappers of torch.func, batch dimensions included; None where it is out of reach."""
    if not is_functorch_wrapped(tensor):
        return tensor
    if not _KNOWN_FUNCTORCH:
        return None
    while is_functorch_wrapped(tensor):
        tensor = get_unwrapped(tensor)
    return tensor


def outside_transforms(function: Callable[..., T], *args: Any) -> T:
    """``function(*args)`` outside inference mode, whose tensors no training may save, and outside the transforms of
    torch.func, whose wrappers end with them: for results that are kept for later calls.
    """
    if not _KNOWN_FUNCTORCH:
        return _through_autograd_function(function, args)
    if not transforms_active() and not torch.is_inference_mode_enabled():
        return function(*args)
    with _no_interpreters():
        return _outside_inference(function, args)


def _outside_inference(function: Callable[..., T], args: tuple) -> T:
    grad = torch.is_grad_enabled()  # leaving inference mode would turn gradients on
    with torch.inference_mode(False), torch.set_grad_enabled(grad):
        return function(*args)


def _through_autograd_function(function: Callable[..., T], args: tuple) -> T:
    """The forward of an autograd.Function runs below all transforms, on unwrapped tensors: the public way out."""
    result = _Result()
    _Outside.apply(result, function, args)
    return result.value


class _Result:
    """Carries a result past the transforms, which would wrap it."""

    value: Any


class _Outside(torch.autograd.Function):
    @staticmethod
    def forward(result: _Result, function: Callable[..., Any], args: tuple) -> Tensor:
        result.value = _outside_inference(function, args)
        return torch.empty(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        return None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *inputs: Any) -> tuple:
        return _Outside.apply(*inputs), None


class Function(torch.autograd.Function):
    """``torch.autograd.Function`` whose ``apply`` takes positional arguments only.

    torch's own inspects the signature of forward to bind defaults, which on a small graph takes longer than
    the solve. Under vmap it takes ten times as long; there the rule is called directly. Under other function
    transforms (grad, ...) everything is left to torch.

    torch.autograd has a vmap of its own (``is_grads_batched``, ``jacobian(vectorize=True)``), older than that of
    torch.func, under which no rule of a Function is asked for. Batches of it become batches of ``torch.vmap`` here.
    """

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        for name in ("backward", "jvp"):
            rule = cls.__dict__.get(name)
            if _KNOWN_FUNCTORCH and rule is not None:
                setattr(cls, name, type(rule)(_for_batches(rule.__func__)))

    @classmethod
    def apply(cls, *args: Any) -> Any:
        if not _KNOWN_FUNCTORCH:
            return super().apply(*args)
        if not transforms_active():
            return super(torch.autograd.Function, cls).apply(*args)  # type: ignore[misc]
        interpreter = retrieve_current_functorch_interpreter()
        if isinstance(interpreter, VmapInterpreter):
            return cls._apply_under_vmap(interpreter, args)
        return super().apply(*args)

    @classmethod
    def _apply_under_vmap(cls, interpreter: Any, args: tuple) -> Any:
        level = interpreter.level()
        args = tuple(unwrap_if_dead(a) if isinstance(a, Tensor) else a for a in args)
        pairs = [_unwrap_batched(a, level) if isinstance(a, Tensor) else (a, None) for a in args]
        in_dims = tuple(dim for _, dim in pairs)
        with interpreter.lower():
            if all(dim is None for dim in in_dims):
                return cls.apply(*args)
            info = VmapInfo(interpreter.batch_size(), interpreter.randomness())
            out, dim = cls.vmap(info, in_dims, *(value for value, _ in pairs))
        if isinstance(out, tuple):
            return tuple(_add_batch_dim(each, at, level) for each, at in zip(out, dim, strict=True))
        return _add_batch_dim(out, dim, level)


def _for_batches(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule of derivatives that also takes tensors which torch.autograd has batched."""

    @wraps(rule)
    def call(*args: Any) -> Any:
        batched = [k for k, a in enumerate(args) if isinstance(a, Tensor) and _is_batched_by_autograd(a)]
        if not batched:
            return rule(*args)
        level, values = _without_batch([args[k] for k in batched])
        # before the transform begins: what a checkpoint computes again must be computed as it was
        outside = [_Read(a) if isinstance(a, FunctionCtx) else a for a in args]
        results: list[Any] = []

        def tensors(*one: Tensor) -> tuple[Tensor, ...]:
            given = list(outside)
            for k, value in zip(batched, one, strict=True):
                given[k] = value
            found = rule(*given)
            results[:] = found if isinstance(found, tuple) else [found]
            return tuple(t for t in results if t is not None)  # torch.vmap takes nothing else

        rows = iter(torch.vmap(tensors, randomness="same")(*values))
        # contiguous: torch's forward mode wants the batch first in memory
        again = [None if t is None else torch._add_batch_dim(next(rows).contiguous(), 0, level) for t in results]
        return tuple(again) if rule.__name__ == "backward" else again[0]

    return call


class _Read:
    """A context whose tensors have been read."""

    def __init__(self, ctx: Any):
        self.saved_tensors, self._ctx = ctx.saved_tensors, ctx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


def _without_batch(tensors: list[Tensor]) -> tuple[int, list[Tensor]]:
    """The level of torch.autograd's vmap, and the tensors with its dimension as their first."""
    for level in range(1, 65):  # torch allows no more; no name tells which it is
        values = [torch._remove_batch_dim(t, level, 1, 0) for t in tensors]
        if not any(map(_is_batched_by_autograd, values)):
            return level, values
    raise NotImplementedError("gradients batched twice (is_grads_batched within itself); use torch.func.vmap")


def assume_constant(function: F) -> F:
    """``torch.compiler.assume_constant_result`` without importing the compiler: run once, when a model is compiled."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def watched(module: torch.nn.Module) -> bool:
    """Whether a hook sees, and may change, what the module takes and what it makes."""
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    return any(hooks) or bool(_has_global_hooks())


def is_out_of_memory(error: BaseException) -> bool:
    """Of a GPU, of numpy, or of torch on a CPU, whose error has no class of its own."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def free_memory(device: torch.device | str = "cpu") -> float:
    """Bytes that can still be taken there; infinity where the system does not say."""
    device = torch.device(device)
    if device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + held
    return min(_available(), _left_to_container())


def _available() -> float:
    try:
        with open("/proc/meminfo") as file:
            line = next(line for line in file if line.startswith("MemAvailable"))
        return 1024.0 * int(line.split()[1])
    except (OSError, StopIteration):
        pass
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return inf


def _left_to_container(group: Path = Path("/sys/fs/cgroup")) -> float:
    """What a control group leaves; without one that has a limit there are no such files, or they hold no number."""
    try:
        most, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        parts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return float(most - used + int(parts["inactive_file"]))  # files that are given back where memory is asked for
    except (OSError, ValueError, KeyError):
        return inf
