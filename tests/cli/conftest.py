"""Fixtures of the command's tests; what tests call by name is in customers.py."""

import pytest
from customers import colour_run, shop, walksum

__all__ = ["colour_run", "shop", "walksum"]


@pytest.fixture(scope="module", autouse=True)
def _small_trainings(in_small_trainings):
    """In all tests of this folder."""
