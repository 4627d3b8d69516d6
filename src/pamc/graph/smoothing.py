"""Low-dimensional features, smoothed over a graph, in which neighbors are searched and clusters initialized."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pamc.data.attributed_graph import Features
from pamc.graph.adjacency import Adjacency, symmetric_normalize, with_self_loops
from pamc.runtime import quiet_libraries

Floats: TypeAlias = "NDArray[np.float64]"

# Number of directions used for smoothing. Text needs about two hundred; more make no difference.
N_DIRECTIONS = 200

# Number of steps after which the walk is truncated.
_N_STEPS = 12

# Iterations of the randomized SVD (Halko, Martinsson and Tropp 2011), and oversampling of directions on a GPU.
_SVD_ITERATIONS = 8
_MORE_DIRECTIONS = 10

# Up to this many columns, the directions of dense rows are the exact eigenvectors of their covariance matrix.
_MOST_EXACT_COLUMNS = 1000

# Sum of squares along a direction, as a share of the largest one, below which it is rounding error of float32 features.
_LEAST_SPREAD = 1e-13

# Number of columns up to which the lengths of rows carry as much information as their directions.
_FEW_DIRECTIONS = 16

# Number of shuffled tables that show which directions arise by chance, and minimum number of directions.
_N_SHUFFLES, _LEAST_SHARED = 10, 2

_CPU = torch.device("cpu")


def unit_rows(rows: Floats) -> Floats:
    """Return the rows scaled to length 1; zero rows stay zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Floats = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return unit


def leading_directions(
    features: Features,
    *,
    seed: int,
    centered: bool = True,
    n_directions: int = N_DIRECTIONS,
    device: torch.device = _CPU,
) -> Floats:
    """Return (N, r) coordinates of the rows along the r directions of largest variance, in descending order.

    With centered columns this is PCA. Without centering it is latent semantic analysis, which suits bags of words: the
    angle between two rows measures how many words they share, and sparse rows stay sparse. Nearest neighbors are more
    accurate in fewer directions: a text shares its class with 50 % of its neighbors in 2000 dimensions and with 88 % in
    50. O(N·d·r)
    time for dense features, O(N·d²) if they have few columns, and O(nnz·r) for sparse features.

    Parameters
    ----------
    features
        (N, d) preprocessed features.
    seed
        Random seed of the randomized SVD.
    centered
        Whether to subtract the mean of each column first.
    n_directions
        Maximum number of directions; r is at most N and d. Directions without variance are left out.
    device
        The CPU computes the directions of few columns exactly, and otherwise runs scikit-learn's randomized SVD; a GPU
        runs a separate one: they agree up to the error of the method.
    """
    if device.type != "cpu":
        return _with_variance(*_directions_on(features, seed, centered, n_directions, device))
    from sklearn.utils.extmath import randomized_svd

    rank = min(n_directions, *features.shape)
    rows: Any = features.astype(np.float64)
    if centered:
        rows = rows if isinstance(rows, np.ndarray) else rows.toarray()
        rows -= rows.mean(axis=0)
    if isinstance(rows, np.ndarray) and rows.shape[1] <= _MOST_EXACT_COLUMNS:
        return _with_variance(*_along_leading(rows, rank))
    with np.errstate(invalid="ignore", divide="ignore"):
        u, s, _ = randomized_svd(rows, rank, n_iter=_SVD_ITERATIONS, random_state=seed)
    return _with_variance(np.asarray(u * s), np.square(s))


def shared_directions(rows: NDArray[Any], variable: NDArray[Any], *, seed: int) -> Floats:
    """Return (N, r) coordinates of a table along the directions that its variables share, leading directions first.

    Clusters show in several variables at once. A direction is kept if its variance is larger than in tables whose
    variables were shuffled independently of each other (parallel analysis, Horn 1965); a category that is unrelated to
    all other variables, however many values it has, does not contribute. O(N·d²) time.

    Parameters
    ----------
    rows
        (N, d) preprocessed columns.
    variable
        (d,) number of the variable of each column.
    seed
        Random seed of the shuffles.
    """
    random = np.random.default_rng(seed)
    rows = rows.astype(np.float64)
    rows -= rows.mean(axis=0)
    by_chance = np.mean([_spread_of(_shuffled(rows, variable, random)) for _ in range(_N_SHUFFLES)], axis=0)
    coordinates, spread = _along_leading(rows, min(rows.shape))
    is_shared = spread > by_chance[: len(spread)]
    n_shared = max(_LEAST_SHARED, len(spread) if is_shared.all() else int(is_shared.argmin()))
    return _with_variance(coordinates[:, :n_shared], spread[:n_shared])


def _shuffled(rows: Floats, variable: NDArray[Any], random: np.random.Generator) -> Floats:
    """Return the table with the rows of each variable permuted independently."""
    result = np.empty_like(rows)
    for number in np.unique(variable):
        columns = np.flatnonzero(variable == number)
        result[:, columns] = rows[random.permutation(len(rows))][:, columns]
    return result


def _spread_of(rows: Floats) -> Floats:
    """Return the sums of squares of rows along their leading directions, in descending order."""
    return np.asarray(np.linalg.eigvalsh(rows.T @ rows)[::-1])


def _with_variance(coordinates: Floats, spread: Floats) -> Floats:
    """Return the coordinates along directions whose spread is not just rounding error, at least one direction."""
    return coordinates[:, : max(1, int((spread > _LEAST_SPREAD * spread.max()).sum()))]


def _directions_on(
    features: Features, seed: int, centered: bool, n_directions: int, device: torch.device
) -> tuple[Floats, Floats]:
    """Return the coordinates along leading directions, and their spread, keeping sparse rows sparse on the device."""
    rows = _on_device(features, device)
    rank = min(n_directions, *features.shape)
    width = min(rank + _MORE_DIRECTIONS, *features.shape)
    mean = torch.zeros(features.shape[1], dtype=torch.float64, device=device)
    if centered:
        mean += torch.as_tensor(np.asarray(features.mean(axis=0)).ravel(), dtype=torch.float64, device=device)
    basis = torch.from_numpy(np.random.default_rng(seed).normal(size=(features.shape[1], width))).to(device)
    for _ in range(_SVD_ITERATIONS):
        basis = torch.linalg.qr(rows @ basis - mean @ basis)[0]
        basis = torch.linalg.qr(rows.T @ basis - torch.outer(mean, basis.sum(dim=0)))[0]
    return _along_leading(rows @ basis - mean @ basis, rank)


def _on_device(matrix: Any, device: torch.device) -> Tensor:
    """Return a matrix on the device in float64, sparse if the input is."""
    if isinstance(matrix, np.ndarray):
        return torch.from_numpy(matrix).to(device=device, dtype=torch.float64)
    entries = matrix.tocoo()
    index = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
    values = torch.from_numpy(entries.data.astype(np.float64))
    # Some versions of torch warn that they do not check the indices, although the argument disables the check.
    with quiet_libraries:
        sparse = torch.sparse_coo_tensor(index, values, size=matrix.shape, check_invariants=False)
        return sparse.to(device).coalesce()


def _along_leading(rows: Any, n_dims: int) -> tuple[Floats, Floats]:
    """Return (N, r) coordinates along the r ≤ n_dims directions of largest variance, and their (r,) sums of squares."""
    on_host = isinstance(rows, np.ndarray)
    spread, directions = (np if on_host else torch).linalg.eigh(rows.T @ rows)
    order = (-spread).argsort()[:n_dims]
    coordinates, spread = rows @ directions[:, order], spread[order]
    return (coordinates, spread) if on_host else (coordinates.cpu().numpy(), spread.cpu().numpy())


def on_sphere(rows: Floats) -> Floats:
    """Return the rows scaled to length 1; if they have few columns, a column of their typical length is added first.

    Examples
    --------
    >>> on_sphere(np.array([[3.0], [-1.0]])).round(2)
    array([[ 0.8 ,  0.6 ],
           [-0.41,  0.91]])
    """
    if rows.shape[1] <= _FEW_DIRECTIONS:
        typical = np.sqrt(np.square(rows).sum(axis=1).mean())
        rows = np.concatenate([rows, np.full((len(rows), 1), typical)], axis=1)
    return unit_rows(rows)


def smoothed(rows: Floats, adjacency: Adjacency, reaches: Sequence[float], *, device: torch.device = _CPU) -> list[Any]:
    r"""Return the rows smoothed by a random walk that continues with probability a, for each a in `reaches`.

    .. math:: H_a = (1 - a) \sum_{k=0}^{12} a^k \tilde{A}^k Z

    Ã is the symmetrically normalized adjacency with self-loops. Unlike in Ã^k Z, a row keeps part of its own features,
    which limits the effect of wrong edges. O(E·r) time, O(N·r) memory per reach. Returns arrays on the CPU, tensors on
    a GPU.
    """
    step: Any = symmetric_normalize(with_self_loops(adjacency))
    if device.type == "cpu":
        return _sums_of_walks(step, rows, reaches)
    return _sums_of_walks(_on_device(step, device), _on_device(rows, device), reaches)


def _sums_of_walks(step: Any, walked: Any, reaches: Sequence[float]) -> list[Any]:
    sums = [(1 - reach) * walked for reach in reaches]
    for k in range(1, _N_STEPS + 1):
        walked = step @ walked
        for total, reach in zip(sums, reaches, strict=True):
            total += (1 - reach) * reach**k * walked
    return sums


def embedding(rows: Floats | Tensor, n_dims: int) -> Floats:
    """Return (N, n_dims) unit rows along the leading directions, each weighted by the root of its singular value.

    The root is a compromise between unweighted directions, which amplify noise, and the full singular values, of which
    the first dominates. If there are fewer directions than `n_dims`, the remaining columns are 0. O(N·r²) time.
    """
    coordinates, spread = _along_leading(rows, n_dims)
    # U·√s for the singular values s: the coordinates along a direction have norm s, and `spread` is s².
    scale = np.maximum(spread, 0.0) ** 0.25
    # The sign of a direction is arbitrary: its largest coordinate is made positive, as in scikit-learn.
    coordinates *= np.sign(coordinates[np.abs(coordinates).argmax(axis=0), np.arange(len(scale))])
    result = np.zeros((len(coordinates), n_dims))
    np.divide(coordinates, scale, out=result[:, : len(scale)], where=scale > 1e-6 * scale.max(initial=0.0))
    return unit_rows(result)
