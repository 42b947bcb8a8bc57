"""Learn a column of one's own tables from Python, as ``walksum train`` does.

    python examples/own_tables.py

A table of shops and a table of roads between them; the price level of some shops is unknown. The run says how good it
is, next to what the columns alone would give, and predicts the empty cells.
"""

import numpy as np
import pandas as pd

import walksum as ws

rng = np.random.default_rng(0)
n = 300
place = rng.uniform(size=(n, 2))
distance = np.linalg.norm(place[:, None] - place[None], axis=-1)
i, j = np.nonzero(np.triu(distance < 0.1, 1))
level = np.sin(5 * place[:, 0]) + np.cos(4 * place[:, 1]) + 0.1 * rng.normal(size=n)
nodes = pd.DataFrame(
    {
        "shop": [f"s{k}" for k in range(n)],
        "size": rng.lognormal(size=n).round(2),
        "kind": rng.choice(["food", "books", "tools"], n),
        "price": np.where(level > 0.4, "high", "low"),
    }
)
nodes.loc[rng.choice(n, 60, replace=False), "price"] = None
edges = pd.DataFrame({"from": nodes["shop"][i].to_numpy(), "to": nodes["shop"][j].to_numpy()})

run = ws.fit_tables(nodes, edges, "price", id="shop", max_epochs=60)
print(run)
