"""J laid out for the GPU: values in the order of the neighbour lists, and its products."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from walksum.backends.cuda.triton.edges import row_sums, slot_values
from walksum.backends.cuda.triton.launch import launch
from walksum.backends.cuda.triton.plan import FEW, HUB, MANY, RowPlan, row_plan, spmm_tile, sum_block
from walksum.backends.cuda.triton.scalars import FIELDS, PLAIN, RESIDUAL, UPDATE, finish_kernel
from walksum.backends.cuda.triton.spmm import spmm_hubs, spmm_pieces, spmm_rows
from walksum.graph import Graph

SUMS = 128  # programs that add up partial sums


@dataclass
class Control:
    """The scalars of a solve on the device (see scalars.py) and the workspace for partial sums."""

    scalars: Tensor  # [FIELDS, H, F]
    partial: Tensor  # [3, H, programs, F]
    sums: Tensor  # [3, H, SUMS, F]
    counter: Tensor
    J_norm: Tensor  # [H]
    tol: float  # that the true residual must reach
    max_steps: int
    aim: float  # that the recursion of a solver goes down to

    @classmethod
    def for_shape(
        cls, shape: torch.Size, programs: int, J_norm: Tensor, tol: float, max_steps: int, aim: float | None = None
    ) -> Control:
        heads, _, columns = shape
        scalars = J_norm.new_zeros(FIELDS, heads, columns)
        partial = J_norm.new_empty(3, heads, programs, columns)
        sums = J_norm.new_empty(3, heads, min(SUMS, programs), columns)
        counter = torch.zeros(heads * columns, dtype=torch.int32, device=J_norm.device)
        return cls(scalars, partial, sums, counter, J_norm, tol, max_steps, tol if aim is None else aim)

    def finish(self, mode: int, count: int, width: int) -> None:
        """Add up the partial sums in a kernel of its own, wide enough for thousands of them."""
        heads, columns = self.scalars.shape[1:]
        block = max(16, min(256, 4096 // width))
        share = -(-count // min(SUMS, -(-count // (2 * block))))
        grid = (-(-count // share), -(-columns // width), heads)
        tol = self.aim if mode == UPDATE.value else self.tol
        launch(
            finish_kernel, grid, self.scalars, self.scalars, self.partial, self.sums, self.counter, self.J_norm,
            columns, count, share, tol, self.max_steps, warps=8, BLOCK=block, WIDTH=width, MODE=mode,
        )  # fmt: skip


@dataclass(frozen=True)
class Matrix:
    """J of H heads. ``values [H, 2 E]``, or ``constant [H]`` where all off-diagonals of a head are equal."""

    graph: Graph
    diag: Tensor
    values: Tensor | None
    constant: Tensor | None = None
    hub: int = HUB
    plan: RowPlan = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plan", row_plan(self.graph, self.hub))

    @classmethod
    def of(cls, graph: Graph, diag: Tensor, off: Tensor, look: bool = False) -> Matrix:
        """Lay J out; with ``look``, find out (the host waits) whether one number serves all off-diagonals."""
        diag, off = diag.contiguous(), off.contiguous()
        if look and off.size(1) and bool((off == off[:, :1]).all()):
            return cls(graph, diag, None, off[:, 0].contiguous())
        return cls(graph, diag, slot_values(graph, off))

    def norm_inf(self, out: Tensor | None = None) -> Tensor:
        """``|J|_inf`` of each head, ``[H]``; NaN and infinity survive."""
        return torch.amax(self.row_sums(absolute=True), 1, out=out)

    def row_sums(self, absolute: bool = False) -> Tensor:
        """The sum of each row of J ``[H, N]``; ``absolute``: of magnitudes."""
        if self.values is not None:
            return row_sums(self.graph, self.diag, self.values, absolute=absolute)
        assert self.constant is not None
        diag, constant = (self.diag.abs(), self.constant.abs()) if absolute else (self.diag, self.constant)
        return diag + constant.unsqueeze(1) * self.graph.degree

    def programs(self, columns: int) -> int:
        """How many partial sums :meth:`product` leaves in a counting mode."""
        return self._rows(columns, True)[0] + self.plan.num_hubs

    def product(
        self,
        x: Tensor,
        out: Tensor | None = None,
        mode: int = PLAIN.value,
        control: Control | None = None,
        h: Tensor | None = None,
        inverse: Tensor | None = None,
        direction: Tensor | None = None,
    ) -> Tensor:
        """``J x`` in float32 for x ``[H, N, F]`` of any float type, and what the mode counts beside it."""
        heads, num_nodes, F = x.shape
        counting = mode != PLAIN.value
        if out is None:
            out = x if mode == RESIDUAL.value else torch.empty_like(x, dtype=torch.float32)
        tile, plan = spmm_tile(F), self.plan
        blocks = -(-F // tile.features)
        values = self.diag if self.values is None else self.values
        constant = self.diag if self.constant is None else self.constant
        h, inverse, direction = (x if t is None else t for t in (h, inverse, direction))
        scalars, partial, counter, J_norm, tol, max_steps = _parts(control, x)
        programs, turns = self._rows(F, counting)
        count = programs + plan.num_hubs
        inside = counting and plan.num_hubs == 0 and count <= FEW * sum_block(tile)
        csr, weighted, num_slots = self.graph.csr, self.values is not None, 2 * self.graph.num_edges
        shape = {"WIDTH": tile.features, "WEIGHTED": weighted, "MODE": mode}
        by_edge = {"EDGES": tile.edges, "ROWS": tile.rows, "POLICY": tile.policy}
        by_edge["FACTOR"] = math.gcd(F, 16) if F % 16 else 1  # Triton finds 16 itself
        if plan.num_hubs:  # first: they take longest
            pieces = x.new_empty(heads, plan.num_pieces, F, dtype=torch.float32)
            launch(
                spmm_pieces, (plan.num_pieces, blocks, heads), x, csr.indices, values, x, scalars, pieces,
                plan.piece_begin, plan.piece_end, num_nodes, num_slots, plan.num_pieces, F,
                warps=tile.warps, **by_edge, **shape,
            )  # fmt: skip
            launch(
                spmm_hubs, (plan.num_hubs, blocks, heads), x, plan.hubs, plan.piece_start, pieces, constant, self.diag,
                x, out, h, inverse, direction, scalars, partial, programs, num_nodes, plan.num_pieces, F, count,
                warps=1, BLOCK=16, **shape,
            )  # fmt: skip
        launch(
            spmm_rows, (programs, blocks, heads), x, csr.indptr, csr.indices, values, constant, self.diag, x, out, h,
            inverse, direction, scalars, partial, counter, J_norm, num_nodes, num_nodes, num_slots, F,
            self.hub, turns, count, tol, max_steps,
            warps=tile.warps, BLOCK=sum_block(tile), FINISH=inside, **by_edge, **shape,
        )  # fmt: skip
        if counting and not inside:
            assert control is not None
            control.finish(mode, count, tile.features)
        return out

    def _rows(self, columns: int, counting: bool) -> tuple[int, int]:
        """Programs, and row groups that each of them takes in turn."""
        groups = -(-self.graph.num_nodes // spmm_tile(columns).rows)
        turns = -(-groups // max(1, MANY // self.diag.size(0))) if counting else 1
        return -(-groups // max(1, turns)), turns


def _parts(control: Control | None, like: Tensor) -> tuple:
    if control is None:
        return like, like, like, like, 0.0, 0
    return control.scalars, control.partial, control.counter, control.J_norm, control.tol, control.max_steps
