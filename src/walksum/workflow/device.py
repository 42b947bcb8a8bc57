"""Where a model is trained and asked."""

from __future__ import annotations

import torch

from walksum._checks import check_choice

DEVICES = ("auto", "cpu", "cuda")


def choose_device(device: str) -> str:
    """ "cpu" or "cuda"; "auto" takes a CUDA device where there is one."""
    check_choice("device", device, DEVICES)
    if device == "cpu":
        return device
    if torch.cuda.is_available():
        return "cuda"
    if device == "cuda":
        raise ValueError("device='cuda'; torch finds no CUDA device here, use device='cpu'")
    return "cpu"
