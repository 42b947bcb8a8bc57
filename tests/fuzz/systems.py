"""Random systems J mu = h: every graph, scale, sign, dtype, memory layout and solver, each made of one whole number."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

import walksum as ws

GRAPHS = ("tree", "path", "cycle", "hub", "grid", "complete", "random", "islands", "edgeless", "cliques", "bipartite")
DESIGNS = {
    "fixed pairwise normal": lambda c, f, H: ws.FixedPairwiseNormal(),
    "learned pairwise normal": lambda c, f, H: ws.LearnedPairwiseNormal(f, H),
    "fixed diagonally dominant": lambda c, f, H: ws.FixedDiagonallyDominant(),
    "learned diagonally dominant": lambda c, f, H: ws.LearnedDiagonallyDominant(c, H),
    "fixed laplacian": lambda c, f, H: ws.FixedLaplacian(),
    "learned laplacian": lambda c, f, H: ws.LearnedLaplacian(c, H),
}
FIELDS = {
    "CAR": lambda c, H: ws.CAR(H),
    "SAR": lambda c, H: ws.SAR(H),
    "Leroux": lambda c, H: ws.Leroux(H),
    "Intrinsic": lambda c, H: ws.Intrinsic(H),
    "Matern": lambda c, H: ws.Matern(H),
    "Matern 2": lambda c, H: ws.Matern(H, nu=2),
    "RandomWalk": lambda c, H: ws.RandomWalk(H),
    "RandomWalk 2": lambda c, H: ws.RandomWalk(H, order=2),
    "Squared": lambda c, H: ws.Squared(c, H),
}
VALUES = ("dominant", "dominant", "ill", "frustrated", "indefinite", "scaled", "extreme", "broken", "design", "field")
SIDES = ("normal", "normal", "large", "small", "denormal", "mixed", "sparse", "zero", "huge", "broken")
LAYOUTS = ("plain", "plain", "transposed", "sliced", "expanded", "offset")
TRAVEL = ("stays", "stays", "stays", "copied", "pickled", "changed", "moved")
SOLVERS: dict[str, object] = {
    "auto": "auto",
    "direct": ws.Direct(),
    "direct refined": ws.Direct(refine=1),
    "cg": ws.CG(),
    "cg jacobi": ws.CG(preconditioner="jacobi", max_steps=150),
    "cg plain": ws.CG(preconditioner="none", max_steps=60),
    "dense": ws.Dense(),
    "inverse": ws.Inverse(),
    "inverse half": ws.Inverse("half"),
    "hybrid": ws.Hybrid(),
    "hybrid 1": ws.Hybrid(max_degree=1),
    "chebyshev": ws.Chebyshev(max_steps=100),
    "gabp": ws.GaBP(max_steps=150),
    "gabp adaptive": ws.GaBP(damping="adaptive", max_steps=60),
    "gabp messages": ws.GaBP(stop="messages", max_steps=60),
    "gabp sequential": ws.GaBP(schedule="sequential", max_steps=300),
    "gabp loaded": ws.GaBP(loading="auto", max_steps=100),
    "unrolled": ws.Unrolled(steps=20),
    "multigrid": ws.Multigrid(max_steps=20),
}
RARE = {"multigrid": 0.15, "unrolled": 0.3, "gabp loaded": 0.2, "gabp adaptive": 0.3, "cg plain": 0.5}
LARGE_ONLY = ("auto", "direct", "cg", "hybrid", "gabp sequential", "gabp", "chebyshev")


@dataclass
class System:
    """J and h with the names of the classes they were drawn from; ``what`` counts them in the record."""

    seed: int
    J: ws.Precision
    h: Tensor
    solvers: list[str]
    what: dict[str, str] = field(default_factory=dict)


def make(seed: int) -> System:
    """The system of this number, the same on every machine with this numpy."""
    rng = np.random.default_rng(seed)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed takes milliseconds
    what: dict[str, str] = {}
    graph = _graph(rng, what)
    J = _moved(_precision(rng, graph, what), rng, what)
    h = _laid_out(rng, _side(rng, J, what), what)
    names = [n for n in SOLVERS if J.num_nodes <= 400 or n in LARGE_ONLY]
    chosen = [str(n) for n in rng.choice(names, 2, replace=False) if rng.random() < RARE.get(str(n), 1.0)]
    return System(seed, J, h, chosen or ["auto"], what)


def _graph(rng: np.random.Generator, what: dict[str, str]) -> ws.Graph:
    size = rng.random()
    n = int(rng.integers(1, 5001) if size < 0.001 else rng.integers(40, 400) if size < 0.02 else rng.integers(1, 24))
    kind = what["graph"] = str(rng.choice(GRAPHS))
    what["size"] = "1" if n == 1 else "2 to 39" if n < 40 else "40 to 399" if n < 400 else "400 to 5000"
    edges = _edges(kind, n if kind != "complete" else min(n, 60), rng)
    if rng.random() < 0.1 and edges.shape[1]:  # duplicates, both directions, loops
        edges = np.concatenate([edges, edges[::-1], np.full((2, 1), edges[0, 0])], 1)
    order = rng.permutation(n)
    weight = None
    if rng.random() < 0.2 and edges.shape[1]:
        weight = torch.from_numpy(rng.random(edges.shape[1]) + 1e-3) * 10.0 ** rng.integers(-6, 7)
    return ws.Graph.from_edge_index(torch.from_numpy(order[edges].astype(np.int64)), n, weight)


def _edges(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    i = np.arange(n)
    if kind == "tree" and n > 1:
        return np.stack([(rng.random(n - 1) * i[1:]).astype(int), i[1:]])
    if kind in ("path", "cycle") and n > 1:
        path = np.stack([i[:-1], i[1:]])
        return path if kind == "path" or n < 3 else np.concatenate([path, [[n - 1], [0]]], 1)
    if kind == "hub" and n > 1:
        extra = rng.integers(0, n, (2, n // 3))
        return np.concatenate([np.stack([np.zeros(n - 1, int), i[1:]]), extra], 1)
    if kind == "grid" and n > 1:
        wide = max(1, int(n**0.5))
        right, down = i[(i + 1) % wide != 0], i[: n - wide]
        right = right[right + 1 < n]
        return np.concatenate([np.stack([right, right + 1]), np.stack([down, down + wide])], 1)
    if kind == "complete":
        return np.stack(np.triu_indices(n, 1))
    if kind == "random":
        return rng.integers(0, n, (2, int(n * rng.uniform(0.3, 3))))
    if kind == "islands":
        a, b = rng.integers(0, n, (2, n))
        return np.stack([a, b])[:, a // 4 == b // 4]
    if kind == "cliques" and n > 2:
        half = min(n // 2, 30)
        clique = np.stack(np.triu_indices(half, 1))
        return np.concatenate([clique, clique + half, [[0], [half]]], 1)
    if kind == "bipartite" and n > 1:
        left = rng.integers(0, (n + 1) // 2, 2 * n)
        return np.stack([left, rng.integers((n + 1) // 2, n, 2 * n)])
    return np.zeros((2, 0), int)


def _dtype(rng: np.random.Generator, what: dict[str, str]) -> torch.dtype:
    dtype = (torch.float32, torch.float64, torch.float16, torch.bfloat16)[
        int(rng.choice(4, p=[0.48, 0.46, 0.03, 0.03]))
    ]
    what["dtype"] = str(dtype)[6:]
    return dtype


def _precision(rng: np.random.Generator, graph: ws.Graph, what: dict[str, str]) -> ws.Precision:
    kind = what["values"] = str(rng.choice(VALUES))
    heads = int(rng.choice([1, 1, 1, 2, 3, 8, 9]))
    dtype = _dtype(rng, what)
    if kind in ("design", "field"):
        return _designed(kind, rng, graph, heads, dtype, what)
    diag, off = _values(kind, rng, graph, heads)
    scale = 1.0
    if rng.random() < 0.3:
        scale = 10.0 ** rng.uniform(-30, 30)
        what["scale of J"] = "1e-30 to 1e30"
    with np.errstate(all="ignore"):
        return ws.Precision(graph, torch.from_numpy(diag * scale).to(dtype), torch.from_numpy(off * scale).to(dtype))


def _values(kind: str, rng: np.random.Generator, graph: ws.Graph, heads: int) -> tuple[np.ndarray, np.ndarray]:
    n, (i, j) = graph.num_nodes, graph.edges.numpy()
    off = rng.standard_normal((heads, i.size)) * rng.choice([-1, 0.01, 1])
    if rng.random() < 0.2:
        off = -np.abs(off)
    around = np.zeros((heads, n))
    for k in range(heads):
        np.add.at(around[k], i, np.abs(off[k]))
        np.add.at(around[k], j, np.abs(off[k]))
    diag = around + rng.random((heads, n)) + 0.1
    if kind == "ill":  # attractive, hardly dominant: condition numbers up to about 1e12
        off, diag = -np.abs(off), around + 10.0 ** rng.uniform(-12, 0) * (around.max(initial=0) + 1)
    elif kind == "frustrated":  # positive definite and not walk-summable, or indefinite
        diag = around * rng.uniform(0.3, 1) + 0.1
    elif kind == "indefinite":
        diag = diag * np.where(rng.random(diag.shape) < 0.3, -1, 1) * rng.uniform(0.01, 1)
    elif kind == "scaled":  # the same correlations, units that differ from node to node
        unit = 10.0 ** rng.uniform(-1, 1, n) ** rng.integers(1, 4)
        diag, off = diag * unit**2, off * unit[i] * unit[j]
    elif kind == "extreme":
        diag, off = diag * 10.0 ** rng.uniform(-30, 30, diag.shape), off * 10.0 ** rng.uniform(-30, 30, off.shape)
    elif kind == "broken":
        where = diag if rng.random() < 0.6 or not off.size else off
        where.flat[rng.integers(where.size)] = rng.choice([np.nan, np.inf, -np.inf, 0.0, 5e-324, 1e-42, 1.7e308])
    return diag, off


def _designed(
    kind: str, rng: np.random.Generator, graph: ws.Graph, heads: int, dtype: torch.dtype, what: dict[str, str]
) -> ws.Precision:
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    if kind == "field" and graph.num_nodes > 400:
        kind = "design"
    name = what["design"] = str(rng.choice(list(DESIGNS if kind == "design" else FIELDS)))
    if name.startswith("RandomWalk") and what["graph"] not in ("path", "edgeless"):
        name = what["design"] = "CAR"
    x = torch.from_numpy(rng.standard_normal((graph.num_nodes, 3)) * 10.0 ** rng.choice([0, 0, -20, 15])).to(wide)
    h = torch.from_numpy(rng.standard_normal((heads, graph.num_nodes, 2))).to(wide)
    design = DESIGNS[name](3, 2, heads) if kind == "design" else FIELDS[name](3, heads)
    with torch.no_grad():
        J = design.to(wide)(graph, x, h)
    return J.to(dtype)


def _moved(J: ws.Precision, rng: np.random.Generator, what: dict[str, str]) -> ws.Precision:
    """J after a solve that prepared it, and then a way that must not carry what was prepared along."""
    way = str(rng.choice(TRAVEL))
    if J.num_nodes > 400 or (way == "moved" and J.dtype not in (torch.float32, torch.float64)):
        way = "stays"
    what["travel"] = way
    if way == "stays":
        return J
    if J.dtype in (torch.float32, torch.float64):
        names = ("auto", "cg", "direct", "hybrid", "dense")
        for name in names if rng.random() < 0.3 else names[:1]:
            ws.solve(J, torch.ones(J.heads, J.num_nodes, 1, dtype=J.dtype), name, on_nonconverged="ignore")
    if way == "copied":
        kept, J = J, copy.deepcopy(J)
        kept.diag.mul_(0.5)
    elif way == "pickled":
        J = pickle.loads(pickle.dumps(J))
    elif way == "changed":
        J.diag.mul_(1.5)
    elif way == "moved":  # past autograd's version counter
        with np.errstate(all="ignore"):
            J.diag.detach().numpy()[...] *= 2
    return J


def _side(rng: np.random.Generator, J: ws.Precision, what: dict[str, str]) -> Tensor:
    kind = what["right side"] = str(rng.choice(SIDES))
    few = J.num_nodes > 400 or J.heads > 3
    columns = int(rng.choice([1, 2, 3, 5]) if few else rng.choice([0, 1, 1, 2, 3, 4, 5, 8, 17, 33, 64, 70]))
    heads = J.heads if J.heads > 1 or rng.random() < 0.8 else 3  # one J for three heads of h
    h = rng.standard_normal((heads, J.num_nodes, columns))
    limit = float(torch.finfo(J.dtype if J.dtype != torch.float16 else torch.float32).max)
    if kind == "large":
        h *= 10.0 ** rng.uniform(0, 30)
    elif kind == "small":
        h *= 10.0 ** rng.uniform(-30, 0)
    elif kind == "denormal":
        h *= {torch.float64: 1e-310}.get(J.dtype, 1e-41)
    elif kind == "mixed":
        h *= 10.0 ** rng.uniform(-30, 30, (1, 1, columns))
    elif kind == "sparse":
        h *= rng.random(h.shape) < 0.1
    elif kind == "zero":
        h[:, :, : columns // 2 + 1] = 0
    elif kind == "huge":
        h *= limit / 8
    elif kind == "broken" and h.size:
        h.flat[rng.integers(h.size)] = rng.choice([np.nan, np.inf, -np.inf])
    with np.errstate(all="ignore"):
        return torch.from_numpy(h).to(J.dtype)


def _laid_out(rng: np.random.Generator, h: Tensor, what: dict[str, str]) -> Tensor:
    """The same numbers, elsewhere and otherwise in memory."""
    way = what["layout"] = str(rng.choice(LAYOUTS))
    if way == "transposed":
        return h.transpose(1, 2).contiguous().transpose(1, 2)
    if way == "sliced":
        wide = torch.full((*h.shape[:2], 2 * h.size(2) + 1), torch.nan, dtype=h.dtype)
        wide[..., 1::2] = h
        return wide[..., 1::2]
    if way == "expanded" and h.size(2):
        return h[..., :1].expand(h.shape)
    if way == "offset":
        flat = torch.empty(h.numel() + 1, dtype=h.dtype)
        flat[1:] = h.reshape(-1)
        return flat[1:].view(h.shape)
    return h
