"""Which deep network a wide table with heterophilous edges wants: operators, norm, depth, width, dropout, labels.

Networks of all splits and seeds are one batch. Each is kept where one half of the validation rows liked it best and is
judged on the other half, both ways; test rows are not read at all. What every network says of the validation rows goes
to a file, with ``--members`` also what the portfolio's other members say, so that blends can be tried without training.

    python scripts/explore_deep.py squirrel chameleon --device cuda --seconds 300 --out results/auto
    python scripts/explore_deep.py squirrel chameleon --members 12 --out results/auto
    python scripts/explore_deep.py squirrel chameleon --blend --out results/auto/explore

The last one says, from those files, how much such networks add to a blend and how sharp its weights should be: weights
come from one half of the validation rows, with networks that the same half stopped, and the other half counts.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor

from walksum.data import load, make_split
from walksum.portfolio import blend

SEEDS = 2
NEAR_BEST = 2.5  # points: what the other networks say is not kept
REFERENCE = ("extra trees", "boosting", "linear", "smooth raw", "hidden raw", "mlp surroundings", "mlp place")


@dataclass(frozen=True)
class Design:
    """``dropout(relu(norm(h W + sum_k M_k h W_k)))``, so many times, then a linear map."""

    mix: tuple[str, ...] = ("loops",)
    layers: int = 4
    width: int = 256
    norm: str = "batch"
    dropout: float = 0.7
    lr: float = 1e-2
    decay: float = 5e-4
    rows: bool = False  # words of a row sum to one
    labels: float = 0.0  # share of the training labels that is input at each step; the loss is of the others
    skip: bool = True
    edges: bool = False  # a node's row of the adjacency matrix beside its words
    epochs: int = 400


BASE = Design()
BANK = Design(("near", "0.5", "-0.5", "0.9"))
LUO_CHAMELEON = Design(layers=5, width=512, norm="none", dropout=0.2, lr=5e-3, decay=1e-3, skip=False, epochs=200)
MIXES = ["0.5", "0.9", "-0.5", "near", "near 0.9", "near -0.5", "loops 0.9", "near 0.5 -0.5", "near 0.9 -0.9", ""]
VARIANTS: list[dict[str, Any]] = [
    {"layers": 2}, {"norm": "layer"}, {"dropout": 0.5}, {"rows": True}, {"edges": True}, {"lr": 3e-3}, {"decay": 5e-3},
    {"labels": 0.5}, {"layers": 3}, {"layers": 1}, {"dropout": 0.8}, {"norm": "none"}, {"labels": 0.8},
    {"dropout": 0.2}, {"decay": 0.0}, {"layers": 6}, {"skip": False},
]  # fmt: skip
CHOICES: dict[str, list[Any]] = {
    "mix": [("loops",), ("loops", "0.9"), BANK.mix, ("near", "0.5", "-0.5")],
    "layers": [2, 3, 4], "width": [64, 128], "dropout": [0.5, 0.7, 0.8], "labels": [0.0, 0.5, 0.8], "lr": [1e-2, 3e-3],
    "decay": [5e-4, 5e-3], "edges": [False, False, True], "rows": [False, False, True],
}  # fmt: skip


def designs() -> list[Design]:
    """The published ones and one change at a time, then random ones; the clock may cut the last."""
    found = [BASE, BANK, replace(BASE, labels=0.5), replace(BANK, labels=0.5), LUO_CHAMELEON]
    found += [replace(start, layers=2, width=64, labels=p) for start in (BASE, BANK) for p in (0.0, 0.5)]
    found += [replace(BASE, mix=tuple(mix.split())) for mix in MIXES]
    small = replace(BANK, layers=3, width=64)
    found += [replace(start, **more) for more in VARIANTS for start in (BASE, small)]
    random = np.random.default_rng(0)
    for _ in range(100):
        found.append(Design(**{name: some[random.integers(len(some))] for name, some in CHOICES.items()}))
    return list(dict.fromkeys(found))


@dataclass
class Task:
    """Words, classes, operators by name, and by split the rows of each part ``[S, N]``."""

    x: Tensor
    y: Tensor
    operators: dict[str, Tensor]
    train: Tensor
    val: Tensor
    half: Tensor

    def rows(self, design: Design) -> Tensor:
        x = self.x / self.x.sum(1, keepdim=True).clamp_min(1) if design.rows else self.x
        return torch.cat([x, (self.operators["near"] > 0).float()], 1) if design.edges else x


def read(name: str, splits: list[int], device: str) -> Task:
    data = load(name)
    N = data.num_nodes
    A = torch.zeros(N, N, dtype=torch.float64)
    A[tuple(data.edge_index)] = 1
    A = ((A + A.T) > 0).double().fill_diagonal_(0)
    eye = torch.eye(N, dtype=torch.float64)

    def normal(A: Tensor) -> Tensor:
        root = A.sum(1).clamp_min(1e-12).sqrt()
        return A / (root[:, None] * root)

    S = normal(A)
    operators = {"near": S, "loops": normal(A + eye)}
    operators |= {f"{s:g}": (1 - abs(s)) * torch.linalg.inv(eye - s * S) for s in (0.5, 0.9, -0.5, -0.9)}
    parts = torch.zeros(3, len(splits), N, dtype=torch.bool)
    for k, seed in enumerate(splits):
        split = make_split(data, "public", seed, name=name)
        parts[0, k, split.train], parts[1, k, split.val] = True, True
        order = torch.randperm(len(split.val), generator=torch.Generator().manual_seed(seed))
        parts[2, k, split.val[order[: len(order) // 2]]] = True
    return Task(
        data.x.to(device), data.y.to(device), {k: v.float().to(device) for k, v in operators.items()}, *parts.to(device)
    )


def train(task: Task, design: Design) -> Tensor:
    """Logits ``[2, S, SEEDS, N, C]`` where each half of the validation rows liked a network best."""
    torch.manual_seed(0)
    x, y, device = task.rows(design), task.y, task.x.device
    N, F = x.shape
    S, C, H, K = len(task.train), int(y.max()) + 1, design.width, len(design.mix)
    M = S * SEEDS
    operators = [task.operators[name] for name in design.mix]
    own = bool(design.skip or not K)  # whether h itself goes through a linear map beside its mixes
    parts = K + own

    def glorot(*shape: int) -> Tensor:
        return ((2 * torch.rand(*shape, device=device) - 1) * (6 / sum(shape[-2:])) ** 0.5).requires_grad_()

    def constant(value: float, *shape: int) -> Tensor:
        return torch.full(shape, value, device=device, requires_grad=True)

    first = glorot(M * parts, F, H).detach().transpose(0, 1).reshape(F, M * parts * H).requires_grad_()
    told = glorot(M, C, parts * H) if design.labels else None
    weights = [glorot(M, parts, H, H) for _ in range(design.layers - 1)]
    bias = [constant(0.0, M * H) for _ in range(design.layers)]
    scale = [constant(1.0, M * H) for _ in range(design.layers)]
    last, last_bias = glorot(M, H, C), constant(0.0, M, 1, C)
    running = [(torch.zeros(M * H, device=device), torch.ones(M * H, device=device)) for _ in range(design.layers)]
    parameters = [first, *weights, *bias, *scale, last, last_bias] + ([told] if told is not None else [])
    fused = device.type == "cuda" or None
    optimiser = torch.optim.Adam(parameters, lr=design.lr, weight_decay=design.decay, fused=fused)
    shown = nnf.one_hot(y, C).float() * task.train.repeat_interleave(SEEDS, 0)[..., None]  # [M, N, C]

    def mixed(z: Tensor) -> Tensor:
        """``[N, M, parts, H] -> [N, M H]``."""
        out = z[:, :, 0].reshape(N, M * H) if own else torch.zeros((), device=device)
        for k, P in enumerate(operators):
            out = out + P @ z[:, :, k + own].reshape(N, M * H)
        return out

    def norm(z: Tensor, k: int, training: bool) -> Tensor:
        if design.norm == "batch":
            return nnf.batch_norm(z, *running[k], scale[k], bias[k], training)
        if design.norm == "layer":
            z = nnf.layer_norm(z.view(N, M, H), (H,)).view(N, M * H) * scale[k]
        return z + bias[k]

    def forward(labels: Tensor | None, training: bool) -> Tensor:
        z, h = (x @ first).view(N, M, parts, H), x
        if labels is not None and told is not None:
            z = z + torch.bmm(labels, told).transpose(0, 1).reshape(N, M, parts, H)
        for k in range(design.layers):
            if k:
                wide = weights[k - 1].transpose(1, 2).reshape(M, H, parts * H)
                z = torch.bmm(h.view(N, M, H).transpose(0, 1), wide).transpose(0, 1).reshape(N, M, parts, H)
            h = nnf.dropout(torch.relu(norm(mixed(z), k, training)), design.dropout, training)
        return torch.baddbmm(last_bias, h.view(N, M, H).transpose(0, 1), last)

    def losses(out: Tensor) -> Tensor:
        return nnf.cross_entropy(out.reshape(-1, C), y.repeat(M), reduction="none").view(M, N)

    learn = task.train.repeat_interleave(SEEDS, 0)
    judges = [share(rows).repeat_interleave(SEEDS, 0) for rows in (task.half, task.val & ~task.half)]
    best = torch.full((2, M), -torch.inf, device=device)
    kept = torch.zeros(2, M, N, C, device=device)
    for epoch in range(1, design.epochs + 1):
        optimiser.zero_grad(set_to_none=True)
        if design.labels:
            told_now = (torch.rand(M, N, device=device) < design.labels)[..., None]
            weight = share(learn & ~told_now[..., 0])
            out = forward(shown * told_now, True)
        else:
            weight, out = share(learn), forward(None, True)
        (losses(out) * weight).sum().backward()
        optimiser.step()
        if epoch % 2 == 0:
            with torch.no_grad():
                out = forward(shown if design.labels else None, False)
                right, loss = (out.argmax(-1) == y).float(), losses(out)
                score = torch.stack([(right * w).sum(1) - 1e-4 * (loss * w).sum(1).clamp_max(100) for w in judges])
                better = score > best
                best = torch.where(better, score, best)
                kept = torch.where(better[..., None, None], out, kept)
    return kept.view(2, S, SEEDS, N, C)


def share(rows: Tensor) -> Tensor:
    return rows.float() / rows.sum(1, keepdim=True)


def judged(kept: Tensor, task: Task) -> tuple[float, float]:
    """Accuracy in % on the half that did not stop the training: of single networks, and of the seeds' mean."""
    found = []
    for logits in (kept.transpose(1, 2).softmax(-1), kept.softmax(-1).mean(2)[:, None]):
        right = (logits.argmax(-1) == task.y).float()  # [2, seeds, S, N]
        by_half = [(right[k] * share(rows)).sum(-1).mean() for k, rows in enumerate((task.val & ~task.half, task.half))]
        found.append(50 * float(sum(by_half)))
    return found[0], found[1]


def sweep(name: str, asked: argparse.Namespace) -> None:
    task = read(name, asked.splits, asked.device)
    best, start, shares = 0.0, time.time(), dict[str, Any]()
    asked.out.mkdir(parents=True, exist_ok=True)
    todo = designs()
    for k in asked.only if asked.only else range(len(todo)):
        before = time.time()
        if before - start > asked.seconds:
            break
        kept = train(task, todo[k])
        single, mean = judged(kept, task)
        record = {"dataset": name, "design": k, **asdict(todo[k]), "splits": asked.splits, "single": round(single, 2),
                  "mean of seeds": round(mean, 2), "seconds": round(time.time() - before, 1)}  # fmt: skip
        with (asked.out / "deep.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(record, flush=True)
        best = max(best, mean)
        for s, split in enumerate(asked.splits if mean > best - NEAR_BEST else []):  # of the validation rows alone
            shares[f"{split}/{k}"] = kept[:, s, :, task.val[s]].softmax(-1).mean(1).half().cpu().numpy()  # [2, n, C]
        if asked.dump and k % 4 == 0:
            np.savez(asked.out / f"deep-{name}.npz", **shares)
    if asked.dump:
        shares |= {f"{split}/half": task.half[s][task.val[s]].cpu().numpy() for s, split in enumerate(asked.splits)}
        np.savez(asked.out / f"deep-{name}.npz", **shares)


def members(job: tuple[str, int]) -> tuple[str, int, list[str], np.ndarray, np.ndarray]:
    """Log-probabilities ``[M, n, C]`` that the portfolio's members have for the validation rows of one split."""
    import scipy.sparse as sp

    from walksum.estimators.auto.classifier import AutoClassifier

    torch.set_num_threads(1)
    name, seed = job
    data = load(name)
    split = make_split(data, "public", seed, name=name)
    y = np.full(data.num_nodes, -1)
    rows = torch.cat([split.train, split.val]).numpy()
    y[rows] = data.y.numpy()[rows]
    val = np.sort(split.val.numpy())
    model = AutoClassifier(1e4, members=REFERENCE, device="cpu", random_state=seed)
    model.fit(sp.csr_matrix(data.x.numpy()), y, data.edge_index, validation=val)
    found = model.portfolio_.members
    return name, seed, [m.name for m in found], np.stack([m.outputs[0][val] for m in found]), y[val]


OTHERS = {"forests": ("extra",), "trees and linear": ("extra", "boosting", "linear"), "all others": ("",)}
DEEP = ((), (7,), (8,), (5, 6), (6, 7), (6, 8), (7, 8), (5, 6, 7, 8))  # designs by number
TIMES = (1, 2, 4, 8)  # times the temperature


def held_out(name: str, folder: Path, others: tuple[str, ...], deep: tuple[int, ...]) -> float:
    """Accuracy of a blend in %, a mean over splits."""
    said, members = np.load(folder / f"deep-{name}.npz"), np.load(folder / "members.npz")
    found = []
    for split in sorted({key.split("/")[0] for key in said.files}):
        names, outputs, y = (members[f"{name}/{split}/{part}"] for part in ("names", "outputs", "y"))
        kept = outputs[[each.startswith(others) for each in names.tolist()]]
        half, right = said[f"{split}/half"], 0
        for k, learn in enumerate((half, ~half)):
            more = [np.log(said[f"{split}/{design}"][k][None].astype(float) + 1e-6) for design in deep]
            both = np.concatenate([kept, *more])
            everyone = np.ones(len(both), dtype=bool)
            fitted = blend.fit_blend(both[:, learn], y[learn], both.shape[-1], blend.accuracy, everyone)
            right += (fitted(both[:, ~learn], both.shape[-1]).argmax(-1) == y[~learn]).sum()
        found.append(100 * right / len(y))
    return float(np.mean(found))


def blends(name: str, folder: Path) -> None:
    error = blend.ERROR
    for label, others in OTHERS.items():
        for deep in DEEP:
            row = []
            for times in TIMES:
                blend.ERROR = times * error
                row.append(f"{held_out(name, folder, others, deep):.1f}")
            blend.ERROR = error
            numbers = "+".join(map(str, deep)) or "none"
            print(f"{name}, {label}, deep {numbers}: {' '.join(row)} with T x {TIMES}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--splits", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--only", type=int, nargs="+", help="designs by number")
    parser.add_argument("--seconds", type=float, default=300.0, help="per dataset; no design starts later")
    parser.add_argument("--out", type=Path, default=Path("results/auto"))
    parser.add_argument("--dump", action="store_true", help="keep what the networks say of the validation rows")
    parser.add_argument("--members", type=int, default=0, help="instead fit other members, so many at a time")
    parser.add_argument("--blend", action="store_true", help="instead try blends of what was kept in --out")
    asked = parser.parse_args()
    if asked.blend:
        for name in asked.names:
            blends(name, asked.out)
        return
    if asked.members:
        asked.out.mkdir(parents=True, exist_ok=True)
        jobs = [(name, split) for name in asked.names for split in asked.splits]
        found: dict[str, Any] = {}
        with multiprocessing.get_context("spawn").Pool(asked.members) as pool:
            for name, seed, names, outputs, y in pool.imap_unordered(members, jobs):
                found |= {f"{name}/{seed}/names": names, f"{name}/{seed}/outputs": outputs, f"{name}/{seed}/y": y}
                print(name, seed, len(names), flush=True)
                np.savez_compressed(asked.out / "members.npz", **found)
        return
    torch.set_float32_matmul_precision("high")
    for name in asked.names:
        sweep(name, asked)


if __name__ == "__main__":
    main()
