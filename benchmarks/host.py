"""What the host costs on a GPU: a round through autograd with nothing in it, and a solve that leaves the host out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import walksum as ws
from benchmarks.contestants import Outcome, Run, leaves
from benchmarks.problems import Problem


class _Nothing(torch.autograd.Function):
    """One small kernel each way, three gradients: what surrounds a solve that takes no time at all."""

    @staticmethod
    def forward(ctx: Any, diag: Tensor, off: Tensor, h: Tensor, seen: list[Tensor]) -> Tensor:
        ctx.save_for_backward(diag, off)
        ctx.seen = seen
        seen.append(diag[0, :1].clone())
        return torch.empty_like(h)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple:
        diag, off = ctx.saved_tensors
        ctx.seen.append(diag[0, :1].clone())
        return torch.empty_like(diag), torch.empty_like(off), grads[0], None


def nothing(p: Problem) -> Run:
    """As :func:`benchmarks.contestants.ours`, with a number read for each pass."""

    def run() -> Outcome:
        diag, off, h = leaves(p)
        seen: list[Tensor] = []
        mu = _Nothing.apply(diag, off, h, seen)
        mu.backward(p.grad)
        return Outcome(mu.detach(), h.grad, tuple(int(value.cpu()) for value in seen))

    return run


def captured(p: Problem) -> Run:
    """``solve``, forward and backward, recorded once as a CUDA graph and replayed with whatever values J then has."""
    diag, off, h = leaves(p)
    seen: list[ws.Solution] = []

    def both() -> tuple[Tensor, Tensor]:
        mu = ws.solve(ws.Precision(p.graph, diag, off), h, observe=seen.append, on_nonconverged="ignore")
        return mu.detach(), torch.autograd.grad(mu, (h, diag, off), p.grad)[0]

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        both()  # kernels compile
    seen.clear()
    with torch.cuda.graph(graph, stream=stream):
        mu, g = both()
        outcomes = [solution.outcome for solution in seen]
        reports = torch.stack([outcome.report for outcome in outcomes])

    def run() -> Outcome:
        graph.replay()
        found = [outcome.ending(known) for outcome, known in zip(outcomes, reports.cpu().numpy(), strict=True)]
        worst = max((status for status, _, _ in found), key=lambda status: status is not ws.Status.converged)
        return Outcome(mu, g, tuple(steps for _, steps, _ in found), f"{seen[0].solver}: {worst.name}")

    return run
