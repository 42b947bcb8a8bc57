"""How small networks on WebKB's words are best trained: dropout of the input and of the hidden layer, weight decay.

Networks of all splits and seeds are one batch on a GPU; the splits (100 to 139) are ones that no table counts. Each
network stops by one half of the validation rows and is judged on the other half; test rows are counted only in the
last column, by networks that stop by all validation rows.

    python scripts/explore_words.py texas wisconsin cornell --device cuda > results/auto/words.txt
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as nnf
from torch import Tensor

from walksum.data import load, make_split

SPLITS, SEEDS, EPOCHS, HIDDEN = range(100, 140), 4, 400, 64
SCALES = (0.0, 0.5, 0.9, -0.5, -0.9)


@dataclass
class Words:
    """Features ``[N, F]``, classes, operators ``[K, N, N]``, and by split the rows of each part ``[S, N]``."""

    x: Tensor
    y: Tensor
    operators: Tensor
    train: Tensor
    val: Tensor
    half: Tensor
    test: Tensor


def read(name: str, device: str) -> Words:
    data = load(name)
    N = data.num_nodes
    A = torch.zeros(N, N, dtype=torch.float64)
    A[tuple(data.edge_index)] = 1
    A = ((A + A.T) > 0).double().fill_diagonal_(0)
    root = A.sum(1).clamp_min(1e-12).sqrt()
    S, eye = A / (root[:, None] * root), torch.eye(N, dtype=torch.float64)
    operators = torch.stack([(1 - abs(s)) * torch.linalg.inv(eye - s * S) for s in SCALES])
    parts = torch.zeros(4, len(SPLITS), N, dtype=torch.bool)
    for k, seed in enumerate(SPLITS):
        split = make_split(data, "random", seed, name=name)
        for part, rows in zip(parts[:2], (split.train, split.val), strict=True):
            part[k, rows] = True
        order = torch.randperm(len(split.val), generator=torch.Generator().manual_seed(seed))
        parts[2, k, split.val[order[: len(order) // 2]]] = True
        parts[3, k, split.test] = True
    return Words(data.x.to(device), data.y.to(device), operators.float().to(device), *parts.to(device))


def train(words: Words, kind: str, decay: float, dropout: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """Logits ``[S, SEEDS, N, C]`` where half of the validation rows, and where all of them, liked a network best."""
    torch.manual_seed(0)
    device, (N, F), S = words.x.device, words.x.shape, len(words.train)
    M, C = S * SEEDS, int(words.y.max()) + 1
    operators = words.operators[:1] if kind == "mlp" else words.operators
    K = len(operators)

    def glorot(*shape: int) -> Tensor:
        return ((2 * torch.rand(*shape, device=device) - 1) * (6 / sum(shape[-2:])) ** 0.5).requires_grad_()

    def constant(value: float, *shape: int) -> Tensor:
        return torch.full(shape, value, device=device, requires_grad=True)

    first, first_bias = glorot(M, F, HIDDEN), constant(0, M, 1, HIDDEN)
    last, last_bias = glorot(M, HIDDEN * (K if kind == "hidden" else 1), C), constant(0, M, 1, C)
    gamma = constant(1 / K, M, K)
    others: dict[str, Any] = {"params": [first_bias, last, last_bias, gamma]}
    optimiser = torch.optim.Adam([{"params": [first], "weight_decay": decay}, others], lr=1e-2)

    def forward(p: tuple[float, float]) -> Tensor:
        z = torch.bmm(nnf.dropout(words.x.expand(M, N, F), p[0]), first) if p[0] else words.x @ first
        z = nnf.dropout(torch.relu(z + first_bias), p[1])
        if kind == "hidden":
            return torch.bmm(torch.cat([P @ z for P in operators], -1), last) + last_bias
        out = torch.bmm(z, last) + last_bias
        return sum(gamma[:, k, None, None] * (P @ out) for k, P in enumerate(operators))

    def losses(out: Tensor) -> Tensor:
        return nnf.cross_entropy(out.reshape(-1, C), words.y.repeat(M), reduction="none").view(M, N)

    learn = share(words.train).repeat_interleave(SEEDS, 0)
    judges = [share(rows).repeat_interleave(SEEDS, 0) for rows in (words.half, words.val)]
    best = torch.full((2, M), -torch.inf, device=device)
    kept = torch.zeros(2, M, N, C, device=device)
    for epoch in range(1, EPOCHS + 1):
        optimiser.zero_grad(set_to_none=True)
        (losses(forward(dropout)) * learn).sum().backward()
        optimiser.step()
        if epoch % 2 == 0:
            with torch.no_grad():
                out = forward((0.0, 0.0))
                right, loss = (out.argmax(-1) == words.y).float(), losses(out)
                score = torch.stack([(right * w).sum(1) - 1e-4 * (loss * w).sum(1).clamp_max(100) for w in judges])
                better = score > best
                best = torch.where(better, score, best)
                kept = torch.where(better[..., None, None], out, kept)
    by_half, by_all = kept.view(2, S, SEEDS, N, C)
    return by_half, by_all


def share(rows: Tensor) -> Tensor:
    return rows.float() / rows.sum(1, keepdim=True)


def accuracy(logits: Tensor, y: Tensor, rows: Tensor) -> float:
    """In %, of the mean probabilities of the seeds, averaged over splits."""
    right = (logits.softmax(-1).mean(1).argmax(-1) == y).float()
    return 100 * float((right * share(rows)).sum(1).mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+")
    parser.add_argument("--device", default="cuda")
    asked = parser.parse_args()
    for name in asked.names:
        words = read(name, asked.device)
        for kind in ("hidden", "bank", "mlp"):
            for at_input in (0.0, 0.3, 0.6):
                for decay in (5e-3, 2e-2):
                    by_half, by_all = train(words, kind, decay, (at_input, 0.6))
                    held = accuracy(by_half, words.y, words.val & ~words.half)
                    test = accuracy(by_all, words.y, words.test)
                    setting = f"dropout of the input {at_input:g}, decay {decay:g}"
                    print(f"{name} {kind:6s} {setting}: validation {held:.2f}, test {test:.2f}", flush=True)


if __name__ == "__main__":
    main()
