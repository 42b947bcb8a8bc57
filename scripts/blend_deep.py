"""How much deep networks on words add to a blend, and how sharp its weights should be, from dumps of explore_deep.py.

Weights come from one half of the validation rows, with networks that the same half stopped; the other half counts, both
ways, over all splits. Test rows are not read.

    python scripts/blend_deep.py squirrel chameleon --folder results/auto/explore
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from walksum.portfolio import blend

SETS = {"forests": ("extra",), "trees and linear": ("extra", "boosting", "linear"), "all others": ("",)}
DEEP = ((), (7,), (8,), (5, 6), (6, 7), (6, 8), (7, 8), (5, 6, 7, 8))  # designs of explore_deep.py by number
TIMES = (1, 2, 4, 8)  # times the temperature


def held_out(name: str, folder: Path, others: tuple[str, ...], deep: tuple[int, ...]) -> float:
    """Accuracy in %, a mean over splits."""
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+")
    parser.add_argument("--folder", type=Path, default=Path("results/auto/explore"))
    asked = parser.parse_args()
    error = blend.ERROR
    for name in asked.names:
        for label, others in SETS.items():
            for deep in DEEP:
                row = []
                for times in TIMES:
                    blend.ERROR = times * error
                    row.append(f"{held_out(name, asked.folder, others, deep):.1f}")
                designs = "+".join(map(str, deep)) or "none"
                print(f"{name}, {label}, deep {designs}: {' '.join(row)} with T x {TIMES}", flush=True)


if __name__ == "__main__":
    main()
