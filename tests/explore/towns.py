"""Towns on a coast, with a number and a class to predict, and quickly trained portfolios of them."""

import numpy as np
import pandas as pd
import pytest

from walksum.workflow import comparisons, fit_tables, open_run
from walksum.workflow.problem import Source, problem_of_run, read_node_table
from walksum.workflow.trained_run import open_trained_run


def towns():
    """A path of towns on a bent coast: half of a town's rent is its size, half its place."""
    draw, count = np.random.default_rng(0), 150
    size, place = draw.normal(size=count), np.sin(np.arange(count) / 8)
    nodes = pd.DataFrame({"id": [f"t{k}" for k in range(count)], "size": size})
    nodes["kind"] = np.where(size > 0, "port", "inland")
    nodes["name"] = [f"Town <{k}>" for k in range(count)]
    nodes["lon"], nodes["lat"] = np.linspace(5, 9, count), 50 + np.cos(np.arange(count) / 20)
    nodes["rent"] = 100 + 10 * (size + 2 * place) + draw.normal(size=count)
    nodes["dear"] = np.where(nodes["rent"] > 100, "yes", "no")
    nodes.loc[::15, ["rent", "dear"]] = None
    ends = np.arange(count - 1)
    return nodes, pd.DataFrame({"source": [f"t{k}" for k in ends], "target": [f"t{k + 1}" for k in ends]})


def opened(folder, target, **how):
    """A saved run, read back as the command does it."""
    nodes, edges = towns()

    def enough(name, done, total, seconds):
        if done == 4:
            raise KeyboardInterrupt

    how = {"budget": 10, **how}  # seconds, which the rows beside it share
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparisons, "TRIALS", 2)  # settings of every row, of which one is chosen
        fit_tables(nodes, edges, target, features=["size", "kind"], on_member=enough, **how).save(folder)
    run, source = open_run(folder), Source(nodes=nodes, edges=edges)
    problem = problem_of_run(run, source, labels=True)
    return run, open_trained_run(run, problem, "towns", table=read_node_table(run, source, problem))
