"""Adam without `torch.optim`."""

import subprocess
import sys

import pytest
import torch

from pamc.ops.torch.adam import FusedAdam


def trained(make, n_steps=7):
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(size, generator=generator, requires_grad=True) for size in ((41, 7), (41,), (3, 41))]
    unused = torch.ones(5, requires_grad=True)
    optimizer = make([*weights, unused])
    rows = torch.randn(29, 7, generator=generator)
    for _ in range(n_steps):
        optimizer.zero_grad(set_to_none=True)
        (torch.relu(rows @ weights[0].T + weights[1]) @ weights[2].T).square().mean().backward()
        optimizer.step()
    assert torch.equal(unused, torch.ones(5))
    return [weight.detach() for weight in weights], optimizer


def test_the_steps_are_those_of_torchs_fused_adam_to_the_bit():
    ours, _ = trained(lambda parameters: FusedAdam(parameters, lr=1e-2))
    theirs, _ = trained(lambda parameters: torch.optim.Adam(parameters, lr=1e-2, fused=True))
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_the_state_has_the_names_and_values_of_torchs():
    _, ours = trained(lambda parameters: FusedAdam(parameters, lr=1e-2))
    _, theirs = trained(lambda parameters: torch.optim.Adam(parameters, lr=1e-2, fused=True))
    state = ours.state_tensors()
    for number, values in theirs.state_dict()["state"].items():
        assert all(torch.equal(state[f"{number}.{name}"], value) for name, value in values.items())


def test_a_step_without_gradients_changes_nothing():
    weight = torch.ones(3, requires_grad=True)
    optimizer = FusedAdam([weight], lr=1.0)
    optimizer.step()
    assert torch.equal(weight, torch.ones(3))
    assert not optimizer.state_tensors()["0.step"]


@pytest.mark.parametrize("precisions", [(torch.float64, torch.float64), (torch.float32, torch.float64)])
def test_parameters_of_several_types_are_updated(precisions):
    ours, theirs = ([torch.ones(3, dtype=precision, requires_grad=True) for precision in precisions] for _ in range(2))
    for parameters, make in ((ours, FusedAdam), (theirs, torch.optim.Adam)):
        optimizer = make(parameters, lr=0.1)
        sum((parameter.double() ** 2).sum() for parameter in parameters).backward()
        optimizer.step()
    assert all(torch.allclose(one, other) for one, other in zip(ours, theirs, strict=True))
    assert not torch.equal(ours[0], torch.ones(3, dtype=precisions[0]))


def test_a_fit_on_the_cpu_does_not_import_torchs_compiler():
    code = (
        "import sys, numpy as np, pamc\n"
        "rows = np.random.default_rng(0).normal(size=(40, 3)) + np.repeat([[0], [9]], 20, axis=0)\n"
        "pamc.PamCGC(2, n_epochs=2, advanced={'hidden': (8,), 'pretrain_epochs': 1}, device='cpu').fit(rows)\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
