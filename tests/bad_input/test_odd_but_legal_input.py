"""Input that is unusual and right: it works, is not modified, and gives the answer of its plain form."""

import copy
import pickle
import threading
import warnings

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.model_selection import GridSearchCV

from pamc import clusterer
from pamc.data.preprocessing import fit_preprocessing
from pamc.initialize import consensus
from tests.bad_input.conftest import PATH, X
from tests.bad_input.test_arrays_through_python import SMALL, model

pytestmark = pytest.mark.slow

ALL_REPEATS = consensus.N_REPEATS


@pytest.fixture(scope="module")
def fitted():
    return model().fit(X)


@pytest.fixture(scope="module")
def memory_map(tmp_path_factory):
    path = tmp_path_factory.mktemp("maps") / "x.npy"
    np.save(path, X)
    return np.load(path, mmap_mode="r")


def read_only():
    array = X.copy()
    array.flags.writeable = False
    return array


FORMS = {
    "Fortran order": lambda: np.asfortranarray(X),
    "read-only": read_only,
    "strided": lambda: np.repeat(X, 2, axis=0)[::2],
    "big-endian": lambda: X.astype(">f8"),
    "objects": lambda: X.astype(object),
    "list of lists": X.tolist,
    "tensor": lambda: torch.from_numpy(X),
    "frame": lambda: pd.DataFrame(X),
    "frame with names": lambda: pd.DataFrame(X, columns=list("abcd"), index=[f"r{i}" for i in range(36)]),
    "frame with another index": lambda: pd.DataFrame(X, index=np.arange(36)[::-1]),
    "nullable frame": lambda: pd.DataFrame(X).astype("Float64"),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_one_table_gives_the_same_bits(fitted, form):
    given = FORMS[form]()
    assert np.array_equal(model().fit(given).embedding_, fitted.embedding_)
    if form != "frame with names":
        assert np.array_equal(fitted.predict(given), fitted.labels_)


def test_the_order_in_memory_does_not_change_bits_of_data_with_ties():
    rounded = X.round()
    by_rows, by_columns = (model(2).fit(order(rounded)) for order in (np.ascontiguousarray, np.asfortranarray))
    assert np.array_equal(by_rows.embedding_, by_columns.embedding_)


@pytest.mark.parametrize("preprocessing", ["none", "scale", "standardize", "unit", "rms", "tfidf"])
def test_a_read_only_memory_map_is_fitted_and_predicted(memory_map, preprocessing):
    found = model(preprocessing=preprocessing).fit(memory_map)
    assert np.array_equal(found.predict(memory_map), found.labels_)
    assert np.array_equal(memory_map, X)


@pytest.mark.parametrize("dtype", [bool, "boolean", "Int64"])
def test_frames_of_truth_values_and_nullable_numbers_are_features(dtype):
    values = pd.DataFrame(X > 4) if dtype in (bool, "boolean") else pd.DataFrame(X.round())
    expected = model(2).fit(values.to_numpy(dtype=float)).labels_
    assert np.array_equal(model(2).fit(values.astype(dtype)).labels_, expected)


def messy_sparse(kind):
    """Return a CSR matrix that is not in canonical form, and the same entries in canonical form."""
    plain = sp.csr_matrix(np.where(X > 1, X, 0))
    if kind == "zeros":
        messy = sp.csr_matrix((np.where(X > 1, X, 0).ravel(), np.tile(np.arange(4), 36), np.arange(0, 145, 4)))
        return messy, plain
    if kind == "duplicates":
        return sp.csr_matrix((plain.data.repeat(2) / 2, plain.indices.repeat(2), plain.indptr * 2), plain.shape), plain
    order = np.concatenate([np.arange(a, b)[::-1] for a, b in zip(plain.indptr[:-1], plain.indptr[1:], strict=True)])
    return sp.csr_matrix((plain.data[order], plain.indices[order], plain.indptr), plain.shape), plain


@pytest.mark.parametrize("preprocessing", ["auto", "scale", "standardize"])
@pytest.mark.parametrize("kind", ["zeros", "duplicates", "unsorted"])
def test_a_messy_sparse_matrix_is_left_alone_and_means_what_its_entries_add_up_to(kind, preprocessing):
    messy, plain = messy_sparse(kind)
    before = [part.copy() for part in (messy.data, messy.indices, messy.indptr)]
    options = {"preprocessing": preprocessing, "precision": "float64"}
    found, expected = model(**options).fit(messy), model(**options).fit(plain)
    np.testing.assert_allclose(found.embedding_, expected.embedding_, atol=1e-9)
    assert np.array_equal(found.predict(messy), expected.labels_)
    assert all(np.array_equal(a, b) for a, b in zip(before, (messy.data, messy.indices, messy.indptr), strict=True))


def test_an_empty_sparse_row_is_a_row():
    features = sp.csr_matrix(np.where(np.arange(36)[:, None] % 7, X, 0))
    assert np.isfinite(model().fit(features).embedding_).all()


@pytest.mark.parametrize("scale", [1e-140, 1e-40, 1e-12, 1e30, 1e140, -1.0])
@pytest.mark.parametrize("preprocessing", ["auto", "scale", "standardize"])
def test_the_unit_of_the_features_does_not_matter(scale, preprocessing, fitted):
    found = model(preprocessing=preprocessing).fit(X * scale)
    assert len(np.unique(found.labels_)) == 3
    same = found.labels_[:, None] == found.labels_
    assert np.array_equal(same, fitted.labels_[:, None] == fitted.labels_)


@pytest.mark.parametrize("as_form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("kind", ["unit", "tfidf"])
@pytest.mark.parametrize(("dtype", "exponents"), [("float32", (-120, 0, 120)), ("float64", (-1000, 0, 1000))])
def test_unit_rows_are_the_same_bits_at_every_scale(as_form, kind, dtype, exponents):
    rows = np.round(abs(X), 1).astype(dtype)

    def prepared(exponent):
        scaled = as_form(np.ldexp(np.floor(rows), exponent))
        found = fit_preprocessing(scaled, kind).apply(scaled)
        return found if isinstance(found, np.ndarray) else found.toarray()

    for exponent in exponents:
        assert np.array_equal(prepared(exponent), prepared(0))


def test_one_column_that_dwarfs_the_others_does_not_hide_them():
    features = X * [1e12, 1, 1, 1]
    found = model().fit(features)
    assert len(np.unique(found.labels_)) == 3


@pytest.mark.parametrize("chunk_size", [1, 7])
def test_tiny_chunks_change_nothing_but_rounding(chunk_size):
    whole = model(precision="float64").fit(X)
    chunked = model(precision="float64", chunk_size=chunk_size).fit(X)
    np.testing.assert_allclose(chunked.embedding_, whole.embedding_, atol=1e-8)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda fitted: pickle.loads(pickle.dumps(fitted))])  # noqa: S301
def test_a_copied_or_pickled_model_predicts_the_same_bits(fitted, copied):
    assert np.array_equal(copied(fitted).predict_proba(X), fitted.predict_proba(X))


@pytest.mark.slow
def test_a_grid_search_in_two_processes_finds_what_one_process_finds(monkeypatch):
    # Other processes do not see the few repeats of these tests.
    monkeypatch.setattr(consensus, "N_REPEATS", ALL_REPEATS)
    grid = {"n_clusters": [2, 3]}
    one, two = (GridSearchCV(model(), grid, cv=2, n_jobs=n).fit(X) for n in (1, 2))
    assert np.array_equal(one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"])


def test_two_fits_in_two_threads_give_their_own_answers_and_leave_the_process_as_it_was():
    from threadpoolctl import threadpool_info

    before = warnings.filters[:], warnings.showwarning, threadpool_info()
    found = {}

    def fit(seed):
        found[seed] = clusterer("pamcgc", 3, **{**SMALL, "random_state": seed, "n_epochs": 10}).fit(X, adjacency=PATH)

    threads = [threading.Thread(target=fit, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (warnings.filters[:], warnings.showwarning, threadpool_info()) == before
    for seed in range(4):
        alone = clusterer("pamcgc", 3, **{**SMALL, "random_state": seed, "n_epochs": 10}).fit(X, adjacency=PATH)
        assert np.array_equal(found[seed].embedding_, alone.embedding_)


def test_fit_graph_takes_the_graphs_of_other_libraries():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch_geometric.data import Data

    data = Data(x=torch.from_numpy(X), edge_index=torch.from_numpy(PATH.T.copy()))
    expected = model().fit(X, adjacency=PATH).embedding_
    assert np.array_equal(model().fit_graph(data).embedding_, expected)
    connectivities = sp.csr_matrix((np.ones(35), PATH.T), shape=(36, 36))
    cells = anndata.AnnData(X, obsp={"connectivities": connectivities})
    assert np.array_equal(model().fit_graph(cells).embedding_, expected)
