"""The script for large graphs on two CPU cores, on small ones."""

from benchmarks import large_cpu


def test_a_step_and_the_growth_of_cost_are_measured(monkeypatch):
    monkeypatch.setattr(large_cpu, "STEP", ((), (200, 800)))
    monkeypatch.setattr(large_cpu, "GROWTH", ((), (500, 1000)))
    *steps, last = large_cpu.step(small=True)
    assert (steps[0]["recompute"], last["recompute"]) == (False, True)
    assert all(told["step_s"] > 0 and 0 < told["peak_gib"] < 64 for told in (*steps, last))
    *points, fit = large_cpu.growth(small=True)
    assert [told["edges"] for told in points] == [500, 1000]
    assert -10 < fit["exponent"] < 10
