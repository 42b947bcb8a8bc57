"""Exchange: rows that neighbours in other processes need, and sums and maxima over all processes."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable


class Exchange:
    """Which rows this process sends to which others, and which it receives.

    Args:
        send: our rows that others need, those for process 0 first, then those for process 1, ...
        send_counts, receive_counts: rows to and from each process.
        group: the process group; None for the default one.

    Attributes:
        bytes_sent: of rows, by this process so far; :meth:`walksum.distributed.Partition.exchange_bytes` predicts it.
        exchanges: how often rows were exchanged.
        reductions: how often a sum or a maximum was formed.
    """

    def __init__(self, send: Tensor, send_counts: list[int], receive_counts: list[int], group: Any = None):
        self.send, self.send_counts, self.receive_counts, self.group = send, send_counts, receive_counts, group
        self.alone = len(send_counts) == 1
        self.bytes_sent = self.exchanges = self.reductions = 0

    def start(self, x: Tensor) -> Pending:
        """Start to send rows of ``x [H, n, F]``; the result's ``wait`` returns the received rows."""
        rows = x.detach().index_select(1, self.send).transpose(0, 1).contiguous()  # [rows, H, F]: processes apart
        return self._start(rows, self.send_counts, self.receive_counts)

    def start_back(self, rows: Tensor) -> Pending:
        """Start to send gradients of received rows ``[H, r, F]`` to the processes that sent those."""
        return self._start(rows.transpose(0, 1).contiguous(), self.receive_counts, self.send_counts)

    def _start(self, rows: Tensor, sent: list[int], received: list[int]) -> Pending:
        out = rows.new_empty(sum(received), *rows.shape[1:])
        if self.alone:
            return Pending(out, None, rows)
        self.bytes_sent += rows.numel() * rows.element_size()
        self.exchanges += 1
        work = dist.all_to_all_single(out, rows, received, sent, group=self.group, async_op=True)
        return Pending(out, work, rows)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        return self._reduce(values, dist.ReduceOp.SUM)

    def max(self, values: Tensor) -> Tensor:
        """The largest over all processes; NaN counts as infinity, since a maximum would lose it."""
        return self._reduce(
            torch.nan_to_num(values, nan=torch.inf, posinf=torch.inf, neginf=-torch.inf), dist.ReduceOp.MAX
        )

    def _reduce(self, values: Tensor, op: Any) -> Tensor:
        if not self.alone:
            self.reductions += 1
            dist.all_reduce(values, op, group=self.group)
        return values


class Pending:
    """An exchange that was started and not yet awaited."""

    def __init__(self, out: Tensor, work: Any, sent: Tensor):
        self.out, self.work, self.sent = out, work, sent  # what is sent must live until it is gone

    def wait(self) -> Tensor:
        """The received rows ``[H, r, F]``."""
        if self.work is not None:
            self.work.wait()
        return self.out.transpose(0, 1)


class Fill(torch.autograd.Function):
    """Append the rows of other processes; backward, their gradients are sent back and added there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, exchange: Exchange) -> Tensor:
        ctx.exchange, ctx.count = exchange, x.size(1)
        return torch.cat([x, exchange.start(x).wait()], 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple:
        (grad,) = grads
        back = ctx.exchange.start_back(grad[:, ctx.count :])
        own = grad[:, : ctx.count].clone()
        return own.index_add_(1, ctx.exchange.send, back.wait()), None


class Sum(torch.autograd.Function):
    """The sum over all processes; backward, the gradients of all processes are summed likewise."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, exchange: Exchange) -> Tensor:
        ctx.exchange = exchange
        return exchange.sum(values.clone())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple:
        return ctx.exchange.sum(grads[0].clone()), None
