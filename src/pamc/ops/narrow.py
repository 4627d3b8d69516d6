"""The product of a narrow layer, and a transposed copy, which torch has no fast way for on a GPU."""

from __future__ import annotations

from torch import Tensor

from pamc.ops.dispatch import resolve_backend

__all__ = ["narrow_product", "transposed"]


def narrow_product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x Wᵀ + b, (N, k), of float32 rows x (N, n) on a GPU, for few outputs: W (k, m) and b (k,).

    The last n − m columns of x are padding. A library's product wants sizes that are filled up, and its result cut out
    again; this one takes them as they are, and reads x once, for tensor cores. O(N·k·m) time.
    """
    from pamc.ops import triton_narrow  # imported where it is used: triton need not be installed

    return triton_narrow.narrow_product(x, weight, bias)


def transposed(x: Tensor) -> Tensor:
    """Return xᵀ (m, n) of x (n, m), a copy with whole rows.

    Examples
    --------
    >>> import torch
    >>> transposed(torch.tensor([[1, 2], [3, 4]]))
    tensor([[1, 3],
            [2, 4]])
    """
    if x.is_floating_point() and resolve_backend("auto", x.device).name == "triton":
        from pamc.ops import triton_narrow  # imported where it is used: triton need not be installed

        return triton_narrow.transposed(x)
    return x.T.contiguous()
