"""Which epoch's weights a small network should keep, or which mean of weights, and what more seeds give.

Networks of all splits and seeds are one batch on a GPU; the splits begin at 100, which no table counts. Each network
chooses by one half of the validation rows and is judged on the other half, both ways. No test row is read.

    python scripts/explore_stopping.py texas wisconsin cornell cora --device cuda > results/auto/stopping.txt

With ``--at-input`` it compares rates of dropout of the input instead, on WebKB's words:

    python scripts/explore_stopping.py texas wisconsin cornell --at-input 0.6 0.3 0 --splits 40
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import torch.nn.functional as nnf
from torch import Tensor

from walksum.data import load, make_split

EPOCHS, HIDDEN, EVERY = 400, 64, 2
SCALES = (0.0, 0.5, 0.9, -0.5, -0.9)
WEBKB = ("texas", "wisconsin", "cornell")
AVERAGES = (0.0, 0.9, 0.97, 0.99)  # how much of the mean of the weights stays from one epoch to the next


def operators(edge_index: Tensor, N: int, scales: tuple[float, ...], loops: bool, device: str) -> Tensor:
    A = torch.zeros(N, N, dtype=torch.float64, device=device)
    A[tuple(edge_index.to(device))] = 1
    A = ((A + A.T) > 0).double().fill_diagonal_(1.0 if loops else 0.0)
    root = A.sum(1).clamp_min(1e-12).sqrt()
    S, eye = A / (root[:, None] * root), torch.eye(N, dtype=torch.float64, device=device)
    return torch.stack([((1 - abs(s)) * torch.linalg.inv(eye - s * S)).float() for s in scales])


def batched_dropout(x: Tensor, p: float, M: int) -> Tensor:
    return nnf.dropout(x.expand(M, *x.shape), p) if p else x


class Batch:
    """All splits and seeds of one dataset: rows of train ``[S, n]`` and of validation ``[S, 2, m]``, in two halves."""

    def __init__(self, name: str, splits: int, seeds: int, device: str):
        data = load(name)
        self.name, self.seeds, self.device, self.data = name, seeds, device, data
        self.x, self.y, self.classes = data.x.to(device), data.y.to(device), int(data.y.max()) + 1
        train, val = [], []
        for seed in range(100, 100 + splits):
            split = make_split(data, "random", seed, name=name)
            order = torch.randperm(len(split.val), generator=torch.Generator().manual_seed(seed))
            half = len(order) // 2
            train.append(split.train)
            val.append(split.val[order[: 2 * half]].view(2, half))
        self.train = torch.stack(train).repeat_interleave(seeds, 0).to(device)
        self.val = torch.stack(val).repeat_interleave(seeds, 0).to(device)


def looks(batch: Batch, kind: str, decay: float, dropout: tuple[float, float]) -> Tensor:
    """Log-probabilities of the validation rows ``[looks, averages, M, 2, m, C]``."""
    torch.manual_seed(0)
    x, device, N = batch.x, batch.device, len(batch.x)
    M, C = len(batch.train), batch.classes
    scales = {"mlp": (0.0,), "smooth": (0.9,)}.get(kind, SCALES)
    P = operators(batch.data.edge_index, N, scales, kind == "smooth", device)
    K = len(P)

    def glorot(*shape: int) -> Tensor:
        return ((2 * torch.rand(*shape, device=device) - 1) * (6 / sum(shape[-2:])) ** 0.5).requires_grad_()

    weights = {"first": glorot(M, x.size(1), HIDDEN), "last": glorot(M, HIDDEN * (K if kind == "hidden" else 1), C)}
    weights |= {"first_bias": torch.zeros(M, 1, HIDDEN, device=device, requires_grad=True)}
    weights |= {"last_bias": torch.zeros(M, 1, C, device=device, requires_grad=True)}
    weights |= {"gamma": torch.full((M, K), 1 / K, device=device, requires_grad=K > 1)}
    others: dict[str, Any] = {"params": [p for n, p in weights.items() if n != "first" and p.requires_grad]}
    optimiser = torch.optim.Adam([{"params": [weights["first"]], "weight_decay": decay}, others], lr=1e-2)

    def forward(w: dict[str, Tensor], p: tuple[float, float]) -> Tensor:
        z = torch.matmul(batched_dropout(x, p[0], M), w["first"])
        z = nnf.dropout(torch.relu(z + w["first_bias"]), p[1])
        if kind == "hidden":
            return torch.bmm(torch.cat([each @ z for each in P], -1), w["last"]) + w["last_bias"]
        out = torch.bmm(z, w["last"]) + w["last_bias"]
        flat = out.permute(1, 0, 2).reshape(N, -1)
        mixed = torch.stack([(each @ flat).view(N, M, C) for each in P])  # one product serves all members
        return torch.einsum("mk,knmc->mnc", w["gamma"], mixed)

    rows = torch.arange(M, device=device)
    means = [{n: p.detach().clone() for n, p in weights.items()} for _ in AVERAGES]
    found = []
    for epoch in range(1, EPOCHS + 1):
        optimiser.zero_grad(set_to_none=True)
        out = forward(weights, dropout)[rows[:, None], batch.train]
        loss = nnf.cross_entropy(out.flatten(0, 1), batch.y[batch.train].flatten(), reduction="none")
        loss.view(M, -1).mean(1).sum().backward()
        optimiser.step()
        with torch.no_grad():
            for keep, mean in zip(AVERAGES, means, strict=True):
                for n, p in weights.items():
                    mean[n].lerp_(p, 1 - min(keep, epoch / (epoch + 9)))
            if epoch % EVERY == 0:
                each = [forward(mean, (0.0, 0.0)).log_softmax(-1)[rows[:, None, None], batch.val] for mean in means]
                found.append(torch.stack(each))
    return torch.stack(found)


RULES = {
    "accuracy, ties by loss": lambda right, loss: right - 1e-4 * loss,
    "accuracy - loss / 10": lambda right, loss: right - 0.1 * loss,
    "accuracy - loss": lambda right, loss: right - loss,
    "loss": lambda right, loss: -loss,
}


def judge(batch: Batch, seen: Tensor) -> dict[str, tuple[float, float, Tensor]]:
    """By rule: accuracy in % of single networks and of the mean of the seeds, and those means ``[S, 2, m, C]``."""
    y = batch.y[batch.val]  # [M, 2, m]
    right = (seen.argmax(-1) == y).float().mean(-1)  # [looks, averages, M, 2]
    loss = -seen.gather(-1, y.expand(seen.shape[:-1]).unsqueeze(-1)).squeeze(-1).mean(-1)
    found = {}
    for a, keep in enumerate(AVERAGES):
        for name, rule in RULES.items():
            best = rule(right[:, a], loss[:, a]).argmax(0)  # [M, 2]: by each half
            for top in (1, 8) if not keep else (1,):
                if top == 1:
                    index = best.flip(1)[None, :, :, None, None].expand(1, *seen.shape[2:])
                    share = seen[:, a].gather(0, index)[0].exp()
                else:
                    order = rule(right[:, a], loss[:, a]).topk(top, 0).indices.flip(2)
                    share = seen[:, a].gather(0, order[..., None, None].expand(top, *seen.shape[2:])).exp().mean(0)
                single = 100 * float((share.argmax(-1) == y).float().mean())
                mean = share.view(-1, batch.seeds, *share.shape[1:]).mean(1)
                several = 100 * float((mean.argmax(-1) == y[:: batch.seeds]).float().mean())
                tag = f"weights averaged by {keep:g}" if keep else ("eight epochs" if top > 1 else "one epoch")
                found[f"{name}, {tag}"] = (single, several, mean)
    return found


def input_dropout(batch: Batch, rate: float) -> None:
    """Accuracy with this rate, by kind of network and weight decay; the epoch chosen by accuracy, ties by loss."""
    for kind in ("hidden", "bank", "mlp"):
        for decay in (5e-3, 2e-2):
            single, several, _ = next(iter(judge(batch, looks(batch, kind, decay, (rate, 0.6))).values()))
            setting = f"dropout of the input {rate:g}, decay {decay:g}"
            print(f"{batch.name} {kind:6s} {setting}: {single:.2f}, {batch.seeds} seeds {several:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--splits", type=int, default=80)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--at-input", type=float, nargs="+", default=(), help="compare these rates of dropout instead")
    asked = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    for name in asked.names:
        webkb = name in WEBKB
        batch = Batch(name, asked.splits, asked.seeds, asked.device)
        for rate in asked.at_input:
            input_dropout(batch, rate)
        if asked.at_input:
            continue
        kinds = [("hidden", 5e-3), ("bank", 5e-3), ("bank", 2e-2), ("mlp", 5e-3)] if webkb else [("smooth", 2e-2)]
        blends: dict[str, Tensor] = {}
        for kind, decay in kinds:
            found = judge(batch, looks(batch, kind, decay, (0.0, 0.6) if webkb else (0.6, 0.6)))
            for rule, (single, several, share) in found.items():
                label = f"{name} {kind} decay {decay:g}: {rule}"
                print(f"{label}: {single:.2f}, {asked.seeds} seeds {several:.2f}", flush=True)
                if kind != "mlp":
                    blends[rule] = blends.get(rule, 0) + share
        y = batch.y[batch.val][:: batch.seeds]
        for rule, share in blends.items():
            print(f"{name} mean of all with edges: {rule}: {100 * float((share.argmax(-1) == y).float().mean()):.2f}")


if __name__ == "__main__":
    main()
