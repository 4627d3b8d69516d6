"""Leading directions, neighbors and smoothing on a GPU: what :mod:`pamc.graph.smoothing` does on the host."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamc.data.attributed_graph import Features
from pamc.graph.adjacency import Adjacency, symmetric_normalize, with_self_loops
from pamc.graph.smoothing import N_DIRECTIONS, N_STEPS, Floats, embedding_of, on_sphere

__all__ = ["leading_directions_on", "nearest_on", "smoothed_points_on"]

# Directions beyond those asked for, and rounds, of the randomized SVD (Halko, Martinsson and Tropp 2011).
_MORE_DIRECTIONS, _ROUNDS = 10, 8

# Similarities that are looked at together.
_SIMILARITIES_AT_A_TIME = 1 << 28


def leading_directions_on(
    features: Features, *, seed: int, centered: bool, device: torch.device, n_directions: int = N_DIRECTIONS
) -> Floats:
    """Return what :func:`~pamc.graph.smoothing.leading_directions` does, up to the error of a randomized SVD."""
    rows = _product_with(features, device)
    n_rows, n_columns = features.shape
    rank = min(n_directions, n_rows, n_columns)
    width = min(rank + _MORE_DIRECTIONS, n_rows, n_columns)
    drawn = np.random.default_rng(seed).normal(size=(n_columns, width))
    basis = torch.from_numpy(drawn).to(device)
    mean = torch.as_tensor(np.asarray(features.mean(axis=0)).ravel(), dtype=torch.float64, device=device)
    mean = mean if centered else torch.zeros_like(mean)
    for _ in range(_ROUNDS):
        basis = torch.linalg.qr(_times(rows, mean, basis))[0]
        basis = torch.linalg.qr(_times_transposed(rows, mean, basis))[0]
    tall = _times(rows, mean, basis)
    spread, directions = torch.linalg.eigh(tall.T @ tall)
    largest = torch.argsort(spread, descending=True)[:rank]
    result: Floats = (tall @ directions[:, largest]).cpu().numpy()
    return result


def _product_with(features: Features, device: torch.device) -> Tensor:
    """Return the rows on the device in float64, sparse where they are sparse."""
    if isinstance(features, np.ndarray):
        return torch.from_numpy(features).to(device=device, dtype=torch.float64)
    entries: Any = features.tocoo()
    index = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
    values = torch.from_numpy(entries.data.astype(np.float64))
    with warnings.catch_warnings():
        # Some versions of torch warn that they do not check the indices, though that is what is asked for.
        warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled", UserWarning)
        matrix = torch.sparse_coo_tensor(index, values, size=features.shape, check_invariants=False)
        return matrix.to(device).coalesce()


def _times(rows: Tensor, mean: Tensor, basis: Tensor) -> Tensor:
    return rows @ basis - mean @ basis


def _times_transposed(rows: Tensor, mean: Tensor, basis: Tensor) -> Tensor:
    return rows.T @ basis - torch.outer(mean, basis.sum(dim=0))


def nearest_on(rows: Floats, n_neighbors: int, *, device: torch.device) -> NDArray[np.int64]:
    """Return (2, N·k) edges from each row of length 1 to the k others at the smallest angle, the nearest first.

    In float32: rows whose angles differ by rounding may change places. O(N²·d) time, one block of similarities.
    """
    unit = torch.from_numpy(rows).to(device=device, dtype=torch.float32)
    n_nodes = len(unit)
    at_a_time = max(1, _SIMILARITIES_AT_A_TIME // n_nodes)
    found = []
    for first in range(0, n_nodes, at_a_time):
        block = unit[first : first + at_a_time]
        similarity = block @ unit.T
        own = torch.arange(len(block), device=device)
        similarity[own, own + first] = -torch.inf
        found.append(similarity.topk(n_neighbors, dim=1).indices)
    targets = torch.cat(found).cpu().numpy()
    return np.stack([np.repeat(np.arange(n_nodes), n_neighbors), targets.ravel()])


def smoothed_points_on(
    rows: Floats, adjacency: Adjacency, n_dims: int, *, reaches: Sequence[float], device: torch.device
) -> list[Floats]:
    """Return the embedding of the rows after each of the walks of :func:`~pamc.graph.smoothing.smoothed`."""
    step = _product_with(symmetric_normalize(with_self_loops(adjacency)), device)
    walked = torch.from_numpy(on_sphere(rows)).to(device)
    sums = [(1 - reach) * walked for reach in reaches]
    for k in range(1, N_STEPS + 1):
        walked = step @ walked
        for total, reach in zip(sums, reaches, strict=True):
            total += (1 - reach) * reach**k * walked
    return [_embedding(total, n_dims) for total in sums]


def _embedding(rows: Tensor, n_dims: int) -> Floats:
    spread, directions = torch.linalg.eigh(rows.T @ rows)
    order = torch.argsort(spread, descending=True)[:n_dims]
    coordinates = (rows @ directions[:, order]).cpu().numpy()
    return embedding_of(coordinates, spread[order].cpu().numpy(), n_dims)
