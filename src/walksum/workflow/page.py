"""The page of a run: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import dataclasses
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader

from walksum.nn import GLT
from walksum.workflow.page_figures import page_figures
from walksum.workflow.picture import asked_node, draw, loudest, truth_of

if TYPE_CHECKING:
    from walksum.workflow.fit import Result

MOST_ROWS = 40  # of classes, trials and sample predictions


def write_page(result: Result, metrics: dict[str, Any], path: Path) -> None:
    """Write ``report.html`` for a run, from its kept model and its metrics."""
    picture = io.BytesIO()
    draw(result, picture)
    path.with_name("picture.png").write_bytes(picture.getvalue())
    loader = Environment(loader=PackageLoader("walksum.workflow", "."), autoescape=True, trim_blocks=True)
    page = loader.get_template("run.html").render(
        result=result,
        metrics=metrics,
        data=metrics["data"],
        picture=base64.b64encode(picture.getvalue()).decode(),
        scores=[(name, *score_text(metrics, name)) for name in metrics["test"]],
        figures=list(page_figures(result)),
        explained=_explained(result),
        doubtful=_doubtful(result),
        most=MOST_ROWS,
        job=dataclasses.asdict(result.job),
    )
    path.write_text(page, encoding="utf-8")


def score_text(metrics: dict[str, Any], name: str) -> tuple[str, str]:
    """A method's score and its interval (one seed) or spread (several), in words."""
    record, accuracy = metrics["test"][name], metrics["score"] == "accuracy"
    show = (lambda v: f"{100 * v:.1f} %") if accuracy else (lambda v: f"{v:.3f}")
    if "low" in record:
        beside = f"{show(record['low'])} to {show(record['high'])}"
    else:
        beside = f"± {show(record['spread'])} over {len(record['values'])} seeds"
    if "mean_absolute_error" in record:
        beside += f"; mean error {record['mean_absolute_error']:.4g}"
    return show(record["mean"]), beside


def _explained(result: Result) -> dict[str, Any] | None:
    node = asked_node(result) if isinstance(result.model, GLT) else None
    if node is None:
        return None
    own, sources = loudest(result, node)
    trained = set(result.prepared.split.train.tolist())
    rows = [(result.problem.ids[k], truth_of(result, k), share, k in trained) for k, share in sources]
    return {"id": result.problem.ids[node], "truth": truth_of(result, node), "own": own, "rows": rows}


def _doubtful(result: Result) -> list[tuple[str, str, str, str]]:
    """Test nodes the model was sure of and wrong about: where to look for label errors."""
    test, problem = result.prepared.split.test, result.problem
    if problem.regression:
        off = (result.output[test] - problem.y[test]).abs()
        order = test[off.argsort(descending=True)][:10].tolist()
        return [(problem.ids[k], truth_of(result, k), f"{float(result.output[k]):.4g}", "") for k in order]
    wrong = test[result.prediction[test] != problem.y[test]]
    order = wrong[result.output[wrong].max(1).values.argsort(descending=True)][:10].tolist()
    return [
        (problem.ids[k], truth_of(result, k), problem.classes[guess], f"{float(result.output[k, guess]):.2f}")
        for k, guess in zip(order, result.prediction[order].tolist(), strict=True)
    ]
