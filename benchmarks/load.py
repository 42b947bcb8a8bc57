"""The explorer under many requests, and a long training: no errors, flat memory. ``python -m benchmarks.load``.

Eight clients in threads ask the explorer's server for its page, its layout and views of nodes; one small model is
trained for many steps. Memory is that of this process, after a tenth of the work and at its end. ``--requests 0`` and
``--steps 0`` leave a part out, ``--device cuda`` trains on a GPU; the record keeps the parts of earlier calls.
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
    import pandas as pd

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
        callbacks = [_callback(server.server_port, *asked) for asked in (("url", "search"), ("view", "data"))]
        answers = ask(server.server_port, requests // 10, callbacks)
        early = megabytes()
        answers += ask(server.server_port, requests - requests // 10, callbacks)
    finally:
        server.shutdown()
        thread.join()
    return {
        "count": requests,
        "errors": requests - answers[200],
        "megabytes at a tenth": early,
        "megabytes at the end": megabytes(),
    }


def _callback(port: int, name: str, part: str) -> dict[str, Any]:
    """The callback that the page makes first when this property changes, with empty inputs."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/_dash-dependencies")
    every = [each for each in json.loads(connection.getresponse().read()) if not each.get("clientside_function")]
    asked = {"id": name, "property": part}
    found = next(each for each in every if asked in [{k: e[k] for k in asked} for e in each["inputs"]])
    outputs = [dict(zip(("id", "property"), each.rsplit(".", 1), strict=True)) for each in _names(found["output"])]
    parts = {kind: [{"id": e["id"], "property": e["property"]} for e in found[kind]] for kind in ("inputs", "state")}
    return {"output": found["output"], "outputs": outputs, **parts, "changedPropIds": [f"{name}.{part}"]}


def _names(output: str) -> list[str]:
    return output.strip(".").split("...")


def _filled(callback: dict[str, Any], value: Any) -> str:
    """The body of a call in which the property that changed has this value."""
    (changed,) = callback["changedPropIds"]
    inputs = [
        {**each, "value": value if f"{each['id']}.{each['property']}" == changed else None}
        for each in callback["inputs"]
    ]
    return json.dumps({**callback, "inputs": inputs})


def ask(port: int, requests: int, callbacks: list[dict[str, Any]]) -> Counter[int]:
    """So many requests by all clients together; how often each status came back.

    Of six requests of a client four are for parts of the page, one chooses a node, and one asks for its view.
    """
    found: Counter[int] = Counter()
    lock = threading.Lock()
    navigate, show = callbacks

    def client(number: int) -> None:
        mine: Counter[int] = Counter()
        view: Any = None
        for turn, k in enumerate(range(number, requests, CLIENTS)):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            if turn % 6 < 4:
                connection.request("GET", PATHS[turn % 6])
            else:
                body = _filled(navigate, f"?node={k % 200}") if turn % 6 == 4 else _filled(show, view)
                connection.request("POST", "/_dash-update-component", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
            if turn % 6 == 4 and answer.status == 200:
                view = json.loads(content)["response"]["view"]["data"]
                assert str(view["node"]) == str(k % 200), "the view of another node"
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


def training(steps: int, device: str) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(0)
    graph = ws.Graph.from_edge_index(torch.randint(60, (2, 150), generator=draw), 60).to(device)
    x, y = torch.randn(60, 4, generator=draw).to(device), torch.randint(3, (60,), generator=draw).to(device)
    model = ws.GLT(4, 8, 1, 3, design="laplacian", learned=True).to(device)
    optimiser, early = torch.optim.Adam(model.parameters(), lr=1e-3), (0.0, 0.0)
    errors = torch.zeros((), dtype=torch.long, device=device)
    for step in range(steps):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x, graph), y)
        loss.backward()
        optimiser.step()
        errors += ~torch.isfinite(loss.detach())
        if step == steps // 10:
            early = megabytes(), gpu_megabytes(device)
    record = {
        "count": steps,
        "errors": int(errors),
        "megabytes at a tenth": early[0],
        "megabytes at the end": megabytes(),
    }
    if device != "cpu":
        record |= {"GPU megabytes at a tenth": early[1], "GPU megabytes at the end": gpu_megabytes(device)}
    return record


def gpu_megabytes(device: str) -> float:
    """What torch holds on the GPU, tensors and the blocks that it keeps for later ones."""
    return 0.0 if device == "cpu" else torch.cuda.memory_reserved(device) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("results/trust/load.json"))
    chosen = parser.parse_args()
    record = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    if chosen.steps:
        name = "training" if chosen.device == "cpu" else f"training on {torch.cuda.get_device_name(chosen.device)}"
        record[name] = training(chosen.steps, chosen.device)
    if chosen.requests:
        record["explorer"] = explorer(chosen.requests)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record))


if __name__ == "__main__":
    main()
