"""What the machine can do: how fast it copies, how fast it multiplies matrices."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from pamc.bench.case import Cell, Scope, register_case
from pamc.bench.measure import call_values
from pamc.bench.problems import normal
from pamc.models.products import products_in_tf32

__all__ = ["cells", "copy_rate", "matmul_rate"]

_COPIED_BYTES = 1 << 30
_QUICK_BYTES = 1 << 24

# Rows and columns of the factors.
_SIDES = {"cuda": 8192, "cpu": 2048}
_QUICK_SIDE = 256


def copy_rate(device: torch.device, *, quick: bool = False) -> dict[str, Any]:
    """Return the bandwidth of a copy: each byte is read once and written once."""
    n_bytes = _QUICK_BYTES if quick else _COPIED_BYTES
    source = torch.zeros(n_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    values = call_values(lambda: target.copy_(source), device)
    return {"seconds": values["seconds"], "n_bytes": 2 * n_bytes, "bytes_per_s": 2 * n_bytes / values["seconds"]}


def matmul_rate(device: torch.device, precision: str, *, quick: bool = False) -> dict[str, Any]:
    """Return the rate of a square matrix product."""
    side = _QUICK_SIDE if quick else _SIDES[device.type]
    a, b = (normal(side, side, device=device, seed=seed) for seed in range(2))
    out = torch.empty_like(a)
    with products_in_tf32(precision == "tf32"):
        seconds = call_values(lambda: torch.mm(a, b, out=out), device)["seconds"]
    return {"seconds": seconds, "side": side, "flop_per_s": 2 * side**3 / seconds}


@register_case("ceilings", "what the machine can do: bandwidth of a copy, rate of matrix products")
def cells(scope: Scope) -> list[Cell]:
    """Return the copy, and the product in each precision that the device has."""
    precisions = ("float32", "tf32") if scope.device.type == "cuda" else ("float32",)
    products = [
        Cell("matmul", {"precision": each}, partial(matmul_rate, scope.device, each, quick=scope.quick))
        for each in precisions
    ]
    return [Cell("copy", {}, partial(copy_rate, scope.device, quick=scope.quick)), *products]
