"""Impute the missing cells of preprocessed rows by their expected values, given the known cells of the row.

The rows are modeled as a mixture of factor models, x = μ_g + W_g t + noise with few factors t (mixtures of
probabilistic PCA, Tipping and Bishop 1999), fitted to the known cells by expectation maximization. The number of
components is the one that best predicts held-out cells. Imputed values are an input of the encoder only;
they are never shown to the user.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

# Maximum number of factors of a single component and of several ones, also as a share of the columns.
_MOST_FACTORS, _MOST_FACTORS_OF_MANY, _MOST_SHARE = 12, 6, 0.5
_N_ITERATIONS = 15

# Numbers of components that are compared, and the minimum number of different rows per component.
_N_COMPONENTS, _ROWS_PER_COMPONENT = (4, 12, 24), 20

# Share of the variables that are held out to compare numbers of components, and the minimum decrease of the squared
# error that justifies more components: as a share of the error, and in standard errors.
_SET_ASIDE, _LEAST_GAIN, _BEYOND_CHANCE = 0.1, 0.05, 3.0

# Number of components that a row may belong to: those with the largest likelihood if columns were independent.
MOST_PER_ROW = 3

# Weight of the prior of a component, in rows.
_PRIOR_ROWS = 1.0

# Maximum number of rows to which a single component and several ones are fitted; number of rows imputed at a time.
_MOST_ROWS, _MOST_ROWS_OF_MANY = 20_000, 5000
_ROWS_AT_A_TIME = 4096

# Minimum variance of the noise of a component, as a share of the mean variance of the columns.
_LEAST_NOISE = 1e-3

Floats: TypeAlias = NDArray[np.float64]


class Mixture(NamedTuple):
    """A mixture of G factor models of rows with d columns.

    Parameters
    ----------
    weights
        (G,) shares of the rows.
    means, factors, noise
        (G, d) means, (G, d, r) factors, and (G,) variances of the noise.
    """

    weights: Floats
    means: Floats
    factors: Floats
    noise: Floats


class _Expected(NamedTuple):
    """The components (N, m) that a row may belong to, their posterior probabilities, and the row imputed by each."""

    components: NDArray[np.int64]
    probabilities: Floats
    rows: Floats


class _Conditional(NamedTuple):
    """Imputed rows (N, d); mean (N, r) and covariance (N, r, r) of their factors; and distances (N,) of known cells."""

    rows: Floats
    scores: Floats
    covariance: Floats
    distance: Floats


def fit_completion(rows: NDArray[np.floating[Any]], variable: NDArray[Any] | None = None) -> dict[str, Floats]:
    """Return the arrays of the :class:`Mixture`, named ``hidden_…``, of rows (N, d) with NaN for missing cells.

    O(N·d·r² + G·d³) time per iteration.

    Parameters
    ----------
    variable
        (d,) index of the variable of each column; columns of a variable are missing together. By default, each column
        is a variable.
    """
    # Imported here, because reading a file must not import torch.
    from pamc.runtime import one_thread

    with one_thread():
        mixture = _single(_sampled(rows, _MOST_ROWS))
        few = _sampled(rows, _MOST_ROWS_OF_MANY)
        if np.isnan(few).any():
            n_components = _n_components(few, np.arange(rows.shape[1]) if variable is None else variable)
            if n_components > 1:
                mixture = _several(few, n_components)
    return {f"hidden_{name}": array for name, array in mixture._asdict().items()}


def complete(rows: NDArray[np.floating[Any]], arrays: dict[str, Any]) -> NDArray[Any]:
    """Return the rows with missing cells imputed; complete rows are unchanged. O(N·d·r²) time."""
    from pamc.runtime import side_by_side

    result = rows.copy()
    incomplete = np.flatnonzero(np.isnan(rows).any(axis=1))
    mixture = Mixture(*(arrays[f"hidden_{name}"] for name in Mixture._fields))

    def impute(start: int) -> None:
        block = incomplete[start : start + _ROWS_AT_A_TIME]
        result[block] = _imputed(rows[block].astype(np.float64), mixture)

    starts = range(0, len(incomplete), _ROWS_AT_A_TIME)
    side_by_side([partial(impute, start) for start in starts], n_rows=len(incomplete))
    return result


def _sampled(rows: NDArray[np.floating[Any]], most: int) -> Floats:
    return rows[:: -(-len(rows) // most)].astype(np.float64)


def _n_components(rows: Floats, variable: NDArray[Any]) -> int:
    """Return the number of components that best predicts held-out cells."""
    from pamc.runtime import seed_for

    groups = np.unique(variable, return_inverse=True)[1]
    # A separate seed: if cells were removed with a common seed, the same cells must not be drawn again here.
    rng = np.random.default_rng(seed_for(0, "cells set aside"))
    aside = (rng.random((len(rows), groups.max() + 1)) < _SET_ASIDE)[:, groups]
    aside &= ~np.isnan(rows)
    rest = np.where(aside, np.nan, rows)

    def errors(mixture: Mixture) -> Floats:
        return np.asarray(np.square(_imputed(rest, mixture)[aside] - rows[aside]))

    single = _single(rest)
    best_number, lowest_errors = 1, errors(single)
    n_different = len(np.unique(_imputed(rest, single), axis=0))
    for number in _N_COMPONENTS:
        if n_different < number * _ROWS_PER_COMPONENT or not len(lowest_errors):
            break
        new_errors = errors(_several(rest, number))
        gain = lowest_errors - new_errors
        if gain.mean() > max(_LEAST_GAIN * lowest_errors.mean(), _BEYOND_CHANCE * gain.std() / np.sqrt(len(gain))):
            best_number, lowest_errors = number, new_errors
    return best_number


def _single(rows: Floats) -> Mixture:
    """Return a single factor model of the rows."""
    mean, centered = _centered(rows)
    least = _least_noise(rows)
    factors, noise = _principal(centered.T @ centered / len(rows), _n_factors(rows, _MOST_FACTORS), least)
    share = np.ones(len(rows))
    for _ in range(_N_ITERATIONS if np.isnan(rows).any() else 0):
        mean, factors, noise = _maximized(rows, share, _conditional(rows, mean, factors, noise), mean, least)
    return Mixture(np.ones(1), mean[None], factors[None], np.array([noise]))


def _centered(rows: Floats) -> tuple[Floats, Floats]:
    """Return the mean (d,) of the known cells of each column, and the rows minus this mean, 0 for missing cells."""
    known = ~np.isnan(rows)
    mean = np.where(known, rows, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return mean, np.where(known, rows - mean, 0.0)


def _least_noise(rows: Floats) -> float:
    """Return the minimum variance of the noise: that of all rows counts, because those of a component may be equal."""
    variance = np.square(_centered(rows)[1]).sum() / max(int((~np.isnan(rows)).sum()), 1)
    return _LEAST_NOISE * max(float(variance), np.finfo(np.float64).tiny)


def _several(rows: Floats, n_components: int) -> Mixture:
    """Return a mixture of factor models of the rows, initialized by K-means of rows that a single model imputed."""
    from sklearn.cluster import KMeans

    filled = _imputed(rows, _single(rows))
    labels = KMeans(n_components, n_init=1, random_state=0).fit_predict(filled)
    overall, n_factors = filled.mean(axis=0), _n_factors(rows, _MOST_FACTORS_OF_MANY)
    members = [filled[labels == component] for component in range(n_components)]
    means = [part.mean(axis=0) for part in members]
    least = _least_noise(rows)
    parts = [_principal(_covariance(part, filled), n_factors, least) for part in members]
    factors, noise = (list(values) for values in zip(*parts, strict=True))
    weights = np.bincount(labels, minlength=n_components) / len(rows)
    for _ in range(_N_ITERATIONS):
        mixture = Mixture(weights, np.stack(means), np.stack(factors), np.array(noise))
        components, probabilities, _ = _expected(rows, mixture)
        for number in range(n_components):
            row, place = np.nonzero(components == number)
            share = probabilities[row, place]
            if not len(row):
                continue
            weights[number] = max(share.sum() / len(rows), np.finfo(np.float64).eps)
            conditional = _conditional(rows[row], means[number], factors[number], noise[number])
            means[number], factors[number], noise[number] = _maximized(rows[row], share, conditional, overall, least)
    return Mixture(weights, np.stack(means), np.stack(factors), np.array(noise))


def _covariance(part: Floats, rows: Floats) -> Floats:
    """Return the covariance of a part of the rows, shrunk toward the covariance of all rows if the part is small."""
    borrowed = rows.shape[1] / (len(part) + rows.shape[1])
    of_part, of_all = (np.cov(values.T, bias=True).reshape(rows.shape[1], -1) for values in (part, rows))
    return np.asarray((1 - borrowed) * of_part + borrowed * of_all)


def _principal(covariance: Floats, n_factors: int, least: float) -> tuple[Floats, float]:
    """Return the factors (d, r) and the noise of the model with this covariance (d, d)."""
    variances, directions = np.linalg.eigh(covariance)
    variances, directions = variances[::-1], directions[:, ::-1]
    rest = variances[n_factors:]
    noise = max(float(rest.mean()) if len(rest) else 0.0, least)
    return directions[:, :n_factors] * np.sqrt(np.maximum(variances[:n_factors] - noise, 0.0)), noise


def _maximized(
    rows: Floats, share: Floats, conditional: _Conditional, prior: Floats, least: float
) -> tuple[Floats, Floats, float]:
    """Return the mean, factors and noise with the largest likelihood, given the posterior of t and row weights `share`.

    Each column is regressed on the factors over its known cells. The prior, which counts as one row, keeps the
    regression from overfitting a component of few rows.
    """
    known = ~np.isnan(rows)
    values = np.where(known, rows, 0.0)
    n_rows, n_factors = conditional.scores.shape
    moments = np.empty((n_rows, n_factors + 1, n_factors + 1))
    moments[:, :-1, :-1] = conditional.scores[:, :, None] * conditional.scores[:, None, :] + conditional.covariance
    moments[:, :-1, -1] = moments[:, -1, :-1] = conditional.scores
    moments[:, -1, -1] = 1.0
    counted = known * share[:, None]
    second = (counted.T @ moments.reshape(n_rows, -1)).reshape(-1, n_factors + 1, n_factors + 1)
    cross = (values * share[:, None]).T @ moments[:, -1]
    with_prior = second + _PRIOR_ROWS * np.eye(n_factors + 1)
    cross_with_prior = cross.copy()
    cross_with_prior[:, -1] += _PRIOR_ROWS * prior
    fitted = np.linalg.solve(with_prior, cross_with_prior[:, :, None])[:, :, 0]
    explained = 2 * (fitted * cross).sum(axis=1) - np.einsum("di,dij,dj->d", fitted, second, fitted)
    square = share @ np.square(values)
    total = max(float(counted.sum()), np.finfo(np.float64).eps)
    noise = max(float((square - explained).sum() / total), least)
    return np.asarray(fitted[:, -1], dtype=np.float64), np.asarray(fitted[:, :-1], dtype=np.float64), noise


def _imputed(rows: Floats, mixture: Mixture) -> Floats:
    """Return rows with missing cells replaced by their expected values."""
    if len(mixture.weights) == 1:
        return _conditional(rows, mixture.means[0], mixture.factors[0], mixture.noise[0]).rows
    expected = _expected(rows, mixture)
    blended = np.einsum("nm,nmd->nd", expected.probabilities, expected.rows)
    return np.where(np.isnan(rows), blended, rows)


def _expected(rows: Floats, mixture: Mixture) -> _Expected:
    components = _likely_components(rows, mixture)
    likelihood = np.empty(components.shape)
    filled = np.empty((*components.shape, rows.shape[1]))
    for number, (mean, factors, noise) in enumerate(zip(*mixture[1:], strict=True)):
        row, place = np.nonzero(components == number)
        if len(row):
            conditional = _conditional(rows[row], mean, factors, noise)
            filled[row, place] = conditional.rows
            likelihood[row, place] = _likelihood(rows[row], conditional, noise) + np.log(mixture.weights[number])
    probabilities = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
    return _Expected(components, probabilities / probabilities.sum(axis=1, keepdims=True), filled)


def _likely_components(rows: Floats, mixture: Mixture) -> NDArray[np.int64]:
    """Return the (N, 3) components with the largest likelihood of each row if its columns were independent."""
    known = ~np.isnan(rows)
    values = np.where(known, rows, 0.0)
    variance = np.square(mixture.factors).sum(axis=2) + mixture.noise[:, None]
    inverse = 1 / variance
    distance = np.square(values) @ inverse.T - 2 * values @ (mixture.means * inverse).T
    distance += known @ (np.square(mixture.means) * inverse + np.log(variance)).T
    distance -= 2 * np.log(mixture.weights)
    most = min(MOST_PER_ROW, len(mixture.weights))
    return np.argpartition(distance, most - 1, axis=1)[:, :most]


def _conditional(rows: Floats, mean: Floats, factors: Floats, noise: float) -> _Conditional:
    """Return the posterior of the factors of rows, and the rows with missing cells replaced by conditional means."""
    known = ~np.isnan(rows)
    n_factors = factors.shape[1]
    centered = np.where(known, rows - mean, 0.0)
    products = (factors[:, :, None] * factors[:, None, :]).reshape(len(factors), -1)
    precision = (known @ products).reshape(-1, n_factors, n_factors) + noise * np.eye(n_factors)
    weighted = centered @ factors
    inverse = np.asarray(np.linalg.inv(precision), dtype=np.float64)
    scores = np.einsum("nij,nj->ni", inverse, weighted)
    distance = (np.square(centered).sum(axis=1) - (weighted * scores).sum(axis=1)) / noise
    filled = np.where(known, rows, mean + scores @ factors.T)
    return _Conditional(filled, scores, noise * inverse, distance)


def _likelihood(rows: Floats, conditional: _Conditional, noise: float) -> Floats:
    """Return the log-likelihood of the known cells of rows, up to a constant per cell."""
    n_known = (~np.isnan(rows)).sum(axis=1)
    volume = n_known * np.log(noise) - np.linalg.slogdet(conditional.covariance)[1]
    return np.asarray(-0.5 * (conditional.distance + volume))


def _n_factors(rows: NDArray[Any], most: int) -> int:
    return max(1, min(most, int(_MOST_SHARE * rows.shape[1])))
