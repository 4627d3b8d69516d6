import pytest


@pytest.fixture(scope="module", autouse=True)
def _quick_fits(few_repeats):
    """These tests are about other programs, not about the clusters that a fit finds."""
