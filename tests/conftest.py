import contextlib
import gc
import os
import random
import signal
import sys
from pathlib import Path

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("tests", deadline=None)  # how long an example takes depends on the machine's load
hypothesis.settings.load_profile("tests")
sys.path.insert(0, str(Path(__file__).parent))  # gallery.py and reference.py
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a script's shell starts what it leaves in the background so, and the processes that tests interrupt inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    random.seed()  # PyG names the code it generates by a random number, and takes an earlier one's where two are equal


ON_GPU = pytest.param("cuda", marks=pytest.mark.gpu)
INTERPRETED = pytest.param(
    "cpu", marks=pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="TRITON_INTERPRET is not 1")
)


@pytest.fixture(params=[ON_GPU, INTERPRETED])
def triton_device(request):
    """A GPU, or the CPU where Triton's interpreter runs the kernels."""
    return request.param


@pytest.fixture(scope="module")
def two_settings():
    """Of every method that stands beside a trained model: enough to choose one. A user's run tries eight of each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("walksum.workflow.comparisons.TRIALS", 2)
        yield


@pytest.fixture(scope="session")
def small_trainings():
    """A context in which ``walksum train`` tries one setting of every compared method and draws no figure of five.

    tests/workflow chooses among settings and draws them all; elsewhere they take longer than a small training.
    """
    from walksum.workflow import page

    @contextlib.contextmanager
    def inside():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("walksum.workflow.comparisons.TRIALS", 1)
            patch.setattr(page, "_wanted", lambda *of: ())
            yield

    return inside


@pytest.fixture(scope="module")
def in_small_trainings(small_trainings):
    """The same for all tests of a file."""
    with small_trainings():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop():
    """What was imported stays: if it is not looked through again and again, kernels compile a fifth quicker."""
    gc.collect()
    gc.freeze()
    try:
        return (yield)
    finally:
        gc.unfreeze()


def pytest_collection_modifyitems(items):
    """Files with slow tests first; and once for all tests, what the markers need."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)  # a long file at the end would keep the other processes waiting
    no_data = pytest.mark.skip(reason="set WALKSUM_DATA to the folder with the raw datasets")
    no_gpu = pytest.mark.skip(reason="no CUDA device")
    for item in items:
        if item.get_closest_marker("data") and "WALKSUM_DATA" not in os.environ:
            item.add_marker(no_data)
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(no_gpu)
