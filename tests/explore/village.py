"""A village with words for ids, and a quickly trained model of it."""

import threading
from dataclasses import replace

import numpy as np
import torch

from walksum.data.problem import Problem
from walksum.explore.small_model import small_job
from walksum.workflow.fit import fit_model, prepare_data
from walksum.workflow.trained_run import TrainedRun

ODD = '<b>odd & "id"</b>'  # ids are the user's own text


def village(count=60, seed=0):
    """Three quarters of a village; neighbours mostly live in the same one. Ids are words, some labels are unknown."""
    draw = np.random.default_rng(seed)
    quarter = np.arange(count) % 3
    near = draw.integers(0, count // 3, (4 * count, 2)) * 3
    ends = near + np.where(draw.random((4 * count, 1)) < 0.9, draw.integers(0, 3, (4 * count, 1)), [[0, 1]])
    ids = np.array([f"house-{k}" for k in range(count)], dtype=object)
    ids[7] = ODD
    y = torch.from_numpy(quarter.copy())
    y[5] = -1
    x = np.eye(3)[quarter] + draw.normal(size=(count, 3))
    return Problem(
        name="village",
        ids=ids,
        features=torch.from_numpy(x).float(),
        edge_index=torch.from_numpy(ends[: 2 * count].T.copy()) % (count - 1),  # the last house stands alone
        y=y,
        classes=["north", "south", "east"],
        target="quarter",
    )


def trained_on(problem, design="laplacian", learned=True, epochs=20):
    job = replace(small_job(design, learned, None), hidden=16, max_epochs=epochs)
    prepared = prepare_data(job, problem)
    model, _ = fit_model(job, prepared)
    training = frozenset(prepared.split.train.tolist())
    return TrainedRun(problem.name, problem, prepared.x, prepared.encoding, model, training)


class Served:
    """A trained on a real server of its own."""

    def __init__(self, trained):
        from walksum.explore.server import open_server, url_of

        self.trained = trained
        self.server = open_server(trained, 0)
        self.url, self.port = url_of(self.server), self.server.server_port
        self._thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self._thread.start()

    def close(self):
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()
