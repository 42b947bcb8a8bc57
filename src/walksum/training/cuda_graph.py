"""A training step as one CUDA graph: on small graphs a GPU waits for the host, which launches kernel after kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from walksum.solvers.deferred import CaptureLog, read_unread
from walksum.training.recipe import descend

EAGER = 3  # steps taken as they are before one is captured: kernels compile, the optimiser makes its state


class TrainingStep:
    """``step() -> loss``: zero the gradients, compute the loss, go backward, let the optimiser step.

    On a CUDA device the fourth call captures all of that and every later one replays it, with a single look of the
    host at the end: at the loss and at the status of every solve, which is reported as if it had just been made.
    What cannot be captured (solvers that look at numbers on their way, ``on_nonconverged="raise"``, an optimiser that
    is not ``capturable``) goes on as it is; ``captured`` and ``reason`` tell.

    Args:
        loss: computes the loss from tensors that stay where they are: features, graph, targets and index tensors
            (no boolean masks: finding their length makes the host look).
        optimiser: made with ``capturable=True``.

    Example:
        >>> import torch, walksum as ws
        >>> x, edge_index, y = torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1, 0])
        >>> model = ws.GLT(4, 8, 2, 2, dropout=0.0)
        >>> optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
        >>> step = ws.TrainingStep(lambda: torch.nn.functional.cross_entropy(model(x, edge_index), y), optimiser)
        >>> losses = [float(step()) for _ in range(20)]
        >>> losses[-1] < losses[0]
        True
    """

    def __init__(self, loss: Callable[[], Tensor], optimiser: torch.optim.Optimizer):
        self.loss, self.optimiser = loss, optimiser
        self.calls = 0
        self.reason: str | None = _obstacle(optimiser)
        self.stream: torch.cuda.Stream | None = None
        self.graph: torch.cuda.CUDAGraph | None = None

    @property
    def captured(self) -> bool:
        return self.graph is not None

    def __call__(self) -> float:
        self.calls += 1
        if self.graph is None and self.reason is None:
            return self._warm_up() if self.calls <= EAGER else self._first_replay()
        return self._replay() if self.graph is not None else self._eager()

    def _step(self) -> Tensor:
        return descend(self.loss, self.optimiser)

    def _eager(self) -> float:
        loss = self._step().item()
        read_unread()  # the device is done
        return loss

    def _warm_up(self) -> float:
        """A step on the stream that will be captured; solves that stand in the way make themselves known."""
        if self.stream is None:
            self.stream = torch.cuda.Stream(_device(self.optimiser))
        log = CaptureLog(self.stream)
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        with torch.cuda.stream(self.stream), log.opened():
            loss = self._eager()
        torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)
        if log.obstacles:
            self.reason = f"{log.obstacles[0]} cannot be captured"
        return loss

    def _first_replay(self) -> float:
        try:
            self._capture()
        except RuntimeError as error:
            self.graph, self.reason = None, str(error).splitlines()[0]
            _free_random_numbers(_device(self.optimiser))
            warnings.warn(f"the training step is not captured: {self.reason}", RuntimeWarning, stacklevel=3)
            return self._eager()
        return self._replay()

    def _capture(self) -> None:
        assert self.stream is not None
        self.optimiser.zero_grad()  # gradients of the graph come from its own memory
        graph, self.log = torch.cuda.CUDAGraph(), CaptureLog(self.stream)
        # other threads (data loaders) may go on using the device meanwhile
        with self.log.opened(), torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            loss = self._step()
            self.found = torch.cat([loss.reshape(1).float(), *(report.reshape(-1) for report in self.log.reports)])
        self.graph = graph

    def _replay(self) -> float:
        assert self.graph is not None
        self.graph.replay()
        known = self.found.cpu().numpy()
        self.log.read(known[1:])
        return float(known[0])


def _free_random_numbers(device: torch.device) -> None:
    """A capture that broke off leaves the generator waiting for its end; a copy of its state does not wait."""
    generator = torch.cuda.default_generators[device.index or 0]
    generator.graphsafe_set_state(generator.clone_state())


def _device(optimiser: torch.optim.Optimizer) -> torch.device:
    return optimiser.param_groups[0]["params"][0].device


def _obstacle(optimiser: torch.optim.Optimizer) -> str | None:
    """Why a step of this optimiser cannot be captured; None if it can."""
    if any(p.device.type != "cuda" for group in optimiser.param_groups for p in group["params"]):
        return "parameters are not on a CUDA device"
    if not all(group.get("capturable", False) for group in optimiser.param_groups):
        return "the optimiser was not made with capturable=True"
    return None
