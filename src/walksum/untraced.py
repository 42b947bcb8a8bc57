"""untraced: ``torch.compiler.disable`` that costs nothing where nobody compiles.

torch's own imports the compiler, two seconds, and takes a microsecond a call. This one looks whether a
compiler listens on this thread and only then steps aside.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])

try:  # private names: where they are gone, torch's own will do
    _frames: Any = torch._C._dynamo.eval_frame
    _listener, _set = _frames.get_eval_frame_callback, _frames.set_code_exec_strategy
    _aside = _frames._FrameExecStrategy(_frames._FrameAction.SKIP, _frames._FrameAction.DEFAULT)
except (AttributeError, ImportError, TypeError):
    _listener = None


def untraced(function: F) -> F:
    """A graph break: compiled code calls ``function`` as it is."""
    if _listener is None:
        return torch.compiler.disable(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        listener = _listener()
        if listener is None:
            return function(*args, **kwargs)
        _frames.set_eval_frame(None)
        try:
            return function(*args, **kwargs)
        finally:
            _frames.set_eval_frame(listener)

    _set(call.__code__, _aside)  # type: ignore[attr-defined]
    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]
