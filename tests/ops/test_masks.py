"""Masks: the right share, no pattern, and nothing but seed, step, row and column decides."""

import numpy as np
import pytest
import torch

from pamc.ops.torch.rows import hidden_values


def mask(step=0, rows=range(400), n_columns=300, share=0.3, seed=1):
    return hidden_values(torch.tensor(step), torch.tensor(list(rows)), n_columns, share=share, seed=seed)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.9])
def test_the_share_is_hidden_in_every_row_and_column(share):
    hidden = mask(share=share).double()
    limit = 5 * (share * (1 - share) / 300) ** 0.5 + 1e-12
    assert (hidden.mean(dim=1) - share).abs().max() <= limit
    assert (hidden.mean(dim=0) - share).abs().max() <= limit


def test_a_row_has_its_values_whatever_rows_stand_beside_it():
    whole = mask()
    assert torch.equal(mask(rows=[7, 399, 0]), whole[[7, 399, 0]])
    assert torch.equal(mask(n_columns=10), whole[:, :10])


def test_steps_and_seeds_and_rows_are_independent():
    one = mask(share=0.5)
    for other in (mask(share=0.5, step=1), mask(share=0.5, seed=2), mask(share=0.5, rows=range(1, 401))):
        assert (one == other).double().mean().item() == pytest.approx(0.5, abs=0.01)
    spectrum = np.abs(np.fft.fft2(one.double().numpy() - 0.5))
    assert spectrum.max() < 6 * np.sqrt(one.numel() * 0.25)
