"""load(name): a published graph as PyG's Data, features and edges as published.

Nothing is normalised, symmetrised or given self-loops here: WebKB and Actor are directed files, and what a
model wants of its edges is the model's affair.
"""

import os
import shutil
import warnings
from pathlib import Path

import torch_geometric
from torch_geometric.data import Data

from walksum.data.cache import cache_root, cached, data_root, scratch
from walksum.data.checksums import fingerprint
from walksum.data.digits import digits
from walksum.data.sources import SOURCES, Source

__all__ = ["load", "names", "digits"]


def names() -> list[str]:
    """Every name that load() knows."""
    return [*SOURCES, "digits"]


def load(name: str, root: str | os.PathLike[str] | None = None) -> Data:
    """Read one dataset.

    Args:
        name: one of names().
        root: folder with raw files in PyG's layout (root/Planetoid/Cora/raw/ind.cora.x), which may be
            read-only. Default: $WALKSUM_DATA, else the folder datasets in PyG's home. Files that are not
            there are downloaded into the cache ($WALKSUM_CACHE, else the platform's cache folder).
    """
    if name == "digits":
        return digits()
    if name not in SOURCES:
        raise ValueError(f"name={name!r} is not a dataset; choose one of {', '.join(names())}")
    source = SOURCES[name]
    home = _home(name, source, data_root(root))
    key = fingerprint(source.paths(home), salt=f"{name} PyG {torch_geometric.__version__}")
    return cached(f"{name}-{key}", lambda: _read(source, home))


def _home(name: str, source: Source, root: Path) -> Path:
    downloads = cache_root() / "raw"
    for candidate in (root, downloads):
        if source.present(candidate):
            return candidate
    _download(name, source, root, downloads)
    return downloads


def _download(name: str, source: Source, root: Path, downloads: Path) -> None:
    with scratch() as folder:
        try:
            _quiet_read(source, Path(folder))
        except _download_errors() as error:
            expected = "\n  ".join(str(path) for path in source.paths(root))
            raise FileNotFoundError(
                f"dataset {name!r} is not under {root} and could not be downloaded ({error!r}). "
                f"Put these files in place, or pass root= or set WALKSUM_DATA:\n  {expected}"
            ) from error
        for path in source.paths(Path(folder)):
            target = downloads / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)


def _download_errors() -> tuple[type[Exception], ...]:
    """What PyG's download raises; aiohttp, which it may use, is not ours to require."""
    try:
        from aiohttp import ClientError
    except ImportError:
        return OSError, ImportError
    return OSError, ImportError, ClientError


def _read(source: Source, home: Path) -> Data:
    """PyG writes beside the raw files it reads, so it is shown links to them in a folder of its own."""
    with scratch() as folder:
        for original, link in zip(source.paths(home), source.paths(Path(folder)), strict=True):
            link.parent.mkdir(parents=True, exist_ok=True)
            _link(original.resolve(), link)
        return _quiet_read(source, Path(folder))


def _link(original: Path, link: Path) -> None:
    try:
        link.symlink_to(original)
    except OSError:  # file systems and Windows accounts without symbolic links
        shutil.copyfile(original, link)


def _quiet_read(source: Source, root: Path) -> Data:
    # The Planetoid pickles date from 2016 and name numpy and scipy internals that have moved since. PyG also
    # adds to the process-wide warning filters; catch_warnings takes that back.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"dtype\(\): align should be passed")
        warnings.filterwarnings("ignore", message=r".*the `scipy.sparse.csr` namespace is deprecated")
        return source.read(root)
