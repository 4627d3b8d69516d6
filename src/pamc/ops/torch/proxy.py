"""The proxy of all negatives over the meta-nodes, Eq 2 or Eq 6, and the uniformity of rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pamc.ops.torch.rows import ordered_sum, row_product, unit_rows


def proxy(meta_nodes: Tensor, mass: Tensor, *, tau: float, kind: str) -> Tensor:
    r"""Return the proxy over the non-empty clusters, without synchronizing with the host.

    .. math:: \ell_{proxy} = \log\sum_a\sum_{b \ne a}\exp(\tau\,sim(\hat\mu_a, \hat\mu_b))

    This follows the paper; ``kind="eq6"`` is the mean over a of log(1 + Σ_{b≠a} exp(τ·sim)), as in the released
    program. Empty clusters are omitted; with fewer than two non-empty ones the value is 0, with gradient 0. O(C²·d)
    time.

    Parameters
    ----------
    meta_nodes
        (C, d) meta-nodes, at any scale.
    mass
        (C,) mass assigned to each cluster, 0 for an empty one. It has no gradient.
    kind
        Equation of the proxy, "eq2" or "eq6".

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
        # The term e⁰ of the diagonal also keeps the logarithm of a row without other clusters finite.
        top = scores.detach().amax(dim=1, keepdim=True).clamp(min=0)
        rows = top[:, 0] + ((-top).exp()[:, 0] + (scores - top).exp().sum(dim=1)).log()
        return torch.where(present, rows, 0.0).sum() / present.sum().clamp(min=1)
    has_pairs = contrasted.any()
    top = torch.where(has_pairs, scores.detach().amax(), 0.0)
    total = (scores - top).exp().sum(dim=1).sum()
    return torch.where(has_pairs, top + torch.where(has_pairs, total, 1.0).log(), 0.0)


def uniformity(z: Tensor, *, step: int, n_rows: int) -> Tensor:
    """Return log mean_{i≠j} exp(−2‖u_i − u_j‖²), 0 if all rows coincide, low if they spread over the sphere.

    This is the uniformity of Wang & Isola (2020) over all pairs of `n_rows` rows of z (N, d), taken with stride `step`
    and scaled to length 1; 0 for fewer than two rows. O(n_rows²·d) time, O(n_rows²) memory.

    Examples
    --------
    >>> uniformity(torch.tensor([[1.0, 0.0], [-2.0, 0.0]]), step=1, n_rows=2)
    tensor(-8.)
    """
    unit = unit_rows(z[::step][:n_rows])
    if len(unit) < 2:
        return unit.new_zeros(())
    # ‖u_i − u_j‖² = 2 − 2·u_i·u_j; the matrix contains each pair twice, and each row once with itself.
    potential = torch.exp(4 * row_product(unit, unit.T) - 4).fill_diagonal_(0.0)
    return (ordered_sum(potential) / (len(potential) * (len(potential) - 1))).log()
