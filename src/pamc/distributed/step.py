"""PamCGC on several processes: the exact full-batch step of :mod:`pamc.training.engine`, its rows shared out.

Each process owns a range of rows, and of the positive pairs those that start there. In one epoch

1. it encodes its own rows, and z (N × n_dims) is gathered: all that anybody needs to know of a row;
2. it assigns its rows; cluster sums (C × n_dims), sizes and the frequencies f_u = Σ_i q_iu are added up, and with them
   the proxy, its slope and the target p are known everywhere;
3. the masses L_i of Eq 3 (N numbers) are gathered, because what row i means to its neighbor j has L_j in it. γ_ij and
   γ_ji stand side by side, so with them dL/dz_i needs row i's own entries only;
4. it back-propagates dL/dz of its rows; the gradients of weights and centers are added up, and every process takes the
   same step.

Nothing is sampled or left out: values and gradients are those of one process, to rounding. One process is the special
case in which nothing travels.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pamc.distributed.group import SINGLE_PROCESS, ProcessGroup, rows_per_rank
from pamc.errors import ConfigError
from pamc.graph.positives import PairShard
from pamc.models.base import LossTerms, Model
from pamc.models.loader import FeatureLoader, encode_chunk, encode_rows
from pamc.models.methods.pamcgc import watched_rows
from pamc.ops.dispatch import resolve_backend
from pamc.ops.torch.clustering import assign, cluster_sums, divergence, divergence_gradient
from pamc.ops.torch.positives import log_mass_gradient, log_mass_of_rows
from pamc.ops.torch.proxy import proxy
from pamc.ops.torch.rows import column_sums, ordered_sum, unit_rows

__all__ = ["SharedModel", "accumulate_shared_gradient", "bytes_per_epoch", "check_shareable"]

# Sums of few numbers are taken in float64, whatever the type of z.
_WIDE_BYTES = 8


class SharedModel(Model):
    """One process's share of a :class:`~pamc.models.methods.pamcgc.PamCGCModel`.

    Parameters
    ----------
    encoder, centers, config
        As of the whole model, with the same values in every process.
    pairs
        The positive pairs of this process's rows.
    team
        The processes.
    """

    def __init__(
        self,
        encoder: nn.Module,
        centers: Tensor,
        pairs: PairShard,
        config: Any,
        *,
        group: ProcessGroup = SINGLE_PROCESS,
    ) -> None:
        super().__init__()
        check_shareable(config)
        self.encoder = encoder
        self.centers: nn.Parameter = nn.Parameter(centers.detach().clone())
        self.pairs, self.config, self.group = pairs, config, group
        # γ is a constant of training, and so is its sum.
        self._weight_sum = group.sum(pairs.log_weight.double().exp().sum())

    def objective(self, z: Tensor) -> LossTerms:
        """Return the loss of all rows, without a gradient to follow: the engine asks for :meth:`value_and_grad`."""
        return self.value_and_grad(z)[0]

    @torch.no_grad()
    def value_and_grad(self, z: Tensor) -> tuple[LossTerms, _Slope]:
        """Return Eq 12 of all rows, and its slope in z of these rows and in the centers.

        O(E·n_dims + N·n_dims + n·C·n_dims) time for n rows with E pairs.

        Parameters
        ----------
        z
            (n, n_dims) embedding of this process's rows.
        """
        config, group, pairs, n_nodes = self.config, self.group, self.pairs, self.pairs.n_nodes
        alpha, beta = config.alpha, config.beta / (n_nodes if config.kl_reduction == "mean" else 1)
        everyone = group.gather_rows(z, n_nodes)

        assignment = assign(z, self.centers, eta=config.eta)
        labels = assignment.log_q.argmax(dim=1)
        meta_nodes, mass, frequency = self._clusters(z, labels, assignment.q)
        kl, slope = divergence(assignment, frequency.to(z.dtype), eta=config.eta)
        kl_z, kl_centers = divergence_gradient(assignment.z, assignment.centers, slope)

        with torch.enable_grad():
            nodes = meta_nodes.to(z.dtype).requires_grad_()
            apart = proxy(nodes, mass.to(z.dtype), tau=config.tau, kind=config.proxy)
            (node_slope,) = torch.autograd.grad(apart, nodes)

        unit = unit_rows(everyone)
        own = unit[pairs.first_row : pairs.first_row + pairs.n_rows]
        found = log_mass_of_rows(own, unit, pairs, tau=config.tau, keep_self=config.self_edges == "keep")
        log_mass = group.gather_rows(found.log_mass, n_nodes)
        pull = torch.full_like(log_mass, -alpha / n_nodes)
        slope_in_unit = log_mass_gradient(unit, pairs, found.cosine, log_mass, pull, tau=config.tau)

        slope_z = _through_length(z, own, slope_in_unit)
        slope_z += node_slope.mul_(alpha / n_nodes)[labels]
        slope_z += kl_z.mul_(beta)

        summed = group.sum(torch.cat([kl_centers.double().ravel(), torch.stack([kl, found.agreement]).double()]))
        divided = (summed[-2] / n_nodes if config.kl_reduction == "mean" else summed[-2]).to(z.dtype)
        positive = -ordered_sum(torch.where(log_mass == -math.inf, 0.0, log_mass)) / n_nodes
        apart = apart.detach()
        terms = LossTerms(
            total=alpha * (positive + apart) + config.beta * divided,
            parts={"positive": positive, "proxy": apart, "kl": divided},
            labels=labels,
            monitors=self._monitors(everyone, meta_nodes, mass, summed[-1]),
        )
        slope_centers = summed[:-2].view(self.centers.shape).mul(beta).to(z.dtype)
        return terms, _Slope(slope_z, slope_centers)

    def _clusters(self, z: Tensor, labels: Tensor, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return meta-nodes (C, n_dims), sizes (C,) and frequencies (C,) of all rows, in float64."""
        sums, mass = cluster_sums(z, labels, len(self.centers))
        together = torch.cat([sums.double(), mass.double()[:, None], column_sums(q).double()[:, None]], dim=1)
        together = self.group.sum(together)
        return together[:, :-2] / self.pairs.n_nodes, together[:, -2], together[:, -1]

    def _monitors(self, z: Tensor, meta_nodes: Tensor, mass: Tensor, agreement: Tensor) -> dict[str, Tensor]:
        present = mass > 0
        means = meta_nodes * (len(z) / torch.where(present, mass, 1.0))[:, None]
        distances = torch.where(present, (self.centers.double() - means).norm(dim=1), 0.0)
        total = self._weight_sum
        backend = resolve_backend("auto", z.device)
        step, n_rows = watched_rows(len(z))
        return {
            "alignment": torch.where(total > 0, 2 - 2 * agreement / total, 0.0),
            "uniformity": backend.uniformity(z, step=step, n_rows=n_rows),
            "center_distance": distances.sum() / present.sum(),
            "n_nonempty": present.sum(),
        }


class _Slope(NamedTuple):
    """(n, n_dims) dL/dz of this process's rows, and (C, n_dims) dL/dcenters of all rows."""

    z: Tensor
    centers: Tensor


def accumulate_shared_gradient(model: SharedModel, rows: FeatureLoader, *, chunk_size: int | None = None) -> LossTerms:
    """Return the loss of all rows and set `grad` to its full-batch gradient, the same bits in every process.

    As :func:`pamc.training.engine.accumulate_gradient`, which sees all rows; the labels are those of this process's.

    Parameters
    ----------
    rows
        Of this process, and of no other.
    """
    if chunk_size is None or chunk_size >= len(rows):
        ((chunk, block),) = rows.chunks(None)
        taped = encode_chunk(model.encoder, chunk, block)
        terms, slope = model.value_and_grad(taped.detach().to(model.centers.dtype))
        torch.autograd.backward(taped, slope.z.to(taped.dtype))
    else:
        z = encode_rows(model.encoder, rows, chunk_size=chunk_size)
        terms, slope = model.value_and_grad(z.to(model.centers.dtype))
        for chunk, block in rows.chunks(chunk_size):
            torch.autograd.backward(encode_chunk(model.encoder, chunk, block), slope.z[chunk].to(z.dtype))
    _add_up(list(model.encoder.parameters()), model.group)
    model.centers.grad = slope.centers
    return terms


def check_shareable(
    config: Any, *, method: str = "pamcgc", known_labels: bool = False, own_encoder: bool = False
) -> None:
    """Refuse what several processes cannot train together."""
    what = None
    if method != "pamcgc":
        what = f"--method {method}"
    elif known_labels:
        what = "known_labels"
    elif own_encoder:
        what = "an encoder of your own"
    elif config.meta_assignment != "hard":
        what = f"meta_assignment={config.meta_assignment!r}"
    if what is not None:
        raise ConfigError(
            "several processes train method pamcgc, its own encoder, meta_assignment='hard' and no known labels; got "
            f"{what}: leave it out, or use one process"
        )


def bytes_per_epoch(
    n_nodes: int, n_dims: int, n_clusters: int, n_weights: int, *, n_processes: int, itemsize: int = 4
) -> dict[str, int]:
    """Return the bytes that each process sends in an epoch, by what they are, and in `total`.

    O(N·n_dims + N + C·n_dims + weights) for any number of processes and edges.

    Parameters
    ----------
    n_weights
        Weights of the encoder.
    itemsize
        Bytes of a number of z and of the weights.

    Examples
    --------
    >>> bytes_per_epoch(100_000_000, 10, 10, 1_330_000, n_processes=8)["total"]
    3859313248
    """
    others = n_processes - 1

    def gathered(n_rows: int, row_bytes: int) -> int:
        return others * rows_per_rank(n_rows, n_processes) * row_bytes

    def summed(n_values: int, value_bytes: int) -> int:
        return 2 * others * -(-n_values // n_processes) * value_bytes

    parts = {
        "z": gathered(n_nodes, n_dims * itemsize),
        "mass": gathered(n_nodes, itemsize),
        "clusters": summed(n_clusters * (n_dims + 2), _WIDE_BYTES) + summed(n_clusters * n_dims + 2, _WIDE_BYTES),
        "changed": summed(1, _WIDE_BYTES),
        "weights": summed(n_weights, itemsize),
    }
    return {**parts, "total": sum(parts.values())}


def _add_up(parameters: list[nn.Parameter], group: ProcessGroup) -> None:
    """Put the sum over all processes in the place of the gradients, in one message."""
    learnt = [p for p in parameters if p.requires_grad]
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in learnt]
    summed = group.sum(torch.cat([gradient.ravel() for gradient in gradients]))
    for parameter, values in zip(learnt, torch.split(summed, [p.numel() for p in learnt]), strict=True):
        parameter.grad = values.view(parameter.shape)


def _through_length(z: Tensor, unit: Tensor, slope: Tensor) -> Tensor:
    """Return the slope in z of what has a slope in the unit rows: its part across the row, over the row's length."""
    squared = z.square().sum(dim=1, keepdim=True)
    inverse = torch.where(squared == 0, 0.0, 1 / torch.where(squared == 0, 1.0, squared).sqrt())
    return (slope - unit * (slope * unit).sum(dim=1, keepdim=True)) * inverse
