"""Assignment, target and their divergence (Eqs 9 to 11) in one operation whose gradient is written out."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pamc.ops.torch_ops import column_sums, gram, ordered_sum, row_product

__all__ = ["Assignment", "assign", "divergence", "divergence_gradient", "self_training", "self_training_in_blocks"]

# Rows whose assignments are held at a time: of few clusters as many as fit a few megabytes.
_NUMBERS_PER_BLOCK = 1 << 22


def self_training(z: Tensor, centers: Tensor, *, eta: float) -> tuple[Tensor, Tensor]:
    r"""Return the sum over rows of KL(P ‖ Q), Eq 11, and log q, Eq 9.

    The target p of Eq 10 is a constant. Then, with b_iu = (p_iu − q_iu)·(η + 1)/(η + ‖z_i − μ_u‖²),

    .. math:: \frac{\partial KL}{\partial z_i} = \sum_u b_{iu}(z_i - \mu_u), \qquad
              \frac{\partial KL}{\partial \mu_u} = -\sum_i b_{iu}(z_i - \mu_u)

    b is all that is kept for the backward pass. O(N·C·d) time, O(N·(C + d)) memory.

    Parameters
    ----------
    z
        (N, d) embedding.
    centers
        (C, d) centers μ.
    eta
        Degrees of freedom η.

    Returns
    -------
    kl
        () with a gradient.
    log_q
        (N, C) without.

    Examples
    --------
    >>> kl, log_q = self_training(torch.tensor([[0.0], [2.0]]), torch.tensor([[0.0], [2.0]]), eta=1.0)
    >>> log_q.exp().round(decimals=3)
    tensor([[0.8330, 0.1670],
            [0.1670, 0.8330]])
    """
    result: tuple[Tensor, Tensor] = _SelfTraining.apply(z, centers, eta)  # type: ignore[no-untyped-call]
    return result


def self_training_in_blocks(z: Tensor, centers: Tensor, *, eta: float) -> tuple[Tensor, Tensor]:
    """Return the sum over rows of KL(P ‖ Q), Eq 11, and the labels, the argmax of q, (N,).

    Value and gradient are those of :func:`self_training`, but assignments are held for a block of rows at a time: once
    for the frequencies, and again for the divergence and its gradient. O(N·C·d) time, O(N·d) memory.

    Examples
    --------
    >>> self_training_in_blocks(torch.tensor([[0.0], [2.0]]), torch.tensor([[0.0], [2.0]]), eta=1.0)[1]
    tensor([0, 1])
    """
    result: tuple[Tensor, Tensor] = _InBlocks.apply(z, centers, eta)  # type: ignore[no-untyped-call]
    return result


class Assignment(NamedTuple):
    """Some rows and the centers, both moved so that the centers' mean is 0, and Eq 9 of them.

    Parameters
    ----------
    z, centers
        (n, d), (C, d).
    squared
        (n, C) squared distances.
    log_q, q
        (n, C) Eq 9.
    """

    z: Tensor
    centers: Tensor
    squared: Tensor
    log_q: Tensor
    q: Tensor


def assign(z: Tensor, centers: Tensor, *, eta: float) -> Assignment:
    """Return the soft assignment of rows z (n, d), Eq 9. O(n·C·d) time."""
    # Moved by the mean of the centers, so that a common offset costs no precision.
    origin = centers.mean(dim=0)
    z, centers = z - origin, centers - origin
    squared = row_product(z, centers.T).mul_(-2)
    squared += z.square().sum(dim=1, keepdim=True)
    squared += centers.square().sum(dim=1)
    squared.clamp_(min=0)
    log_q = torch.log_softmax((squared / eta).log1p_().mul_(-(eta + 1) / 2), dim=1)
    return Assignment(z, centers, squared, log_q, log_q.exp())


def divergence(assignment: Assignment, frequency: Tensor, *, eta: float) -> tuple[Tensor, Tensor]:
    """Return the sum over some rows of KL(P ‖ Q), Eqs 10 and 11, and b (n, C) of :func:`self_training`.

    `frequency` (C,) is Σ_i q_iu over ALL rows, of which these may be a part. The memory of `assignment.squared` is used
    up.
    """
    _, _, squared, log_q, q = assignment
    # q of Student's t falls off as a power: a frequency of 0 would take centers at a distance of 10¹⁹.
    log_p = torch.log_softmax(2 * log_q - frequency.log(), dim=1)
    p = log_p.exp()
    kl = ordered_sum(log_p.sub_(log_q).mul_(p))
    return kl, p.sub_(q).mul_(eta + 1).div_(squared.add_(eta))


def divergence_gradient(z: Tensor, centers: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of :func:`divergence` in z (n, d), and these rows' share of that in the centers (C, d)."""
    grad_z = (z * slope.sum(dim=1, keepdim=True)).sub_(row_product(slope, centers))
    return grad_z, (centers * column_sums(slope)[:, None]).sub_(gram(slope, z))


class _SelfTraining(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, centers: Tensor, eta: float) -> tuple[Tensor, Tensor]:
        assignment = assign(z, centers, eta=eta)
        kl, slope = divergence(assignment, column_sums(assignment.q), eta=eta)
        ctx.save_for_backward(assignment.z, assignment.centers, slope)
        ctx.mark_non_differentiable(assignment.log_q)
        return kl, assignment.log_q

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
        grad_z, grad_centers = divergence_gradient(*ctx.saved_tensors)
        return grad_z.mul_(grad), grad_centers.mul_(grad), None


class _InBlocks(torch.autograd.Function):
    """The gradient is a constant of the forward pass, up to a factor: it is made there, and nothing else is kept."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, centers: Tensor, eta: float) -> tuple[Tensor, Tensor]:
        size = max(1, _NUMBERS_PER_BLOCK // len(centers))
        blocks = torch.split(z, size)
        frequencies, labels = [], []
        for block in blocks:
            assignment = assign(block, centers, eta=eta)
            frequencies.append(column_sums(assignment.q))
            labels.append(assignment.log_q.argmax(dim=1))
        frequency = torch.stack(frequencies).sum(dim=0)
        grad_z = torch.empty_like(z)
        values, grads = [], []
        for number, block in enumerate(blocks):
            assignment = assign(block, centers, eta=eta)
            value, slope = divergence(assignment, frequency, eta=eta)
            own = slice(number * size, number * size + len(block))
            grad_z[own], grad_centers = divergence_gradient(assignment.z, assignment.centers, slope)
            values.append(value)
            grads.append(grad_centers)
        ctx.save_for_backward(grad_z, torch.stack(grads).sum(dim=0))
        found = torch.cat(labels)
        ctx.mark_non_differentiable(found)
        return torch.stack(values).sum(), found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None]:
        grad_z, grad_centers = ctx.saved_tensors
        return grad_z * grad, grad_centers * grad, None
