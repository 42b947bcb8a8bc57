"""Files of torch.save: what is refused, and what reading must leave as it was."""

import pytest
import torch
from torch_geometric.data import Data

from walksum.data.files import load_pt


def test_reading_a_pyg_file_leaves_torchs_list_of_safe_classes_alone(tmp_path):
    torch.save(Data(x=torch.ones(2, 1)), tmp_path / "graph.pt")
    before = set(torch.serialization.get_safe_globals())
    assert load_pt(tmp_path / "graph.pt").num_nodes == 2
    assert set(torch.serialization.get_safe_globals()) == before


class Stranger:
    """More than plain data."""


@pytest.mark.parametrize("content", [b"hello", bytes(range(231, 256)) * 12, None])
def test_a_file_that_is_no_graph_says_so_in_one_line(tmp_path, content):
    path = tmp_path / "graph.pt"
    if content is None:
        torch.save({"x": Stranger()}, path)
    else:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"graph\.pt") as found:
        load_pt(path)
    assert "\n" not in str(found.value)
    assert "weights_only" not in str(found.value)
