"""fit_tables: train on tables; fit_problem: train on a graph that is already read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from walksum._checks import check_choice, check_count
from walksum._torch import cpu_by_default
from walksum.data.edges import EdgeColumns
from walksum.data.numerals import checked_marks
from walksum.data.places import check_neighbours
from walksum.data.problem import Problem
from walksum.data.problem_split import SPATIAL, check_labels
from walksum.data.splits import PROTOCOLS
from walksum.data.user_files import Columns
from walksum.training import TASKS
from walksum.training.seeds import one_thread
from walksum.workflow.fit import OnEpoch, OnMember, Result, fit_once
from walksum.workflow.job import AUTO_NAME, GLT_NAME, NETWORK_SETTINGS, Job
from walksum.workflow.prepare import with_neighbours
from walksum.workflow.problem import Source, SplitOption, check_column_names, read_split, with_split_of
from walksum.workflow.run import Run, run_of
from walksum.workflow.runs import Runs, read_each, target_names
from walksum.workflow.search import OnTrial, SearchPlan, SearchResult
from walksum.workflow.search import search as run_search

AS_USUAL, NO_SEARCH = SplitOption(), SearchPlan()
SMALL = 2e7  # numbers in the features below which a second thread costs more than it saves


def fit_tables(
    nodes: Any,
    edges: Any = None,
    target: str | Sequence[str] | None = None,
    *,
    id: str | None = None,
    source: str | None = None,
    destination: str | None = None,
    weight: str | None = None,
    features: Sequence[str] | None = None,
    task: str | None = None,
    split: str | os.PathLike[str] | None = None,
    time_column: str | None = None,
    group_column: str | None = None,
    name_column: str | None = None,
    coordinates: str | Sequence[str] | None = None,
    knn: str | Sequence[str] | None = None,
    neighbours: int | str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    drop_unknown: bool = False,
    add_unknown: bool = False,
    keep_rare: bool = False,
    encoding: str = "utf-8",
    seeds: int = 1,
    search: int = 0,
    engine: str = "local",
    workers: int = 1,
    on_epoch: OnEpoch | None = None,
    on_trial: OnTrial | None = None,
    on_member: OnMember | None = None,
    **settings: Any,
) -> Run | Runs:
    """Learn a column of a table of nodes, with the help of a table of edges.

    Args:
        nodes: one row per node: a DataFrame, or the path of a CSV, TSV, Parquet, Feather, JSON lines or Excel file.
        edges: one row per edge, both ends by id; None: ``coordinates`` or ``knn`` make the edges.
        target: column to predict; rows where it is empty are predicted. Several ("a,b" or a list) give one run each,
            in a :class:`walksum.workflow.runs.Runs`; none of them is learned from to predict another.
        id: column of node ids; None: id, node, node_id or name, else a column whose values the edges name, else the
            row number.
        source, destination: columns with the ends of an edge; None: by their usual names, else the first two.
        weight: column of edge weights; None: none.
        features: columns to learn from; None: all others.
        task: "classification" or "regression"; None: from the target.
        split: counts "87,59,37", fractions "0.6,0.2,0.2" (or two, of training and test), a column saying train, val or
            test, "spatial" for connected parts of the graph, a run folder whose split is taken again, or a protocol;
            None: 60/20/20 % of each class.
        time_column: train on the earliest nodes, choose by later ones, test on the latest.
        group_column: nodes of one group stay in one part of the split; it is not learned from.
        name_column: shown beside the id; it is not learned from.
        coordinates: two columns that say where a node lies, "lon,lat" on the globe or "x,y" on a plane.
        knn: columns in whose space near nodes are joined.
        neighbours: how many nearest nodes each is joined to, or "delaunay"; None: chosen on the validation nodes.
        decimal, thousands: how numbers are written; None: as the cells show.
        drop_unknown: leave out edges to unknown ids.
        add_unknown: add nodes that only edges name, with empty cells.
        keep_rare: go on with classes of a single node.
        encoding: of text files.
        seeds: how many splits and initial weights, from ``seed`` on: gives mean and spread.
        search: how many trials of a search before, compared on the validation nodes alone.
        engine, workers: "ray" trains ``workers`` trials at the same time, on the cluster of $RAY_ADDRESS or on this
            machine; "local" the same trials one by one.
        on_epoch, on_trial, on_member: called with progress; Ctrl-C, or KeyboardInterrupt from them, ends the training
            early with the best so far.
        **settings: fields of :class:`walksum.workflow.job.Job`. model: "auto", a portfolio blended by validation
            within budget=60 seconds, unless a setting of networks (design, learned, hidden, layers, dropout, lr,
            patience, max_epochs, ...) or a search is asked for: then "glt". Also seed, device, metric, class_weight
            and transform.

    Example:
        >>> import numpy as np, pandas as pd, walksum as ws
        >>> place = np.arange(60)
        >>> nodes = pd.DataFrame({"id": place, "size": np.cos(7.0 * place), "rent": np.sin(place / 8)})
        >>> nodes.loc[::6, "rent"] = None  # to be predicted
        >>> edges = pd.DataFrame({"source": place[:-1], "target": place[1:]})
        >>> run = ws.fit_tables(nodes, edges, "rent", model="glt", max_epochs=3)
        >>> run.predictions.shape[0], "prediction" in run.predictions
        (60, True)
    """
    given = locals().copy()  # before there are other names than those of the arguments
    plan = SearchPlan(search, engine, workers)
    plan.check()
    tables = Source(nodes=nodes, edges=edges, encoding=encoding)
    cut = read_split(split, tables)
    job = make_job(search, split=cut.how, **settings)
    columns = make_columns(given, cut.column)
    names = target_names(target, tables)
    problems = read_each(names, lambda name: read_problem(tables, replace(columns, target=name), keep_rare, cut))
    callbacks: dict[str, Any] = {"on_epoch": on_epoch, "on_trial": on_trial, "on_member": on_member}
    runs = Runs(
        {name: fit_problem(each, job, seeds=seeds, search=plan, **callbacks) for name, each in problems.items()}
    )
    return runs if len(names) > 1 else next(iter(runs.values()))


def make_job(search: int = 0, **settings: Any) -> Job:
    """A job with these settings, checked before anything is read; without a model a portfolio, or a network if one of
    its settings or a search of them is asked for."""
    known = [each.name for each in fields(Job)]
    for name in settings:
        if name not in known:
            raise TypeError(f"{name!r} is no setting of a training; known: {', '.join(known)}")
    of_networks = [name for name in NETWORK_SETTINGS if name in settings] + ["search"] * bool(search)
    settings.setdefault("model", GLT_NAME if of_networks else AUTO_NAME)
    if settings["model"] == AUTO_NAME and of_networks:
        raise ValueError(
            f"{of_networks[0]}= is for networks; a portfolio (model='auto') has budget=, seed= and device=; leave "
            "it out, or name a network, such as model='glt'"
        )
    job = Job(**settings)
    job.check()
    return job


def make_columns(given: Mapping[str, Any], split: str | None) -> Columns:
    """The columns that arguments of :func:`fit_tables`, or options of the command, name; the target is added later."""
    singles = ("id", "source", "destination", "weight", "name_column", "time_column", "group_column")
    given = dict(given) | {name: str(given[name]) for name in singles if given[name] is not None}
    mark = checked_marks(given["decimal"], given["thousands"])
    return Columns(
        edges=EdgeColumns(given["source"], given["destination"], given["weight"], mark),
        features=None if given["features"] is None else names_in(given["features"]),
        split=split,
        coordinates=names_in(given["coordinates"]),
        knn=names_in(given["knn"]),
        **{name: given[name] for name in ("id", "task", "neighbours", "decimal", "thousands")},
        **{name: given[name] for name in ("drop_unknown", "add_unknown")},
        **{name: given[f"{name}_column"] for name in ("name", "time", "group")},
    )


def names_in(columns: str | Sequence[str] | None) -> tuple[str, ...]:
    """Split names of columns given as "a,b"; a list stays as it is, with numbers as texts."""
    if columns is None:
        return ()
    return tuple(part.strip() for part in columns.split(",")) if isinstance(columns, str) else tuple(map(str, columns))


@cpu_by_default
def read_problem(source: Source, columns: Columns, keep_rare: bool = False, split: SplitOption = AS_USUAL) -> Problem:
    """Read and check the graph and target that a source and its columns describe."""
    if columns.task is not None:
        check_choice("task", columns.task, tuple(TASKS))
    _check_one_split(columns, split)
    check_neighbours(columns.neighbours, bool(columns.coordinates))
    if columns.neighbours is not None and not columns.place_columns:
        raise ValueError("neighbours= is for nodes that lie somewhere; name coordinates= or knn=")
    checked_marks(columns.decimal, columns.thousands)
    check_column_names(source, columns)
    problem = source.read(columns)
    if split.run is not None:
        problem = with_split_of(problem, split.run)
    check_labels(problem, keep_rare)
    return problem


def _check_one_split(columns: Columns, split: SplitOption) -> None:
    """A split by time, by group, by a column, of a run and into parts of the graph exclude each other."""
    ways: dict[str, Any] = {"time_column=": columns.time, "group_column=": columns.group}
    ways["split="] = columns.split or split.run or (split.how if split.how in (*PROTOCOLS, SPATIAL) else None)
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} say different things about the split; give one of them")


@cpu_by_default
def fit_problem(
    problem: Problem,
    job: Job,
    *,
    seeds: int = 1,
    search: SearchPlan = NO_SEARCH,
    on_epoch: OnEpoch | None = None,
    on_trial: OnTrial | None = None,
    on_stage: Callable[[str], None] | None = None,
    on_member: OnMember | None = None,
) -> Run:
    """Train on a problem: a search if asked for, then one training per seed.

    ``on_stage`` is called with what begins, in words: "trial 2 of 10", "seed 3". See :func:`fit_tables` for the rest.
    """
    check_count("seeds", seeds)
    stage = on_stage or (lambda text: None)
    small = problem.num_nodes * problem.features.shape[1] < SMALL and "OMP_NUM_THREADS" not in os.environ
    with one_thread(small):
        best = _search(with_neighbours(problem, job), job, search, on_epoch, on_trial, stage) if search.trials else None
        if best is not None:
            job = best.job
        results: list[Result] = []
        for seed in range(job.seed, job.seed + seeds):
            stage(f"seed {seed}" if seeds > 1 else "")
            fitted = best.fitted if best is not None and seed == job.seed else None
            mine = replace(job, seed=seed)
            trials = () if best is None else best.trials
            searched = len(trials), sum(trial.seconds for trial in trials)
            results.append(fit_once(mine, with_neighbours(problem, mine), on_epoch, fitted, on_member, searched))
            if results[-1].interrupted:
                # a seed that was cut short says little about the spread; alone it is better than nothing
                results = results[:-1] or results
                results[-1] = replace(results[-1], interrupted=True)
                break
    return run_of(results, best)


def _search(
    problem: Problem,
    job: Job,
    plan: SearchPlan,
    on_epoch: OnEpoch | None,
    on_trial: OnTrial | None,
    stage: Callable[[str], None],
) -> SearchResult:
    def next_trial(number: int, trial: Any) -> None:
        if on_trial is not None:
            on_trial(number, trial)
        if number < plan.trials:
            stage(f"trial {number + 1} of {plan.trials}")

    stage(f"trial 1 of {plan.trials}")
    return run_search(job, problem, plan, on_epoch, next_trial)
