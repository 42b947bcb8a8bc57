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

try:
    from torch._C._dynamo.eval_frame import get_eval_frame_callback, skip_code
except ImportError:  # private names: where they are gone, torch's own will do
    get_eval_frame_callback = None


def untraced(function: F) -> F:
    """A graph break: compiled code calls ``function`` as it is."""
    if get_eval_frame_callback is None:
        return torch.compiler.disable(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if get_eval_frame_callback() is None:
            return function(*args, **kwargs)
        return torch.compiler.disable(function)(*args, **kwargs)

    skip_code(call.__code__)
    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]
