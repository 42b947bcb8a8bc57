"""Joining the processes that torchrun started, and saying which of them is lost when one is."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
import torch.distributed as dist

from walksum._checks import check_choice, check_positive

TIMEOUT = 30.0  # seconds until a process that does not answer counts as lost
GRACE = 5.0  # seconds beyond that in which the others must report, before they count as lost too
LOST = "lost contact"
DEVICES = ("cpu", "cuda")


class ProcessLost(RuntimeError):
    """Another process failed, was killed or does not answer."""


@contextmanager
def joined(device: str = "cpu", timeout: float = TIMEOUT) -> Iterator[torch.device]:
    """The process group of a program started by torchrun: gloo on "cpu", NCCL on "cuda"; gives this process's device.

    If a process fails, every other one ends with a :class:`ProcessLost` that names it, within ``timeout`` seconds and
    some for the report.

    Args:
        device: "cpu" or "cuda", one GPU per process of a machine.
        timeout: seconds until a process that does not answer counts as lost.
    """
    check_choice("device", device, DEVICES)
    check_positive(timeout=timeout)
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise ValueError(
            f"{', '.join(missing)} is not set in the environment; start with torchrun --nproc-per-node 4 -m ..."
        )
    place = _place(device)
    dist.init_process_group("gloo" if device == "cpu" else "nccl", timeout=timedelta(seconds=timeout))
    store, rank, count = dist.distributed_c10d._get_default_store(), dist.get_rank(), dist.get_world_size()
    try:
        yield place
        dist.barrier()  # none may leave while another still needs its answers
    except BaseException as error:
        raise _explain(store, rank, count, error, timeout) from error
    finally:
        with suppress(Exception):
            dist.destroy_process_group()


def _place(device: str) -> torch.device:
    if device == "cpu":
        return torch.device("cpu")
    local = int(os.environ.get("LOCAL_RANK", 0))
    found = torch.cuda.device_count()
    if local >= found:
        raise ValueError(f"device='cuda' for process {local} of this machine, which has {found} GPU(s); start fewer")
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def _explain(store: dist.Store, rank: int, count: int, error: BaseException, timeout: float) -> BaseException:
    """Tell the others how we ended; where it was their end that we noticed, say whose."""
    noticed = _is_lost_contact(error)
    reason = LOST if noticed else f"{type(error).__name__}: {error}"
    # a broken connection is noticed at once, by others perhaps only when their own wait has timed out
    until = time.time() + GRACE + (0 if "timed out" in str(error).lower() else timeout)
    with suppress(Exception):
        store.set(_key(rank), json.dumps({"until": until, "why": reason[:500]}))
    if not noticed or count == 1:
        return error
    reasons = _reasons(store, rank, count, until)
    if reasons is None:
        return ProcessLost(
            f"process 0, which holds the list of processes, no longer answers; {_remedy()} ({_first_line(error)})"
        )
    with suppress(Exception):
        _part_ways(store, rank, [other for other, why in reasons.items() if why is not None])
    failed = {other: why for other, why in reasons.items() if why not in (None, LOST)}
    silent = [other for other, why in reasons.items() if why is None]
    causes = [f"process {other} of {count} ended with {why}" for other, why in failed.items()]
    causes += [f"process {other} of {count} was killed or does not answer" for other in silent]
    return ProcessLost(f"{'; '.join(causes) or 'the connection broke'}; {_remedy()} ({_first_line(error)})")


def _reasons(store: dist.Store, rank: int, count: int, until: float) -> dict[int, str | None] | None:
    """What the others reported within the time they have, None for silence; None altogether without the store.

    The time is that of the process which noticed first, so that all of them end together.
    """
    found: dict[int, str | None] = {other: None for other in range(count) if other != rank}
    try:
        while time.time() < until and None in found.values():
            for other in (k for k, why in found.items() if why is None and store.check([_key(k)])):
                report = json.loads(store.get(_key(other)))
                found[other], until = report["why"], min(until, report["until"])
            time.sleep(0.1)
    except Exception:
        return None
    return found


def _part_ways(store: dist.Store, rank: int, others: list[int]) -> None:
    """Process 0 may hold the store: it stays until the others have read what they need."""
    store.set(f"{_key(rank)}/read", "")
    deadline = time.monotonic() + GRACE
    while rank == 0 and time.monotonic() < deadline and not all(store.check([f"{_key(k)}/read"]) for k in others):
        time.sleep(0.1)


def _key(rank: int) -> str:
    # torchrun's store outlives a restart
    return f"walksum/ended/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}/{rank}"


def _is_lost_contact(error: BaseException) -> bool:
    if isinstance(error, dist.DistBackendError | dist.DistNetworkError | dist.DistStoreError):
        return True
    text = str(error).lower()
    signs = ("gloo", "connection", "timed out", "timeout", "socket", "broken pipe")
    return isinstance(error, RuntimeError) and any(sign in text for sign in signs)


def _remedy() -> str:
    return "start again, and training goes on from its last checkpoint"


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
