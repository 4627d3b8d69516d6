"""Imputed cells against the exact conditional mean of Gaussian mixtures, and the choice of the number of components."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pamc.data.completion import Mixture, complete, fit_completion


def emptied(rows, share, seed=0):
    hidden = np.random.default_rng(seed).random(rows.shape) < share
    return np.where(hidden, np.nan, rows), hidden


def arrays_of(mixture):
    return {f"hidden_{name}": array for name, array in mixture._asdict().items()}


def exact(row, mixture):
    """Return the expected row given its known cells, from dense covariances, one component after the other."""
    known = ~np.isnan(row)
    imputed, masses = [], []
    for weight, mean, factors, noise in zip(*mixture, strict=True):
        covariance = factors @ factors.T + noise * np.eye(len(row))
        of_known = covariance[np.ix_(known, known)]
        rest = mean[~known] + covariance[np.ix_(~known, known)] @ np.linalg.solve(of_known, row[known] - mean[known])
        filled = row.copy()
        filled[~known] = rest
        imputed.append(filled)
        masses.append(np.log(weight) + multivariate_normal(mean[known], of_known).logpdf(row[known]))
    shares = np.exp(masses - np.max(masses))
    return shares / shares.sum() @ np.array(imputed)


@pytest.mark.parametrize("n_components", [1, 2, 3])
def test_imputed_cells_are_the_conditional_mean(n_components):
    rng = np.random.default_rng(0)
    mixture = Mixture(
        weights=rng.dirichlet(np.ones(n_components)),
        means=rng.normal(size=(n_components, 6)),
        factors=rng.normal(size=(n_components, 6, 2)),
        noise=rng.uniform(0.1, 0.5, n_components),
    )
    rows, hidden = emptied(rng.normal(size=(40, 6)), 0.4)
    rows[:, 0] = rng.normal(size=40)
    completed = complete(rows, arrays_of(mixture))
    np.testing.assert_allclose(completed, [exact(row, mixture) for row in rows], atol=1e-10)
    known = ~np.isnan(rows)
    assert (completed[known] == rows[known]).all()
    assert hidden.any()


def test_a_row_without_known_cells_gets_the_mean_of_all():
    rows, _ = emptied(np.random.default_rng(0).normal(3.0, 1.0, size=(500, 4)), 0.2)
    rows[0] = np.nan
    completed = complete(rows, fit_completion(rows))
    np.testing.assert_allclose(completed[0], np.nanmean(rows, axis=0), atol=0.05)


def curve(n_rows, seed=0):
    """Return rows along a closed curve, which no single linear model predicts."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, n_rows)
    waves = [wave(number * angle) for number in (1, 2, 3) for wave in (np.sin, np.cos)]
    return np.stack(waves, axis=1) + rng.normal(0, 0.05, (n_rows, 6))


def test_rows_along_a_curve_are_completed_by_several_components():
    complete_rows = curve(2000)
    rows, hidden = emptied(complete_rows, 0.3)
    arrays = fit_completion(rows)
    assert len(arrays["hidden_weights"]) > 4
    error = np.square(complete(rows, arrays) - complete_rows)[hidden].mean()
    of_means = np.square(np.nanmean(rows, axis=0) - complete_rows)[hidden].mean()
    assert error < 0.25 * of_means


def test_rows_of_one_linear_model_are_completed_by_a_single_component():
    rng = np.random.default_rng(0)
    complete_rows = rng.normal(size=(2000, 3)) @ rng.normal(size=(3, 8)) + rng.normal(0, 0.3, (2000, 8))
    rows, hidden = emptied(complete_rows, 0.3)
    arrays = fit_completion(rows)
    assert len(arrays["hidden_weights"]) == 1
    assert np.square(complete(rows, arrays) - complete_rows)[hidden].mean() < 0.35 * complete_rows.var()


def test_columns_of_a_variable_are_set_aside_together():
    # Columns 0 to 5 follow from each other along a curve, but are always missing together.
    rows = np.concatenate([curve(2000), np.random.default_rng(0).normal(size=(2000, 2))], axis=1)
    rows[np.random.default_rng(1).random(2000) < 0.3, :6] = np.nan
    assert len(fit_completion(rows, np.array([0] * 6 + [1, 2]))["hidden_weights"]) == 1
    assert len(fit_completion(rows)["hidden_weights"]) > 1


def test_rows_without_missing_cells_are_modeled_for_new_rows():
    rows = np.random.default_rng(0).normal(size=(100, 4))
    arrays = fit_completion(rows)
    assert complete(rows, arrays) is not rows
    np.testing.assert_array_equal(complete(rows, arrays), rows)
    assert np.isfinite(complete(np.full((2, 4), np.nan), arrays)).all()


@pytest.mark.parametrize("n_different", [2, 5, 60])
def test_rows_that_are_mostly_equal_are_completed(n_different):
    kinds = np.random.default_rng(0).normal(size=(n_different, 4))
    complete_rows = kinds[np.arange(600) % n_different]
    rows, _ = emptied(complete_rows, 0.1)
    completed = complete(rows, fit_completion(rows))
    assert np.isfinite(completed).all()
    assert np.abs(completed).max() < 2 * np.abs(kinds).max()
