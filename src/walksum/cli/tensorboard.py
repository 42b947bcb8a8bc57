"""TensorBoard logs of a training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from walksum.training import Epoch, Recipe


def check_installed() -> None:
    try:
        import tensorboard  # noqa: F401
    except ImportError as error:
        raise ValueError("--tensorboard needs the package tensorboard: pip install 'walksum[tensorboard]'") from error


@contextmanager
def watched(on_epoch: Any, folder: Path | None) -> Iterator[Any]:
    """``on_epoch``, which also writes to ``folder`` if there is one."""
    if folder is None:
        yield on_epoch
        return
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as log:
        trainings: dict[str, int] = {}

        def both(name: str, epoch: Epoch, best: Epoch, recipe: Recipe) -> None:
            if epoch.number == 1:
                trainings[name] = trainings.get(name, 0) + 1
            where = f"{name}-{trainings[name]}"
            log.add_scalars("loss", {f"{where}/train": epoch.train_loss, f"{where}/val": epoch.val_loss}, epoch.number)
            log.add_scalar(f"val_score/{where}", epoch.val_score, epoch.number)
            on_epoch(name, epoch, best, recipe)

        yield both
