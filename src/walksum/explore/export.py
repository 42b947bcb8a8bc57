"""Save data: the whole influence list of a node as CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from typing import Any

from walksum.explore.answer import Answer
from walksum.explore.subject import UNKNOWN, Subject

COLUMNS = ("rank", "id", "label", "prediction", "hops", "influence", "share")


def rows(subject: Subject, answer: Answer) -> list[dict[str, Any]]:
    """One a node, the strongest first; empty where nothing is known."""
    found = answer.influence
    return [
        {
            "rank": rank,
            "id": subject.name(node),
            "label": None if subject.label(node) == UNKNOWN else subject.label(node),
            "prediction": subject.predicted(node),
            "hops": int(found.hops[node]) if found.hops[node] >= 0 else None,
            "influence": float(found.value[node]),
            "share": float(found.share[node]),
        }
        for rank, node in enumerate(found.ranked().tolist(), 1)
    ]


def as_csv(subject: Subject, answer: Answer) -> str:
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(rows(subject, answer))
    return text.getvalue()


def as_json(subject: Subject, answer: Answer) -> str:
    node, solution = answer.node, answer.influence.solution
    record = {
        "view": asdict(answer.view),
        "label": subject.label(node),
        "prediction": subject.predicted(node),
        "probability": subject.probability(node),
        "variance": answer.influence.variance,
        "solver": {"name": solution.solver, "steps": solution.steps, "residual": solution.residual},
        "share_by_hop": answer.influence.share_by_hop().tolist(),
        "paths": [
            {"nodes": [subject.name(each) for each in path.nodes], "weight": path.weight} for path in answer.paths
        ],
        "sources": rows(subject, answer),
    }
    return json.dumps(record, indent=1)


def file_name(subject: Subject, answer: Answer, ending: str) -> str:
    """Letters and digits only: ids may hold anything."""
    plain = "".join(
        letter if letter.isalnum() else "-" for letter in f"{subject.problem.name}-{subject.name(answer.node)}"
    )
    return f"influence-{plain}.{ending}"
