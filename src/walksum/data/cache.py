"""Where raw files are looked for, and where what is made from them is kept.

Raw files may lie on a read-only disk, so nothing is ever written beside them. The cache holds one file
per dataset, named after the content of its raw files: a changed raw file is a new entry, never a stale
one. Every entry is written under a temporary name and then renamed, which the file system does in one
step, so processes that start together do the same work twice but never read half a file.
"""

import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import torch_geometric
from torch_geometric.data import Data

from walksum._files import write_file


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder that holds raw files: the argument, else $WALKSUM_DATA, else PyG's home."""
    chosen = root or os.environ.get("WALKSUM_DATA") or Path(torch_geometric.get_home_dir()) / "datasets"
    return Path(chosen).expanduser()


def cache_root() -> Path:
    """The folder this package writes to: $WALKSUM_CACHE, else the platform's cache folder."""
    chosen = Path(os.environ.get("WALKSUM_CACHE") or _platform_cache() / "walksum").expanduser()
    try:
        chosen.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"cache folder {chosen} cannot be made ({error}); set WALKSUM_CACHE to a writable folder"
        ) from error
    return chosen


def _platform_cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder that goes away, on the cache's disk so that a rename out of it is one step."""
    return tempfile.TemporaryDirectory(prefix="making-", dir=cache_root())


def cached(key: str, make: Callable[[], Data]) -> Data:
    """The entry named key, made on first use."""
    path = cache_root() / "processed" / f"{key}.pt"
    try:
        return _read(path)
    except FileNotFoundError:
        pass
    except (RuntimeError, EOFError, pickle.UnpicklingError):
        pass  # a damaged entry (a full disk, a pulled plug) is made again, not reported
    data = make()
    _write(path, data)
    return data


def _read(path: Path) -> Data:
    # weights_only: a cache entry is plain tensors and must not be able to run code either.
    return Data.from_dict(torch.load(path, weights_only=True))


def _write(path: Path, data: Data) -> None:
    write_file(path, lambda part: torch.save(data.to_dict(), part))
