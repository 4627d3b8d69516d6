"""The one table of tolerances: |Δ| ≤ tol·max(1, |value|) for values, ‖Δ‖ ≤ tol·‖g‖ for gradients."""

import torch

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def assert_value(actual, expected, *, dtype=torch.float64):
    """Compare values, element by element, at the tolerance of the type that `actual` was computed in."""
    actual, expected = (torch.as_tensor(x, dtype=torch.float64).detach() for x in (actual, expected))
    assert actual.shape == expected.shape
    limit = TOLERANCE[dtype] * expected.abs().clamp(min=1)
    same = (actual == expected) | ((actual - expected).abs() <= limit)
    assert same.all(), f"{actual[~same][:3]} is not {expected[~same][:3]}"


def assert_gradient(actual, expected, *, dtype=torch.float64):
    """Compare gradients by norm; one that vanishes must vanish to the same tolerance."""
    actual, expected = (torch.as_tensor(x, dtype=torch.float64).detach() for x in (actual, expected))
    assert actual.shape == expected.shape
    size, difference = float(expected.norm()), float((actual - expected).norm())
    limit = TOLERANCE[dtype] * (size if size > TOLERANCE[dtype] else 1)
    assert difference <= limit, f"gradients differ by {difference:.2e} at size {size:.2e}"
