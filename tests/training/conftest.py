import pytest


@pytest.fixture(scope="module", autouse=True)
def _quick_fits(few_repeats):
    """These tests are about the steps of a fit; tests/test_quality.py is about the clusters that a fit finds."""
