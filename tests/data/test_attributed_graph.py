import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from pamc.data import attributed_graph
from pamc.data.attributed_graph import AttributedGraph, check_edges, check_features

RING = np.array([[0, 1, 2], [1, 2, 0]])


def test_counts_are_those_of_the_arrays():
    graph = AttributedGraph(np.ones((3, 2)), edges=RING)
    assert (graph.n_nodes, graph.n_features, graph.n_edges) == (3, 2, 3)
    assert AttributedGraph(np.ones((3, 2))).n_edges == 0


def test_row_ids_are_row_numbers_where_none_were_given():
    assert AttributedGraph(np.ones((3, 2))).row_ids.tolist() == [0, 1, 2]
    assert AttributedGraph(np.ones((2, 2)), ids=np.array(["a", "b"])).row_ids.tolist() == ["a", "b"]


def test_without_labels_only_the_labels_go():
    graph = AttributedGraph(np.ones((3, 2)), edges=RING, labels=np.array([0, 1, 1]), name="toy")
    bare = graph.without_labels()
    assert bare.labels is None
    assert bare.name == "toy"
    assert (bare.edges == RING).all()
    assert graph.labels.tolist() == [0, 1, 1]


def test_without_edges_the_rows_stay():
    graph = AttributedGraph(
        np.ones((3, 2)), edges=RING, edge_weight=np.ones(3), labels=np.array([0, 1, 1]), edges_are_neighbors=True
    )
    bare = graph.without_edges()
    assert bare.edges is None
    assert bare.edge_weight is None
    assert not bare.edges_are_neighbors
    assert bare.labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_, np.float16])
def test_numbers_of_other_types_become_float32(dtype):
    assert check_features(np.ones((2, 2), dtype=dtype)).dtype == np.float32
    if dtype != np.float16:
        assert check_features(sp.csr_matrix(np.ones((2, 2), dtype=dtype))).dtype == np.float32


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_keep_their_type_and_are_not_copied(dtype):
    features = np.ones((2, 2), dtype=dtype)
    assert check_features(features) is features
    matrix = sp.csr_matrix(features)
    assert np.shares_memory(check_features(matrix).data, matrix.data)


def test_every_sparse_format_becomes_csr():
    assert check_features(sp.coo_matrix(np.eye(3))).format == "csr"


@pytest.mark.parametrize(
    ("features", "part"),
    [
        (np.ones(3), "2-D array"),
        (np.ones((2, 2, 2)), "3-D of shape (2, 2, 2)"),
        (np.ones((0, 3)), "0 sample(s)"),
        (np.ones((3, 0)), "0 feature(s)"),
        (sp.csr_matrix((0, 3)), "0 sample(s)"),
        (sp.csr_matrix((3, 0)), "0 feature(s)"),
        (np.array([["a", "b"]]), "must be numbers, got dtype <U1"),
        (np.array([[None, 1]], dtype=object), "must be numbers, got dtype object"),
        (np.ones((2, 2), dtype=complex), "complex data not supported"),
        (sp.csr_matrix(np.ones((2, 2), dtype=complex)), "complex data not supported"),
    ],
)
def test_what_is_no_table_of_real_numbers_is_refused(refusal, features, part):
    assert part in refusal(check_features, features)


@pytest.mark.parametrize("as_type", [np.asarray, sp.csr_matrix])
def test_a_cell_that_is_infinite_is_named_by_row_id_and_column(refusal, as_type):
    features = np.ones((3, 2))
    features[1, 1] = features[2, 0] = np.inf
    message = refusal(AttributedGraph, as_type(features), ids=np.array(["x", "y", "z"]), feature_names=("age", "sum"))
    assert "inf: row 1 (id y), column 'sum', and 1 more cells" in message
    assert "Replace it with a number" in message


def test_a_missing_cell_is_kept_in_an_array_and_refused_in_a_sparse_matrix(refusal):
    features = np.array([[1.0, np.nan], [2.0, 3.0]])
    assert np.isnan(check_features(features)[0, 1])
    assert "NaN: row 0, column 1. A sparse matrix cannot" in refusal(check_features, sp.csr_matrix(features))


def test_a_single_infinite_cell_is_named_without_a_count(refusal):
    message = refusal(check_features, np.array([[0.0, -np.inf]]))
    assert "inf: row 0, column 1. " in message


def test_names_and_ids_that_are_too_few_do_not_break_the_message(refusal):
    message = refusal(check_features, np.array([[1.0, 1.0], [1.0, np.inf]]), names=("a",), ids=np.array(["r"]))
    assert "row 1, column 1" in message


def test_a_bad_cell_beyond_the_first_block_is_named_by_its_own_row(refusal, monkeypatch):
    monkeypatch.setattr(attributed_graph, "_ROWS_PER_BLOCK", 2)
    features = np.ones((5, 1))
    features[4, 0] = np.inf
    assert "row 4, column 0" in refusal(check_features, features)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_any_one_infinite_cell_is_found_where_it_is(n_rows, n_columns, data):
    row, column = data.draw(st.integers(0, n_rows - 1)), data.draw(st.integers(0, n_columns - 1))
    features = np.zeros((n_rows, n_columns))
    features[row, column] = np.inf
    for case in (features, sp.csr_matrix(features)):
        with pytest.raises(ValueError, match=f"row {row}, column {column}\\."):
            check_features(case)


def test_edges_keep_order_and_weights():
    edges, weight = check_edges(RING.astype(np.uint8), [1, 2, 3], n_nodes=3)
    assert edges.dtype == np.int64
    assert edges.tolist() == RING.tolist()
    assert weight.dtype == np.float32
    assert weight.tolist() == [1, 2, 3]


def test_whole_floats_are_row_indices_and_double_weights_stay_double():
    edges, weight = check_edges(RING.astype(float), np.ones(3), n_nodes=3)
    assert edges.dtype == np.int64
    assert weight.dtype == np.float64


@pytest.mark.parametrize(
    ("edges", "part"),
    [
        ([0, 1], "shape (2, E), got (2,)"),
        (np.zeros((3, 4), int), "shape (2, E), got (3, 4)"),
        ([[0.5], [1]], "row indices (integers), got dtype float64"),
        ([[np.nan], [1]], "row indices (integers)"),
        ([[np.inf], [1]], "row indices (integers)"),
        ([["a"], ["b"]], "row indices (integers), got dtype <U1"),
    ],
)
def test_what_is_no_edge_list_is_refused(refusal, edges, part):
    assert part in refusal(check_edges, edges, n_nodes=3)


def test_edges_to_rows_that_do_not_exist_are_counted_and_the_first_three_named(refusal):
    message = refusal(check_edges, [[0, 1, 9, -1, 7], [1, 8, 0, 0, 7]], n_nodes=3)
    assert "4 of 5 edges" in message
    assert "rows are 0 to 2" in message
    assert "1→8, 9→0, -1→0" in message
    assert "7→7" not in message


@pytest.mark.parametrize("bad", [0, -1, np.nan, np.inf])
def test_a_weight_that_is_not_positive_and_finite_is_refused(refusal, bad):
    message = refusal(check_edges, RING, [1, bad, 1], n_nodes=3)
    assert "1 of 3" in message
    assert "1→2" in message


def test_weights_must_be_one_per_edge(refusal):
    assert "one value per edge (3), got shape (2,)" in refusal(check_edges, RING, [1, 2], n_nodes=3)
    assert "without edges" in refusal(AttributedGraph, np.ones((3, 1)), edge_weight=np.ones(3))


def test_labels_that_are_integers_stay_and_others_become_codes():
    assert AttributedGraph(np.ones((3, 1)), labels=np.array([5, 7, 5], np.int8)).labels.tolist() == [5, 7, 5]
    assert AttributedGraph(np.ones((3, 1)), labels=np.array(["b", "a", "b"])).labels.tolist() == [1, 0, 1]


def test_labels_ids_and_names_must_fit_the_table(refusal):
    assert "one value per row (3), got shape (2,)" in refusal(AttributedGraph, np.ones((3, 1)), labels=np.zeros(2, int))
    assert "ids must have one value per row" in refusal(AttributedGraph, np.ones((3, 1)), ids=np.arange(2))
    assert "2 names for 1 feature" in refusal(AttributedGraph, np.ones((3, 1)), feature_names=("a", "b"))


def test_repeated_ids_are_counted_and_named(refusal):
    message = refusal(AttributedGraph, np.ones((5, 1)), ids=np.array(["a", "b", "a", "b", "c"]))
    assert "2 ids occur more than once; the first: 'a', 'b'" in message
    assert "1 id occurs more than once" in refusal(AttributedGraph, np.ones((2, 1)), ids=np.array(["a", "a"]))


def test_an_integer_id_and_its_text_are_the_same_id(refusal):
    assert "'1'" in refusal(AttributedGraph, np.ones((2, 1)), ids=np.array([1, "1"], dtype=object))


def test_feature_names_become_text():
    assert AttributedGraph(np.ones((1, 2)), feature_names=(1, "b")).feature_names == ("1", "b")


def test_arguments_are_never_modified():
    features, edges, weight = np.ones((3, 2), int), RING.astype(np.int32), np.array([1, 2, 3])
    AttributedGraph(features, edges=edges, edge_weight=weight)
    assert (features.dtype, edges.dtype, weight.dtype) == (np.int64, np.int32, np.int64)
