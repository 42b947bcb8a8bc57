"""What reading one file must leave as it was."""

import torch
from torch_geometric.data import Data

from walksum.data.files import load_pt


def test_reading_a_pyg_file_leaves_torchs_list_of_safe_classes_alone(tmp_path):
    torch.save(Data(x=torch.ones(2, 1)), tmp_path / "graph.pt")
    before = set(torch.serialization.get_safe_globals())
    assert load_pt(tmp_path / "graph.pt").num_nodes == 2
    assert set(torch.serialization.get_safe_globals()) == before
