import gc
import subprocess
import sys
import threading
import warnings
import weakref

import pytest
import torch

import walksum as ws
from gallery import DESIGNS, GALLERY, dense_solve, path, problem, random_graph
from walksum.ops import edge_sum
from walksum.solvers.cg.solver import PreparedCG


@pytest.fixture
def system():
    return problem(GALLERY["grid"], "learned laplacian", 3)


def test_shape_of_h_is_kept():
    J, h = problem(GALLERY["grid"], "fixed laplacian", 1)
    assert ws.solve(J, h).shape == h.shape
    assert ws.solve(J, h[0]).shape == h[0].shape
    torch.testing.assert_close(ws.solve(J, h[0]), ws.solve(J, h)[0])


def test_the_meta_device_has_nothing_to_solve(system):
    J, h = system
    with pytest.raises(ValueError, match="meta device, which holds no numbers"):
        ws.solve(J.to("meta"), h.to("meta"))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_tracer_is_told_what_to_use_instead():
    edges = torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(ValueError, match="use torch"):
        torch.jit.trace(ws.Propagate(), (torch.ones(3, 2), edges))


def test_one_matrix_serves_every_head_of_h():
    J, _ = problem(GALLERY["grid"], "fixed laplacian", 1)
    h = torch.randn(4, J.num_nodes, 3, dtype=torch.double)
    torch.testing.assert_close(ws.solve(J, h), dense_solve(J, h))


def test_observe_sees_forward_and_backward(system):
    J, h = system
    seen = []
    mu = ws.solve(J, h.requires_grad_(), "cg", observe=seen.append)
    mu.sum().backward()
    assert [s.direction for s in seen] == ["forward", "backward"]
    assert all(s.converged and s.steps > 0 and s.solver == "CG" for s in seen)
    assert not seen[0].value.requires_grad


def test_forward_and_backward_share_what_was_prepared(system, monkeypatch):
    J, h = system
    prepared = []
    original = ws.Dense.prepare
    monkeypatch.setattr(ws.Dense, "prepare", lambda self, J: prepared.append(1) or original(self, J))
    h.requires_grad_()
    for _ in range(3):
        ws.solve(J, h, "dense").sum().backward()
    assert len(prepared) == 1
    J.diag.mul_(2)  # other values: prepared anew
    torch.testing.assert_close(ws.solve(J, h, "dense"), dense_solve(J, h))
    assert len(prepared) == 2


def test_vmap_over_h_is_more_columns(system):
    J, h = system
    batch = torch.randn(5, *h.shape, dtype=torch.double)
    torch.testing.assert_close(torch.vmap(lambda h: ws.solve(J, h))(batch), dense_solve(J, batch))
    torch.testing.assert_close(
        torch.vmap(lambda h: ws.solve(J, h), in_dims=1, out_dims=2)(batch.transpose(0, 1)),
        dense_solve(J, batch).movedim(0, 2),
    )


@pytest.mark.parametrize("solver", ["cg", "dense"])
def test_vmap_over_matrices_is_more_heads(system, solver):
    J, h = system
    diag = J.diag + torch.rand(4, *J.diag.shape, dtype=torch.double)

    def loss(diag, off, h):
        return ws.solve(ws.Precision(J.graph, diag, off), h, solver).square().sum()

    gradient = torch.func.grad(loss, argnums=(0, 1, 2))
    batched = torch.vmap(gradient, in_dims=(0, None, None))(diag, J.off, h)
    for k in range(4):
        for together, alone in zip(batched, gradient(diag[k], J.off, h), strict=True):
            torch.testing.assert_close(together[k], alone)


@pytest.mark.parametrize(("graph", "columns"), [("no edges", 2), ("grid", 0)])
def test_vmap_where_there_is_nothing(graph, columns):
    J, h = problem(GALLERY[graph], "fixed laplacian", 2)
    diag, off, h = (torch.stack([t, 2 * t]) for t in (J.diag, J.off, h[..., :columns]))
    mu = torch.vmap(lambda d, o, h: ws.solve(ws.Precision(J.graph, d, o), h))(diag, off, h)
    torch.testing.assert_close(mu, torch.stack([ws.solve(J, h[0])] * 2))


def test_forward_mode_agrees_with_reverse_mode(system):
    J, h = system
    values = (J.diag, J.off, h)

    def solve(diag, off, h):
        return ws.solve(ws.Precision(J.graph, diag, off), h, "dense")

    tangents = tuple(torch.randn_like(v) for v in values)
    _, forward = torch.func.jvp(solve, values, tangents)
    reverse = torch.func.jacrev(solve, argnums=(0, 1, 2))(*values)
    expected = sum((j.flatten(3) @ t.flatten()) for j, t in zip(reverse, tangents, strict=True))
    torch.testing.assert_close(forward, expected)


def test_hessian_by_nested_transforms(system):
    J, h = system

    def loss(diag):
        return ws.solve(ws.Precision(J.graph, diag, J.off), h, "dense").sum()

    def dense_loss(diag):
        return torch.linalg.solve(ws.Precision(J.graph, diag, J.off).to_dense(), h).sum()

    torch.testing.assert_close(torch.func.hessian(loss)(J.diag), torch.func.hessian(dense_loss)(J.diag))


@pytest.mark.parametrize("solver", ["auto", "cg", "dense", "chebyshev"])
def test_the_vmap_of_autograd(system, solver):
    """Older than torch.func's: ``is_grads_batched``, and the vectorized jacobians and hessians of torch.autograd."""
    J, h = system

    def solve(diag, off, h):
        return ws.solve(ws.Precision(J.graph, diag, off), h, solver)

    def loss(off, h):
        return solve(J.diag, off, h).square().sum()

    jacobian, hessian = torch.autograd.functional.jacobian, torch.autograd.functional.hessian
    expected = jacobian(solve, (J.diag, J.off, h))
    for strategy in ("reverse-mode", "forward-mode"):
        found = jacobian(solve, (J.diag, J.off, h), vectorize=True, strategy=strategy)
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(hessian(loss, (J.off, h), vectorize=True), hessian(loss, (J.off, h)))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # dynamo looks at it
def test_compiled_code_gives_the_same_answer(system):
    J, h = system

    def step(diag, off, h):
        return torch.tanh(ws.solve(ws.Precision(J.graph, diag, off), 2 * h)).sum()

    values = [t.clone().requires_grad_() for t in (J.diag, J.off, h)]
    expected = torch.autograd.grad(step(*values), values)
    compiled = torch.autograd.grad(torch.compile(step, backend="aot_eager")(*values), values)
    for a, b in zip(compiled, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_solved_in_float32(system, dtype):
    J, h = (t.to(torch.float32) for t in system)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mu = ws.solve(J, h.to(dtype))
    assert mu.dtype == torch.float32
    torch.testing.assert_close(mu, ws.solve(J, h.to(dtype).float()))
    seen = []
    assert ws.solve(J.to(dtype), h.to(dtype), observe=seen.append).dtype == torch.float32
    assert ws.explain_solver(J.to(dtype), h.to(dtype)).solver.name == seen[0].solver


def test_inference_mode(system):
    J, h = system
    with torch.inference_mode():
        torch.testing.assert_close(ws.solve(J, h), dense_solve(J, h))
        torch.testing.assert_close(
            ws.solve(ws.Precision(J.graph, J.diag + 1, J.off), h + 1).isfinite().all().item(), True
        )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda J, h: ws.solve(J, h.numpy()), r"h is a ndarray; expected a tensor"),
        (lambda J, h: ws.solve(J, h[0].to_sparse()), r"h has layout torch.sparse_coo.*use h.to_dense"),
        (lambda J, h: ws.solve(J.to_dense(), h), r"J is a Tensor; expected a walksum.Precision"),
        (lambda J, h: ws.explain_solver(J, [1.0]), r"h is a list"),
        (lambda J, h: ws.explain_solver(J, h[..., 1:, :]), r"h has shape"),
        (lambda J, h: ws.explain_solver(J, h.sum()), r"h has shape \(\)"),
        (lambda J, h: ws.explain_solver(J, h.long()), r"h is torch.int64 but J is torch.float64"),
        (lambda J, h: ws.Precision(J.graph.edges, J.diag, J.off), r"are Tensor, Tensor, Tensor; expected a Graph"),
        (lambda J, h: ws.Precision(J.graph, [1.0], J.off), r"are Graph, list, Tensor; expected a Graph"),
    ],
)
def test_arguments_of_another_kind_are_named(system, make, message):
    with pytest.raises(ValueError, match=message):
        make(*system)


def test_one_column_may_be_a_vector(system):
    J, h = system
    J, column = ws.Precision(J.graph, J.diag[0], J.off[0]), h[0, :, 0].clone().requires_grad_()
    mu = ws.solve(J, column)
    torch.testing.assert_close(mu, ws.solve(J, column[:, None])[:, 0])
    mu.square().sum().backward()
    torch.testing.assert_close(column.grad, 2 * ws.solve(J, mu.detach()))
    assert str(ws.explain_solver(J, column)) == str(ws.explain_solver(J, column[:, None]))
    with pytest.raises(ValueError, match=r"h has shape \(2,\)"):
        ws.solve(J, column[:2])


def test_values_overwritten_in_inference_mode_are_seen(system):
    J, h = system
    with torch.inference_mode():
        changed = ws.Precision(J.graph, J.diag.clone(), J.off.clone())
        ws.solve(changed, h, "cg")
        changed.diag.mul_(2)
        torch.testing.assert_close(ws.solve(changed, h, "cg"), dense_solve(changed, h))


def test_solves_from_several_threads_at_once():
    J, h = problem(random_graph(300, 900), "fixed laplacian", 1)
    expected, answers = dense_solve(J, h), []

    def work():
        for _ in range(5):
            answers.append(ws.solve(J, h))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 20
    for mu in answers:
        torch.testing.assert_close(mu, expected, rtol=1e-8, atol=1e-8)


def test_keeping_a_report_does_not_keep_the_autograd_graph(system):
    J, h = system
    kept, factor = [], torch.randn_like(h)
    held_by_the_graph = weakref.ref(factor)
    mu = ws.solve(J, h.requires_grad_() * factor, "cg", observe=kept.append)
    del factor
    assert held_by_the_graph() is not None
    del mu
    gc.collect()
    assert kept
    assert held_by_the_graph() is None


# --- when a solve does not converge


def test_nonconvergence_is_a_warning_an_error_or_silence(system):
    J, h = system
    impatient = ws.GaBP(max_steps=2)
    with pytest.warns(ws.SolveWarning, match=r"GaBP did not reach its tolerance.*raise max_steps.*2 steps, residual"):
        ws.solve(J, h, impatient)
    with pytest.raises(ws.SolveError, match="forward pass"):
        ws.solve(J, h, impatient, on_nonconverged="raise")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ws.solve(J, h, impatient, on_nonconverged="ignore")


def test_check_returns_a_good_solution_and_raises_on_a_bad_one(system):
    J, h = system
    good = ws.CG().prepare(J)(h)
    assert good.check() is good
    with pytest.raises(ws.SolveError, match="raise max_steps"):
        ws.CG(max_steps=1).prepare(J)(h).check()


# --- unrolled


@pytest.mark.parametrize("design", DESIGNS)
def test_unrolled_gradients_approach_the_implicit_ones(design):
    J, h = problem(GALLERY["grid"], design, 2)
    values = [t.clone().requires_grad_() for t in (J.diag, J.off, h)]

    def gradients(solver):
        mu = ws.solve(ws.Precision(J.graph, *values[:2]), values[2], solver, on_nonconverged="ignore")
        return torch.autograd.grad(mu.square().sum(), values)

    for unrolled, implicit in zip(gradients(ws.Unrolled(steps=3000, damping=1.0)), gradients("dense"), strict=True):
        torch.testing.assert_close(unrolled, implicit, rtol=1e-6, atol=1e-8)


def test_truncated_unrolling_records_the_last_steps_only(system):
    J, h = system
    h = h.clone().requires_grad_()

    def gradient(last):
        mu = ws.solve(J, h, ws.Unrolled(steps=60, last=last), on_nonconverged="ignore")
        return torch.autograd.grad(mu.sum(), h)[0]

    exact = torch.autograd.grad(ws.solve(J, h).sum(), h)[0]
    errors = [float((gradient(last) - exact).abs().max()) for last in (1, 5, 20, 60)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-2 * errors[0]


MEMORY = """
import resource, torch, walksum as ws
torch.manual_seed(0)
graph = ws.Graph.from_edge_index(torch.randint(3000, (2, 12000)), 3000)
J = ws.FixedLaplacian()(graph)
diag, off = (t.clone().requires_grad_() for t in (J.diag, J.off))
h = torch.randn(3000, 16, requires_grad=True)

def peak(steps):
    solver = ws.GaBP(tol=1e-30, max_steps=steps)
    ws.solve(ws.Precision(graph, diag, off), h, solver, on_nonconverged="ignore").sum().backward()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

peak(2)
print(peak(10), peak(500))
"""


def test_memory_does_not_grow_with_the_steps():
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    few, many = map(float, done.stdout.split())
    assert many - few < 20  # MiB


def test_unrolled_keeps_every_step():
    graph = GALLERY["grid"]

    def kept(steps):
        held = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: held.append(t.numel()) or t, lambda t: t):
            h = torch.ones(graph.num_nodes, 2, requires_grad=True)
            ws.solve(ws.FixedLaplacian()(graph, h=h), h, ws.Unrolled(steps=steps), on_nonconverged="ignore")
        return sum(held)

    assert kept(100) > 8 * kept(10)


# --- wrong use


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda J, h: ws.solve(J, h[:, :-1]), r"h has shape \(3, 8, 2\); .* takes \[3, 9, F\]"),
        (lambda J, h: ws.solve(J, h[0]), r"h has shape \(9, 2\)"),
        (lambda J, h: ws.solve(ws.Precision(J.graph, J.diag[0], J.off[0]), h[:, :-1]), r"h has shape \(3, 8, 2\)"),
        (lambda J, h: ws.solve(J, h.float()), r"h is torch.float32 but J is torch.float64; use h.to\(J.dtype\)"),
        (lambda J, h: ws.solve(J, h.long()), r"h is torch.int64 but J is torch.float64"),
        (lambda J, h: ws.solve(J, h.to("meta")), r"h is on meta but J on cpu"),
        (lambda J, h: ws.solve(J, h, "lu"), r"solver='lu'; known: 'auto', 'gabp', 'cg', 'dense'"),
        (lambda J, h: ws.solve(J, h, on_nonconverged="cry"), r"on_nonconverged='cry'; known: 'ignore'"),
    ],
)
def test_bad_input_says_what_to_do(call, message):
    J, h = problem(GALLERY["grid"], "learned laplacian", 3)
    with pytest.raises(ValueError, match=message):
        call(J, h)


# --- known answers


def test_label_spreading_is_the_fixed_laplacian():
    from sklearn.semi_supervised import LabelSpreading

    from walksum.data.datasets import digits

    data = digits()
    alpha, n = 0.9, data.num_nodes
    graph = ws.Graph.from_edge_index(data.edge_index, n)
    labels = torch.full((n,), -1)
    labels[:100] = data.y[:100]
    adjacency = (torch.eye(n) + ws.FixedDiagonallyDominant("repulsive")(graph).to_dense()[0]).fill_diagonal_(0).numpy()
    oracle = LabelSpreading(kernel=lambda X, Y: adjacency, alpha=alpha, max_iter=3000, tol=1e-12)
    oracle.fit(data.x.numpy(), labels.numpy())
    onehot = torch.nn.functional.one_hot(labels.clamp_min(0), 10).double() * (labels >= 0).double().unsqueeze(1)
    mu = ws.solve(ws.FixedLaplacian(alpha)(graph, h=onehot), (1 - alpha) * onehot)
    torch.testing.assert_close(
        mu / mu.sum(1, keepdim=True), torch.from_numpy(oracle.label_distributions_), atol=1e-6, rtol=0
    )


def test_ppnp_is_the_fixed_laplacian():
    graph = GALLERY["grid"]
    alpha, H = 0.1, torch.randn(9, 4, dtype=torch.double)
    A = ws.FixedDiagonallyDominant("repulsive")(graph, h=H).to_dense()[0].fill_diagonal_(0)
    d = A.sum(1).rsqrt()
    ppnp = alpha * torch.linalg.inv(torch.eye(9) - (1 - alpha) * d[:, None] * A * d) @ H
    torch.testing.assert_close(ws.solve(ws.FixedLaplacian(1 - alpha)(graph, h=H), alpha * H), ppnp)


def test_a_path_of_two_by_hand():
    J = ws.Precision(path(2), torch.tensor([2.0, 3.0]), torch.tensor([1.0]))
    torch.testing.assert_close(ws.solve(J, torch.tensor([[5.0], [10.0]])), torch.tensor([[1.0], [3.0]]))


@pytest.mark.parametrize(("heads", "columns"), [(8, 8), (16, 24), (8, 7), (3, 8)])
def test_heads_that_lie_node_after_node(heads, columns):
    """A linear layer writes its heads this way: the same numbers, and of eight heads at once without a copy."""
    graph = ws.Graph.from_edge_index(torch.randint(60, (2, 90)), 60)
    off = torch.rand(heads, graph.num_edges, dtype=torch.float64) - 0.5
    diag = 1 + edge_sum(graph, off.abs())
    h, weight = (
        torch.randn(60, heads, columns, dtype=torch.float64),
        torch.randn(60, heads, columns, dtype=torch.float64),
    )
    found = []
    for lies in (lambda t: t.transpose(0, 1), lambda t: t.transpose(0, 1).contiguous()):
        leaves = [t.clone().requires_grad_() for t in (diag, off, h)]
        mu = ws.solve(ws.Precision(graph, *leaves[:2]), lies(leaves[2]), solver="direct")
        assert mu.transpose(0, 1).is_contiguous() == (len(found) == 0 and heads % 8 == columns % 8 == 0)
        found.append([mu, *torch.autograd.grad((mu * lies(weight)).sum(), leaves)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_a_fixed_J_holds_no_output(system):
    J, h = system
    mu = ws.solve(J, h.clone().requires_grad_())
    assert sum(each is not None for each in mu.grad_fn.saved_tensors) == 2  # the values of J


@pytest.mark.parametrize(
    "error", [MemoryError("Unable to allocate 2 GiB"), torch.OutOfMemoryError("CUDA out of memory")]
)
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_an_error_of_memory_says_what_a_solve_holds_and_what_to_change(monkeypatch, error, direction):
    J = ws.FixedDiagonallyDominant()(ws.Graph.from_edge_index(torch.tensor([[0, 1], [1, 2]])))
    h = torch.randn(3, 4, requires_grad=True)
    mu = ws.solve(J, h, ws.CG())

    def fails(self, h):
        raise error

    monkeypatch.setattr(PreparedCG, "run", fails)
    with pytest.raises(type(error), match=str(error)) as caught:
        ws.solve(J, h, ws.CG()) if direction == "forward" else mu.sum().backward()
    (note,) = caught.value.__notes__
    assert "CG holds about 6 vectors of 1 x 3 x 4 numbers" in note
    assert "GLT(..., recompute=True)" in note
    del error.__notes__
