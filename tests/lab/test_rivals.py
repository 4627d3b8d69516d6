"""The methods that pamc is compared with."""

import builtins

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from pamc.errors import BackendError
from pamc.lab.rivals import N_TEXT_DIRECTIONS, RIVALS, points_of

PACKAGES = {"umap+k-means": "umap", "umap+mixture": "umap", "genie": "genieclust"}


@pytest.fixture(scope="module")
def rows():
    return make_blobs(120, 60, centers=4, random_state=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", RIVALS)
def test_a_rival_finds_separate_blobs(rows, name):
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    points = points_of(rows[0].astype(np.float32), seed=0)
    assert adjusted_rand_score(rows[1], RIVALS[name].cluster(points, 4, 0)) > 0.9


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_that_is_not_installed_is_named(rows, name, monkeypatch):
    load = builtins.__import__

    def without(package, *others):
        if package == PACKAGES[name]:
            raise ImportError(package)
        return load(package, *others)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BackendError, match=r"pip install 'pamc\[rivals\]'"):
        RIVALS[name].cluster(rows[0], 4, 0)


def test_dense_columns_are_standardized_and_sparse_rows_reduced(rows):
    assert np.allclose(points_of(rows[0].astype(np.float32), seed=0).std(axis=0), 1, atol=1e-6)
    words = sp.random(200, 300, 0.05, format="csr", random_state=0, dtype=np.float32)
    reduced = points_of(words, seed=0)
    assert reduced.shape == (200, N_TEXT_DIRECTIONS)
    assert np.allclose(np.linalg.norm(reduced, axis=1), 1)
