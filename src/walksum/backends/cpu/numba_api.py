"""Whatever the CPU kernels need of numba and llvmlite, public and private, in one place.

Where one of these names cannot be imported, ``MISSING`` says why, every module above still imports, and
:func:`walksum.backends.backend` takes the kernels in plain torch instead.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

MISSING: str | None = None

try:
    import numba
    from llvmlite import ir
    from llvmlite.binding import get_host_cpu_features
    from numba.core import cgutils, types
    from numba.core.errors import TypingError
    from numba.core.registry import CPUDispatcher
    from numba.core.typing.templates import AbstractTemplate, infer_global, signature
    from numba.extending import get_cython_function_address, intrinsic, lower_builtin, models, register_model
    from numba.np.arrayobj import populate_array
except ImportError as error:
    MISSING = str(error)

    def _unusable(function: Callable[..., Any]) -> Callable[..., Any]:
        """In place of a compiled function."""

        def call(*args: Any, **kwargs: Any) -> NoReturn:
            raise ImportError(f"this solver needs numba, which cannot be imported ({MISSING}); use solver='cg'")

        return call

    def _nothing(*args: Any) -> Any:
        """In place of a decorator with arguments."""
        return lambda decorated: decorated

    config = SimpleNamespace(CACHE_DIR="")
    njit = lambda function, **options: _unusable(function)  # noqa: E731
    numba = SimpleNamespace(config=config, njit=njit)
    types = SimpleNamespace(Type=object, Float=float)  # type: ignore[assignment]
    models = SimpleNamespace(PrimitiveModel=object)
    ir = cgutils = signature = populate_array = get_cython_function_address = get_host_cpu_features = None
    intrinsic, AbstractTemplate, TypingError = _unusable, object, TypeError  # type: ignore[misc, assignment]
    CPUDispatcher = type("CPUDispatcher", (), {})  # of which there are no instances
    infer_global = lower_builtin = register_model = _nothing

__all__ = ["MISSING", "AbstractTemplate", "CPUDispatcher", "TypingError", "cgutils", "infer_global", "intrinsic", "ir"]
__all__ += ["get_cython_function_address", "get_host_cpu_features"]
__all__ += ["lower_builtin", "models", "numba", "populate_array", "register_model", "signature", "types"]
