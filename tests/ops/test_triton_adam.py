import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from pamc.ops.triton import adam as triton_adam

pytestmark = pytest.mark.fast_variants(2)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_it_steps_as_torchs_adam_does(dtype, tolerance):
    generator = torch.Generator().manual_seed(0)
    shapes = [(41, 33), (7,), (1271,)]
    ours, theirs = (
        [torch.randn(s, generator=generator.manual_seed(0), dtype=torch.float64).to(DEVICE, dtype) for s in shapes]
        for _ in range(2)
    )
    idle = torch.ones(3, device=DEVICE, dtype=dtype)
    one = triton_adam.KernelAdam([*ours, idle], lr=1e-2, betas=(0.9, 0.999), epsilon=1e-8)
    other = torch.optim.Adam(theirs, lr=1e-2)
    for _ in range(20):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)
            q.grad = p.grad.clone()
        one.step()
        other.step()
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=tolerance, atol=tolerance)
    assert torch.equal(idle, torch.ones_like(idle))
    one.zero_grad()
    assert ours[0].grad is None


def test_more_tensors_than_one_launch_takes_and_one_that_rests_now_and_then():
    ours, theirs = ([torch.full((3,), float(k), device=DEVICE, dtype=torch.float64) for k in range(23)] for _ in "ab")
    one = triton_adam.KernelAdam(ours, lr=1e-2, betas=(0.9, 0.999), epsilon=1e-8)
    other = torch.optim.Adam(theirs, lr=1e-2)
    for epoch in range(5):
        one.zero_grad()
        other.zero_grad()
        for k, (p, q) in enumerate(zip(ours, theirs, strict=True)):
            if (k + epoch) % 3:
                p.grad = torch.arange(1.0, 7.0, device=DEVICE, dtype=torch.float64)[::2] * (k + 1)
                q.grad = p.grad.clone()
        one.step()
        other.step()
    for p, q in zip(ours, theirs, strict=True):
        torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-12)


def test_a_tensor_of_many_programs_is_moved_as_a_whole():
    ours, theirs = (torch.ones(2500, device=DEVICE, dtype=torch.float64) for _ in "ab")
    one = triton_adam.KernelAdam(
        [torch.ones(1, device=DEVICE, dtype=torch.float64), ours], lr=0.1, betas=(0.9, 0.999), epsilon=1e-8
    )
    other = torch.optim.Adam([theirs], lr=0.1)
    for _ in range(2):
        ours.grad = torch.linspace(-1, 1, 2500, device=DEVICE, dtype=torch.float64)
        theirs.grad = ours.grad.clone()
        one.step()
        other.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_steps_go_on_from_the_tensors_of_another():
    start = torch.ones(41, device=DEVICE)
    ends = []
    for stops in (False, True):
        parameter = start.clone()
        adam = triton_adam.KernelAdam([parameter], lr=1e-2, betas=(0.9, 0.999), epsilon=1e-8)
        for step in range(6):
            if stops and step == 3:
                kept = {name: tensor.clone() for name, tensor in adam.state_tensors().items()}
                adam = triton_adam.KernelAdam([parameter], lr=1e-2, betas=(0.9, 0.999), epsilon=1e-8)
                for name, tensor in adam.state_tensors().items():
                    tensor.copy_(kept[name])
            parameter.grad = torch.linspace(-1, step, 41, device=DEVICE)
            adam.step()
        ends.append(parameter)
    assert torch.equal(*ends)
