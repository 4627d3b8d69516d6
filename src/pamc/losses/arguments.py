"""Validation of the losses' arguments."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pamc.config import CHOICES
from pamc.errors import ConfigError, DataError, UnknownNameError
from pamc.graph.positives import PositivePairs


def check_choice(option: str, value: str) -> None:
    """Raise UnknownNameError unless the option allows the value."""
    if value not in CHOICES[option]:
        raise UnknownNameError(option, value, CHOICES[option])


def check_tau(tau: float) -> None:
    """Raise ConfigError unless tau is finite and positive."""
    if not (math.isfinite(tau) and tau > 0):
        raise ConfigError(f"tau multiplies the cosine and must be a finite number above 0, got {tau!r}")


def check_embedding(z: Tensor, *, name: str = "z") -> Tensor:
    """Return rows (N, d) in the dtype of the computation: half precision is converted to float32."""
    if z.ndim != 2 or not z.is_floating_point():
        raise DataError(f"{name} must be a 2-D floating-point tensor, got {_describe(z)}")
    if 0 in z.shape:
        raise DataError(f"{name} must have at least one row and one column, got shape {tuple(z.shape)}")
    return z.float() if z.dtype in (torch.float16, torch.bfloat16) else z


def check_pairs(z: Tensor, edges: Tensor | PositivePairs, edge_weight: Tensor | None) -> PositivePairs:
    """Return the positive pairs of the rows of z, from (2, E) edges i → j with weights γ_ij or from prepared pairs."""
    if isinstance(edges, PositivePairs):
        pairs = edges
        if edge_weight is not None:
            raise ConfigError("edge_weight was passed with prepared pairs, which carry their weights: leave it out")
    else:
        _check_edges(edges, n_nodes=len(z))
        if edge_weight is not None:
            _check_weight(edge_weight, n_edges=edges.shape[1])
        pairs = PositivePairs.from_edges(edges, edge_weight, n_nodes=len(z), dtype=z.dtype)
    if pairs.n_nodes != len(z):
        raise DataError(f"the pairs are over {pairs.n_nodes} nodes, but z has {len(z)} rows")
    if pairs.indices.device != z.device:
        raise DataError(f"edges are on {pairs.indices.device} and z on {z.device}: move them with .to(device=…)")
    return pairs if pairs.log_weight.dtype == z.dtype else pairs.to(dtype=z.dtype)


def check_assignment(z: Tensor, assignment: Tensor, n_clusters: int | None) -> tuple[Tensor, int]:
    """Return the assignment, (N,) int64 labels or (N, C) in the dtype of z, and C."""
    if n_clusters is not None and n_clusters < 1:
        raise ConfigError(f"n_clusters must be at least 1, got {n_clusters}")
    if assignment.device != z.device:
        raise DataError(f"assignment is on {assignment.device} and z on {z.device}: move it with .to(device=…)")
    if assignment.ndim == 1 and len(assignment) == len(z) and _is_integer(assignment):
        least, largest = (int(value) for value in assignment.aminmax())
        n_clusters = largest + 1 if n_clusters is None else n_clusters
        if least < 0 or largest >= n_clusters:
            raise DataError(
                f"labels must lie between 0 and n_clusters - 1 = {n_clusters - 1}, got {least} to {largest}"
            )
        return assignment.long(), n_clusters
    if assignment.ndim == 2 and len(assignment) == len(z) and assignment.is_floating_point():
        n_columns = assignment.shape[1]
        if n_clusters not in (None, n_columns):
            raise DataError(f"assignment has {n_columns} columns, but n_clusters is {n_clusters}")
        return assignment.to(z.dtype), n_columns
    raise DataError(
        f"assignment must be ({len(z)},) integer labels or ({len(z)}, C) floating-point, got {_describe(assignment)}"
    )


def _check_edges(edges: Tensor, *, n_nodes: int) -> None:
    if edges.ndim != 2 or edges.shape[0] != 2:
        hint = "; pass edges.T" if edges.ndim == 2 and edges.shape[1] == 2 else ""
        raise DataError(f"edges must have shape (2, E), got {tuple(edges.shape)}{hint}")
    if not _is_integer(edges):
        raise DataError(f"edges must be row indices (integers), got {edges.dtype}")
    outside = ((edges < 0) | (edges >= n_nodes)).any(dim=0).nonzero()[:, 0]
    if len(outside):
        first = ", ".join(f"{i}→{j}" for i, j in edges[:, outside[:3]].T.tolist())
        raise DataError(
            f"{len(outside)} of {edges.shape[1]} edges join rows that do not exist (z has rows 0 to {n_nodes - 1}); "
            f"the first: {first}"
        )


def _check_weight(weight: Tensor, *, n_edges: int) -> None:
    if weight.shape != (n_edges,):
        raise DataError(f"edge_weight must have one value per edge ({n_edges}), got shape {tuple(weight.shape)}")
    if weight.requires_grad:
        raise ConfigError("edge_weight requires a gradient, but γ is a constant of the loss: pass edge_weight.detach()")
    wrong = (~(weight.isfinite() & (weight >= 0))).nonzero()[:, 0]
    if len(wrong):
        raise DataError(
            f"edge weights must be finite and at least 0: {len(wrong)} of {n_edges} are not; the first is "
            f"{float(weight[wrong[0]]):g} at edge {int(wrong[0])}"
        )


def _is_integer(x: Tensor) -> bool:
    return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)


def _describe(x: Tensor) -> str:
    return f"{x.dtype} of shape {tuple(x.shape)}"
