"""Where to train: the GPU only where it is quicker."""

from __future__ import annotations

import torch

from walksum._checks import check_choice
from walksum.graph import Graph
from walksum.training.data import Data

# A step on a GPU costs about the same for every small problem; a CPU is quicker below this size (see size_of), which
# benchmarks/devices.py measures.
GPU_FROM = 1_000_000
HIDDEN = 64
DEVICES = ("auto", "cpu", "cuda")


def available_device(device: str) -> str:
    """ "cpu" or "cuda", whatever the size of the problem; "auto" takes a CUDA device where there is one."""
    check_choice("device", device, DEVICES)
    if device != "cpu" and torch.cuda.is_available():
        return "cuda"
    if device == "cuda":
        raise ValueError("device='cuda'; torch finds no CUDA device here, use device='cpu'")
    return "cpu"


def choose_device(device: str | torch.device, data: Data) -> torch.device:
    """The device of a training.

    Args:
        device: "auto" (data that are on a GPU stay there, else see :func:`pays_on_gpu`), "cpu", "cuda" or what torch
            takes.
        data: the problem.
    """
    if device == "auto":
        if data.device.type == "cpu" and torch.cuda.is_available() and pays_on_gpu(data):
            return torch.device("cuda", torch.cuda.current_device())
        return data.device
    return usable_device(device)


def usable_device(device: str | torch.device) -> torch.device:
    """What torch takes as a device, "cuda" as "cuda:0"; "auto" as in :func:`available_device`."""
    refusal = ValueError(f"device={str(device)!r} cannot be used here; use 'cpu' or 'auto'")
    try:
        found = torch.empty(0, device=available_device("auto") if device == "auto" else device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        raise refusal from error
    if found.type == "meta":  # its tensors hold no values
        raise refusal
    return found


def pays_on_gpu(data: Data) -> bool:
    """Whether the problem is large enough for a GPU to train quicker than a CPU."""
    return size_of(data) >= GPU_FROM


def size_of(data: Data) -> int:
    """Entries of x, and ``HIDDEN`` for every node and edge: about what a training step goes through."""
    edges = data.edges.num_edges if isinstance(data.edges, Graph) else data.edges.size(1) // 2
    return data.x.numel() + HIDDEN * (data.x.size(0) + edges)
