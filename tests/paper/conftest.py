import pytest

from walksum.paper.sweep.store import Store


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "store")
    made.make()
    return made
