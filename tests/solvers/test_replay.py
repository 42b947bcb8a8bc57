import gc
import weakref

import torch

from walksum.solvers.cg.cuda_replay import Replay


class Owner:
    def __init__(self):
        self.calls = 0
        self.replay = Replay(self.work, torch.device("cpu"))

    def work(self):
        self.calls += 1


def test_the_owner_of_a_replay_dies_with_its_last_reference():
    owner = Owner()
    owner.replay()
    owner.replay()
    assert owner.calls == 2
    alive = weakref.ref(owner)
    gc.disable()
    try:
        del owner
        assert alive() is None
    finally:
        gc.enable()
