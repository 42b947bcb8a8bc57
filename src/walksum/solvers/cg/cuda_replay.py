"""Replaying a fixed sequence of launches: small graphs are bound by launching, not by computing."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

SMALL = 1e8  # products per iteration; below, the GPU would wait for the host, and buffers are kept with the graph


class Replay:
    """Call ``body``; from the second call on as a CUDA graph, where there is a GPU.

    The body works on the same tensors every time and never waits for the device. The first call runs it as it
    is (kernels compile there), so a body that is called once is never captured. The body is a method of the object
    that owns the Replay and is known weakly: a cycle would keep gigabytes of the GPU until Python's collector comes by.
    """

    def __init__(self, body: Callable[..., Any], device: torch.device):
        self._body = weakref.WeakMethod(body)
        self.device = device
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def body(self) -> None:
        body = self._body()
        assert body is not None, "a Replay outlived the object whose method it replays"
        body()

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == 1 or self.device.type != "cuda":
            self.body()
            return
        if self.graph is None:
            self.graph = self._capture()
        self.graph.replay()

    def _capture(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        # other threads (data loaders, autograd) may go on using the device meanwhile
        with torch.cuda.device(self.device), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.body()
        return graph
