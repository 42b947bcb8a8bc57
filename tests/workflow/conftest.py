"""Fixtures of the workflow's tests."""

import pytest

from walksum.workflow import comparisons


@pytest.fixture(scope="module", autouse=True)
def _two_settings_per_compared_method():
    """Enough to choose one; a user's run tries eight of every method beside the model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparisons, "TRIALS", 2)
        yield
