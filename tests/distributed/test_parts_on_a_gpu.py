"""Parts of a graph on a GPU: one process with NCCL, and two that share the GPU with gloo."""

import pytest
import torch
import torch.multiprocessing as mp

from distributed import workers
from distributed.test_processes import free_port

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(("backend", "processes"), [("nccl", 1), ("gloo", 2)])
def test_parts_on_a_gpu_solve_and_train_like_one_process(backend, processes, tmp_path):
    mp.spawn(workers.run_on_gpu, (processes, backend, free_port(), str(tmp_path)), nprocs=processes)
    for rank in range(processes):
        found = torch.load(tmp_path / f"{rank}.pt")
        assert max(found["float64"]) < 1e-9
        assert max(found["float32"]) < 1e-3
        assert found["losses"] == pytest.approx(found["expected"], rel=1e-6)
        assert found["exchanges"] > 0  # also where the process sends to itself alone
