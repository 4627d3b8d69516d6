"""Bad arrays and objects through `PamCGC.fit` and `predict`: errors of pamc that are ValueErrors and say what to do."""

from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from pamc import choose_k, clusterer, explain, write_report
from pamc.data.attributed_graph import AttributedGraph
from pamc.errors import CollapseWarning, DataWarning, PamcError, TrainingError
from tests.bad_input.conftest import PATH, X

SMALL = {"hidden": (16,), "n_dims": 4, "n_epochs": 3, "pretrain_epochs": 3, "n_init": 2, "random_state": 0}


def model(n_clusters=3, **options):
    return clusterer("pamcgc", n_clusters, **{**SMALL, **options})


def assert_refused(call, says, *, builtin=ValueError):
    with pytest.raises(PamcError) as caught:
        call()
    assert isinstance(caught.value, builtin)
    message = str(caught.value)
    assert "\n" not in message
    for part in [says] if isinstance(says, str) else says:
        assert part in message


def with_cell(value, row=7, column=2):
    changed = X.copy()
    changed[row, column] = value
    return changed


def frame(**columns):
    return pd.DataFrame(X, columns=list("abcd")).assign(**columns)


LEAVE_OUT = "leave that column out, or encode it"
FEATURES = {
    "no rows": (np.zeros((0, 3)), "0 sample(s)"),
    "no columns": (np.zeros((5, 0)), "0 feature(s)"),
    "one row of numbers": (X[0], ["Expected 2D array, got 1D", "Reshape your data"]),
    "three dimensions": (X.reshape(36, 2, 2), "dim 3"),
    "complex": (X.astype(complex), "Complex data not supported"),
    "text": (np.array([["1", "2"], ["3", "b"]]), ["row 1, column 1 is 'b'", LEAVE_OUT]),
    "mixed cells": (np.array([[1, 2], ["x", 3]], dtype=object), ["row 1, column 0 is 'x'", LEAVE_OUT]),
    "mixed list": ([[1.0, 2.0], [3.0, "b"]], ["row 1, column 1 is 'b'", LEAVE_OUT]),
    "one word in a column": (
        frame(e=[f"{i}.5" for i in range(35)] + ["x"]),
        ["column 'e': 'x' (row 35) is not a number", "correct or empty such cells"],
    ),
    "one value": (pd.DataFrame({"city": ["Rome"] * 9}), ["no feature column is left", "every value is 'Rome'"]),
    "lists in a column": (frame(e=[[1]] * 36), "column 'e' contains list objects"),
    "names of two types": (frame().rename(columns={"a": 1}), ["string names", "columns.astype(str)"]),
    "a series": (pd.Series(X[:, 0]), "Pass a DataFrame"),
    "ragged rows": ([[1, 2], [3, 4], [5]], "rows differ in length: row 2 has 1 cells, row 0 has 2"),
    "rows that are tables": ([np.zeros((2, 2)), np.zeros((2, 3))], "array element with a sequence"),
    "inf": (with_cell(-np.inf), ["inf: row 7, column 2", "Replace it with a number"]),
    "a column of NaN": (frame(b=np.nan), "column 'b' has no values: leave it out"),
    "NaN in a sparse matrix": (sp.csr_matrix(with_cell(np.nan)), ["row 7, column 2", "pass an array"]),
    "a file's name": ("rows.csv", ["'rows.csv'", "read_graph", "fit_graph"]),
    "a path": (Path("rows.csv"), ["'rows.csv'", "read_graph"]),
    "a graph": (AttributedGraph(X), ["AttributedGraph", "fit_graph"]),
    "a networkx graph": (nx.path_graph(4), "X is a networkx graph: pass it as adjacency"),
    "constant rows": (np.ones((9, 3)), ["number of distinct rows, 1", "ask for fewer clusters"]),
    "zero rows": (np.zeros((9, 3)), "number of distinct rows, 1"),
    "too large": (X * 1e300, ["cannot be scaled in float64", "Rescale the features"]),
    "too small": (X * 1e-300, ["cannot be scaled in float64", "Rescale the features"]),
}


@pytest.mark.parametrize("case", FEATURES)
def test_bad_features_are_refused_with_the_way_out(case):
    features, says = FEATURES[case]
    assert_refused(lambda: model().fit(features), says)


@pytest.mark.parametrize("n_clusters", [0, -1, 2.5, "3", None, True, float("nan")])
def test_a_number_of_clusters_below_one_or_no_integer_is_refused(n_clusters):
    assert_refused(lambda: model(n_clusters).fit(X), f"n_clusters must be an integer of at least 1, got {n_clusters!r}")


def test_more_clusters_than_rows_or_than_distinct_rows_are_refused():
    assert_refused(lambda: model(37).fit(X), ["n_samples=36", "ask for fewer clusters"])
    assert_refused(lambda: model(3).fit(np.repeat(np.eye(2), 9, axis=0)), ["distinct rows, 2", "fewer clusters"])


def weights(*values):
    return sp.csr_matrix((values, (range(len(values)), range(1, len(values) + 1))), shape=(36, 36))


ADJACENCY = {
    "another size": (sp.eye(35), ["35 × 35, but the features have 36 rows", "one row and one column for each"]),
    "sliced": (np.ones((20, 36)), ["row-sliced", "A[rows][:, rows]"]),
    "negative weight": (weights(1.0, -2.0), ["1 of 2 are not", "-2 on edge 1→2", "Leave such edges out"]),
    "zero weight": (nx.Graph([(i, i + 1, {"weight": 0}) for i in range(35)]), "0 on edge 0→1"),
    "NaN weight": (weights(1.0, np.nan), "nan on edge 1→2"),
    "infinite weight": (weights(np.inf).toarray(), "inf on edge 0→1"),
    "masked": (np.ma.masked_equal(weights(1.0, 5.0).toarray(), 5), "nan on edge 1→2"),
    "complex": (weights(1.0).astype(complex), "must hold real numbers"),
    "unknown rows": (PATH + 3, ["3 of 35 edges", "(rows are 0 to 35); the first: 35→36, 36→37, 37→38"]),
    "negative rows": (PATH - 1, "-1→0"),
    "float edges": (PATH.astype(float), ["integers", ".astype(int)"]),
    "text edges": (PATH.astype(str), "integers"),
    "three columns": (np.column_stack([PATH, PATH[:, 0]]), "(36, 36) matrix or an (E, 2) or (2, E) array"),
    "no edges": (sp.csr_matrix((36, 36)), ["no edges", "leave it out"]),
    "an empty list": (np.zeros((0, 2), int), ["no edges", "leave it out"]),
    "a file's name": ("edges.csv", ["'edges.csv'", "read_edges"]),
    "a smaller networkx graph": (nx.path_graph(35), ["35 nodes", "36 rows"]),
}


@pytest.mark.parametrize("case", ADJACENCY)
def test_a_bad_graph_is_refused_with_the_way_out(case):
    adjacency, says = ADJACENCY[case]
    assert_refused(lambda: model().fit(X, adjacency=adjacency), says)


def embedding(adjacency):
    return model().fit(X, adjacency=adjacency).embedding_


def test_self_loops_and_repeats_are_warned_of_with_their_counts_and_change_nothing():
    messy = np.vstack([PATH, [[3, 3], [5, 5]], PATH[:3]])
    with pytest.warns(DataWarning) as caught:
        found = embedding(messy)
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == 2
    assert "2 of 40 edges join a row with itself" in messages[0]
    assert "3 of 38 edges repeat an earlier one" in messages[1]
    assert np.array_equal(found, embedding(PATH))


def test_a_directed_graph_is_made_undirected_and_this_is_said_once():
    directed = nx.path_graph(36, create_using=nx.DiGraph)
    one_way = embedding(directed)
    directed.add_edge(1, 0)
    with pytest.warns(DataWarning, match="the edges are directed: 34 pairs") as caught:
        some_ways = embedding(directed)
    assert len(caught) == 1
    assert np.array_equal(one_way, some_ways)
    assert np.array_equal(one_way, embedding(nx.path_graph(36)))


def test_an_encoder_that_is_none_is_refused():
    assert_refused(lambda: model(encoder="mlp").fit(X), "encoder must be a torch.nn.Module or None, got 'mlp'")
    flat = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))
    assert_refused(lambda: model(encoder=flat).fit(X), ["encoder must map", "returned shape (36,)"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lr": 1e30}, ["epoch 2: ", "is not finite", "A smaller lr"]),
        ({"lr": 1e30, "n_epochs": 1}, ["after epoch 1: the embedding is not finite", "A smaller lr"]),
        ({"pretrain_lr": 1e30}, ["before the first epoch", "A smaller pretrain_lr"]),
        ({"encoder": nn.Sequential(nn.Linear(4, 3), nn.Threshold(1e9, float("nan")))}, "before the first epoch"),
    ],
)
def test_training_that_leaves_the_numbers_stops_with_the_epoch(options, says):
    assert_refused(lambda: model(**options).fit(X), says, builtin=ArithmeticError)


def test_raw_features_beyond_single_precision_stop_before_the_first_epoch():
    with pytest.raises(TrainingError, match="preprocessing='auto'"):
        model(preprocessing="none").fit(X * 1e30)


def test_a_rate_far_too_large_collapses_with_a_warning():
    with pytest.warns(CollapseWarning, match="1 of 3 clusters have members"):
        model(lr=1e8, init="autoencoder").fit(X)


def test_a_start_that_found_clusters_keeps_them_at_any_rate():
    with pytest.warns(CollapseWarning, match="the initial clusters are returned"):
        kept = model(lr=1e6).fit(X)
    assert set(kept.labels_) == {0, 1, 2}


@pytest.fixture(scope="module")
def fitted():
    return model().fit(X)


ROWS = np.random.default_rng(0).normal(size=(100, 3))


@pytest.mark.parametrize("candidates", [5, ["a"], [None], [2.7, 3.9], "23", [], [float("nan")], [True], [1, 2]])
def test_candidates_that_are_no_numbers_of_clusters_are_refused(candidates):
    says = "candidates must be a list or range of integers from 2 to 6"
    assert_refused(lambda: choose_k(ROWS, candidates=candidates), says)


def test_the_name_of_a_file_is_no_rows_wherever_rows_are_asked_for(fitted, tmp_path):
    says = ["X is the text 'rows.csv', not rows", "read_graph"]
    assert_refused(lambda: choose_k("rows.csv"), says)
    assert_refused(lambda: explain(fitted, Path("rows.csv")), says)
    assert_refused(lambda: write_report(fitted, "rows.csv", tmp_path), says)
    assert_refused(lambda: model().fit_graph("rows.csv"), says)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in ("n_features", "n_rows", "n_odd") for value in (2.5, "3", -1)),
        # None lists all outliers.
        ("n_features", None),
        ("n_rows", None),
    ],
)
def test_a_number_of_lines_that_is_none_is_refused(fitted, name, value):
    says = f"{name} must be an integer of at least 0, got {value!r}"
    assert_refused(lambda: explain(fitted, X, **{name: value}), says)


@pytest.mark.parametrize("candidates", [None, [2]])
def test_no_number_of_clusters_is_sought_in_rows_that_are_all_alike(candidates):
    says = ["number of distinct rows, 1", "ask for fewer clusters"]
    assert_refused(lambda: choose_k(np.ones((100, 3)), candidates=candidates), says)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (X[:, :3], "X has 3 features, but PamCGC is expecting 4"),
        (X[:0], "0 sample(s)"),
        (X[0], "Reshape your data"),
        (with_cell(np.inf), ["inf: row 7, column 2", "Replace it with a number"]),
        (with_cell(1e30), ["row 7 is too far", "check its units"]),
        (with_cell(1e300), "row 7 is too far"),
        ("rows.csv", "read_graph"),
    ],
    ids=["columns", "no rows", "1-D", "inf", "far", "farther", "name"],
)
@pytest.mark.parametrize("method", ["predict", "predict_proba", "transform", "score"])
def test_bad_new_rows_are_refused_by_every_method(fitted, method, rows, says):
    assert_refused(lambda: getattr(fitted, method)(rows), says)


def test_columns_in_another_order_are_refused_by_name():
    named = model().fit(frame())
    assert_refused(lambda: named.predict(frame()[list("abdc")]), "same order as they were in fit")
    assert_refused(lambda: named.predict(frame()[list("abc")]), ["now missing", "- d"])


def test_an_adjacency_tensor_and_a_list_of_pairs_are_graphs():
    pairs = [(int(a), int(b)) for a, b in PATH]
    expected = embedding(PATH)
    matrix = sp.csr_matrix((np.ones(35, np.int8), PATH.T), shape=(36, 36))
    tensor = torch.from_numpy(matrix.toarray()).to_sparse()
    for adjacency in (pairs, PATH.T, matrix, matrix.toarray(), tensor, pd.DataFrame(PATH), PATH.astype(np.uint8)):
        assert np.array_equal(embedding(adjacency), expected)
