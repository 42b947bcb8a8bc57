"""Variants of members on validation rows; a throwaway."""
import multiprocessing, sys, time, itertools
from pathlib import Path
import numpy as np


def words(job):
    import torch, scipy.sparse as sp
    from walksum.data import load, make_split
    from walksum.graph import Graph
    from walksum.portfolio.blend import softmax
    from walksum.portfolio.columns import by_row
    from walksum.portfolio.input import Input
    from walksum.portfolio.members import ALONE, BANK, SMOOTH
    from walksum.portfolio.problem import Problem
    from walksum.portfolio.stack import Config, Stack, StackRecipe
    name, seed, device, out = job
    torch.set_num_threads(1)
    data = load(name)
    kind = "random" if name not in ("chameleon", "squirrel") else "public"
    split = make_split(data, kind, seed, name=name)
    train, val, test = (p.numpy() for p in (split.train, split.val, split.test))
    y = data.y.numpy().astype(float)
    X = sp.csr_matrix(data.x.numpy())
    graph = Graph.from_edge_index(data.edge_index, data.num_nodes)
    C = int(y.max()) + 1
    problem = Problem(X, graph, y, C, [(train, val)], seed, device)
    g = graph.to(device)
    rows = np.concatenate([val, test]) if kind == "random" else val
    words_ = {"raw": Input(X, device), "rows": Input(by_row(X), device)}
    graphs = {"": g}
    if kind == "random":
        from sklearn.neighbors import NearestNeighbors
        unit = sp.csr_matrix(X.multiply(1 / np.maximum(np.sqrt(X.multiply(X).sum(1)), 1e-12)))
        near = NearestNeighbors(n_neighbors=5, metric="cosine", algorithm="brute").fit(unit).kneighbors_graph().tocoo()
        pairs = np.stack(near.coords).astype(np.int64)
        both = np.concatenate([pairs, graph.edges.numpy()], 1)
        graphs["knn"] = Graph.from_edge_index(torch.from_numpy(pairs), data.num_nodes).to(device)
        graphs["union"] = Graph.from_edge_index(torch.from_numpy(both), data.num_nodes).to(device)
    citation = name in ("cora", "citeseer", "pubmed")
    L = lambda s: ((s, True),)
    plans = []
    def plan(label, inputs, gname, ops, decays, seeds=2, **how):
        plans.append((label, inputs, gname, ops, decays, seeds, how))
    if citation:
        for inputs, decays in (("raw", (5e-3, 2e-2, 5e-2)), ("rows", (5e-4, 2e-3, 5e-3, 1e-2))):
            plan("smooth", inputs, "", SMOOTH, decays, 1)
            plan("smooth p100", inputs, "", SMOOTH, decays, 1, patience=100)
            plan("smooth h32", inputs, "", SMOOTH, decays, 1, hidden=32)
            plan("smooth d8", inputs, "", SMOOTH, decays, 1, input_dropout=0.8)
            plan("smooth d5", inputs, "", SMOOTH, decays, 1, dropout=0.5, input_dropout=0.5)
            plan("far", inputs, "", (L(0.97), L(0.985), ((0.97, False),)), decays, 1)
            plan("union", inputs, "union", SMOOTH, decays, 1)
            plan("knn", inputs, "knn", SMOOTH, decays, 1)
            plan("mix", inputs, "", (((0.0, False), (0.9, True)), ((0.5, True), (0.9, True), (0.97, True))), decays, 1)
    else:
        for inputs, decays in (("raw", (2e-3, 5e-3, 2e-2, 5e-2)), ("rows", (1e-3, 5e-3))):
            for where in ("outputs", "hidden"):
                w = "bank" if where == "outputs" else "hidden"
                plan(w, inputs, "", [BANK], decays, 2, where=where)
                plan(w + " h32", inputs, "", [BANK], decays, 2, where=where, hidden=32)
                plan(w + " d4", inputs, "", [BANK], decays, 2, where=where, input_dropout=0.4, dropout=0.4)
                plan(w + " d8", inputs, "", [BANK], decays, 2, where=where, input_dropout=0.8)
                plan(w + " L", inputs, "", [tuple((s, s != 0) for s, _ in BANK)], decays, 2, where=where)
                plan(w + " near", inputs, "", [((0.0, False), (0.5, False), (-0.5, False))], decays, 2, where=where)
                plan(w + " lr3", inputs, "", [BANK], decays, 2, where=where, lr=3e-3)
                if kind == "random":
                    plan(w + " union", inputs, "union", [BANK], decays, 2, where=where)
            plan("mlp", inputs, "", [ALONE], decays, 3)
            plan("mlp h32", inputs, "", [ALONE], decays, 3, hidden=32)
    names, shares, groups, seconds = [], [], [], []
    for label, inputs, gname, ops, decays, seeds, how in plans:
        configs = [Config(f"{label} {inputs} {op} {d:g} {s}", op, d, s + 100 * j) for j, d in enumerate(decays) for op in ops for s in range(seeds)]
        now = time.time()
        found = Stack(problem, words_[inputs], graphs[gname], configs, StackRecipe(**how)).train()
        took = time.time() - now
        for config, o in zip(configs, found.outputs):
            names.append(config.name); groups.append(f"{label} {inputs} {config.weight_decay:g}"); seconds.append(took / len(configs))
            shares.append(softmax(o[0])[rows].astype(np.float16))
    Path(out).mkdir(parents=True, exist_ok=True)
    np.savez_compressed(f"{out}/{name}-{seed}.npz", names=names, groups=groups, seconds=seconds, shares=np.stack(shares), y=y[rows].astype(int), val=len(val))
    return f"{name} {seed} {sum(seconds):.0f} s"


def trees(job):
    import scipy.sparse as sp
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
    from walksum.data import load, make_split
    from walksum.graph import Graph
    from walksum.portfolio.columns import surroundings, with_targets, own_columns
    from walksum.portfolio.problem import Problem
    from walksum.portfolio.tabular import boosting
    import walksum.portfolio.columns as columns_
    from walksum.portfolio.problem import directed
    name, seed, device, out = job
    data = load(name)
    split = make_split(data, "public", seed, name=name)
    train, val = split.train.numpy(), split.val.numpy()
    y = data.y.numpy().astype(float)
    X = sp.csr_matrix(data.x.numpy())
    graph = Graph.from_edge_index(data.edge_index, data.num_nodes)
    names, shares, seconds = [], [], []
    def add(label, model, cols):
        now = time.time(); model.fit(cols[train], y[train]); seconds.append(time.time() - now)
        names.append(label); shares.append(model.predict_proba(cols[val]).astype(np.float16))
    for comps in (16, 64, 128):
        columns_.COMPONENTS = comps
        problem = Problem(X, graph, y, 5, [(train, val)], seed, "cpu", directed(data.edge_index.numpy()))
        near = surroundings(problem); lab = np.concatenate([near, with_targets(problem, train)], 1)
        for which, cols in (("near", near), ("lab", lab), ("x", own_columns(problem))):
            for leaf, f in itertools.product((1, 2, 5), ("sqrt", 0.2)):
                add(f"et {comps} {which} leaf{leaf} f{f}", ExtraTreesClassifier(300, min_samples_leaf=leaf, max_features=f, random_state=0), cols)
            add(f"rf {comps} {which}", RandomForestClassifier(300, min_samples_leaf=2, random_state=0), cols)
            if comps != 128: add(f"gb {comps} {which}", boosting(5, 0), cols)
    Path(out).mkdir(parents=True, exist_ok=True)
    np.savez_compressed(f"{out}/{name}-trees-{seed}.npz", names=names, groups=names, seconds=seconds, shares=np.stack(shares), y=y[val].astype(int), val=len(val))
    return f"{name} trees {seed} {sum(seconds):.0f} s"


def numbers(job):
    import torch
    from walksum.estimators.auto.bench import COUNTIES, counties
    from walksum.graph import Graph
    from walksum.portfolio.columns import COLUMNS
    from walksum.portfolio.folds import cross_validation
    from walksum.portfolio.members import ALONE, BANK, _stack_runner
    from walksum.portfolio.problem import Problem
    from walksum.portfolio.stack import Config, StackRecipe
    from walksum.portfolio.tabular import MODELS, boosting, fit_tabular
    name, seed, device, out = job
    torch.set_num_threads(1)
    X, y, pairs = counties(COUNTIES[name.removeprefix("counties-")])
    known = np.nonzero(~np.isnan(y))[0]
    order = known[np.argsort(np.random.PCG64(seed).random_raw(len(known)), kind="stable")]
    train = order[: len(order) * 6 // 10]
    z = np.full(len(y), np.nan); z[train] = (y[train] - y[train].mean()) / y[train].std()
    graph = Graph.from_edge_index(torch.from_numpy(pairs), len(y))
    problem = Problem(X, graph, z, 0, cross_validation(z, np.sort(train), 0, 5, seed), seed)
    COLUMNS["place + surroundings"] = lambda p, t: np.concatenate([COLUMNS["place + surroundings + labels"](p, t)[:, :32], COLUMNS["surroundings"](p, t)], 1)
    rows = problem.judged
    names, outs, seconds, groups = [], [], [], []
    def keep(label, o, took, group):
        names.append(label); outs.append(problem.out_of_fold(o)[rows, 0].astype(np.float32)); seconds.append(took); groups.append(group)
    narrow = dict(dropout=0.3, input_dropout=0.0, patience=100)
    variants = {"": {}, "h128": {"hidden": 128}, "d1": {"dropout": 0.1}, "d5": {"dropout": 0.5}, "lr3": {"lr": 3e-3}}
    for inputs, joint in (("surroundings", True), ("place + surroundings", True), ("x", True), ("place + surroundings + labels", True),
                          ("place + surroundings + labels", False), ("surroundings + labels", False), ("surroundings", False)):
        for label, how in variants.items():
            if label and (inputs, joint) not in (("surroundings", True), ("place + surroundings + labels", False)): continue
            configs = [Config(f"{'joint' if joint else 'mlp'} {label} {inputs} {d:g} {s}", ALONE, d, s + 100 * j) for j, d in enumerate((1e-4, 1e-3, 5e-3)) for s in range(1)]
            now = time.time()
            found = _stack_runner(problem, inputs, configs, StackRecipe(**{**narrow, **how}), joint)(float("inf"))
            took = (time.time() - now) / len(configs)
            for c, o in zip(configs, found.outputs): keep(c.name, o, took, f"{'joint' if joint else 'mlp'} {label} {inputs} {c.weight_decay:g}")
    for m in MODELS:
        for cols in COLUMNS:
            if m == "linear" and "place" in cols: pass
            now = time.time()
            o, _ = fit_tabular(problem, cols, MODELS[m], float("inf"))
            keep(f"{m} {cols}", o, time.time() - now, f"{m} {cols}")
    for where, inputs in (("hidden", "x"), ("outputs", "x")):
        configs = [Config(f"bank {where} {inputs} {d:g}", BANK, d, j) for j, d in enumerate((1e-4, 1e-3))]
        now = time.time()
        found = _stack_runner(problem, inputs, configs, StackRecipe(where=where, **narrow))(float("inf"))
        for c, o in zip(configs, found.outputs): keep(c.name, o, (time.time() - now) / 2, c.name)
    Path(out).mkdir(parents=True, exist_ok=True)
    np.savez_compressed(f"{out}/{name}-{seed}.npz", names=names, groups=groups, seconds=seconds, outs=np.stack(outs), y=z[rows])
    return f"{name} {seed} {sum(seconds):.0f} s"


def work(job):
    kind, *rest = job
    try:
        return {"words": words, "trees": trees, "numbers": numbers}[kind](rest)
    except Exception as error:
        import traceback
        return f"{job} {error!r} {traceback.format_exc()[-800:]}"


if __name__ == "__main__":
    which, jobs, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    if which == "gpu":
        todo = [("words", n, s, "cuda", out) for s in range(100, 106) for n in ("citeseer", "cora", "pubmed")]
    else:
        todo = [("numbers", f"counties-{t}", s, "cpu", out) for s in (100, 101) for t in ("education", "election", "income", "unemployment") if s == 100 or t[0] == "e"]
        todo += [("trees", n, s, "cpu", out) for s in range(3) for n in ("chameleon", "squirrel")]
        todo += [("words", n, s, "cpu", out) for s in range(100, 106) for n in ("texas", "wisconsin", "cornell")]
        todo += [("words", "chameleon", s, "cpu", out) for s in range(2)]
    if len(sys.argv) > 4: todo = [t for t in todo if sys.argv[4] in t[1]][:int(sys.argv[5])]
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=1) as pool:
        for line in pool.imap_unordered(work, todo):
            print(line, flush=True)
