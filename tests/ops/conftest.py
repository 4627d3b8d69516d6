import pytest
import torch


@pytest.fixture
def poisoned():
    """Fill memory that torch hands out uninitialized with NaN: an output that no program writes shows."""
    before = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.utils.deterministic.fill_uninitialized_memory = before
    torch.use_deterministic_algorithms(False)
