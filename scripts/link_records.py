"""Link prediction on Cora over five splits, every encoder of examples/link_prediction.py: results/links/cora.jsonl.

    WALKSUM_DATA=... python scripts/link_records.py

Of two learning rates each run takes the better one on validation links.
"""

import json
import runpy
import time
from pathlib import Path

import torch

from walksum._files import write_file

ROOT = Path(__file__).parent.parent
FILE = ROOT / "results" / "links" / "cora.jsonl"
RATES, SPLITS = (0.01, 0.003), 5


def main() -> None:
    example = runpy.run_path(str(ROOT / "examples" / "link_prediction.py"))
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    done = {(record["encoder"], record["seed"]) for record in map(json.loads, lines)}
    for seed in range(SPLITS):
        torch.manual_seed(seed)
        parts = example["split"](example["data"])
        for name, encoder in example["ENCODERS"].items():
            if (name, seed) in done:
                continue
            start, tried = time.process_time(), []
            for rate in RATES:
                torch.manual_seed(seed)
                tried.append((*example["train_one"](encoder(), *parts, rate=rate), rate))
            val, test, epoch, rate = max(tried)
            record = {"encoder": name, "seed": seed, "validation": val, "test": test, "epoch": epoch, "lr": rate}
            lines.append(json.dumps({**record, "cpu_seconds": round(time.process_time() - start, 1)}))
            write_file(FILE, "\n".join(lines) + "\n")
            print(lines[-1], flush=True)


if __name__ == "__main__":
    main()
