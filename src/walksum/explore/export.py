"""Save data: the whole influence list of a node as CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from typing import Any

from walksum.explore.answer import Answer
from walksum.workflow.trained_run import UNKNOWN, TrainedRun

COLUMNS = ("rank", "id", "label", "prediction", "hops", "influence", "share", "adds")


def rows(trained: TrainedRun, answer: Answer) -> list[dict[str, Any]]:
    """One row per node, the strongest first; empty where nothing is known."""
    found = answer.influence
    return [
        {
            "rank": rank,
            "id": trained.name(node),
            "label": None if trained.label(node) == UNKNOWN else trained.label(node),
            "prediction": trained.predicted(node),
            "hops": int(found.hops[node]) if found.hops[node] >= 0 else None,
            "influence": float(found.value[node]),
            "share": float(found.share[node]),
            "adds": None if answer.adds is None else float(answer.adds[node]),
        }
        for rank, node in enumerate(found.ranked().tolist(), 1)
    ]


def as_csv(trained: TrainedRun, answer: Answer) -> str:
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(rows(trained, answer))
    return text.getvalue()


def as_json(trained: TrainedRun, answer: Answer) -> str:
    node, solution = answer.node, answer.influence.solution
    record = {
        "view": asdict(answer.view),
        "label": trained.label(node),
        "prediction": trained.predicted(node),
        "probability": trained.probability(node),
        "variance": answer.influence.variance,
        "solver": {"name": solution.solver, "steps": solution.steps, "residual": solution.residual},
        "share_by_hop": answer.influence.share_by_hop().tolist(),
        "paths": [
            {"nodes": [trained.name(each) for each in path.nodes], "weight": path.weight} for path in answer.paths
        ],
        "sources": rows(trained, answer),
    }
    return json.dumps(record, indent=1)


def file_name(trained: TrainedRun, answer: Answer, ending: str) -> str:
    """Letters and digits only: ids may hold anything."""
    plain = "".join(
        letter if letter.isalnum() else "-" for letter in f"{trained.problem.name}-{trained.name(answer.node)}"
    )
    return f"influence-{plain}.{ending}"
