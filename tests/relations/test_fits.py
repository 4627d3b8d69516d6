"""Fits of rows with several relations, from a dict to labels."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from pamc import PamCGC, evaluate
from pamc.errors import DataError
from tests.relations.planted import planted

SETTINGS = {"random_state": 0, "device": "cpu", "n_epochs": 10}


@pytest.fixture(scope="module")
def data():
    return planted(300, 3, good=(8, 0.8), noise=(8, 0.0))


def fitted(X, adjacency, **options):
    return PamCGC(3, **SETTINGS).fit(X, adjacency=adjacency, **options)


def test_one_relation_in_a_dict_gives_the_bits_of_that_relation_alone(data):
    X, _, edges = data
    alone, named = fitted(X, edges["good"]), fitted(X, {"good": edges["good"]})
    assert (named.embedding_ == alone.embedding_).all()
    assert (named.labels_ == alone.labels_).all()
    assert named.record().facts["relation_weights"] == {"good": 1.0}


def test_a_relation_of_weight_0_changes_no_bit(data):
    X, _, edges = data
    alone, chosen = fitted(X, edges["good"]), fitted(X, edges, relation_weights={"good": 2, "noise": 0})
    assert (chosen.embedding_ == alone.embedding_).all()
    assert chosen.record().facts["relation_weights"] == {"good": 1.0, "noise": 0.0}


def test_every_form_of_a_relation_gives_the_same_fit(data):
    X, _, edges = data
    ends = edges["good"]
    matrix = sp.csr_matrix((np.ones(len(ends)), tuple(ends.T)), shape=(300, 300))
    matrix = ((matrix + matrix.T) > 0).astype(np.float64)
    entries = matrix.tocoo()
    forms = {
        "edge list": ends,
        "pair of arrays": (ends[:, 0], ends[:, 1]),
        "pair of tensors": tuple(torch.from_numpy(ends.T.copy())),
        "sparse matrix": matrix,
        "sparse tensor": torch.sparse_coo_tensor(
            np.stack([entries.row, entries.col]), entries.data, (300, 300), check_invariants=True
        ),
    }
    weights = {"good": 0.7, "noise": 0.3}
    fits = [fitted(X, {"good": form, "noise": edges["noise"]}, relation_weights=weights) for form in forms.values()]
    assert all((fit.embedding_ == fits[0].embedding_).all() for fit in fits)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"bad": sp.identity(299, format="csr")}, "relation 'bad': the adjacency matrix is 299 × 299"),
        ({"bad": np.array([[0, 300], [1, 2], [3, 4]])}, "relation 'bad': 1 of 3 edges join rows that do not exist"),
        ({"bad": np.empty((0, 2), dtype=int)}, "relation 'bad' has no edges"),
        ({"bad": np.array([[4, 4], [5, 5], [6, 6]])}, "relation 'bad' has no edges between different rows"),
        ({"bad": (np.arange(3), np.arange(2))}, "relation 'bad': there are 3 sources for 2 targets"),
        ({"bad": "venues.csv"}, "relation 'bad': adjacency is the text"),
        ({"bad": sp.csr_matrix(-np.eye(300))}, "relation 'bad': edge weights must be positive"),
    ],
)
def test_a_wrong_relation_is_named(data, changed, message):
    X, _, edges = data
    with pytest.raises(DataError, match=message):
        fitted(X, {"good": edges["good"], **changed})


def test_weights_without_relations_are_refused(data):
    X, _, edges = data
    with pytest.raises(DataError, match="relation_weights needs relations"):
        fitted(X, edges["good"], relation_weights={"good": 1.0})


def accuracy(model, labels):
    return evaluate(labels, model.labels_)["acc"]
