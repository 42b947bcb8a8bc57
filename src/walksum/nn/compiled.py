"""The mixing as one operator that ``torch.compile`` and ``torch.export`` keep whole.

In eager mode layers call their design and :func:`walksum.solve`. A compiler cannot look into these, since solvers
choose their steps by numbers; it sees ``torch.ops.walksum.mix``, whose backward is an operator too. Everything an
exported program needs is in the arguments: tensors, and a text (:func:`recipe`) that says which design and solver.
"""

from __future__ import annotations

import itertools
import json
from functools import lru_cache
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp
from torch.utils.weak import WeakIdKeyDictionary

from walksum._torch import assume_constant, watched
from walksum.designs import Design
from walksum.graph import Graph, as_graph
from walksum.nn.adjacency import Adjacency
from walksum.nn.store import design_from_json, design_to_json, solver_from_json, to_json
from walksum.precision import Precision
from walksum.solvers import Solution, Solver
from walksum.solving import solve, solve_backward

INPUTS = (
    "Tensor edge_index, Tensor? edge_weight, SymInt num_nodes, Tensor x, Tensor h, Tensor? edge, Tensor[] parameters"
)
ADJACENCY = "adjacency"  # in a recipe, the matrix of walksum.Propagate
_unnamed: WeakValueDictionary[int, Any] = WeakValueDictionary()  # designs and solvers that no file could name
_numbers, _count = WeakIdKeyDictionary(), itertools.count(1)
_of_mu: WeakIdKeyDictionary = WeakIdKeyDictionary()  # J of a forward pass, for the backward pass to share its factor


def recipe(design: Design, solver: Solver | str, on_nonconverged: str) -> str:
    """The design and the solver of a layer as text."""
    parts = {"design": _named(_write_design, design)}
    parts["solver"] = _named(lambda solver: to_json("solver", solver), solver)
    return json.dumps({**parts, "on_nonconverged": on_nonconverged})


class SolvingLayer(nn.Module):
    """A layer with its recipe as an attribute: by its text a compiler tells the layer from others of its class.

    Code that was compiled for one layer also runs for others that look the same, and what is called once, while
    compiling, is not looked at again. So the text is there before, and goes where a part of it is replaced.
    """

    design: Any
    solver: Any
    on_nonconverged: Any
    #: the reports of the latest passes
    last_solve: Solution | None = None
    last_backward_solve: Solution | None = None
    keep_values = False
    #: attributes that the recipe is made of
    written: tuple[str, ...] = ("design", "solver", "on_nonconverged")

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in self.written:
            self.__dict__["recipe"] = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.write_recipe()  # of a copy, whose parts are others

    def remember(self, solution: Solution) -> None:
        kept = solution if self.keep_values else solution.without_value()
        # past nn.Module's __setattr__, which looks for parameters and takes longer than a report
        self.__dict__["last_solve" if solution.direction == "forward" else "last_backward_solve"] = kept

    def whole_design(self) -> Design:
        return self.design

    @assume_constant
    def write_recipe(self) -> None:
        self.__dict__["recipe"] = recipe(self.whole_design(), self.solver, self.on_nonconverged)

    def current_recipe(self) -> Any:
        self.write_recipe()
        assert self.design is None or self.design.changes  # compiled code is for this number alone
        return self.recipe


def _write_design(design: Design) -> dict[str, Any]:
    if type(design) is Adjacency:
        return {"name": ADJACENCY, **design.arguments()}
    if any(watched(part) or type(part) not in (type(design), nn.Linear) for part in design.modules()):
        raise ValueError("hooks, parametrizations and modules that somebody has put in are in no file")
    return design_to_json(design)


def _read_design(stored: Any) -> Any:
    arguments = dict(stored)
    return Adjacency(**arguments) if arguments.pop("name") == ADJACENCY else design_from_json(stored)


def _named(write: Any, part: Any) -> Any:
    try:
        return write(part)
    except ValueError:  # known in this process alone
        if part not in _numbers:
            _numbers[part] = next(_count)
            _unnamed[_numbers[part]] = part
        return {"object": _numbers[part]}


@lru_cache(maxsize=256)
def _named_parts(text: str) -> tuple[Any, Any, str]:
    parts = json.loads(text)
    readers = {"design": _read_design, "solver": solver_from_json}
    found = [_number(parts[name]) or read(parts[name]) for name, read in readers.items()]
    return found[0], found[1], parts["on_nonconverged"]


def _number(stored: Any) -> int | None:
    return stored.get("object") if isinstance(stored, dict) else None


def _read(text: str) -> tuple[Design, Solver | str, str]:
    """The design, the solver and what to do about a solve that does not converge."""
    *parts, on_nonconverged = _named_parts(text)
    for k, part in enumerate(parts):
        if isinstance(part, int):
            if part not in _unnamed:
                raise ValueError(
                    "the layer's own design or solver is gone; other processes know only those in "
                    "walksum.designs.DESIGNS and walksum.solvers.SOLVERS"
                )
            parts[k] = _unnamed[part]
    return parts[0], parts[1], on_nonconverged


def mix_over(
    edge_index: Any, weight: Tensor | None, x: Tensor, h: Tensor, edge: Tensor | None, parameters: list, text: str
) -> Tensor:
    """``J^-1 h`` as one operator, on an ``edge_index`` or a Graph."""
    if isinstance(edge_index, Graph):
        edge_index.checked(x.size(0), weight)
        edge_index, weight = edge_index.edges, edge_index.edge_weight
    return torch.ops.walksum.mix(edge_index, weight, x.size(0), x, h, edge, parameters, text)


def _build(
    text: str, edge_index: Tensor, weight: Tensor | None, num_nodes: int, x: Tensor, h: Tensor, *rest: Any
) -> Any:
    edge, parameters = rest
    design, graph = _read(text)[0], as_graph(edge_index, num_nodes, weight)
    values = dict(zip((name for name, _ in design.named_parameters()), parameters, strict=True))
    given = (graph, x, h) if edge is None else (graph, x, h, edge)
    return functional_call(design, values, given)


@torch.library.custom_op("walksum::mix", mutates_args=(), schema=f"({INPUTS}, str recipe) -> Tensor")
def mix(edge_index, edge_weight, num_nodes, x, h, edge, parameters, recipe):
    """``J^-1 h`` for the J that the recipe's design makes of the graph, x and h."""
    _, solver, on_nonconverged = _read(recipe)
    J = _build(recipe, edge_index, edge_weight, num_nodes, x, h, edge, parameters)
    mu = solve(J, h.contiguous(), solver, on_nonconverged=on_nonconverged).contiguous()
    _of_mu[mu] = J
    return mu


@mix.register_fake
def _mix_fake(edge_index, edge_weight, num_nodes, x, h, edge, parameters, recipe):
    return torch.empty_like(h, memory_format=torch.contiguous_format)


@torch.library.custom_op(
    "walksum::mix_backward",
    mutates_args=(),
    schema=f"(Tensor grad, Tensor mu, {INPUTS}, str recipe, bool[] needed) -> Tensor[]",
)
def mix_backward(grad, mu, edge_index, edge_weight, num_nodes, x, h, edge, parameters, recipe, needed):
    """The gradients of h, x, edge_weight, edge and the parameters; an empty tensor where none is needed."""
    _, solver, on_nonconverged = _read(recipe)
    inputs = [h, x, edge_weight, edge, *parameters]
    wanted = [k for k, need in enumerate(needed) if need]

    pattern = []

    def values(*chosen: Tensor) -> tuple[Tensor, Tensor]:
        given = list(inputs)
        for k, value in zip(wanted, chosen, strict=True):
            given[k] = value
        h, x, weight, edge, *parameters = given
        J = _build(recipe, edge_index, weight, num_nodes, x, h, edge, parameters)
        pattern.append(J.graph)
        return J.diag, J.off

    # the kernel of an operator runs below autograd, where torch.func differentiates all the same
    (diag, off), pull = vjp(values, *(inputs[k] for k in wanted))  # type: ignore[misc]
    J = _of_mu.pop(mu, None) or Precision(pattern[0], diag.detach(), off.detach())
    g, d_diag, d_off = solve_backward(J, grad.contiguous(), mu, solver, on_nonconverged)
    found = pull((d_diag, d_off))
    gradients = [grad.new_empty(0) for _ in inputs]
    for k, value in zip(wanted, found, strict=True):
        value = value if k else value + g  # h is the first
        gradients[k] = value.clone(memory_format=torch.contiguous_format)  # an operator returns memory of its own
    return gradients


@mix_backward.register_fake
def _mix_backward_fake(grad, mu, edge_index, edge_weight, num_nodes, x, h, edge, parameters, recipe, needed):
    inputs = [h, x, edge_weight, edge, *parameters]
    return [
        torch.empty_like(t, memory_format=torch.contiguous_format) if need else grad.new_empty(0)
        for t, need in zip(inputs, needed, strict=True)
    ]


def _setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
    edge_index, edge_weight, ctx.num_nodes, x, h, edge, parameters, ctx.recipe = inputs
    ctx.save_for_backward(output, edge_index, edge_weight, x, h, edge, *parameters)


def _backward(ctx: Any, grad: Tensor) -> tuple:
    mu, edge_index, weight, x, h, edge, *parameters = ctx.saved_tensors
    _, of_weight, _, of_x, of_h, of_edge, of_parameters, _ = ctx.needs_input_grad
    needed = [of_h, of_x, of_weight, of_edge, *of_parameters]
    found = torch.ops.walksum.mix_backward(
        grad, mu, edge_index, weight, ctx.num_nodes, x, h, edge, parameters, ctx.recipe, needed
    )
    d_h, d_x, d_weight, d_edge, *d_parameters = [g if need else None for g, need in zip(found, needed, strict=True)]
    return None, d_weight, None, d_x, d_h, d_edge, d_parameters, None


mix.register_autograd(_backward, setup_context=_setup_context)


def _sample(given: Any, dim: Any, k: int) -> Any:
    """The k-th of a batch of inputs, whose dimension ``dim`` counts them; None where all samples share an input."""
    if isinstance(dim, list | tuple):
        return [_sample(each, at, k) for each, at in zip(given, dim, strict=True)]
    return given if dim is None else given.select(dim, k)


@mix.register_vmap
def _mix_vmap(info: Any, in_dims: tuple, *inputs: Any) -> tuple[Tensor, int]:
    """One solve per sample: the operator reads an edge_index, whose Graph every sample finds again."""
    return torch.stack([mix(*_sample(inputs, in_dims, k)) for k in range(info.batch_size)]), 0
