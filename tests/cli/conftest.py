"""Fixtures of the command's tests; what tests call by name is in customers.py."""

import pytest
from customers import colour_run, shop, walksum

from walksum.workflow import comparisons

__all__ = ["colour_run", "shop", "walksum"]


@pytest.fixture(scope="module", autouse=True)
def _two_settings_per_compared_method():
    """Enough to choose one; a user's run tries eight of every method beside the model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparisons, "TRIALS", 2)
        yield
