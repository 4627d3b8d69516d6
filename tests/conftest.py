"""Without a GPU, Triton's kernels run in its interpreter: it must be told before they are defined.

Reports draw their map by PCA, also where UMAP happens to be installed: that takes seconds.
"""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

from pamc.report import projection

projection._MOST_UMAP_ROWS = 0
