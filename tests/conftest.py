"""Kernels without a GPU, marks of variants, and quick fits for tests of what surrounds a fit."""

import os

import pytest
import torch

# Without a GPU, Triton's kernels run in its interpreter, which must be chosen before they are defined.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

from pamc.initialize import consensus
from pamc.initialize.families import layout


def pytest_collection_modifyitems(items):
    """Leave the first variants of a test marked `fast_variants(n)` in the fast suite, and mark the others as slow."""
    seen = {}
    for item in items:
        mark = item.get_closest_marker("fast_variants")
        if mark is not None:
            name = (item.path, item.originalname)
            seen[name] = seen.get(name, 0) + 1
            if seen[name] > mark.args[0]:
                item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def few_repeats():
    """Initialize fits from few quick clusterings, in tests of everything but the clusters that are found."""
    with pytest.MonkeyPatch.context() as patch:
        # Three repeats are one layout.
        patch.setattr(consensus, "N_REPEATS", 3)
        for name, value in {"_N_MIXTURES": 1, "_N_EPOCHS": 30}.items():
            patch.setattr(layout, name, value)
        yield
