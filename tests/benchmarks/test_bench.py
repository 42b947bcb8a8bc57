"""The yardstick is Algorithm 1, the targets judge as they say, the bench runs, stops and goes on."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from benchmarks.yardstick import Yardstick, directed, gabp

import walksum as ws
from benchmarks import cells, cpu, gpu, problems, records, report, scaling, steps, targets, timing, truth


def problem(design="F-DD", heads=1, columns=3, graph_name="tiny"):
    graph, x = problems.load_graph(graph_name)
    return problems.make(graph_name, graph, x, design, heads, columns)


def in_double(p):
    return [t.double() for t in (p.diag, p.off, p.h)]


# ---- yardstick ----


@pytest.mark.parametrize("design", problems.DESIGNS)
@pytest.mark.parametrize("heads", [1, 2])
def test_yardstick_is_gabp_with_the_papers_knobs(design, heads):
    p = problem(design, heads)
    diag, off, h = in_double(p)
    mu, taken = gabp(directed(p.graph.edges), diag, off, h)
    solver = ws.GaBP(damping=0.5, tol=1e-6, max_steps=1000, stop="messages")
    expected = solver.prepare(ws.Precision(p.graph, diag, off))(h)
    assert taken == expected.steps
    torch.testing.assert_close(mu, expected.value, rtol=1e-9, atol=1e-11)


def test_yardstick_backward_is_that_of_a_dense_solve():
    p = problem("L-PN", heads=2)
    ours = [t.requires_grad_() for t in in_double(p)]
    dense = [t.detach().clone().requires_grad_() for t in ours]
    taken = []
    mu = Yardstick.apply(*ours, p.graph.edges, directed(p.graph.edges), taken)
    mu.backward(p.grad.double())
    expected = torch.linalg.solve(ws.Precision(p.graph, *dense[:2]).to_dense(), dense[2])
    expected.backward(p.grad.double())
    torch.testing.assert_close(mu, expected, rtol=0, atol=1e-5)
    for a, b in zip(ours, dense, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-4)
    assert len(taken) == 2


def test_yardstick_stops_at_its_limit_and_never_on_nan():
    p = problem()
    diag, off, h = in_double(p)
    h[0, 0, 0] = math.nan
    assert gabp(directed(p.graph.edges), diag, off, h, max_steps=7)[1] == 7


# ---- problems and truth ----


@pytest.mark.parametrize("design", problems.DESIGNS)
@pytest.mark.parametrize("heads", [1, 8])
def test_problems_are_walk_summable_and_the_same_every_time(design, heads):
    p, again = problem(design, heads), problem(design, heads)
    assert ws.Precision(p.graph, p.diag, p.off).is_walk_summable
    assert torch.equal(p.off, again.off)
    assert torch.equal(p.h, again.h)


def test_power_law_has_the_asked_size_and_hubs():
    graph = problems.power_law(500, 2000, 0.55)
    i, j = graph.edges
    assert (graph.num_nodes, graph.num_edges) == (500, 2000)
    assert bool((i < j).all())
    assert torch.equal(ws.Graph.from_edge_index(graph.edges, 500).edges, graph.edges)  # sorted, no duplicates
    assert graph.degree.max() > 10 * graph.degree.float().mean()


def test_grid_has_its_edges():
    assert problems.grid(4).num_edges == 24


@pytest.mark.parametrize("large", [False, True])
def test_truth_is_the_dense_float64_solve(large, monkeypatch):
    monkeypatch.setattr(truth, "is_large", lambda graph: large)
    p = problem("F-Lap", columns=6)
    diag, off, h = in_double(p)
    expected = torch.linalg.solve(ws.Precision(p.graph, diag, off).to_dense(), h)
    found = truth.Truth(p)
    assert found.mu.size(2) == (truth.FEW_COLUMNS if large else 6)
    torch.testing.assert_close(found.mu, expected[..., : found.mu.size(2)], rtol=0, atol=1e-10)
    assert found.errors(expected * 1.01, None)[0] == pytest.approx(0.01, rel=0.01)


# ---- measuring ----


def test_peak_memory_counts_what_is_freed_again():
    def run():
        torch.ones(10_000_000)

    peak = timing.peak_bytes(run)
    if peak is None:
        pytest.skip("this system has no resettable high-water mark")
    assert 38e6 < peak < 60e6


def test_interleaved_takes_turns_and_drops_the_slow():
    order = []
    samples = {name: (lambda name=name: order.append(name) or 1.0) for name in "ab"}
    taken = timing.interleaved(samples, {"a": 10.0, "b": -1.0}, rounds=3)
    assert order == ["a", "b", "a", "a"]
    assert {k: len(v) for k, v in taken.items()} == {"a": 3, "b": 1}


def test_a_failing_contestant_is_a_record_of_its_failure():
    def make(p):
        raise ValueError("no such thing")

    found = cells.measure(problem(), {"broken": make}, cells.QUICK, bandwidth=1e9)
    assert found[-1]["failure"] == "ValueError: no such thing"
    assert "seconds" not in found[-1]


def test_a_slow_contestant_is_timed_once():
    ran = []

    def make(p):
        run = cells.contestants.ours("auto")(p)
        return lambda: ran.append(1) or run()

    effort = cells.Effort(budget=1.0, yardstick=1.0, rounds=3, patience=0.0)
    _, slow = cells.measure(problem(), {"slow": make}, effort, bandwidth=1e9)
    assert len(ran) == 2
    assert slow["samples"] == 1
    assert slow["seconds"] > 0


def test_who_is_left_out_leaves_a_reason(tmp_path):
    out = tmp_path / "cpu.json"
    cpu.main(
        [
            "--graphs",
            "small",
            "--designs",
            "F-DD",
            "--solvers",
            "auto",
            "inverse",
            "--quick",
            "--no-models",
            "--out",
            str(out),
        ]
    )
    found = {r["contestant"]: r for r in json.loads(out.read_text())["records"]}
    assert "seconds" in found["auto"]
    assert "seconds" not in found["inverse"]
    assert found["inverse"]["left_out"] == "N^3: minutes a run"
    assert "| inverse | left out: N^3: minutes a run |" in report.details([*found.values()], "small")


def test_an_extrapolated_yardstick_says_so():
    effort = cells.Effort(budget=0.01, yardstick=1e-9, rounds=1)
    yard, auto = cells.measure(problem(columns=8), {"auto": cells.contestants.ours("auto")}, effort, bandwidth=1e9)
    assert auto["extrapolated"]
    assert yard["steps"][0] == gabp(directed(problem().graph.edges), *small_columns(8, cells.COUNTED))[1]


def test_counting_ends_in_time_and_says_so():
    few = problem("F-Lap", columns=2)
    graph = directed(few.graph.edges)
    patient = cells.count_steps(few, graph, 1e9, "cpu")
    whole = cells.contestants.yardstick(few)()
    assert (patient.steps, patient.status) == (whole.steps, "")
    hasty = cells.count_steps(few, graph, 1e-9, "cpu")
    assert (hasty.steps, hasty.status) == ((1, 1), cells.CUT_OFF)
    assert cells._describe(few, "yardstick", hasty, truth.Truth(few))["error_mu"] is None


def test_forward_alone_is_not_compared_with_forward_and_backward():
    make = cells.contestants.ours("auto", backward=False)
    _, forward = cells.measure(problem(), {"auto-forward": make}, cells.QUICK, bandwidth=1e9)
    assert forward["seconds"] > 0
    assert "ratio" not in forward


def small_columns(columns, count):
    p = problem(columns=columns)
    return p.diag, p.off, p.h[..., :count]


def test_exponent_is_a_slope():
    assert scaling.exponent([1, 10, 100], [2.0, 20.0, 200.0]) == pytest.approx(1.0)
    assert scaling.exponent([1, 10], [1.0, 100.0]) == pytest.approx(2.0)


# ---- targets ----


def solved(contestant="auto", **fields):
    base = {"kind": "solve", "graph": "cora", "design": "F-DD", "heads": 1, "columns": 64, "contestant": contestant}
    return base | {"seconds": 1.0, "ratio": 200.0, "error_mu": 1e-7, "error_g": 1e-7} | fields


def verdict(values, rows, **bounds):
    return targets.Target("cpu", "one", values, **bounds).verdict(rows)


def test_ratio_target_is_met_missed_or_not_measured():
    values = targets.ratio(graph="cora", contestant="auto")
    assert verdict(values, [solved()], at_least=100) == ("met", 200.0)
    assert verdict(values, [solved(), solved(ratio=90.0)], at_least=100) == ("missed", 90.0)
    assert verdict(values, [solved(graph="texas")], at_least=100) == ("not measured", None)
    assert verdict(targets.ratio(2, graph="cora"), [solved()], at_least=100)[0] == "not measured"


@pytest.mark.parametrize("wrong", [{"error_mu": 1e-5}, {"error_g": "nan"}, {"error_g": None}, {"error_mu": math.nan}])
def test_speed_with_a_wrong_answer_is_missed(wrong):
    assert verdict(targets.ratio(graph="cora"), [solved(**wrong)], at_least=1)[0] == "missed"


def test_a_failed_run_is_missed_not_skipped():
    failed = {k: v for k, v in solved().items() if k not in ("seconds", "ratio")}
    assert verdict(targets.ratio(graph="cora"), [failed], at_least=1)[0] == "missed"
    assert verdict(targets.field("seconds", graph="cora"), [failed], at_most=1)[0] == "missed"


def test_gabp_may_err_as_the_yardstick_does_and_no_more():
    rows = [solved("gabp", error_mu=5e-5), solved("yardstick", error_mu=7e-5)]
    assert targets.ratio_as_exact(contestant="gabp")(rows) == [200.0]
    rows[1]["error_mu"] = 2e-5
    assert targets.ratio_as_exact(contestant="gabp")(rows) == [0.0]
    rows[0]["error_mu"] = 3e-6
    assert targets.ratio_as_exact(contestant="gabp")(rows[:1]) == [200.0]


def test_rivals_count_problem_by_problem_and_only_when_right():
    rows = [solved(), solved("cg", seconds=0.5), solved("dense", seconds=0.1, error_mu=1e-3)]
    rows += [solved(design="F-PN", seconds=2.0), solved("cg", design="F-PN", seconds=8.0)]
    assert targets.against(("cg", "dense"), 4e-6)(rows) == [0.5, 4.0]


def test_every_target_has_its_own_name_and_a_bound():
    names = [(t.bench, t.name) for t in targets.TARGETS]
    assert len(set(names)) == len(names)
    assert all(t.bound for t in targets.TARGETS)


def test_summary_closes_with_the_count():
    rows = [solved(design=d, ratio=150.0, error_g=1e-7) for d in problems.DESIGNS]
    assert targets.summary(rows, "cpu").splitlines()[-1].startswith("1 targets met, 1 missed, ")


# ---- training steps ----


def test_training_steps_of_the_library_stand_beside_the_baselines(monkeypatch):
    class Mean(torch.nn.Linear):
        def __init__(self, in_channels, hidden_channels, num_layers, out_channels, heads=(8, 1), **design):
            super().__init__(in_channels, out_channels)

        def forward(self, x, edge_index):
            return super().forward(x)

    monkeypatch.setattr(ws, "GLT", Mean, raising=False)
    monkeypatch.setattr(timing, "sampler", lambda run, device, at_least: lambda: timing.seconds(run, device))
    graph, x = problems.load_graph("tiny")
    edge_index = torch.cat([graph.edges, graph.edges.flip(0)], 1)
    y = torch.arange(graph.num_nodes) % 3
    data = SimpleNamespace(x=x, edge_index=edge_index, y=y, train_mask=y == 0, num_features=x.size(1))
    found = {r["contestant"]: r for r in steps._measure("tiny", data, "cpu", quick=True)}
    assert set(found) == {"gcn", "gat", "appnp", "glt-fixed", "glt-learned"}
    glt, gat = found["glt-learned"], found["gat"]
    assert glt["over_gat"] == pytest.approx(glt["seconds"] / gat["seconds"])


def test_a_build_without_models_has_no_model_rows(monkeypatch):
    monkeypatch.setattr(ws, "GLT", None)
    assert steps.transformers(4, 2) == {}


# ---- the bench as a whole ----

QUICK = ["--graphs", "tiny", "--designs", "F-DD", "--solvers", "auto", "cg", "--quick", "--no-models"]


def bench(path: Path, *more: str) -> dict:
    assert cpu.main([*QUICK, "--out", str(path), *more]) == 0
    return json.loads(path.read_text())


@pytest.fixture
def one_thread_after():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


pytestmark = pytest.mark.usefixtures("one_thread_after")


def test_smoke_run_and_report(tmp_path, capsys):
    held = bench(tmp_path / "cpu.json")
    assert {r["contestant"] for r in held["records"]} == {"yardstick", "auto", "cg"}
    assert all(r["seconds"] > 0 and r["error_mu"] < 1e-4 for r in held["records"])
    assert "targets met" in capsys.readouterr().out.splitlines()[-1]
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- measured -->\nold\n<!-- /measured -->\nafter\n")
    arguments = ["--results", str(tmp_path), "--docs", str(tmp_path / "docs"), "--readme", str(readme)]
    assert report.main(arguments) == 0
    assert report.main(arguments) == 0  # a second time changes nothing
    assert readme.read_text().startswith("before\n<!-- measured -->\n\n## How fast")
    assert readme.read_text().endswith("<!-- /measured -->\nafter\n")
    assert "| tiny (" in readme.read_text()
    assert "old" not in readme.read_text()
    page = (tmp_path / "docs" / "benchmarks.md").read_text()
    assert "| tiny |" in page
    assert "targets met" in page
    assert (tmp_path / "docs" / "images" / "bench-cpu-ratio.svg").exists()


def test_interrupted_run_is_resumed(tmp_path, monkeypatch):
    path = tmp_path / "cpu.json"
    whole, calls = cells.measure, []

    def stop_at_second(problem, makes, *rest):
        calls.append((problem.design, sorted(makes)))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(problem, makes, *rest)

    monkeypatch.setattr(cpu, "measure", stop_at_second)
    two = [*QUICK[:3], "F-DD", "F-PN", *QUICK[4:], "--out", str(path)]
    assert cpu.main(two) == 130
    assert {r["design"] for r in json.loads(path.read_text())["records"]} == {"F-DD"}
    assert cpu.main(two) == 0
    assert [c[0] for c in calls] == ["F-DD", "F-PN", "F-PN"]
    assert {r["design"] for r in json.loads(path.read_text())["records"]} == {"F-DD", "F-PN"}
    assert cpu.main(two) == 0
    assert len(calls) == 3
    assert cpu.main([*two, "--fresh"]) == 0
    assert len(calls) == 5


def test_records_of_other_code_are_left_behind(tmp_path, monkeypatch):
    path = tmp_path / "r.json"
    records.Store(path, "cpu").add({"kind": "solve", "contestant": "auto"})
    assert records.Store(path, "cpu").has(kind="solve", contestant="auto")
    monkeypatch.setattr(records, "commit", lambda: "another")
    assert not records.Store(path, "cpu").has(kind="solve", contestant="auto")


def test_the_commit_of_a_copy_is_told(monkeypatch):
    monkeypatch.setenv("WALKSUM_COMMIT", "0123456789")
    assert records.commit() == "0123456789"


def test_what_is_not_finite_is_written_as_text(tmp_path):
    records.Store(tmp_path / "r.json", "cpu").add({"kind": "solve", "error_mu": math.nan, "ratio": math.inf})
    (held,) = json.loads((tmp_path / "r.json").read_text())["records"]
    assert (held["error_mu"], held["ratio"]) == ("nan", "inf")
    assert math.isnan(targets.number(held["error_mu"]))


def test_gpu_bench_walks_its_paths_on_a_cpu(tmp_path):
    out = tmp_path / "gpu.json"
    assert gpu.main(["--device", "cpu", "--quick", "--graphs", "tiny", "--no-models", "--out", str(out)]) == 0
    found = {r["contestant"]: r for r in json.loads(out.read_text())["records"]}
    assert set(found) == {"spmm", "gabp-step", "cg", "yardstick-step"}
    assert found["spmm"]["difference"] < 1e-5
    assert found["gabp-step"]["steps"] == [4, 24]


def test_a_kernel_that_runs_out_of_memory_does_not_take_the_others_with_it(monkeypatch):
    def out_of_memory(*args):
        raise torch.OutOfMemoryError("too large")

    monkeypatch.setattr(gpu, "_gabp_step", out_of_memory)
    found = {r["contestant"]: r for r in gpu.kernel_records(problem(columns=64), 1e9, "cpu")}
    assert "too large" in found["gabp-step"]["failure"]
    assert found["cg"]["seconds"] > 0
