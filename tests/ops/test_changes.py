import pytest
import torch

from pamc.ops.changes import with_changes
from pamc.ops.dispatch import preferring

triton_changes = pytest.importorskip("pamc.ops.triton_changes", reason="triton is not installed")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

pytestmark = pytest.mark.usefixtures("poisoned")


@pytest.mark.parametrize("backend", ["torch", "triton"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n_rows", "n_numbers"), [(1, 1), (41, 3), (1271, 8), (5000, 33)])
def test_what_changed_is_counted_and_then_known(n_rows, n_numbers, dtype, backend, monkeypatch):
    monkeypatch.setattr(triton_changes, "_MOST_PARTS", 3)
    order = torch.Generator().manual_seed(0)
    labels, previous = (torch.randint(3, (n_rows,), generator=order).to(DEVICE) for _ in range(2))
    numbers = torch.randn(n_numbers, generator=order).to(DEVICE, dtype)
    expected = (labels != previous).sum().item()
    with preferring(backend):
        found = with_changes(numbers, labels, previous)
        assert with_changes(numbers, labels, previous)[-1] == 0
    assert found.dtype == torch.float64
    assert torch.equal(found[:-1], numbers.double())
    assert found[-1] == expected
    assert torch.equal(previous, labels)


def test_labels_of_any_stride_are_counted():
    labels = torch.tensor([[0, 1], [1, 1], [0, 1], [1, 0]], device=DEVICE)[:, 0]
    previous = torch.zeros(4, dtype=torch.int64, device=DEVICE)
    assert triton_changes.with_changes(torch.ones(1, device=DEVICE), labels, previous).tolist() == [1, 2]
    assert previous.tolist() == [0, 1, 0, 1]
