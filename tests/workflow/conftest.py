"""Fixtures of the workflow's tests."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _two_settings(two_settings):
    """In all tests of this folder."""
