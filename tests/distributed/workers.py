"""What the processes of the tests do: each check runs in four of them, some in a group of two, and leaves numbers."""

import dataclasses
import os
import warnings

import torch
import torch.distributed as dist
from torch_geometric.nn import GCNConv

import walksum as ws
from walksum.data import load
from walksum.data.splits import Split
from walksum.distributed import GraphPart, PartData, Partition, fit, joined, load_part, partition, product, save_parts
from walksum.distributed.part import cut
from walksum.solvers.base import backward_error, norm_inf, worst
from walksum.training import Data, Recipe

PROCESSES = 4
TIGHT = ws.CG(tol=1e-12, preconditioner="jacobi")


def graph_and_features(nodes=90, edges=260, seed=0, weighted=True):
    draw = torch.Generator().manual_seed(seed)
    ends = torch.randint(nodes - 1, (2, edges), generator=draw)  # the last node has no edges
    weight = torch.rand(edges, generator=draw, dtype=torch.float64) + 0.1 if weighted else None
    x = torch.randn(nodes, 5, generator=draw, dtype=torch.float64)
    return ws.Graph.from_edge_index(ends, nodes, weight), x


def whole_data(seed=0):
    graph, x = graph_and_features(seed=seed)
    y = (x[:, 0] + ws.solve(ws.FixedLaplacian(0.9)(graph, x), x[:, :1], TIGHT)[:, 0] > 0).long()
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1))
    return Data(x, graph, y, Split(order[:30].sort()[0], order[30:50].sort()[0], order[50:].sort()[0]))


def part_of(data, processes, group):
    """Cut by every process from the whole; the last part has no training node, and few others."""
    owner = torch.arange(len(data.y)) % processes
    owner[data.splits.train[owner[data.splits.train] == processes - 1]] = 0
    layout = cut(data.edges, Partition(owner, processes), dist.get_rank(group))
    place = {int(node): k for k, node in enumerate(layout.owned)}
    local = [
        torch.tensor([place[n] for n in nodes.tolist() if n in place], dtype=torch.int64)
        for nodes in (data.splits.train, data.splits.val, data.splits.test)
    ]
    return PartData(data.x[layout.owned], GraphPart(layout, group), data.y[layout.owned], Split(*local), data.task)


def gradients(out, model, group=None, whole=True):
    found = torch.autograd.grad(out.square().sum(), list(model.parameters()))
    if not whole:
        for each in found:
            dist.all_reduce(each, group=group)
    return found


def distance(found, expected):
    pairs = zip(found, expected, strict=True)
    return max(float((a - b).detach().abs().max() / b.detach().abs().max().clamp_min(1e-9)) for a, b in pairs)


def compare(model, part, graph, x, group):
    expected, own = model(x, graph), part.layout.owned
    d_expected = gradients(expected, model)
    out = model(x[own], part)
    return distance([out], [expected[own]]), distance(gradients(out, model, group, whole=False), d_expected)


def models():
    for design in ("laplacian", "diagonally-dominant", "pairwise-normal"):
        for learned in (False, True):
            yield f"{design} {learned}", ws.GLTConv(5, 4, 2, design=design, learned=learned, solver=TIGHT)
    belief = ws.GaBP(tol=1e-11, damping=1.0)
    yield "belief propagation", ws.GLTConv(5, 4, 2, design="laplacian", solver=belief)
    yield "propagate", torch.nn.Sequential()  # replaced below: its call has another signature
    yield "model", ws.GLT(5, 8, 2, 3, heads=(2, 1), dropout=0.0, solver=TIGHT)


class Learned(torch.nn.Module):
    """A model of a user's own around Propagate."""

    def __init__(self):
        super().__init__()
        self.first, self.mix = torch.nn.Linear(5, 4), ws.Propagate(reach=2, loops=True, learned=True, solver=TIGHT)

    def forward(self, x, graph):
        return self.mix(self.first(x), graph)


def check_models(group, processes):
    graph, x = graph_and_features()
    part = GraphPart.of(graph, partition(graph, processes, "stream"), group=group)
    found = {}
    for name, model in models():
        torch.manual_seed(3)
        model = (Learned() if name == "propagate" else model).double()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
        found[name] = compare(model, part, graph, x, group)
    return found


def check_pubmed():
    data = load("pubmed")
    graph, x = ws.Graph.from_edge_index(data.edge_index, data.num_nodes), data.x[:, :5].double()
    part = GraphPart.of(graph, partition(graph, PROCESSES, "metis"))
    torch.manual_seed(3)
    return compare(ws.GLTConv(5, 4, design="laplacian", solver=TIGHT).double(), part, graph, x, None)


def check_reports(group, processes):
    """Status, steps and residual are those of the whole, in every process; bytes are those predicted."""
    graph, x = graph_and_features(weighted=False)
    shares = partition(graph, processes, "metis")
    part = GraphPart.of(graph, shares, group=group)
    design, seen, own = ws.FixedLaplacian(0.9), [], part.layout.owned
    h = x[own].clone().requires_grad_()
    J, whole = design(part, x), design(graph, x)
    before, calls = part.exchange.bytes_sent, part.exchange.exchanges
    mu = ws.solve(J, h, ws.CG(tol=1e-10), observe=seen.append)
    mu.square().sum().backward()
    sent, calls = part.exchange.bytes_sent - before, part.exchange.exchanges - calls
    full = torch.zeros_like(x)
    full[own] = mu.detach()
    dist.all_reduce(full, group=group)
    error = worst(backward_error(whole, full.unsqueeze(0), x.unsqueeze(0), norm_inf(whole)))
    return {
        "steps": [s.steps for s in seen],
        "status": [s.status.name for s in seen],
        "residual": seen[0].residual,
        "true": error,
        "sent": sent,
        "predicted": calls * shares.exchange_bytes(graph, x.size(1), torch.float64)[part.layout.part],
        "exchanges": calls,
        "product": distance([product(J, x[own].unsqueeze(0))], [(whole @ x)[own].unsqueeze(0)]),
    }


def check_statuses(group, processes):
    """A failure that one process alone could see is the same in all."""
    graph, x = graph_and_features(weighted=False)
    part = GraphPart.of(graph, partition(graph, processes, "stream"), group=group)
    J, own, found = ws.FixedLaplacian(0.9)(part, x), part.layout.owned, []
    broken = x[own].clone()
    if part.layout.part == 0:
        broken[0] = torch.nan
    diag = J.diag.clone()
    if part.layout.part == 1:
        diag[0, 0] = -1.0
    cases = [(J, broken, ws.CG()), (ws.Precision(part, diag, J.off), x[own], ws.CG()), (J, x[own], ws.CG(max_steps=1))]
    for matrix, h, solver in [*cases, (J, x[own], ws.GaBP(max_steps=2)), (J, broken, ws.GaBP())]:
        ws.solve(matrix, h, solver, observe=lambda s: found.append(s.status.name), on_nonconverged="ignore")
    return found


def frustrated(graph, x):
    """Positive definite but not walk-summable: couplings that repel, beside a diagonal of half of what dominates."""
    J = ws.FixedDiagonallyDominant(coupling="repulsive")(graph, x)
    return ws.Precision(J.graph, 0.75 * J.diag, J.off)


def check_estimates(group, processes):
    """Log-determinants, variances and samples of the same seeds as in one process, with their reports."""
    graph, x = graph_and_features(nodes=150, edges=500)
    part = GraphPart.of(graph, partition(graph, processes, "stream"), group=group)
    own, settings, found = part.layout.owned, ws.field.Estimate(probes=16, tol=1e-12, seed=7), {}
    designs = {"dominant": ws.FixedDiagonallyDominant(), "laplacian": ws.FixedLaplacian(0.95), "not": frustrated}
    for name, design in designs.items():
        whole, J, reports = design(graph, x), design(part, x), []
        value = ws.logdet(J, "estimated", settings, reports.append)
        expected = ws.logdet(whole, "estimated", settings, reports.append)
        apart = [distance([value], [expected])]
        variances = ws.marginals(J, "estimated", settings, reports.append)
        apart.append(distance([variances], [ws.marginals(whole, "estimated", settings, reports.append)[:, own]]))
        if name != "not":
            drawn = ws.sample(J, (3,), "estimated", seed=5)
            apart.append(distance([drawn], [ws.sample(whole, (3,), "estimated", seed=5)[..., own]]))
        errors = [report.standard_error for report in reports]
        apart += [distance(errors[:1], errors[1:2]), distance(errors[2:3], [errors[3][:, own]])]
        told = [(report.status.name, report.steps) for report in reports]
        found[name] = (max(apart), told[0::2] == told[1::2], abs(float(expected - ws.logdet(whole))), float(errors[0]))
    found["gradient"] = _logdet_gradient(graph, part, settings, processes, group)
    unseeded = ws.sample(ws.FixedLaplacian(0.9)(part, x), (4000,), "estimated")
    exact = ws.marginals(ws.FixedLaplacian(0.9)(graph, x))[:, own]
    found["spread"] = float((unseeded.var(0) / exact - 1).abs().max())
    J = ws.FixedLaplacian(0.9)(part, x)
    attempts = {
        "dense": lambda: ws.logdet(J, "dense"),
        "gabp": lambda: ws.marginals(J, "gabp"),
        "field": lambda: ws.GaussianField(J),
        "gaussian": lambda: ws.logdet(ws.Precision(part, -J.diag, J.off), "estimated"),
    }
    found["refused"] = {name: refused(attempt) for name, attempt in attempts.items()}
    return found


def _logdet_gradient(graph, part, settings, processes, group):
    """Of a loss that every process forms alike: its gradient is that of as many losses as there are processes."""

    def of(which):
        strength = torch.full((1,), 0.3, dtype=torch.float64, requires_grad=True)
        J = ws.FixedLaplacian(0.9)(which)
        diag = J.diag.double() * (1 + strength)
        loss = ws.logdet(ws.Precision(J.graph, diag, J.off.double() * strength.tanh()), "estimated", settings).sum()
        return torch.autograd.grad(loss, strength)[0]

    across = of(part)
    dist.all_reduce(across, group=group)
    return distance([across / processes], [of(graph)])


class Stop(Exception):
    """Somebody ends the training."""


def check_training(group, processes, folder):
    data = whole_data()
    recipe = Recipe(lr=0.02, max_epochs=4, patience=4)

    def model(dropout=0.0):
        torch.manual_seed(5)
        return ws.GLT(5, 6, 1, 2, design="diagonally-dominant", learned=False, dropout=dropout, solver=TIGHT).double()

    single = ws.training.fit(model(), data, recipe)
    part = part_of(data, processes, group)
    together = fit(model(), part, recipe)

    def stop(newest, best):
        if newest.number == 3:
            raise Stop

    straight = fit(model(0.5), part, recipe, seed=1)
    for on_epoch in (stop, None):  # killed after its third epoch, then started again
        try:
            again = fit(model(0.5), part, recipe, checkpoints=folder, every=2, seed=1, on_epoch=on_epoch)
        except Stop:
            continue
    other, message = part_of(whole_data(seed=2), processes, group), ""
    try:
        fit(model(0.5), other, recipe, checkpoints=folder, every=2, seed=1)
    except ValueError as error:
        message = str(error)
    numbers = ("train_loss", "val_loss", "val_score", "test_score")
    histories = [[[getattr(e, n) for n in numbers] for e in o.history] for o in (single, together, straight, again)]
    weights = [list(o.model.state_dict().values()) for o in (straight, again)]
    return {
        "single": histories[0],
        "together": histories[1],
        "resumed": max(distance(*weights), distance(*(torch.tensor(h) for h in histories[2:]))),
        "epochs": [len(o.history) for o in (straight, again)],
        "message": message,
        "trained on": part.splits.train.numel(),
    }


def check_files(group, processes, folder):
    """A part that is read is the part that was cut."""
    data = whole_data()
    shares = partition(data.edges, processes, "stream")
    if dist.get_rank() == 0:
        save_parts(folder, data, shares)
    dist.barrier()
    read = load_part(folder, dist.get_rank(), group=group)
    made = cut(data.edges, shares, dist.get_rank())
    owned = made.owned
    same = torch.equal(read.edges.edges, made.edges) and torch.equal(read.edges.edge_weight, made.weight)
    same &= torch.equal(read.x, data.x[owned]) and torch.equal(read.y, data.y[owned])
    return same and torch.isin(owned[read.splits.val], data.splits.val).all().item()


def check_refusals(group, processes):
    graph, x = graph_and_features(weighted=False)
    shares = partition(graph, processes, "stream")
    rank = dist.get_rank(group)
    layout = cut(graph, shares, rank)
    other = Partition((shares.assignment + 1) % processes, processes)
    attempts = {
        "parts": lambda: GraphPart(dataclasses.replace(layout, parts=processes + 1), group),
        "devices": lambda: GraphPart(layout.to("meta") if rank == 1 else layout, group),
        "partition": lambda: GraphPart(cut(graph, other if rank == 1 else shares, rank), group),
        "graph": lambda: GraphPart(dataclasses.replace(layout, fingerprint=str(rank)), group),
        "rank": lambda: GraphPart(dataclasses.replace(layout, part=0), group),
        "solver": lambda: ws.solve(ws.FixedLaplacian()(GraphPart(layout, group), x), x[layout.owned], "direct"),
        "rows": lambda: ws.GLTConv(5, 2).double()(x, GraphPart(layout, group)),
        "layer": lambda: fit(GCNConv(5, 2), part_of(whole_data(), processes, group)),
        "norm": lambda: fit(ws.GLT(5, 4, 1, 2, norm="batch"), part_of(whole_data(), processes, group)),
    }
    return {name: refused(attempt) for name, attempt in attempts.items()}


def refused(attempt):
    try:
        attempt()
    except ValueError as error:
        return str(error)
    return "was not refused"


def run(rank, port, folder):
    """All checks in one process; its numbers go to a file."""
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", ".*torch.jit.script.*", DeprecationWarning)
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(PROCESSES), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    with joined(timeout=300):
        found = {}
        pair = dist.new_group([0, 1])
        for group, processes in ((None, PROCESSES), (pair, 2)):
            if group is not None and rank > 1:
                continue
            found[processes] = {
                "models": check_models(group, processes),
                "reports": check_reports(group, processes),
                "estimates": check_estimates(group, processes),
            }
        found["training"] = check_training(None, PROCESSES, f"{folder}/checkpoints")
        found["pubmed"] = check_pubmed() if "WALKSUM_DATA" in os.environ else None
        found["statuses"] = check_statuses(None, PROCESSES)
        found["files"] = check_files(None, PROCESSES, f"{folder}/parts")
        found["refusals"] = check_refusals(None, PROCESSES)
        torch.save(found, f"{folder}/{rank}.pt")


def run_on_gpu(rank, processes, backend, port, folder):
    """A layer and a short training on one GPU, all processes on the same one; numbers go to a file."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(processes), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group(backend)
    torch.cuda.set_device(0)
    graph, x = graph_and_features(weighted=False)
    graph, x = graph.to("cuda"), x.cuda()
    shares = partition(graph, processes, "stream")
    part = GraphPart(cut(graph, shares, rank))
    part.exchange.alone = False  # one process, too, exchanges: with itself
    found = {}
    for dtype, tol in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        torch.manual_seed(3)
        model = ws.GLTConv(5, 4, solver=ws.CG(tol=tol, preconditioner="jacobi")).cuda().to(dtype)
        found[str(dtype).removeprefix("torch.")] = compare(model, part, graph, x.to(dtype), None)

    data = whole_data()
    recipe = Recipe(lr=0.02, max_epochs=3, patience=3)

    def trained(train, on):
        torch.manual_seed(5)
        model = ws.GLT(5, 6, 1, 2, design="diagonally-dominant", learned=False, dropout=0.0, solver=TIGHT).double()
        return [epoch.train_loss for epoch in train(model, on, recipe).history]

    found["expected"] = trained(ws.training.fit, data)
    if rank == 0:
        save_parts(f"{folder}/parts", data, partition(data.edges, processes, "stream"))
    dist.barrier()
    found["losses"] = trained(fit, load_part(f"{folder}/parts", rank, "cuda"))
    found["exchanges"] = part.exchange.exchanges
    torch.save(found, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()
