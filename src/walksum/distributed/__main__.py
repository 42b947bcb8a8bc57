"""Cut a problem into parts and train on them: torchrun --nproc-per-node 4 -m walksum.distributed train ..."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from walksum._files import to_json, write_file
from walksum.data import encoding as encodings
from walksum.data import load, names
from walksum.data.edges import EdgeColumns
from walksum.data.problem import Problem, from_data
from walksum.data.problem_split import check_labels, split_problem
from walksum.data.user_files import Columns, read_tables
from walksum.designs import DESIGNS
from walksum.distributed.files import about_parts, load_part, save_parts
from walksum.distributed.fitting import fit
from walksum.distributed.partition import METHODS, partition
from walksum.distributed.processes import DEVICES, TIMEOUT, joined
from walksum.nn import GLT
from walksum.training import Data, Epoch, Outcome, Recipe

POLL = 0.2  # seconds between two looks for the parts that process 0 writes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 0, or 2 for wrong input, with a message on stderr."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (ValueError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m walksum.distributed", description=__doc__)
    commands = parser.add_subparsers(required=True)
    source = argparse.ArgumentParser(add_help=False)
    source.add_argument("--dataset", choices=names(), help="a published dataset")
    source.add_argument("--nodes", type=Path, help="own data: table of nodes (CSV, TSV, Parquet)")
    source.add_argument("--edges", type=Path, help="own data: table of edges")
    source.add_argument("--target", help="own data: column to predict")
    source.add_argument("--id", help="own data: column of node ids")
    source.add_argument("--split", help="as of walksum train: counts, fractions, a protocol")
    source.add_argument("--seed", type=int, default=0)
    source.add_argument("--method", choices=METHODS, default="metis", help="how nodes are shared out")
    source.add_argument("--out", type=Path, required=True, help="folder for parts, checkpoints and the result")
    cut = commands.add_parser("cut", parents=[source], help="only write the parts: in one process, before torchrun")
    cut.add_argument("--parts", type=int, required=True)
    cut.set_defaults(run=lambda options: _write_parts(options, options.parts))
    train = commands.add_parser("train", parents=[source], help="train a GLT; start it with torchrun")
    train.add_argument("--design", choices=list(DESIGNS), default="laplacian")
    train.add_argument("--fixed", action="store_true", help="the fixed variant of the design")
    train.add_argument("--hidden", type=int, default=64)
    train.add_argument("--layers", type=int, default=2)
    train.add_argument("--heads", type=int, default=1)
    train.add_argument("--dropout", type=float, default=0.6)
    train.add_argument("--lr", type=float, default=1e-3)
    train.add_argument("--max-epochs", type=int, default=2000)
    train.add_argument("--patience", type=int, default=100)
    train.add_argument("--every", type=int, default=10, help="epochs between checkpoints")
    train.add_argument("--device", choices=DEVICES, default="cpu")
    train.add_argument("--timeout", type=float, default=TIMEOUT, help="seconds until a silent process counts as lost")
    train.set_defaults(run=_train)
    return parser


def _train(options: argparse.Namespace) -> None:
    rank, processes = (int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1)))
    if rank == 0:
        _write_parts(options, processes)
    while about_parts(_folder(options, processes)) != _about(options, processes):  # however long reading takes
        time.sleep(POLL)
    with joined(options.device, options.timeout) as device:
        data = load_part(_folder(options, processes), rank, device)
        torch.manual_seed(options.seed)
        about = about_parts(_folder(options, processes))
        assert about is not None
        model = _model(options, data.x.size(1), about["outputs"])
        recipe = Recipe(lr=options.lr, max_epochs=options.max_epochs, patience=options.patience)
        tell = _tell if rank == 0 else None
        kept = options.out / "checkpoints"
        outcome = fit(model, data, recipe, checkpoints=kept, every=options.every, seed=options.seed, on_epoch=tell)
        if rank == 0:
            model.save(options.out / "model")
            _report(options, outcome, data.edges.exchange)


def _model(options: argparse.Namespace, width: int, outputs: int) -> GLT:
    return GLT(
        width,
        options.hidden,
        options.layers,
        outputs,
        heads=options.heads,
        design=options.design,
        learned=not options.fixed,
        dropout=options.dropout,
    )


def _folder(options: argparse.Namespace, processes: int) -> Path:
    return options.out / f"parts-{processes}"


def _about(options: argparse.Namespace, processes: int) -> dict[str, Any]:
    """What the parts depend on; ``outputs`` is known once they are written."""
    names = ("dataset", "nodes", "edges", "target", "id", "split", "seed", "method")
    about = {name: None if (v := getattr(options, name)) is None else str(v) for name in names}
    return {**about, "parts": processes, "outputs": (about_parts(_folder(options, processes)) or {}).get("outputs")}


def _write_parts(options: argparse.Namespace, processes: int) -> None:
    folder, about = _folder(options, processes), _about(options, processes)
    known = about_parts(folder)
    if known is not None:
        if known != about:
            other = ", ".join(f"{k}={known.get(k)!r} there, {v!r} now" for k, v in about.items() if known.get(k) != v)
            raise ValueError(f"{folder} holds parts of something else ({other}); choose another --out")
        return
    problem = _read(options)
    split = split_problem(problem, options.split, options.seed)
    encoding, _ = encodings.fit(problem.features, split.train)
    x, y = encoding.encode(problem.features), problem.y
    if problem.regression:
        known_y = y[split.train]
        y = (y - known_y.mean()) / known_y.std().clamp_min(1e-12)
    data = Data(x, problem.graph, y, split, problem.task)
    save_parts(folder, data, partition(problem.graph, processes, options.method), about | {"outputs": problem.outputs})


def _read(options: argparse.Namespace) -> Problem:
    tables = (options.nodes, options.edges, options.target)
    if options.dataset is not None and not any(tables):
        problem = from_data(options.dataset, load(options.dataset))
    elif options.dataset is None and all(tables):
        problem = read_tables(
            options.nodes, options.edges, Columns(target=options.target, id=options.id, edges=EdgeColumns())
        )
    else:
        raise ValueError("give either --dataset, or --nodes, --edges and --target")
    check_labels(problem)
    return problem


def _tell(newest: Epoch, best: Epoch) -> None:
    if newest.number % 10 == 0:
        loss = f"train loss {newest.train_loss:.4f}, val loss {newest.val_loss:.4f}"
        print(
            f"epoch {newest.number}: {loss}, val score {newest.val_score:.4f} (best {best.val_score:.4f})", flush=True
        )


def _report(options: argparse.Namespace, outcome: Outcome, exchange: Any) -> None:
    record = {
        "best": asdict(outcome.best),
        "epochs": len(outcome.history),
        "ended": outcome.ended,
        "seconds": outcome.seconds,
        "bytes_sent_by_process_0": exchange.bytes_sent,
        "processes": len(exchange.send_counts),
    }
    write_file(options.out / "result.json", to_json(record, indent=1))
    print(to_json(record), flush=True)


if __name__ == "__main__":
    sys.exit(main())
