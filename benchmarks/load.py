"""The explorer under many requests, and a long training: no errors, flat memory. ``python -m benchmarks.load``.

Eight clients in threads ask the explorer's server for its page, its layout and views of nodes; then one small model is
trained for many steps. Memory is that of this process, after a tenth of the work and at its end.
"""

from __future__ import annotations

import argparse
import gc
import http.client
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import walksum as ws

CLIENTS = 8
PATHS = ("/", "/_dash-layout", "/_dash-dependencies", "/assets/style.css")


def megabytes() -> float:
    """Resident memory of this process, from /proc."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def explorer(requests: int) -> dict[str, Any]:
    from walksum.explore.server import open_server
    from walksum.workflow.trained_run import TrainedRun

    draw, count = np.random.default_rng(0), 200
    nodes = pd.DataFrame({"id": np.arange(count), "size": draw.normal(size=count), "kind": np.arange(count) % 3})
    ends = draw.integers(0, count, (2, 3 * count))
    edges = pd.DataFrame({"source": ends[0], "target": ends[1]})
    run = ws.fit_tables(nodes, edges, "kind", task="classification", max_epochs=3, hidden=8, layers=1)
    assert run.result is not None
    server = open_server(TrainedRun.of_prepared(run.job, run.result.prepared, run.result.model), 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        callback = _navigation(server.server_port)
        ask(server.server_port, requests // 10, callback)
        early = megabytes()
        answers = ask(server.server_port, requests - requests // 10, callback)
    finally:
        server.shutdown()
        thread.join()
    errors = sum(times for status, times in answers.items() if status != 200)
    return {"count": requests, "errors": errors, "megabytes at a tenth": early, "megabytes at the end": megabytes()}


def _navigation(port: int) -> dict[str, Any]:
    """The callback by which the page asks for a view, with the page's own empty inputs."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/_dash-dependencies")
    found = next(each for each in json.loads(connection.getresponse().read()) if "url.search" in str(each["inputs"]))
    outputs = [dict(zip(("id", "property"), each.rsplit(".", 1), strict=True)) for each in _names(found["output"])]
    parts = {kind: [{"id": e["id"], "property": e["property"]} for e in found[kind]] for kind in ("inputs", "state")}
    return {"output": found["output"], "outputs": outputs, **parts, "changedPropIds": ["url.search"]}


def _names(output: str) -> list[str]:
    return output.strip(".").split("...")


def ask(port: int, requests: int, callback: dict[str, Any]) -> Counter[int]:
    """So many requests by all clients together; how often each status came back."""
    found: Counter[int] = Counter()
    lock = threading.Lock()

    def client(number: int) -> None:
        mine: Counter[int] = Counter()
        for k in range(number, requests, CLIENTS):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            if k % 5 == 4:
                body = {**callback, "inputs": [dict(each) for each in callback["inputs"]]}
                next(each for each in body["inputs"] if each["id"] == "url")["value"] = f"?node={k % 200}"
                connection.request(
                    "POST", "/_dash-update-component", json.dumps(body), {"Content-Type": "application/json"}
                )
            else:
                connection.request("GET", PATHS[k % len(PATHS)])
            answer = connection.getresponse()
            answer.read()
            mine[answer.status] += 1
            connection.close()
        with lock:
            found.update(mine)

    threads = [threading.Thread(target=client, args=(k,)) for k in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def training(steps: int) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(0)
    graph = ws.Graph.from_edge_index(torch.randint(60, (2, 150), generator=draw), 60)
    x, y = torch.randn(60, 4, generator=draw), torch.randint(3, (60,), generator=draw)
    model = ws.GLT(4, 8, 1, 3, design="laplacian", learned=True)
    optimiser, early, errors = torch.optim.Adam(model.parameters(), lr=1e-3), 0.0, 0
    for step in range(steps):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x, graph), y)
        loss.backward()
        optimiser.step()
        errors += not bool(torch.isfinite(loss.detach()))
        if step == steps // 10:
            early = megabytes()
    return {"count": steps, "errors": errors, "megabytes at a tenth": early, "megabytes at the end": megabytes()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=Path("results/trust/load.json"))
    chosen = parser.parse_args()
    record = {"training": training(chosen.steps), "explorer": explorer(chosen.requests)}
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
