"""Objects of other libraries in: features, edges or a whole graph, or a line says what is wrong."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pamc.data.adapters import as_edges, from_object
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.rows import as_features
from pamc.errors import DataWarning

# One graph on four nodes, each pair listed once, in row-major order so that every form lists it alike.
ENDS = np.array([[0, 0, 1, 3], [1, 2, 3, 2]])
ADJACENCY = np.zeros((4, 4))
ADJACENCY[tuple(ENDS)] = 1
X = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [0.0, 4.0]])


# Features


@pytest.mark.parametrize(
    "given_form",
    [X, X.tolist(), tuple(map(tuple, X)), torch.tensor(X), torch.tensor(X, requires_grad=True)],
    ids=["numpy", "lists", "tuples", "tensor", "tensor with gradient"],
)
def test_dense_features_of_any_origin_are_one_array(given_form):
    features, names, ids = as_features(given_form)
    assert isinstance(features, np.ndarray)
    assert (features == X).all()
    assert names is None
    assert ids is None


@pytest.mark.parametrize(
    "given_form",
    [
        sp.csr_matrix(X),
        sp.coo_matrix(X),
        sp.csr_array(X),
        torch.tensor(X).to_sparse(),
        torch.sparse_coo_tensor(
            [[0, 0, 1, 2, 3], [0, 0, 1, 0, 1]], [0.5, 0.5, 2.0, 3.0, 4.0], (4, 2), check_invariants=True
        ),
    ],
    ids=["csr", "coo", "csr_array", "torch", "torch uncoalesced"],
)
def test_sparse_features_of_any_origin_are_one_csr_matrix(given_form):
    features = as_features(given_form)[0]
    assert features.format == "csr"
    assert (features.toarray() == X).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_tensors_become_float32(dtype):
    assert as_features(torch.ones(2, 2, dtype=dtype))[0].dtype == np.float32


def test_rows_of_unequal_length_are_refused(refusal):
    assert "rows of equal length" in refusal(as_features, [[1, 2], [3]])


def test_a_data_frame_gives_names_and_ids():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": [True, False]}, index=["u", "v"])
    features, names, ids = as_features(frame)
    assert features.tolist() == [[1, 1], [2, 0]]
    assert names == ("a", "b")
    assert ids.tolist() == ["u", "v"]
    graph = from_object(frame)
    assert graph.feature_names == ("a", "b")
    assert graph.ids.tolist() == ["u", "v"]


def test_a_data_frame_without_real_names_or_index_gives_none():
    pandas = pytest.importorskip("pandas")
    assert as_features(pandas.DataFrame(X))[1:] == (None, None)
    repeated = pandas.DataFrame(X, index=[0, 0, 1, 2])
    assert as_features(repeated)[2] is None
    shifted = pandas.DataFrame(X, index=range(1, 5))
    assert as_features(shifted)[2].tolist() == [1, 2, 3, 4]


def test_a_data_frame_of_float32_stays_float32():
    pandas = pytest.importorskip("pandas")
    assert as_features(pandas.DataFrame(X.astype(np.float32)))[0].dtype == np.float32
    assert as_features(pandas.DataFrame(X))[0].dtype == np.float64


def test_a_missing_value_of_a_data_frame_is_a_hidden_cell():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": pandas.array([1, None], dtype="Int64"), "b": [1.0, 2.0]}, index=["u", "v"])
    assert np.isnan(from_object(frame).features).tolist() == [[False, False], [True, False]]


def test_a_text_column_of_a_data_frame_is_refused_by_name(refusal):
    pandas = pytest.importorskip("pandas")
    message = refusal(as_features, pandas.DataFrame({"a": [1], "town": ["Rome"]}))
    assert "column 'town'" in message
    assert "'Rome'" in message
    assert "column 'e'" in refusal(as_features, pandas.DataFrame({"e": pandas.Series([], dtype=object)}))
    assert "pandas Series" in refusal(as_features, pandas.Series([1, 2]))


# Edges

FORMS = {
    "dense": ADJACENCY,
    "dense bool": ADJACENCY.astype(bool),
    "nested lists": ADJACENCY.astype(int).tolist(),
    "csr": sp.csr_matrix(ADJACENCY),
    "coo": sp.coo_matrix(ADJACENCY),
    "csc_array": sp.csc_array(ADJACENCY),
    "torch dense": torch.tensor(ADJACENCY),
    "torch coo": torch.tensor(ADJACENCY).to_sparse(),
    "(E, 2)": np.vstack([ENDS.T, ENDS.T]),
    "(2, E)": np.hstack([ENDS, ENDS]),
    "list of pairs": [tuple(pair) for pair in np.vstack([ENDS.T, ENDS.T]).tolist()],
    "torch edge_index": torch.tensor(np.hstack([ENDS, ENDS])),
}


@pytest.mark.parametrize("form", FORMS)
def test_one_graph_reads_the_same_in_every_form(form):
    edges, weight = as_edges(FORMS[form], 4)
    assert edges.dtype == np.int64
    assert {tuple(pair) for pair in edges.T.tolist()} == {tuple(pair) for pair in ENDS.T.tolist()}
    assert edges.shape[1] == (8 if "E" in form or "pairs" in form or "edge_index" in form else 4)
    assert weight is None


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
def test_a_torch_csr_adjacency_is_read():
    edges, weight = as_edges(torch.tensor(ADJACENCY * 2).to_sparse_csr(), 4)
    assert (edges == ENDS).all()
    assert weight.tolist() == [2, 2, 2, 2]


def test_weights_come_along_and_stored_zeros_are_no_edges():
    weighted = ADJACENCY * 0.5
    assert as_edges(weighted, 4)[1].tolist() == [0.5] * 4
    stored = sp.coo_matrix(([0.0, 3.0], ([0, 1], [1, 2])), shape=(4, 4))
    edges, weight = as_edges(stored, 4)
    assert edges.tolist() == [[1], [2]]
    assert weight.tolist() == [3]


def test_edges_are_returned_as_given_with_loops_repeats_and_one_direction():
    given_edges = np.array([[0, 0], [0, 1], [0, 1]])
    assert as_edges(given_edges, 4)[0].tolist() == given_edges.T.tolist()


def test_the_argument_is_not_modified():
    matrix = sp.csr_matrix(ADJACENCY)
    matrix.data[0] = 0
    as_edges(matrix, 4)
    assert matrix.nnz == 4


@settings(max_examples=30, deadline=None)
@given(n_nodes=st.integers(3, 8), data=st.data())
def test_any_adjacency_gives_back_its_own_entries(n_nodes, data):
    cells = data.draw(st.lists(st.integers(0, 3), min_size=n_nodes**2, max_size=n_nodes**2))
    matrix = np.array(cells).reshape(n_nodes, n_nodes)
    for form in (matrix, sp.csr_matrix(matrix), torch.tensor(matrix).to_sparse()):
        edges, weight = as_edges(form, n_nodes)
        rebuilt = np.zeros_like(matrix)
        rebuilt[tuple(edges)] = 1 if weight is None else weight
        assert (rebuilt == matrix).all()


def test_a_networkx_graph_with_numbered_nodes_goes_by_number():
    networkx = pytest.importorskip("networkx")
    graph = networkx.DiGraph()
    graph.add_nodes_from([3, 2, 1, 0])
    graph.add_edges_from(ENDS.T.tolist())
    edges, weight = as_edges(graph, 4)
    assert {tuple(pair) for pair in edges.T.tolist()} == {tuple(pair) for pair in ENDS.T.tolist()}
    assert weight is None


def test_a_networkx_graph_with_named_nodes_goes_by_the_rows_names_or_says_that_it_goes_by_order():
    networkx = pytest.importorskip("networkx")
    graph = networkx.Graph()
    graph.add_nodes_from("abcd")
    graph.add_edge("a", "d", weight=2.5)
    graph.add_edge("b", "c")
    with pytest.warns(DataWarning, match="'a' is row 0, 'd' row 3"):
        edges, weight = as_edges(graph, 4)
    assert edges.tolist() == [[0, 1], [3, 2]]
    assert weight.tolist() == [2.5, 1]
    edges, weight = as_edges(graph, 4, row_names=["d", "c", "b", "a"])
    assert edges.tolist() == [[3, 2], [0, 1]]


def test_a_networkx_graph_follows_the_index_of_a_data_frame():
    networkx, pandas = pytest.importorskip("networkx"), pytest.importorskip("pandas")
    edges, _ = as_edges(networkx.path_graph(3), 3, row_names=pandas.Index([2, 0, 1]))
    assert edges.tolist() == [[1, 2], [2, 0]]


def test_a_networkx_graph_without_edges_has_none():
    networkx = pytest.importorskip("networkx")
    assert as_edges(networkx.empty_graph(3), 3)[0].shape == (2, 0)


def test_a_networkx_graph_of_another_size_or_with_text_weights_is_refused(refusal):
    networkx = pytest.importorskip("networkx")
    assert "has 5 nodes, but the features have 4 rows" in refusal(as_edges, networkx.path_graph(5), 4)
    graph = networkx.Graph()
    graph.add_edge(0, 1, weight="strong")
    assert "'weight' of the networkx graph must be numbers" in refusal(as_edges, graph, 2)


@pytest.mark.parametrize("n_nodes", [2, 3, 4])
def test_a_two_by_two_array_is_refused_as_ambiguous(refusal, n_nodes):
    message = refusal(as_edges, np.array([[0, 1], [1, 0]]), n_nodes)
    assert "could be an adjacency matrix or two edges" in message
    assert "scipy sparse" in message


def test_a_sparse_two_by_two_matrix_is_an_adjacency():
    assert as_edges(sp.csr_matrix([[0, 1], [1, 0]]), 2)[0].tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("as_type", [np.asarray, sp.csr_matrix, torch.tensor])
def test_a_row_sliced_adjacency_is_refused_with_the_cause(refusal, as_type):
    for sliced, n_nodes in ((ADJACENCY[:3], 3), (ADJACENCY[:3], 4), (ADJACENCY[:, :3], 4), (ADJACENCY[:2], 4)):
        message = refusal(as_edges, as_type(sliced), n_nodes)
        assert "row-sliced adjacency: slice rows and columns alike" in message


def test_two_integer_rows_of_an_adjacency_are_not_taken_for_edges(refusal):
    assert "row-sliced" in refusal(as_edges, ADJACENCY[:2].astype(int), 4)
    assert "row-sliced" in refusal(as_edges, ADJACENCY[:, :2].astype(int), 4)


def test_as_many_edges_as_nodes_are_still_edges():
    ring = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])
    assert as_edges(ring, 4)[0].tolist() == ring.tolist()
    assert as_edges(ring.T, 4)[0].tolist() == ring.tolist()


@pytest.mark.parametrize("as_type", [np.asarray, sp.csr_matrix])
def test_an_adjacency_of_another_size_is_refused_with_both_sizes(refusal, as_type):
    message = refusal(as_edges, as_type(np.eye(5)), 4)
    assert "5 × 5" in message
    assert "4 rows" in message


@pytest.mark.parametrize(
    ("adjacency", "part"),
    [
        (np.ones(4), "got shape (4,)"),
        (np.ones((5, 3)), "(4, 4) matrix or an (E, 2) or (2, E) array, got shape (5, 3)"),
        (ENDS.T + 0.5, "row indices (integers)"),
        (ENDS.T * 9, "join rows that do not exist"),
        (-ADJACENCY, "must be positive"),
        (sp.csr_matrix(-ADJACENCY), "must be positive"),
        (ADJACENCY * np.nan, "must be positive and at most 1e+30"),
        (ADJACENCY * 1j, "real numbers, got dtype complex128"),
        (ADJACENCY.astype(object), "real numbers, got dtype object"),
        ([[0, 1], [1]], "rows of equal length"),
    ],
)
def test_what_is_no_graph_on_four_nodes_is_refused(refusal, adjacency, part):
    assert part in refusal(as_edges, adjacency, 4)


# Whole graphs


def pyg_data(**parts):
    return pytest.importorskip("torch_geometric.data").Data(**parts)


def test_torch_geometric_data_become_a_graph():
    data = pyg_data(
        x=torch.tensor(X), edge_index=torch.tensor(ENDS), edge_weight=torch.arange(1.0, 5), y=torch.tensor([0, 1, 1, 2])
    )
    graph = from_object(data)
    assert (graph.features == X).all()
    assert (graph.edges == ENDS).all()
    assert graph.edge_weight.tolist() == [1, 2, 3, 4]
    assert graph.labels.tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_a_one_column_edge_attr_is_the_weight(shape):
    data = pyg_data(x=torch.tensor(X), edge_index=torch.tensor(ENDS), edge_attr=torch.full(shape, 2.0))
    assert from_object(data).edge_weight.tolist() == [2, 2, 2, 2]


def test_edge_features_and_graph_labels_are_left_out_aloud():
    data = pyg_data(x=torch.tensor(X), edge_index=torch.tensor(ENDS), edge_attr=torch.ones(4, 3))
    with pytest.warns(DataWarning, match=r"edge_attr of shape \(4, 3\) is not one weight per edge"):
        assert from_object(data).edge_weight is None
    data = pyg_data(x=torch.tensor(X), y=torch.tensor([1]))
    with pytest.warns(DataWarning, match=r"y of shape \(1,\) is not one label per node"):
        graph = from_object(data)
    assert graph.labels is None
    assert graph.edges is None


def test_torch_geometric_data_that_cannot_be_used_are_refused(refusal):
    assert "neither x nor edge_index" in refusal(from_object, pyg_data(y=torch.zeros(3)))
    data = pyg_data(x=torch.tensor(X))
    data.adj_t = torch.tensor(ADJACENCY)
    assert "ToSparseTensor" in refusal(from_object, data)


def test_torch_geometric_data_without_x_are_a_graph_without_features():
    edges = torch.tensor(ENDS)
    assert from_object(pyg_data(edge_index=edges)).features.shape == (int(edges.max()) + 1, 0)
    assert from_object(pyg_data(edge_index=edges, num_nodes=9)).features.shape == (9, 0)


def ann_data(**parts):
    anndata = pytest.importorskip("anndata")
    pandas = pytest.importorskip("pandas")
    names = {"obs": pandas.DataFrame(index=list("abcd")), "var": pandas.DataFrame(index=["g1", "g2"])}
    return anndata.AnnData(**names, **parts)


@pytest.mark.parametrize("as_type", [np.asarray, sp.csr_matrix])
def test_ann_data_become_a_graph(as_type):
    data = ann_data(X=as_type(X), obsp={"connectivities": sp.csr_matrix(ADJACENCY * 0.5)})
    graph = from_object(data)
    assert sp.issparse(graph.features) == (as_type is sp.csr_matrix)
    assert graph.ids.tolist() == list("abcd")
    assert graph.feature_names == ("g1", "g2")
    assert (graph.edges == ENDS).all()
    assert graph.edge_weight.tolist() == [0.5] * 4


def test_ann_data_without_neighbors_have_no_edges():
    assert from_object(ann_data(X=X)).edges is None


def test_ann_data_on_disk_are_read(tmp_path):
    ann_data(X=X).write_h5ad(tmp_path / "a.h5ad")
    backed = pytest.importorskip("anndata").read_h5ad(tmp_path / "a.h5ad", backed="r")
    try:
        assert (from_object(backed).features == X).all()
    finally:
        backed.file.close()


def test_ann_data_without_x_are_refused(refusal):
    assert "the AnnData has no X" in refusal(from_object, ann_data())


def test_a_networkx_graph_alone_is_a_graph_without_features():
    networkx = pytest.importorskip("networkx")
    graph = from_object(networkx.path_graph(3))
    assert graph.features.shape == (3, 0)
    assert graph.edges.tolist() == [[0, 1], [1, 2]]


def test_a_graph_is_returned_as_it_is_and_arrays_become_one():
    graph = AttributedGraph(X)
    assert from_object(graph) is graph
    assert (from_object(torch.tensor(X)).features == X).all()
    assert (from_object(sp.csr_matrix(X)).features.toarray() == X).all()


def test_what_is_nothing_of_this_is_refused(refusal):
    assert "is the text 'text'" in refusal(from_object, "text")
    assert "2-D" in refusal(from_object, 7)


def test_no_optional_package_is_imported_to_recognize_a_type():
    code = (
        "import sys, numpy as np; from pamc.data.adapters import as_edges, from_object;"
        "from pamc.data.rows import as_features;"
        "as_features(np.eye(3)); as_edges(np.eye(3), 3); from_object(np.eye(3));"
        "print([name for name in ('pandas', 'networkx', 'anndata', 'torch_geometric', 'duckdb', 'torch') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
