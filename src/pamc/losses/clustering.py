"""Soft assignment, target distribution and their KL divergence: Eqs 9 to 11."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pamc.losses.arguments import check_choice
from pamc.ops.torch.clustering import squared_distances
from pamc.ops.torch.rows import column_sums, ordered_sum


def log_soft_assignment(z: Tensor, centers: Tensor, *, eta: float = 1.0) -> Tensor:
    r"""Return (N, C) log q, the Student-t assignment of Eq 9. This follows the paper.

    .. math:: q_{iu} \propto (1 + \|z_i - \mu_u\|^2/\eta)^{-(\eta + 1)/2}

    z is (N, d), centers (C, d) are μ, and eta > 0 is the degrees of freedom of the kernel. The result is a logarithm,
    because q of a distant center underflows long before its logarithm does. O(N·C·d) time, O(N·(C + d)) memory.

    Examples
    --------
    >>> log_soft_assignment(torch.zeros(1, 1), torch.tensor([[0.0], [1.0]])).exp()
    tensor([[0.6667, 0.3333]])
    """
    kernel = torch.log1p(squared_distances(z, centers) / eta) * (-(eta + 1) / 2)
    return torch.log_softmax(kernel, dim=1)


def soft_assignment(z: Tensor, centers: Tensor, *, eta: float = 1.0) -> Tensor:
    """Return (N, C) q, whose logarithm is :func:`log_soft_assignment`, Eq 9.

    Examples
    --------
    >>> soft_assignment(torch.zeros(1, 1), torch.tensor([[0.0], [1.0]]))
    tensor([[0.6667, 0.3333]])
    """
    return log_soft_assignment(z, centers, eta=eta).exp()


def log_target_distribution(log_q: Tensor, *, sample_weight: Tensor | None = None) -> Tensor:
    r"""Return (N, C) log p, the sharpened assignment of Eq 10, which is constant: no gradient flows through it.

    .. math:: p_{iu} \propto q_{iu}^2/f_u, \quad f_u = \sum_i q_{iu}

    This follows the paper; a cluster with f_u = 0 has p_iu = 0. `log_q` (N, C) must include all rows, because f sums
    over them; with `sample_weight` (N,), a row of weight w counts as w rows in f. O(N·C) time and memory.

    Examples
    --------
    >>> log_target_distribution(torch.tensor([[0.75, 0.25], [0.25, 0.75]]).log()).exp()
    tensor([[0.9000, 0.1000],
            [0.1000, 0.9000]])
    """
    log_q = log_q.detach()
    top = log_q.amax(dim=0)
    top = torch.where(top == -math.inf, 0.0, top)
    share = (log_q - top).exp()
    log_frequency = top + column_sums(share if sample_weight is None else share * sample_weight[:, None]).log()
    # If f_u = 0, every log q_iu is −∞ and stays −∞.
    log_frequency = torch.where(log_frequency == -math.inf, 0.0, log_frequency)
    return torch.log_softmax(2 * log_q - log_frequency, dim=1)


def target_distribution(q: Tensor) -> Tensor:
    """Return (N, C) p, whose logarithm is :func:`log_target_distribution`, Eq 10.

    Examples
    --------
    >>> target_distribution(torch.tensor([[0.75, 0.25], [0.25, 0.75]]))
    tensor([[0.9000, 0.1000],
            [0.1000, 0.9000]])
    """
    return log_target_distribution(q.detach().log()).exp()


def kl_loss(log_p: Tensor, log_q: Tensor, *, reduction: str = "mean", sample_weight: Tensor | None = None) -> Tensor:
    r"""Return the KL divergence of the target from the assignment, Eq 11.

    .. math:: KL(P\|Q) = \sum_i\sum_u p_{iu}\log\frac{p_{iu}}{q_{iu}}

    Departure from the paper: "mean" divides by N, as the released program does, and the paper's β refers to that form;
    "sum" is Eq 11 verbatim. Terms with p_iu = 0 are 0. Both logarithms are (N, C). `sample_weight` (N,) multiplies the
    terms of each row, and its sum replaces N. O(N·C) time and memory.

    Examples
    --------
    >>> p, q = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5]])
    >>> kl_loss(p.log(), q.log()).exp()
    tensor(2.)
    """
    check_choice("kl_reduction", reduction)
    is_zero = log_p == -math.inf
    ratio = torch.where(is_zero, 0.0, log_p) - torch.where(is_zero, 0.0, log_q)
    terms = log_p.exp() * ratio
    total = ordered_sum(terms if sample_weight is None else terms * sample_weight[:, None])
    n_rows = len(log_p) if sample_weight is None else sample_weight.sum()
    return total / n_rows if reduction == "mean" else total
