"""The proxy of all negatives, Eq 2 or Eq 6, over meta-nodes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pamc.ops.torch_ops import row_product, unit_rows

__all__ = ["proxy"]


def proxy(meta_nodes: Tensor, mass: Tensor, *, tau: float, kind: str) -> Tensor:
    r"""Return the proxy over the clusters that are present, without a trip to the host.

    .. math:: \ell_{proxy} = \log\sum_a\sum_{b \ne a}\exp(\tau\,sim(\hat\mu_a, \hat\mu_b))

    As in the paper; ``kind="eq6"`` is the mean over a of log(1 + Σ_{b≠a} exp(τ·sim)), as in the released program.
    Empty clusters are left out; with fewer than two others it is 0, with gradient 0. O(C²·d).

    Parameters
    ----------
    meta_nodes
        (C, d) in any scale.
    mass
        (C,) how much is assigned to each cluster, 0 for an empty one. No gradient.
    kind
        "eq2" or "eq6".

    Examples
    --------
    >>> proxy(torch.eye(3), torch.ones(3), tau=1.0, kind="eq2").exp().round(decimals=4)
    tensor(6.)
    """
    present = mass > 0
    unit = unit_rows(meta_nodes)
    contrasted = present[:, None] & present & ~torch.eye(len(present), dtype=torch.bool, device=present.device)
    scores = (tau * row_product(unit, unit.T)).masked_fill(~contrasted, -math.inf)
    if kind == "eq6":
        # The diagonal's e⁰, which also keeps a row with nothing to contrast finite.
        top = scores.detach().amax(dim=1, keepdim=True).clamp(min=0)
        rows = top[:, 0] + ((-top).exp()[:, 0] + (scores - top).exp().sum(dim=1)).log()
        return torch.where(present, rows, 0.0).sum() / present.sum().clamp(min=1)
    some = contrasted.any()
    top = torch.where(some, scores.detach().amax(), 0.0)
    total = (scores - top).exp().sum(dim=1).sum()
    return torch.where(some, top + torch.where(some, total, 1.0).log(), 0.0)
