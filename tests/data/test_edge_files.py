"""Edges in: lists and adjacency matrices become (2, E) rows, joined by id where the rows have ids."""

import gzip

import duckdb
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from pamc.data.readers import read_edges, read_graph
from pamc.errors import DataWarning

PAIRS = [[0, 1], [1, 2], [3, 0]]
ENDS = [[0, 1, 3], [1, 2, 0]]
NAMES = np.array(["ann", "bob", "cyd", "dan"])


def listed(separator=",", names=None, weights=None):
    rows = [[str(a if names is None else names[a]), str(b if names is None else names[b])] for a, b in PAIRS]
    if weights is not None:
        rows = [[*row, str(weight)] for row, weight in zip(rows, weights, strict=True)]
    return "".join(separator.join(row) + "\n" for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("names", [None, NAMES], ids=["numbers", "names"])
@pytest.mark.parametrize("weights", [None, [0.5, 2, 3]], ids=["plain", "weighted"])
@pytest.mark.parametrize("header", [False, True], ids=["bare", "header"])
@pytest.mark.parametrize(
    ("name", "separator"),
    [("e.csv", ","), ("e.csv", ";"), ("e.tsv", "\t"), ("e.txt", " "), ("e.edges", "\t "), ("e.edgelist", "  ")],
)
def test_an_edge_list_reads_the_same_in_every_dress(write, name, separator, header, weights, names):
    head = separator.join(["source", "target", "weight"][: 2 if weights is None else 3]) + "\n"
    path = write(name, (head if header else "") + listed(separator, names, weights))
    edges, weight = read_edges(path, names, 4)
    assert edges.tolist() == ENDS
    assert edges.dtype == np.int64
    assert weight is None if weights is None else weight.tolist() == weights


def test_comments_and_gz_are_read(write):
    text = "# nodes: 4\n% edges: 3\n" + listed(" ")
    assert read_edges(write("e.txt", text), None, 4)[0].tolist() == ENDS
    assert read_edges(write("e.csv.gz", gzip.compress(listed().encode())), None, 4)[0].tolist() == ENDS


@pytest.mark.parametrize("names", [None, NAMES], ids=["numbers", "names"])
def test_a_parquet_list_is_read(tmp_path, write, names):
    source = write("e.csv", "a,b,w\n" + listed(",", names, [1, 2, 3]))
    target = tmp_path / "e.parquet"
    duckdb.sql(f"COPY (SELECT * FROM read_csv('{source}')) TO '{target}' (FORMAT parquet)")
    edges, weight = read_edges(target, names, 4)
    assert edges.tolist() == ENDS
    assert weight.tolist() == [1, 2, 3]


@pytest.mark.parametrize("array", [np.array(PAIRS), np.array(ENDS, dtype=np.uint16)], ids=["E2", "2E"])
def test_arrays_of_both_orientations_are_read(tmp_path, array):
    np.save(tmp_path / "e.npy", array)
    np.savez(tmp_path / "e.npz", any_name=array)
    assert read_edges(tmp_path / "e.npy", None, 10)[0].tolist() == ENDS
    assert read_edges(tmp_path / "e.npz", None, 10)[0].tolist() == ENDS


def test_named_arrays_have_one_orientation_even_with_two_edges(tmp_path):
    two = np.array([[0, 1], [2, 3]])
    np.savez(tmp_path / "a.npz", edges=two, x=np.ones((4, 1)))
    np.savez(tmp_path / "b.npz", edge_index=two, edge_weight=np.array([0.5, 2.0]))
    assert read_edges(tmp_path / "a.npz", None, 4)[0].tolist() == [[0, 2], [1, 3]]
    edges, weight = read_edges(tmp_path / "b.npz", None, 4)
    assert edges.tolist() == two.tolist()
    assert weight.tolist() == [0.5, 2]


@pytest.mark.parametrize("weights", [[1, 1, 1], [0.5, 2, 3]])
def test_an_adjacency_is_read_from_npy_npz_and_mtx_in_the_order_of_the_rows(tmp_path, weights):
    matrix = sp.coo_matrix((weights, ENDS), shape=(4, 4))
    np.save(tmp_path / "a.npy", matrix.toarray())
    sp.save_npz(tmp_path / "a.npz", matrix)
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix)
    for name in ("a.npy", "a.npz", "a.mtx"):
        for ids in (None, NAMES[::-1]):
            edges, weight = read_edges(tmp_path / name, ids, 4)
            assert edges.tolist() == ENDS
            assert weight is None if weights == [1, 1, 1] else weight.tolist() == weights


def test_string_and_integer_arrays_are_joined_by_id(tmp_path):
    np.save(tmp_path / "names.npy", NAMES[np.array(PAIRS)])
    assert read_edges(tmp_path / "names.npy", NAMES, 4)[0].tolist() == ENDS
    ids = np.array([40, 10, 30, 20])
    np.save(tmp_path / "numbers.npy", ids[np.array(PAIRS)])
    assert read_edges(tmp_path / "numbers.npy", ids, 4)[0].tolist() == ENDS
    assert read_edges(tmp_path / "numbers.npy", ids.astype(str), 4)[0].tolist() == ENDS


def test_integer_ids_are_not_row_numbers(write):
    ids = np.array([3, 0, 1, 2])
    edges, _ = read_edges(write("e.csv", "0,3\n"), ids, 4)
    assert edges.tolist() == [[1], [0]]


def test_integer_ids_of_64_bits_are_joined_exactly(write):
    ids = np.array([9007199254740992, 9007199254740993])
    edges, _ = read_edges(write("e.csv", "9007199254740993,9007199254740992\n"), ids, 2)
    assert edges.tolist() == [[1], [0]]


@settings(max_examples=25, deadline=None)
@given(data=st.data(), n_nodes=st.integers(2, 8), by_text=st.booleans())
def test_joining_by_id_gives_back_the_rows(tmp_path_factory, data, n_nodes, by_text):
    keys = data.draw(st.lists(st.integers(-99, 99), min_size=n_nodes, max_size=n_nodes, unique=True))
    ids = np.array([f"n{key}" for key in keys]) if by_text else np.array(keys)
    row = st.integers(0, n_nodes - 1)
    pairs = np.array(data.draw(st.lists(st.tuples(row, row), min_size=1, max_size=12)))
    path = tmp_path_factory.mktemp("edges") / "e.csv"
    path.write_text("source,target\n" + "".join(f"{ids[a]},{ids[b]}\n" for a, b in pairs))
    assert (read_edges(path, ids, n_nodes)[0] == pairs.T).all()


def test_an_edge_to_an_unknown_id_is_refused_with_the_first_three_and_the_count(write, refusal):
    text = "source,target\nann,eve\nbob,cyd\nfay,gus\neve,hal\n"
    message = refusal(read_edges, write("e.csv", text), NAMES, 4)
    assert "3 of 4 edges refer to ids that no row has; the first: 'eve', 'fay', 'gus'" in message
    assert "e.csv" in message


def test_an_edge_to_an_unknown_number_is_refused(write, refusal):
    assert "0→9" in refusal(read_edges, write("e.csv", "0,9\n"), None, 4)
    assert "'9'" in refusal(read_edges, write("e.csv", "3,9\n"), np.array([3, 4]), 2)


def test_a_bad_first_edge_is_not_taken_for_a_header(write, refusal):
    assert "'bobb'" in refusal(read_edges, write("e.csv", "ann,bobb\nbob,cyd\n"), NAMES, 4)
    assert "row 0 (line 1), column 'c1': 'x'" in refusal(read_edges, write("e.csv", "0,x\n1,2\n"), None, 4)


def test_an_unusual_header_before_names_is_said_aloud(write):
    with pytest.warns(DataWarning, match=r"first line \(paper, cites\) matches no row and is read as a header"):
        edges, _ = read_edges(write("e.csv", "paper,cites\nann,bob\n"), NAMES, 4)
    assert edges.tolist() == [[0], [1]]


@pytest.mark.parametrize("weight", ["0", "-2"])
def test_a_weight_that_is_not_positive_is_refused(write, refusal, weight):
    assert "must be positive" in refusal(read_edges, write("e.csv", f"0,1,1\n1,2,{weight}\n"), None, 4)


@pytest.mark.parametrize(("weight", "part"), [("nan", "'nan'"), ("inf", "'inf'"), ("", "empty"), ("x", "'x'")])
def test_a_weight_that_is_no_number_is_refused_with_its_line(write, refusal, weight, part):
    message = refusal(read_edges, write("e.csv", f"0,1,1\n1,2,{weight}\n"), None, 4)
    assert "row 1 (line 2), column 'c2'" in message
    assert part in message
    assert "third column is the weight" in message


@pytest.mark.parametrize("text", ["0\n1\n", "0,1,2,3\n"])
def test_another_number_of_columns_is_refused(write, refusal, text):
    assert "2 or 3 columns" in refusal(read_edges, write("e.csv", text), None, 4)


def test_ends_that_are_no_row_numbers_are_refused_with_the_option_to_use(write, refusal):
    message = refusal(read_edges, write("e.csv", "source,target\n0,1\nann,2\n"), None, 4)
    assert "row 1 (line 3), column 'source': 'ann' is not a row number" in message
    assert "--id" in message
    assert "'1.5'" in refusal(read_edges, write("e.csv", "0,1\n1.5,2\n"), None, 4)
    message = refusal(read_edges, write("e.csv", "source,target\n3,4\nann,3\n"), np.array([3, 4]), 2)
    assert "'ann' is not an integer, but all ids are integers" in message


@pytest.mark.parametrize("ids", [None, NAMES], ids=["numbers", "names"])
def test_an_edge_with_one_end_is_refused(write, refusal, ids):
    first, second = ("0,1", "2,") if ids is None else ("ann,bob", "cyd,")
    message = refusal(read_edges, write("e.csv", f"source,target\n{first}\n{second}\n"), ids, 4)
    assert "row 1 (line 3), column 'target': the cell is empty; every edge needs two ends" in message


def test_a_file_without_edges_is_refused(write, refusal):
    assert "has no edges" in refusal(read_edges, write("e.csv", "source,target\n"), None, 4)
    assert "is empty" in refusal(read_edges, write("e.csv", ""), None, 4)


def test_files_that_hold_no_graph_are_refused(write, tmp_path, refusal):
    assert "holds no edges" in refusal(read_edges, write("e.svm", "1 1:2\n"), None, 4)
    np.savez(tmp_path / "e.npz", a=np.ones(2), b=np.ones(2))
    assert "found the arrays a, b, expected edges (E, 2)" in refusal(read_edges, tmp_path / "e.npz", None, 4)
    np.savez(tmp_path / "e.npz", edges=np.ones((2, 5), int))
    assert "'edges' must have shape (E, 2), got (2, 5)" in refusal(read_edges, tmp_path / "e.npz", None, 4)
    np.savez(tmp_path / "e.npz", edge_index=np.ones((5, 2), int))
    assert "'edge_index' must have shape (2, E), got (5, 2)" in refusal(read_edges, tmp_path / "e.npz", None, 4)
    np.save(tmp_path / "e.npy", np.array([[0, 1], [1, 0]]))
    assert "e.npy: an array of shape (2, 2)" in refusal(read_edges, tmp_path / "e.npy", None, 2)


def test_an_adjacency_of_another_size_is_refused_with_both_sizes(tmp_path, refusal):
    scipy.io.mmwrite(tmp_path / "a.mtx", sp.eye(5))
    message = refusal(read_edges, tmp_path / "a.mtx", None, 4)
    assert "a.mtx" in message
    assert "5 × 5" in message
    assert "4 rows" in message


def test_a_graph_is_read_from_two_files_joined_by_id(write):
    people = write("people.csv", "name,age\nann,1\nbob,2\ncyd,3\n")
    friends = write("friends.txt", "cyd ann 0.5\nbob cyd 2\n")
    graph = read_graph(people, edges=friends, id_column="name")
    assert graph.edges.tolist() == [[2, 1], [0, 2]]
    assert graph.edge_weight.tolist() == [0.5, 2]
    assert graph.features.tolist() == [[1], [2], [3]]
