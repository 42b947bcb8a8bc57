"""What must hold for every system: an answer is right, or a status or an exception says that there is none."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import pickle
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import systems
import torch
from truth import Twin, wide

import walksum as ws
from walksum import backends
from walksum.backends import cpu, reference
from walksum.solvers import column_factor, factor, resolve

SAID = (ValueError, ws.SolveError)  # the exceptions by which the library refuses
LAPACK = ("dense", "inverse", "inverse half", "multigrid")
EXACT = ("Direct", "Dense", "Inverse")
FIELD_FUNCTIONS = ("logdet", "marginals", "selected_inverse", "sample", "condition exactly", "condition noisily")


@dataclass
class Ledger:
    """Counts per class, and every violation with the number that makes it again."""

    systems: Counter = field(default_factory=Counter)
    checks: Counter = field(default_factory=Counter)
    outcomes: Counter = field(default_factory=Counter)
    violations: list[dict[str, Any]] = field(default_factory=list)

    def violation(self, seed: int, where: str, why: str) -> None:
        self.violations.append({"seed": seed, "where": where, "why": why[:300]})


def try_system(seed: int, ledger: Ledger, device: str = "cpu") -> None:
    """All properties of one system; on a GPU those of solves and gradients, against twins on the CPU."""
    rng = np.random.default_rng([seed, 1])
    ledger.systems["all"] += 1
    try:
        system = systems.make(seed)
    except SAID:
        ledger.outcomes["making J: refused"] += 1
        return
    except Exception as error:
        ledger.violation(seed, "making J", f"{type(error).__name__}: {error}")
        return
    for kind, name in system.what.items():
        ledger.systems[f"{kind}: {name}"] += 1
    ledger.systems[f"heads: {system.J.heads}"] += 1
    if device != "cpu":
        _try_on(device, system, rng, ledger)
        return
    threads, forced, plain = int(rng.integers(1, 3)), rng.random() < 0.1, rng.random() < 0.06
    ledger.systems[f"threads: {threads}"] += 1
    ledger.systems["kernels: " + ("torch" if plain else "numba, every block in a thread" if forced else "numba")] += 1
    with _settings(threads, forced, plain):
        if system.what.get("design") in systems.DESIGNS:
            _check_design(system, ledger)
        twins = _twins(system)
        for name in system.solvers:
            _guarded(seed, f"solve {name}", ledger, lambda name=name: _check_solve(system, twins, name, ledger))
        if system.J.num_nodes <= 48 and system.J.dtype in (torch.float32, torch.float64):
            name = str(rng.choice(FIELD_FUNCTIONS))
            _guarded(seed, name, ledger, lambda: _check_field(system, twins, name, rng, ledger))
        if rng.random() < 0.1:
            _guarded(seed, "same bits", ledger, lambda: _check_bits(system, ledger))
        if rng.random() < 0.03:
            _guarded(seed, "gradient", ledger, lambda: _check_gradient(system, twins, ledger))
        if rng.random() < 0.01:
            _guarded(seed, "fork", ledger, lambda: _check_fork(system, ledger))
        if rng.random() < 0.002:
            _guarded(seed, "interrupt", ledger, lambda: _check_interrupt(system, rng, ledger))
        if rng.random() < 0.005:
            _guarded(seed, "sent to another process", ledger, lambda: _check_sent(system, ledger))


def _try_on(device: str, system: systems.System, rng: np.random.Generator, ledger: Ledger) -> None:
    twins = _twins(system)
    system.J, system.h = system.J.to(device), system.h.to(device)
    for name in system.solvers:
        _guarded(system.seed, f"solve {name}", ledger, lambda name=name: _check_solve(system, twins, name, ledger))
    if rng.random() < 0.1:
        _guarded(system.seed, "gradient", ledger, lambda: _check_gradient(system, twins, ledger))


def _guarded(seed: int, where: str, ledger: Ledger, check: Callable[[], None]) -> None:
    """Run one check; whatever it raises beyond the exceptions that say something is a violation."""
    ledger.checks[where] += 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check()
    except Wrong as wrong:
        ledger.violation(seed, where, str(wrong))
    except SAID as said:
        if not str(said):
            ledger.violation(seed, where, f"{type(said).__name__} without a word")
        ledger.outcomes[f"{where}: refused"] += 1
    except ImportError:  # Multigrid without PyAMG
        ledger.outcomes[f"{where}: not installed"] += 1
    except Exception as error:
        ledger.violation(seed, where, f"{type(error).__name__}: {error}")


class Wrong(Exception):
    """A property does not hold."""


@contextlib.contextmanager
def _settings(threads: int, forced: bool, plain: bool) -> Iterator[None]:
    """Threads of torch; every block in a thread, however small; the kernels in plain torch."""
    before, worth = torch.get_num_threads(), cpu.threads.WORTH_A_THREAD
    numba, has = backends._numba, backends.has_numba
    torch.set_num_threads(threads)
    modules = (cpu.threads, factor, column_factor)
    try:
        if forced:
            for module in modules:
                module.WORTH_A_THREAD = 0
        if plain:
            backends._numba, backends.has_numba = (lambda: reference), (lambda: False)
        yield
    finally:
        torch.set_num_threads(before)
        for module in modules:
            module.WORTH_A_THREAD = worth
        backends._numba, backends.has_numba = numba, has


def _twins(system: systems.System) -> list[Twin]:
    J = system.J if system.J.dtype == torch.float64 else system.J.to(torch.float32)
    return [Twin(J, head) for head in range(J.heads)]


def promised(solver: ws.Solver, J: ws.Precision) -> float:
    """The largest backward error that may be called converged, as the documentation of the solvers states it."""
    inner = getattr(solver, "inner", None)
    tol = getattr(solver, "tol", None) or getattr(inner, "tol", None)
    eps = torch.finfo(torch.float64 if J.dtype == torch.float64 else torch.float32).eps
    return tol or eps * max(16.0, J.num_nodes**0.5)


def _check_solve(system: systems.System, twins: list[Twin], name: str, ledger: Ledger) -> None:
    J, h, reports = system.J, system.h, []
    mu = ws.solve(J, h, systems.SOLVERS[name], observe=reports.append, on_nonconverged="ignore")
    if len(reports) != 1:
        raise Wrong(f"{len(reports)} reports of one solve")
    status = reports[0].status
    ledger.outcomes[f"solve {name}: {status.name}"] += 1
    finite = bool(h.isfinite().all()) and all(t.finite for t in twins)
    if mu.shape != h.shape or (h.dtype in (torch.float32, torch.float64) and mu.dtype != h.dtype):
        raise Wrong(f"mu is {mu.dtype} {tuple(mu.shape)} for h {h.dtype} {tuple(h.shape)}")
    if status is ws.Status.converged:
        solver = resolve(systems.SOLVERS[name], J, h.size(-1))
        _check_mu(J, h, mu, twins, promised(solver, J), reports[0])
        if type(solver).__name__ in EXACT and any(_surely_indefinite(t) for t in twins) and h.numel():
            raise Wrong("an elimination converged for a J that is not positive definite")
    elif status is ws.Status.nonfinite and finite:
        raise Wrong("called nonfinite, while J and h are finite")
    elif status is ws.Status.overflow and not finite:
        raise Wrong("called an overflow, while J or h is not finite")


def _check_mu(
    J: ws.Precision, h: torch.Tensor, mu: torch.Tensor, twins: list[Twin], tol: float, report: ws.Solution
) -> None:
    if not bool(mu.isfinite().all()):
        raise Wrong("converged, with NaN or infinity in mu")
    worst, eps = 0.0, torch.finfo(mu.dtype).eps
    quantum = float(torch.finfo(mu.dtype).smallest_normal) * eps
    blur = 2 * eps * max((t.terms for t in twins), default=2) ** 0.5  # of measuring in the dtype itself
    for head in range(h.size(0)):
        twin = twins[head if J.heads > 1 else 0]
        x, b = wide(mu[head]), wide(h[head].to(mu.dtype))
        error = twin.backward_error(x, b, quantum)
        worst = max(worst, error)
        if not error <= tol + blur:
            raise Wrong(
                f"converged with a backward error of {error:.3g}; promised {tol:.3g}, said {report.residual:.3g}"
            )
        if twin.small and twin.factor is not None and x.size:
            exact = twin.inverse @ b
            size = np.abs(twin.inverse).sum(1).max()
            bound = size * (tol + blur) * (twin.norm * np.abs(x).max(0) + np.abs(b).max(0))
            bound = bound + size * (twin.terms + twin.norm) * quantum
            if not (
                np.abs(x - exact).max(0) <= bound * (1 + 1e-6) + size * twin.norm * 1e-17 * np.abs(exact).max(0)
            ).all():
                raise Wrong("converged, but farther from the twin's mu than its condition number allows")
    if h.numel() and report.residual < 0.95 * worst - blur:
        raise Wrong(f"said a residual of {report.residual:.3g}; it is {worst:.3g}")


def _surely_indefinite(twin: Twin) -> bool:
    """Beyond what rounding could hide."""
    if not twin.small or not twin.finite or not twin.n:
        return False
    if (twin.diag <= 0).any():
        return True
    root = np.sqrt(twin.diag)
    S = (twin.A / root[:, None] / root[None, :]).astype(float)
    return bool(np.isfinite(S).all()) and bool(np.linalg.eigvalsh(S)[0] < -1e-4 * np.abs(S).max())


def _check_design(system: systems.System, ledger: Ledger) -> None:
    """The contract of a design: finite, positive diagonal, walk-summable."""
    J, seed = system.J, system.seed
    ledger.checks["design"] += 1
    if J.dtype not in (torch.float32, torch.float64) or system.what["travel"] in ("changed", "moved"):
        return
    if not bool(J.diag.isfinite().all() & J.off.isfinite().all() & (J.diag > 0).all()):
        ledger.violation(seed, "design", f"{system.what['design']}: J is not finite with a positive diagonal")
    elif J.num_nodes <= 48:
        root = J.diag.double().sqrt()
        R = torch.diag_embed(torch.ones_like(root)) - J.to_dense().double() / root.unsqueeze(1) / root.unsqueeze(2)
        radius = float(torch.linalg.eigvalsh(R.abs()).max()) if J.num_nodes else 0.0
        if not radius < 1:
            ledger.violation(seed, "design", f"{system.what['design']}: walk-summability radius {radius!r}")


def _check_field(
    system: systems.System, twins: list[Twin], name: str, rng: np.random.Generator, ledger: Ledger
) -> None:
    J, n = system.J, system.J.num_nodes
    definite = [t.factor is not None for t in twins]
    condition = max((t.scaled_condition for t, ok in zip(twins, definite, strict=True) if ok), default=math.inf)
    if any(_surely_indefinite(t) or not t.finite for t in twins):
        _must_refuse(J, name, rng)
        ledger.outcomes[f"{name}: refused"] += 1
        return
    if not all(definite) or condition * 1e-14 * n > 1e-2:
        _field_answer(J, name, rng)  # no digits are promised, but no other exception either
        ledger.outcomes[f"{name}: within rounding of singular"] += 1
        return
    eps = torch.finfo(J.dtype).eps
    relative = 1e-15 * (n + 5) * condition + 4 * eps
    _COMPARE[name](J, twins, relative, rng)
    ledger.outcomes[f"{name}: right"] += 1


def _field_answer(J: ws.Precision, name: str, rng: np.random.Generator) -> Any:
    nodes, values = _observed(J, rng)
    if name == "logdet":
        return ws.logdet(J)
    if name == "marginals":
        return ws.marginals(J)
    if name == "selected_inverse":
        return ws.selected_inverse(J)
    if name == "sample":
        return ws.sample(J, (2,), seed=0)
    given = ws.GaussianField(J).condition(nodes, values, None if name == "condition exactly" else 0.5)
    return given.mean, given.variance


def _must_refuse(J: ws.Precision, name: str, rng: np.random.Generator) -> None:
    if name.startswith("condition"):  # conditioning may make an improper prior proper: only its construction refuses
        with contextlib.suppress(*SAID):
            ws.GaussianField(J, validate_args=True)
            raise Wrong("a field of a J that is not positive definite")
        return
    try:
        _field_answer(J, name, rng)
    except SAID:
        return
    raise Wrong("an answer for a J that is not positive definite or not finite")


def _observed(J: ws.Precision, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    nodes = torch.from_numpy(np.sort(rng.permutation(J.num_nodes)[: max(1, J.num_nodes // 3)]))
    return nodes, torch.from_numpy(rng.standard_normal(nodes.numel())).to(J.dtype)


def _close(what: str, found: Any, exact: np.ndarray, allowed: np.ndarray, dtype: torch.dtype) -> None:
    found = wide(found)
    with np.errstate(all="ignore"):
        tiny = float(torch.finfo(dtype).smallest_normal)
        worst = np.abs(found - exact) / (allowed + tiny)
    if not (worst <= 1).all():
        k = int(np.argmax(np.where(np.isnan(worst), np.inf, worst)))
        raise Wrong(f"{what}: {float(found.flat[k])!r} for {float(exact.flat[k])!r}")


def _compare_logdet(J: ws.Precision, twins: list[Twin], relative: float, rng: np.random.Generator) -> None:
    for found, twin in zip(ws.logdet(J), twins, strict=True):
        size = float(np.abs(np.log(twin.diag)).sum() + twin.n)
        _close("logdet", found, np.array(twin.logdet), np.array(relative * size), J.dtype)


def _compare_marginals(J: ws.Precision, twins: list[Twin], relative: float, rng: np.random.Generator) -> None:
    for found, twin in zip(ws.marginals(J), twins, strict=True):
        exact = np.diag(twin.inverse)
        _close("marginals", found, exact, relative * exact, J.dtype)


def _compare_selected(J: ws.Precision, twins: list[Twin], relative: float, rng: np.random.Generator) -> None:
    i, j = J.graph.edges.numpy()
    S = ws.selected_inverse(J)
    for diag, off, twin in zip(S.diag, S.off, twins, strict=True):
        exact = np.diag(twin.inverse)
        _close("selected_inverse", diag, exact, relative * exact, J.dtype)
        _close("selected_inverse", off, twin.inverse[i, j], relative * np.sqrt(exact[i] * exact[j]), J.dtype)


def _compare_sample(J: ws.Precision, twins: list[Twin], relative: float, rng: np.random.Generator) -> None:
    # x = L^-T z, so x^T J x = |z|^2 for the noise that this seed draws
    seed = int(rng.integers(2**31))
    x = ws.sample(J, (2,), seed=seed)
    if not torch.equal(x, ws.sample(J, (2,), seed=seed)):
        raise Wrong("the same seed gave another sample")
    noise = torch.Generator().manual_seed(seed)
    z = wide(torch.randn(J.heads, J.num_nodes, 2, generator=noise, dtype=J.dtype))
    for head, twin in enumerate(twins):
        for k in range(2):
            v, square = wide(x[k, head]), (z[head, :, k] ** 2).sum()
            rounding = 8 * torch.finfo(J.dtype).eps * float(np.abs(v) @ np.abs(twin.A) @ np.abs(v))
            _close(
                "sample",
                torch.tensor(float(v @ twin.A @ v), dtype=torch.float64),
                square,
                relative * square + rounding,
                J.dtype,
            )


def _compare_condition(exactly: bool) -> Callable[..., None]:
    def compare(J: ws.Precision, twins: list[Twin], relative: float, rng: np.random.Generator) -> None:
        nodes, values = _observed(J, rng)
        given = ws.GaussianField(J).condition(nodes, values, None if exactly else 0.5)
        o = nodes.numpy()
        for head, twin in enumerate(twins):
            S = twin.inverse
            Soo = S[np.ix_(o, o)] + (0 if exactly else 0.5 * np.eye(o.size, dtype=S.dtype))
            K = np.linalg.solve(Soo.astype(float), S[o].astype(float)).T
            mean, variance = K @ values.double().numpy(), np.diag(S) - np.einsum("ij,ji->i", K, S[o].astype(float))
            # the twin itself inverts a block: its own digits set the limit
            lost = 1e-13 * float(np.linalg.cond(Soo.astype(float))) + 1e3 * relative
            if not lost < 1e-3:
                continue
            size = np.abs(K).sum(1).max() * float(values.abs().max()) + 1e-30
            _close("conditional mean", given.mean[head], mean, np.full(mean.shape, lost * size), J.dtype)
            _close("conditional variance", given.variance[head], variance, lost * np.diag(S), J.dtype)

    return compare


_COMPARE: dict[str, Callable[..., None]] = {
    "logdet": _compare_logdet,
    "marginals": _compare_marginals,
    "selected_inverse": _compare_selected,
    "sample": _compare_sample,
    "condition exactly": _compare_condition(True),
    "condition noisily": _compare_condition(False),
}


def _check_bits(system: systems.System, ledger: Ledger) -> None:
    """Equal calls give equal bits, at one thread and at two, of all kernels that are ours and not LAPACK's."""
    if system.solvers[0] in LAPACK:
        return
    solver, found = systems.SOLVERS[system.solvers[0]], []
    for threads in (1, 2, 1):
        torch.set_num_threads(threads)
        J = ws.Precision(system.J.graph, system.J.diag.clone(), system.J.off.clone())
        found.append(ws.solve(J, system.h, solver, on_nonconverged="ignore"))
    for other in found[1:]:
        if not torch.equal(found[0].nan_to_num(7.0), other.nan_to_num(7.0)):
            raise Wrong(f"other bits with {system.solvers[0]}")


def _check_gradient(system: systems.System, twins: list[Twin], ledger: Ledger) -> None:
    """The implicit backward pass against autograd through a dense float64 solve."""
    J, name = system.J, system.solvers[0]
    good = all(t.small and t.factor is not None and t.scaled_condition < 1e3 for t in twins)
    usual = good and all(1e-3 < float(t.norm) < 1e3 for t in twins) and name != "unrolled"
    if not usual or J.dtype not in (torch.float32, torch.float64) or not system.h.numel() > 0:
        return
    h0, weight = torch.randn(2, *system.h.shape, dtype=torch.float64).to(J.device)
    statuses: list[ws.Status] = []

    def gradients(dtype: torch.dtype, answer: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        leaves = [t.detach().clone().to(dtype).requires_grad_() for t in (J.diag, J.off, h0)]
        (answer(*leaves) * weight.to(dtype)).sum().backward()
        return [torch.zeros_like(t) if t.grad is None else t.grad.double() for t in leaves]

    solver = systems.SOLVERS[name]
    mine = gradients(
        J.dtype,
        lambda d, o, h: ws.solve(ws.Precision(J.graph, d, o), h, solver, lambda s: statuses.append(s.status), "ignore"),
    )
    if any(s is not ws.Status.converged for s in statuses):
        return
    rounded = h0.to(J.dtype).double()
    exact = gradients(
        torch.float64,
        lambda d, o, h: torch.linalg.solve(ws.Precision(J.graph, d, o).to_dense(), h - h.detach() + rounded),
    )
    # a node whose precision is far below the others' costs their digits, as it costs those of mu
    lost = 2e4 * max(1.0, max((t.condition for t in twins), default=1.0) / 1e3)
    tol = promised(resolve(solver, J, system.h.size(-1)), J)
    for part, a, b in zip(("diag", "off", "h"), mine, exact, strict=True):
        if a.numel() and not float((a - b).abs().max()) <= lost * tol * (float(b.abs().max()) + 1):
            raise Wrong(f"gradient of {part} with {name}: off by {float((a - b).abs().max()):.3g}")
    ledger.outcomes["gradient: right"] += 1


def _check_fork(system: systems.System, ledger: Ledger) -> None:
    """A forked child solves what its parent prepared."""
    expected = ws.solve(system.J, system.h, "auto", on_nonconverged="ignore")
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        mu = ws.solve(system.J, system.h, "auto", on_nonconverged="ignore")
        os.write(send, b"same" if torch.equal(mu.nan_to_num(7.0), expected.nan_to_num(7.0)) else b"other")
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if answer != b"same":
        raise Wrong(f"in a forked child: {answer!r}, exit status {status}")


def _serve(pipe: Connection) -> None:
    """Another process: solve what is sent, until the pipe is closed."""
    with contextlib.suppress(EOFError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while True:
            J, h, solver, plain = pickle.loads(pipe.recv_bytes())
            with _settings(threads=1, forced=False, plain=plain):
                pipe.send_bytes(pickle.dumps(ws.solve(J, h, solver, on_nonconverged="ignore")))


@cache
def _other_process() -> Connection:
    """One per process: it is spawned, so that it shares no address with this one."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    context.Process(target=_serve, args=(theirs,), daemon=True).start()
    theirs.close()
    return mine


def _check_sent(system: systems.System, ledger: Ledger) -> None:
    """A J that was solved, pickled and solved in another process gives the same bits there."""
    solver = "auto" if system.solvers[0] in LAPACK else systems.SOLVERS[system.solvers[0]]
    expected = ws.solve(system.J, system.h, solver, on_nonconverged="ignore")
    pipe = _other_process()
    try:
        pipe.send_bytes(pickle.dumps((system.J, system.h, solver, not backends.has_numba())))
        mu = pickle.loads(pipe.recv_bytes())
    except (EOFError, OSError) as error:
        _other_process.cache_clear()
        raise Wrong(f"the other process died: {error}") from error
    if not torch.equal(mu.nan_to_num(7.0), expected.nan_to_num(7.0)):
        raise Wrong(f"other bits with {system.solvers[0]} in another process")


def _check_interrupt(system: systems.System, rng: np.random.Generator, ledger: Ledger) -> None:
    """Ctrl-C in the middle of a threaded solve ends in KeyboardInterrupt, and the next solve is right."""
    n = 30
    i = np.arange(n * n).reshape(n, n)
    pairs = [(i[:, :-1], i[:, 1:]), (i[:-1], i[1:])]
    edges = np.concatenate([np.stack([a.ravel(), b.ravel()]) for a, b in pairs], 1)
    J = ws.FixedLaplacian()(ws.Graph.from_edge_index(torch.from_numpy(edges)))
    h = torch.randn(n * n, 256)
    torch.set_num_threads(2)
    expected, name = {}, str(rng.choice(["direct", "hybrid", "cg", "gabp"]))
    for _ in range(2):
        start = time.perf_counter()
        expected[name] = ws.solve(pickle.loads(pickle.dumps(J)), h, name, on_nonconverged="ignore")
        took = time.perf_counter() - start

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(1e-5, took * rng.random()))
        ws.solve(J, h, name, on_nonconverged="ignore")
        signal.setitimer(signal.ITIMER_REAL, 0)
        ledger.outcomes["interrupt: too late"] += 1
    except KeyboardInterrupt:
        ledger.outcomes[f"interrupt {name}: raised"] += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if not torch.equal(ws.solve(J, h, name, on_nonconverged="ignore"), expected[name]):
        raise Wrong(f"after an interrupt {name} gives another mu")
