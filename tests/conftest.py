"""Without a GPU, Triton's kernels run in its interpreter: it must be told before they are defined.

Reports draw their map by PCA, also where UMAP happens to be installed: that takes seconds. Starts agree on few
clusterings instead of many, which a fit of some hundred rows spends most of its time on: tests of what they find ask
for `all_repeats`.
"""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

from pamc.initialize import consensus
from pamc.report import projection

projection._MOST_UMAP_ROWS = 0

ALL_REPEATS, consensus.N_REPEATS = consensus.N_REPEATS, 6


@pytest.fixture(scope="module")
def all_repeats():
    """Let starts agree on as many clusterings as they do for users."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consensus, "N_REPEATS", ALL_REPEATS)
        yield
