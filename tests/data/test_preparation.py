import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import StandardScaler

from pamc.data.preprocessing import Preprocessing, choose_preprocessing, fit_preprocessing
from pamc.errors import UnknownNameError


def counts(seed=0):
    return sp.random(60, 30, density=0.2, format="csr", random_state=seed, data_rvs=lambda n: np.arange(n) % 5 + 1.0)


def test_a_bag_of_words_is_weighted_as_scikit_learn_does():
    expected = TfidfTransformer().fit_transform(counts()).toarray()
    sparse = fit_preprocessing(counts())
    assert sparse.kind == "tfidf"
    assert sp.issparse(sparse.apply(counts()))
    np.testing.assert_allclose(sparse.apply(counts()).toarray(), expected, rtol=1e-12)
    dense = fit_preprocessing(counts().toarray(), "tfidf")
    np.testing.assert_allclose(dense.apply(counts().toarray()), expected, rtol=1e-12)


def test_columns_in_their_own_units_are_standardized():
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.normal(40, 12, 200), rng.normal(30_000, 9_000, 200).clip(0), rng.random(200)])
    preprocessing = fit_preprocessing(table)
    assert preprocessing.kind == "standardize"
    np.testing.assert_allclose(preprocessing.apply(table), StandardScaler().fit_transform(table), rtol=1e-9)
    np.testing.assert_allclose(
        fit_preprocessing(sp.csr_matrix(table), "standardize").apply(sp.csr_matrix(table)).mean(0), 0, atol=1e-12
    )


def test_constant_columns_become_zero_and_are_never_blown_up():
    table = np.column_stack([np.full(9, 1e8, np.float32), np.arange(9, dtype=np.float32) - 4])
    prepared = fit_preprocessing(table, "standardize").apply(table)
    assert np.array_equal(prepared[:, 0], np.zeros(9))
    assert np.isfinite(prepared).all()


def test_pixels_are_divided_by_one_number():
    pixels = np.random.default_rng(0).integers(0, 17, (50, 64)).astype(np.float32)
    preprocessing = fit_preprocessing(pixels)
    assert preprocessing.kind == "scale"
    prepared = preprocessing.apply(pixels)
    assert prepared.dtype == np.float32
    assert np.mean(prepared**2) == pytest.approx(1, rel=1e-5)
    ratio = prepared[pixels > 0] / pixels[pixels > 0]
    assert ratio.max() == pytest.approx(ratio.min(), rel=1e-6)
    sparse = fit_preprocessing(sp.csr_matrix(pixels), "scale").apply(sp.csr_matrix(pixels))
    np.testing.assert_allclose(sparse.toarray(), prepared, rtol=1e-6)


def test_scaling_a_table_by_a_constant_changes_nothing_after_scale_or_standardize():
    table = np.random.default_rng(0).random((30, 5))
    for kind in ("scale", "standardize", "unit", "rms"):
        once, scaled = (fit_preprocessing(t, kind).apply(t) for t in (table, 1000 * table))
        np.testing.assert_allclose(once, scaled, rtol=1e-9)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
def test_unit_rows_have_length_one_and_zero_rows_stay_zero(make):
    table = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, -2.0]])
    prepared = fit_preprocessing(make(table), "unit").apply(make(table))
    prepared = prepared.toarray() if sp.issparse(prepared) else prepared
    np.testing.assert_allclose(prepared, [[0.6, 0.8], [0, 0], [0, -1]], rtol=1e-15)
    other = fit_preprocessing(make(table), "rms").apply(make(table))
    other = other.toarray() if sp.issparse(other) else other
    np.testing.assert_allclose(np.square(other).mean(axis=1), [1, 0, 1], rtol=1e-14)
    np.testing.assert_allclose(other, prepared * np.sqrt(2), rtol=1e-14)


@pytest.mark.parametrize(
    ("features", "kind"),
    [
        (sp.csr_matrix((4, 4)), "tfidf"),
        (sp.csr_matrix(-np.eye(4)), "unit"),
        (np.zeros((4, 4)), "standardize"),
        (np.eye(4) - 0.5, "scale"),
        (np.array([[20.0, -3e4], [40.0, 5e4]]), "standardize"),
        (np.eye(4), "scale"),
        (np.eye(50), "tfidf"),
        (np.tile([0.0, 1.0, 1.0], (3, 20)), "tfidf"),
        (np.tile([0.0, 1.0, 2.0], (3, 20)), "scale"),
        (np.zeros((2, 50)), "standardize"),
        (-np.eye(50), "scale"),
    ],
)
def test_the_decision_follows_the_data(features, kind):
    assert choose_preprocessing(features) == kind


def test_nothing_is_done_when_nothing_is_asked_for():
    table = np.eye(3)
    assert fit_preprocessing(table, "none").apply(table) is table


def test_all_zero_rows_can_be_scaled():
    assert np.array_equal(fit_preprocessing(np.zeros((3, 2)), "scale").apply(np.zeros((3, 2))), np.zeros((3, 2)))


def test_arguments_are_not_modified():
    table, kept = counts(), counts()
    for kind in ("scale", "standardize", "unit", "rms", "tfidf"):
        fit_preprocessing(table, kind).apply(table)
        assert (table != kept).nnz == 0


def test_an_unknown_kind_is_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'standardize'"):
        fit_preprocessing(np.eye(2), "standardise")
    assert Preprocessing("none").arrays == {}
