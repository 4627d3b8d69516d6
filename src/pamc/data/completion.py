"""Impute the missing cells of preprocessed rows by their expected values, given the known cells of the row.

The rows are modeled as x = μ + W t + noise, with few factors t (probabilistic PCA, Tipping and Bishop 1999), fitted to
the known cells by expectation maximization. Imputed values are an input of the encoder only; they are never shown to
the user.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Maximum number of factors, also as a share of the columns; and the number of iterations.
_MOST_FACTORS, _MOST_SHARE = 12, 0.5
_N_ITERATIONS = 20

# Maximum number of rows that the factors are fitted to, and number of rows that are imputed at a time.
_MOST_ROWS = 20_000
_ROWS_AT_A_TIME = 4096

# Minimum variance of the noise, as a share of the mean variance of a column.
_LEAST_NOISE = 1e-3

Floats = NDArray[np.float64]


def fit_completion(rows: NDArray[np.floating[Any]]) -> dict[str, Floats]:
    """Return the mean (d,), the factors (d, r) and the variance of the noise (1,) of rows with NaN for missing cells.

    O(N·d·r² + d³) time per iteration.
    """
    # Imported here, because reading a file must not import torch.
    from pamc.runtime import one_thread

    known = rows[:: -(-len(rows) // _MOST_ROWS)].astype(np.float64)
    hidden = np.isnan(known)
    n_known = np.maximum((~hidden).sum(axis=0), 1)
    mean = np.where(hidden, 0.0, known).sum(axis=0) / n_known
    n_factors = max(1, min(_MOST_FACTORS, int(_MOST_SHARE * rows.shape[1])))
    with one_thread():
        factors, noise = np.zeros((rows.shape[1], n_factors)), np.ones(1)
        for _ in range(_N_ITERATIONS if hidden.any() else 1):
            filled = _filled(known, mean, factors, noise)
            mean = filled.mean(axis=0)
            factors, noise = _factors(filled - mean, hidden.mean(axis=0), n_factors, noise)
    return {"hidden_mean": mean, "hidden_factors": factors, "hidden_noise": noise}


def _factors(centered: Floats, hidden_share: Floats, n_factors: int, noise: Floats) -> tuple[Floats, Floats]:
    """Return the maximum likelihood factors and noise of imputed rows, whose missing cells have the noise variance."""
    covariance = centered.T @ centered / len(centered)
    known_noise = noise if centered.any() else np.zeros(1)
    covariance[np.diag_indices_from(covariance)] += hidden_share * np.minimum(known_noise, covariance.diagonal().mean())
    variances, directions = np.linalg.eigh(covariance)
    variances, directions = variances[::-1], directions[:, ::-1]
    rest = variances[n_factors:]
    least = _LEAST_NOISE * max(float(variances.mean()), np.finfo(np.float64).tiny)
    noise = np.array([max(float(rest.mean()) if len(rest) else 0.0, least)])
    return directions[:, :n_factors] * np.sqrt(np.maximum(variances[:n_factors] - noise, 0.0)), noise


def complete(rows: NDArray[np.floating[Any]], arrays: dict[str, Any]) -> NDArray[Any]:
    """Return the rows with missing cells imputed; complete rows are unchanged. O(N·d·r²) time."""
    from pamc.runtime import one_thread

    result = rows.copy()
    incomplete = np.flatnonzero(np.isnan(rows).any(axis=1))
    mean, factors, noise = (arrays[f"hidden_{name}"] for name in ("mean", "factors", "noise"))
    with one_thread():
        for start in range(0, len(incomplete), _ROWS_AT_A_TIME):
            block = incomplete[start : start + _ROWS_AT_A_TIME]
            result[block] = _filled(rows[block].astype(np.float64), mean, factors, noise)
    return result


def _filled(rows: Floats, mean: Floats, factors: Floats, noise: Floats) -> Floats:
    """Return rows with missing cells replaced by their conditional mean, given the known cells."""
    known = ~np.isnan(rows)
    n_factors = factors.shape[1]
    products = (factors[:, :, None] * factors[:, None, :]).reshape(len(factors), -1)
    precision = (known @ products).reshape(-1, n_factors, n_factors) + noise * np.eye(n_factors)
    weighted = np.where(known, rows - mean, 0.0) @ factors
    scores = np.linalg.solve(precision, weighted[:, :, None])[:, :, 0]
    return np.where(known, rows, mean + scores @ factors.T)
