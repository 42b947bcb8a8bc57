"""Gradients of designs and solvers against central differences in float64: ``python tests/fuzz/gradients.py``.

For a random direction in parameters, features and right side, the derivative of a random sum of mu along it, by
autograd (the implicit backward pass) and by differences of a dense LU solve that shares no code with the solvers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import systems
import torch

import walksum as ws

SOLVERS = ("auto", "direct", "cg", "dense", "inverse", "hybrid", "chebyshev", "gabp", "gabp sequential", "multigrid")
TIGHT = {"gabp": ws.GaBP(tol=1e-13, max_steps=5000), "chebyshev": ws.Chebyshev(max_steps=5000)}
TIGHT["gabp sequential"] = ws.GaBP(tol=1e-13, max_steps=5000, schedule="sequential")
# A difference errs by its step squared times the curvature, and by rounding over its step: the best counts.
STEPS, ALLOWED = (1e-5, 1e-6, 1e-7, 1e-4, 1e-3), 1e-5


def one(seed: int) -> tuple[str, str, float, float] | None:
    """Design, solver, relative disagreement and what is allowed of it; None where a solve says it did not converge."""
    rng = np.random.default_rng([seed, 2])
    torch.default_generator.manual_seed(seed)
    graph = systems._graph(rng, {})
    while graph.num_nodes > 40:
        graph = systems._graph(rng, {})
    heads, name = int(rng.choice([1, 2, 3])), str(rng.choice([*systems.DESIGNS, *systems.FIELDS]))
    if name.startswith("RandomWalk") and graph.num_nodes and int(graph.degree.max()) > 2:
        name = "CAR"
    design = systems.DESIGNS[name](3, 2, heads) if name in systems.DESIGNS else systems.FIELDS[name](3, heads)
    design = design.double()
    x = torch.from_numpy(rng.standard_normal((graph.num_nodes, 3))).requires_grad_()
    h = torch.from_numpy(rng.standard_normal((heads, graph.num_nodes, 2))).requires_grad_()
    weight = torch.from_numpy(rng.standard_normal((heads, graph.num_nodes, 2)))
    solver = str(rng.choice(SOLVERS))
    leaves = [p for p in (*design.parameters(), x, h) if p.requires_grad]
    directions = [torch.from_numpy(rng.standard_normal(p.shape)) for p in leaves]
    statuses: list = []

    def of(solve) -> torch.Tensor:
        J = design(graph, x, h)
        return (solve(J, h) * weight).sum()

    chosen = TIGHT.get(solver, systems.SOLVERS[solver])
    loss = of(lambda J, h: ws.solve(J, h, chosen, lambda s: statuses.append(s.status), "ignore"))
    gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
    if any(status is not ws.Status.converged for status in statuses):
        return None
    mine = sum(float((g * d).sum()) for g, d in zip(gradients, directions, strict=True) if g is not None)
    size = sum(float((g * d).abs().sum()) for g, d in zip(gradients, directions, strict=True) if g is not None)
    error, allowed = math.inf, ALLOWED + 1e-14 * _condition(design, graph, x, h)
    for step in STEPS:
        difference = _difference(of, leaves, directions, step)
        error = min(error, abs(mine - difference) / max(size, abs(difference), 1e-12))
        if error <= allowed:
            break
    return name, solver, error, allowed


def _condition(design, graph: ws.Graph, x: torch.Tensor, h: torch.Tensor) -> float:
    with torch.no_grad():
        return float(torch.linalg.cond(design(graph, x, h).to_dense()).max()) if graph.num_nodes else 1.0


def _difference(of, leaves: list, directions: list, step: float) -> float:
    """The central difference of the dense twin along the direction."""
    values, kept = [], [p.detach().clone() for p in leaves]
    with torch.no_grad():
        for sign in (1, -1):
            for p, start, d in zip(leaves, kept, directions, strict=True):
                p.copy_(start + sign * step * d)
            values.append(float(of(lambda J, h: torch.linalg.solve(J.to_dense(), h))))
        for p, start in zip(leaves, kept, strict=True):
            p.copy_(start)
    return (values[0] - values[1]) / (2 * step)


def run(count: int, seed: int) -> dict:
    designs, solvers, worst, refused, wrong = Counter(), Counter(), 0.0, 0, []
    for number in range(seed, seed + count):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = one(number)
        if found is None:
            refused += 1
            continue
        name, solver, error, allowed = found
        designs[name] += 1
        solvers[solver] += 1
        worst = max(worst, error / allowed)
        if not error <= allowed:
            wrong.append({"seed": number, "design": name, "solver": solver, "error": error})
    return {
        "systems": count,
        "first seed": seed,
        "compared": sum(designs.values()),
        "said not to have converged": refused,
        "allowed": f"{ALLOWED:g} of the derivative, and 1e-14 times the condition number of J",
        "largest disagreement over what is allowed": worst,
        "violations": wrong,
        "designs": dict(sorted(designs.items())),
        "solvers": dict(sorted(solvers.items())),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--systems", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/trust/gradients.json"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    record = run(chosen.systems, chosen.seed)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    scratch = chosen.out.with_suffix(".part")
    scratch.write_text(json.dumps(record, indent=1) + "\n")
    os.replace(scratch, chosen.out)
    print(record["violations"], record["largest disagreement over what is allowed"])
    return 1 if record["violations"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
