"""load(name): a published graph as PyG's Data, features and edges as published.

Nothing is normalised, symmetrised or given self-loops here: WebKB and Actor are directed files, and each model
prepares its edges itself.
"""

import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import torch
import torch_geometric
from torch_geometric.data import Data

from walksum.data.cache import cache_root, cached, data_root, fingerprint, scratch
from walksum.data.sources import SOURCES, Source

__all__ = ["load", "names", "digits"]


def names() -> list[str]:
    """Every name that load() knows."""
    return [*SOURCES, "digits"]


def on_disk(name: str) -> bool:
    """Whether load() needs no download."""
    if name == "digits":
        return True
    return any(SOURCES[name].present(folder) for folder in (data_root(), cache_root() / "raw"))


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
    """The exceptions of PyG's download, which may use aiohttp; that is no dependency of this package."""
    try:
        from aiohttp import ClientError
    except ImportError:
        return OSError, ImportError
    return OSError, ImportError, ClientError


def _read(source: Source, home: Path) -> Data:
    """Read by PyG from a folder of links to the raw files: PyG writes beside the files it reads."""
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


def digits(k: int = 6) -> Data:
    """scikit-learn's 1,797 images of 8 x 8 pixels in [0, 1], each joined to its k nearest, both ways.

    The distance of two images is the smallest over shifts of one of them by at most a pixel. The graph is undirected,
    unweighted and has no self-loops; a node may have more than k neighbours.
    """
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    if not 1 <= k < len(images):
        raise ValueError(f"k={k} neighbours are not possible; choose 1 to {len(images) - 1}")
    return Data(
        x=torch.from_numpy(images / 16).float(),
        edge_index=torch.from_numpy(_nearest(shift_distance(images), k)),
        y=torch.from_numpy(labels).long(),
    )


def shift_distance(images: np.ndarray) -> np.ndarray:
    """The squared distance of each pair of images, the smallest over shifts by at most a pixel.

    Pixels are whole numbers, so distances are exact, and the graph is the same on every machine.
    """
    square = images.reshape(-1, 8, 8)
    padded = np.pad(square, ((0, 0), (1, 1), (1, 1)))
    found = np.full((len(images), len(images)), np.inf)
    for down, right in np.ndindex(3, 3):
        moved = padded[:, down : down + 8, right : right + 8].reshape(len(images), -1)
        products = images @ moved.T
        np.minimum(found, (images**2).sum(1)[:, None] + (moved**2).sum(1) - 2 * products, out=found)
    return np.minimum(found, found.T)


def _nearest(distance: np.ndarray, k: int) -> np.ndarray:
    """Join each image to its k nearest, in both directions; of equally near ones the first counts.

    Scikit-learn's search chooses among equals by the number of threads.
    """
    distance = distance.copy()
    np.fill_diagonal(distance, np.inf)
    joined = np.zeros(distance.shape, dtype=bool)
    np.put_along_axis(joined, np.argsort(distance, axis=1, kind="stable")[:, :k], True, axis=1)
    return np.stack(np.nonzero(joined | joined.T)).astype(np.int64)
