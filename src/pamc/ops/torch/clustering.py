"""Self-training (Eqs 9 to 11) as one operation with an explicit gradient, meta-node sums, and label changes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pamc.ops.group import SINGLE_PROCESS, ProcessGroup, wide_sum
from pamc.ops.torch.rows import ROWS_PER_BLOCK, column_sums, gram, ordered_sum, row_product

# Maximum number of values q (rows times clusters) in memory at a time on a CPU.
_NUMBERS_PER_BLOCK = 1 << 22


def self_training(
    z: Tensor,
    centers: Tensor,
    *,
    eta: float,
    group: ProcessGroup = SINGLE_PROCESS,
    sample_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the sum over rows of KL(P ‖ Q), Eq 11, with gradient, and the labels (N,), the argmax of q.

    Value and gradient are those of :func:`soft_self_training`. On a CPU with very many rows and clusters, q is computed
    for one block of rows at a time: once for the frequencies, and again for the divergence and its gradient. O(N·C·d)
    time; O(N·(C + d)) memory, or O(N·d) in blocks.

    Examples
    --------
    >>> self_training(torch.tensor([[0.0], [2.0]]), torch.tensor([[0.0], [2.0]]), eta=1.0)[1]
    tensor([0, 1])
    """
    if z.device.type == "cpu" and len(z) * len(centers) > _NUMBERS_PER_BLOCK:
        result: tuple[Tensor, Tensor] = _InBlocks.apply(  # type: ignore[no-untyped-call]
            z, centers, eta, group, sample_weight
        )
        return result
    kl, log_q = soft_self_training(z, centers, eta=eta, group=group, sample_weight=sample_weight)
    return kl, log_q.argmax(dim=1)


def soft_self_training(
    z: Tensor,
    centers: Tensor,
    *,
    eta: float,
    group: ProcessGroup = SINGLE_PROCESS,
    sample_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    r"""Return the sum over rows of KL(P ‖ Q), Eq 11, and log q, Eq 9.

    The target p of Eq 10 is constant. With b_iu = (p_iu − q_iu)·(η + 1)/(η + ‖z_i − μ_u‖²),

    .. math:: \frac{\partial KL}{\partial z_i} = \sum_u b_{iu}(z_i - \mu_u), \qquad
              \frac{\partial KL}{\partial \mu_u} = -\sum_i b_{iu}(z_i - \mu_u)

    z is (N, d), and centers (C, d) are μ. log q (N, C) has no gradient. Only b is stored for the backward pass.
    O(N·C·d) time, O(N·(C + d)) memory. In a process group, each process has some of the rows; the frequencies of Eq 10
    and the KL are those of all rows, and the gradient in μ is the contribution of this process. `sample_weight` (N,)
    multiplies the terms of each row in the frequencies and in the KL, so that a row of weight w counts as w rows.

    Examples
    --------
    >>> kl, log_q = soft_self_training(torch.tensor([[0.0], [2.0]]), torch.tensor([[0.0], [2.0]]), eta=1.0)
    >>> log_q.exp().round(decimals=3)
    tensor([[0.8330, 0.1670],
            [0.1670, 0.8330]])
    """
    result: tuple[Tensor, Tensor] = _SelfTraining.apply(  # type: ignore[no-untyped-call]
        z, centers, eta, group, sample_weight
    )
    return result


class _Assignment(NamedTuple):
    """Rows (n, d) and centers (C, d) minus the centers' mean, and (n, C) squared distances, log q and q of Eq 9."""

    z: Tensor
    centers: Tensor
    squared: Tensor
    log_q: Tensor
    q: Tensor


def _assign(z: Tensor, centers: Tensor, *, eta: float) -> _Assignment:
    """Return the soft assignment of rows z (n, d), Eq 9. O(n·C·d) time."""
    z, centers, squared = _moved_distances(z, centers)
    log_q = torch.log_softmax((squared / eta).log1p_().mul_(-(eta + 1) / 2), dim=1)
    return _Assignment(z, centers, squared, log_q, log_q.exp())


def _frequency(q: Tensor, sample_weight: Tensor | None) -> Tensor:
    """Return Σ_i q_iu (C,) of Eq 10 over some rows."""
    return column_sums(q if sample_weight is None else q * sample_weight[:, None])


def _divergence(
    assignment: _Assignment, frequency: Tensor, *, eta: float, sample_weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the sum over some rows of KL(P ‖ Q), Eqs 10 and 11, and b (n, C) of :func:`soft_self_training`.

    `frequency` (C,) is Σ_i q_iu over ALL rows, of which these may be a subset. `assignment.squared` is overwritten.
    """
    _, _, squared, log_q, q = assignment
    # q of Student's t decays as a power: a frequency of 0 would require centers at a distance of 10¹⁹.
    log_p = torch.log_softmax(2 * log_q - frequency.log(), dim=1)
    p = log_p.exp()
    terms = log_p.sub_(log_q).mul_(p)
    if sample_weight is not None:
        weight = p.sub_(q).mul_(eta + 1).div_(squared.add_(eta))
        return ordered_sum(terms.mul_(sample_weight[:, None])), weight.mul_(sample_weight[:, None])
    kl = ordered_sum(terms)
    return kl, p.sub_(q).mul_(eta + 1).div_(squared.add_(eta))


def _divergence_gradient(z: Tensor, centers: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient of the divergence in z (n, d), and the contribution of these rows to that in centers (C, d).

    `z` and `centers` are those of the assignment, and `weight` (n, C) is b of :func:`soft_self_training`.
    """
    grad_z = (z * weight.sum(dim=1, keepdim=True)).sub_(row_product(weight, centers))
    return grad_z, (centers * column_sums(weight)[:, None]).sub_(gram(weight, z))


class _SelfTraining(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, centers: Tensor, eta: float, group: ProcessGroup, sample_weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        assignment = _assign(z, centers, eta=eta)
        frequency = wide_sum(_frequency(assignment.q, sample_weight), group)
        kl, weight = _divergence(assignment, frequency, eta=eta, sample_weight=sample_weight)
        ctx.save_for_backward(assignment.z, assignment.centers, weight)
        ctx.mark_non_differentiable(assignment.log_q)
        return wide_sum(kl, group), assignment.log_q

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad_z, grad_centers = _divergence_gradient(*ctx.saved_tensors)
        return grad_z.mul_(grad), grad_centers.mul_(grad), None, None, None


class _InBlocks(torch.autograd.Function):
    """Self-training in blocks, whose gradient is computed in the forward pass and only scaled in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, centers: Tensor, eta: float, group: ProcessGroup, sample_weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        size = max(1, _NUMBERS_PER_BLOCK // len(centers))
        blocks = torch.split(z, size)
        weights = [None] * len(blocks) if sample_weight is None else torch.split(sample_weight, size)
        frequencies, labels = [], []
        for block, of_rows in zip(blocks, weights, strict=True):
            assignment = _assign(block, centers, eta=eta)
            frequencies.append(_frequency(assignment.q, of_rows))
            labels.append(assignment.log_q.argmax(dim=1))
        frequency = wide_sum(torch.stack(frequencies).sum(dim=0), group)
        grad_z = torch.empty_like(z)
        values, grads = [], []
        for number, block in enumerate(blocks):
            assignment = _assign(block, centers, eta=eta)
            value, weight = _divergence(assignment, frequency, eta=eta, sample_weight=weights[number])
            rows = slice(number * size, number * size + len(block))
            grad_z[rows], grad_centers = _divergence_gradient(assignment.z, assignment.centers, weight)
            values.append(value)
            grads.append(grad_centers)
        ctx.save_for_backward(grad_z, torch.stack(grads).sum(dim=0))
        all_labels = torch.cat(labels)
        ctx.mark_non_differentiable(all_labels)
        return wide_sum(torch.stack(values).sum(), group), all_labels

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad_z, grad_centers = ctx.saved_tensors
        return grad_z * grad, grad_centers * grad, None, None, None


def cluster_sums(z: Tensor, assignment: Tensor, n_clusters: int) -> tuple[Tensor, Tensor]:
    """Return the sum of the rows of z (N, d) assigned to each cluster (C, d), and the mass assigned to it (C,).

    This is N times Eq 8, for (N,) labels 0 … C−1 or an (N, C) soft assignment. The sums are differentiable in z and in
    a soft assignment. O(N·d) for labels, O(N·C·d) time and O(N·(C + d)) memory for a soft assignment. On a GPU the
    sums for labels are bitwise reproducible under ``torch.use_deterministic_algorithms``.

    Examples
    --------
    >>> cluster_sums(torch.eye(2), torch.tensor([1, 1]), 2)
    (tensor([[0., 0.],
            [1., 1.]]), tensor([0., 2.]))
    """
    if assignment.ndim == 2:
        return gram(assignment, z), column_sums(assignment.detach())
    # Sums of block sums: rounding errors grow with the block size and the number of blocks, not with N.
    n_blocks = -(-len(z) // ROWS_PER_BLOCK)
    block = torch.arange(len(z), device=z.device) // ROWS_PER_BLOCK
    sums = z.new_zeros(n_blocks * n_clusters, z.shape[1]).index_add(0, block * n_clusters + assignment, z)
    counts = torch.zeros(n_clusters, dtype=torch.int64, device=z.device)
    counts = counts.index_add(0, assignment, torch.ones_like(assignment))
    return sums.view(n_blocks, n_clusters, -1).sum(dim=0), counts.to(z.dtype)


def with_changes(numbers: Tensor, labels: Tensor, previous: Tensor) -> Tensor:
    """Append to `numbers` (k,) the count of labels (N,) that differ from `previous` (N,), which is then overwritten.

    Returns (k + 1,) in float64, which represents any count exactly. Does not synchronize with the host. O(N) time.

    Examples
    --------
    >>> previous = torch.tensor([0, 1, 1])
    >>> with_changes(torch.tensor([0.5]), torch.tensor([0, 2, 1]), previous)
    tensor([0.5000, 1.0000], dtype=torch.float64)
    >>> previous
    tensor([0, 2, 1])
    """
    changed = (labels != previous).sum()
    previous.copy_(labels)
    return torch.cat([numbers.double(), changed.double()[None]])


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return (N, C) ‖x_i − y_u‖² for x (N, d) and y (C, d), as in Eq 9. O(N·C·d) time, O(N·(C + d)) memory.

    They are computed as ‖x‖² + ‖y‖² − 2·x·y after subtracting the mean of y from both, so a common offset loses no
    precision.

    Examples
    --------
    >>> squared_distances(torch.zeros(1, 2), torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[25.,  0.]])
    """
    result: Tensor = _SquaredDistances.apply(x, y)  # type: ignore[no-untyped-call]
    return result


class _SquaredDistances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        x, y, squared = _moved_distances(x, y)
        ctx.save_for_backward(x, y)
        return squared

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, y = ctx.saved_tensors
        grad_x = x * grad.sum(dim=1, keepdim=True) - row_product(grad, y)
        grad_y = y * column_sums(grad)[:, None] - gram(grad, x)
        return 2 * grad_x, 2 * grad_y


def _moved_distances(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return x and y minus the mean of y, so that a common offset loses no precision, and (N, C) ‖x_i − y_u‖²."""
    origin = y.mean(dim=0)
    x, y = x - origin, y - origin
    squared = row_product(x, y.T).mul_(-2)
    squared += x.square().sum(dim=1, keepdim=True)
    squared += y.square().sum(dim=1)
    return x, y, squared.clamp_(min=0)
