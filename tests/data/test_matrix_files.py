"""Matrix files in: .npy, .npz, .mtx and svmlight files become features, or a line says what is wrong."""

import gzip
import io
import zipfile

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pamc.data.readers import read_edges, read_features, read_graph, read_labels
from pamc.data.readers.formats.npz import load_arrays
from pamc.errors import DataError

X = np.array([[0.0, 1.5, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 3.5], [4.0, 0.0, 1.0]])
Y = np.array([0, 1, 1, 0], dtype=np.int8)
EDGES = np.array([[0, 1], [1, 2], [2, 3]], dtype=np.int32)


def csr_parts(matrix):
    csr = sp.csr_matrix(matrix)
    return {
        "x_data": csr.data,
        "x_indices": csr.indices.astype(np.uint16),
        "x_indptr": csr.indptr,
        "x_shape": np.array(csr.shape),
    }


def test_a_npy_file_is_features_in_float32_or_double_on_request(tmp_path):
    np.save(tmp_path / "x.npy", X / 3)
    graph = read_features(tmp_path / "x.npy")
    assert graph.features.dtype == np.float32
    assert (graph.features == (X / 3).astype(np.float32)).all()
    assert graph.name == "x"
    assert graph.feature_names is None
    assert (read_features(tmp_path / "x.npy", dtype="float64").features == X / 3).all()


@pytest.mark.parametrize("parts", [{"x": X}, csr_parts(X)], ids=["dense", "csr"])
def test_an_npz_file_gives_features_labels_and_edges(tmp_path, parts):
    np.savez(tmp_path / "set.npz", y=Y, edges=EDGES, **parts)
    graph = read_graph(tmp_path / "set.npz")
    assert sp.issparse(graph.features) == ("x_data" in parts)
    assert (sp.csr_matrix(graph.features).toarray() == X).all()
    assert graph.labels.tolist() == Y.tolist()
    assert (graph.edges == EDGES.T).all()


def test_an_npz_index_beyond_16_bits_survives_the_cast(tmp_path):
    parts = csr_parts(sp.csr_matrix(([1.0], ([0], [60000])), shape=(1, 65000)))
    np.savez(tmp_path / "wide.npz", **parts)
    features = read_features(tmp_path / "wide.npz").features
    assert features.indices.dtype == np.int32
    assert features.indices.tolist() == [60000]


def test_a_file_of_edges_takes_the_place_of_stored_edges(tmp_path, write):
    np.savez(tmp_path / "set.npz", x=X, edges=EDGES)
    graph = read_graph(tmp_path / "set.npz", edges=write("e.csv", "source,target\n3,0\n"))
    assert graph.edges.tolist() == [[3], [0]]


def test_another_array_can_be_the_truth(tmp_path, refusal):
    np.savez(tmp_path / "set.npz", x=X, y=Y, other=np.array(["b", "a", "b", "c"]))
    assert read_features(tmp_path / "set.npz", truth_column="other").labels.tolist() == [1, 0, 1, 2]
    assert "no array 'z' for the truth; found x, y, other" in refusal(
        read_features, tmp_path / "set.npz", truth_column="z"
    )


@pytest.mark.parametrize("name", ["features", "y", "edges"])
def test_a_single_array_of_any_name_is_the_features(tmp_path, name):
    np.savez(tmp_path / "one.npz", **{name: X})
    graph = read_features(tmp_path / "one.npz")
    assert (graph.features == X).all()
    assert graph.labels is None
    assert graph.edges is None


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_what_scipy_saves_is_read(tmp_path, form):
    sp.save_npz(tmp_path / "s.npz", sp.coo_matrix(X).asformat(form))
    assert (read_features(tmp_path / "s.npz").features.toarray() == X).all()


def test_an_mtx_file_is_read_sparse_dense_symmetric_and_as_pattern(tmp_path):
    scipy.io.mmwrite(tmp_path / "sparse.mtx", sp.coo_matrix(X))
    assert (read_features(tmp_path / "sparse.mtx").features.toarray() == X).all()
    scipy.io.mmwrite(tmp_path / "dense.mtx", X)
    assert (read_features(tmp_path / "dense.mtx").features == X).all()
    text = "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 3\n"
    (tmp_path / "pattern.mtx").write_text(text)
    assert read_features(tmp_path / "pattern.mtx").features.toarray().tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize("ending", ["svm", "svmlight", "libsvm"])
def test_an_svmlight_target_becomes_labels_only_when_asked(write, ending):
    path = write(f"x.{ending}", "7 1:1.5 3:2\n-1 2:4\n")
    graph = read_features(path)
    assert graph.features.toarray().tolist() == [[1.5, 0, 2], [0, 4, 0]]
    assert graph.labels is None
    assert read_features(path, truth_column="label").labels.tolist() == [1, 0]


# What is refused


def test_another_truth_of_an_svmlight_file_is_refused(write, refusal):
    assert "its first, 'label'; got 'y'" in refusal(read_features, write("x.svm", "1 1:2\n"), truth_column="y")


def test_a_truth_column_of_a_plain_matrix_is_refused(tmp_path, refusal):
    np.save(tmp_path / "x.npy", X)
    assert "no truth column 'c'" in refusal(read_features, tmp_path / "x.npy", truth_column="c")


@pytest.mark.parametrize(
    ("option", "flag"), [({"id_column": "a"}, "--id"), ({"columns": ["a"]}, "--columns"), ({"drop": ["a"]}, "--drop")]
)
def test_column_options_are_refused_where_columns_have_no_names(tmp_path, refusal, option, flag):
    np.save(tmp_path / "x.npy", X)
    assert f"{flag} needs named columns" in refusal(read_features, tmp_path / "x.npy", **option)


@pytest.mark.parametrize("bad", [np.inf, 1e39])
def test_a_cell_that_is_not_finite_as_stored_is_named_with_the_file(tmp_path, refusal, bad):
    values = X.copy()
    values[2, 1] = bad
    np.save(tmp_path / "x.npy", values)
    np.savez(tmp_path / "x.npz", **csr_parts(values))
    for name in ("x.npy", "x.npz"):
        message = refusal(read_features, tmp_path / name)
        assert f"{name}: " in message
        assert "row 2, column 1" in message


@pytest.mark.parametrize(
    ("array", "part"), [(np.ones(3), "2-D"), (np.array([["a"]]), "must be numbers"), (X * 1j, "complex")]
)
def test_an_array_that_is_no_table_of_numbers_is_refused_with_the_file(tmp_path, refusal, array, part):
    np.save(tmp_path / "x.npy", array)
    message = refusal(read_features, tmp_path / "x.npy")
    assert "x.npy" in message
    assert part in message


def test_pickled_objects_are_never_loaded(tmp_path, refusal):
    objects = np.array([[{"a": 1}]], dtype=object)
    np.save(tmp_path / "x.npy", objects)
    np.savez(tmp_path / "x.npz", x=objects)
    assert "x.npy: the array holds Python objects" in refusal(read_features, tmp_path / "x.npy")
    assert "x.npz: array 'x' holds Python objects" in refusal(read_features, tmp_path / "x.npz")


def test_an_npz_without_features_is_refused_with_what_it_has_and_what_is_expected(tmp_path, refusal):
    np.savez(tmp_path / "g.npz", y=Y, edges=EDGES)
    message = refusal(read_features, tmp_path / "g.npz")
    assert "has no features; found the arrays y, edges, expected x (N, d)" in message
    np.savez(tmp_path / "empty.npz")
    assert "found the arrays none" in refusal(read_features, tmp_path / "empty.npz")


def test_an_npz_with_impossible_parts_is_refused(tmp_path, refusal):
    parts = csr_parts(X)
    np.savez(tmp_path / "x.npz", **{**parts, "x_indices": parts["x_indices"] + 7})
    assert "x.npz: x: index 8 lies outside of 0 to" in refusal(read_features, tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", **{**parts, "x_indptr": parts["x_indptr"][:-1]})
    assert "x.npz: x_indptr must have" in refusal(read_features, tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", x=X, edges=EDGES.T)
    assert "'edges' must have shape (E, 2), got (2, 3)" in refusal(read_features, tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", x=X, y=Y[:2])
    assert "x.npz: labels must have one value per row" in refusal(read_features, tmp_path / "x.npz")
    np.savez(tmp_path / "x.npz", x=X, edges=EDGES + 5)
    assert "x.npz: 3 of 3 edges join rows that do not exist" in refusal(read_features, tmp_path / "x.npz")


def test_a_file_of_another_kind_is_refused_by_name(write, refusal):
    assert "x.npy: is not an .npy file" in refusal(read_features, write("x.npy", "hello"))
    assert "x.npz: is not an .npz file" in refusal(read_features, write("x.npz", "hello"))
    assert "x.mtx: cannot be read as .mtx" in refusal(read_features, write("x.mtx", "hello"))
    assert "x.svm: cannot be read as .svm" in refusal(read_features, write("x.svm", "hello world\n"))


def test_an_array_cut_short_inside_an_npz_is_refused(tmp_path, refusal):
    stream = io.BytesIO()
    np.save(stream, X)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", stream.getvalue()[:-8])
    assert "x.npz: cannot be read as .npz" in refusal(read_features, tmp_path / "x.npz")


def test_only_the_arrays_asked_for_are_read(tmp_path):
    np.savez(tmp_path / "x.npz", x=X, y=Y)
    assert list(load_arrays(tmp_path / "x.npz", "y", "z")) == ["y"]


def whole_files():
    files = {}
    for name, save in {
        "x.npy": lambda stream: np.save(stream, X),
        "x.npz": lambda stream: np.savez_compressed(stream, y=Y, edges=EDGES, **csr_parts(X)),
        "s.npz": lambda stream: sp.save_npz(stream, sp.csr_matrix(X)),
        "x.mtx": lambda stream: scipy.io.mmwrite(stream, sp.coo_matrix(X)),
        "x.svm": lambda stream: stream.write(b"1 1:1.5 3:2\n0 2:4.25\n"),
    }.items():
        stream = io.BytesIO()
        save(stream)
        files[name] = stream.getvalue()
    return files


WHOLE = whole_files()


def outcome(read, path):
    try:
        read(path)
    except DataError as error:
        return str(error)
    return None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted(WHOLE)), data=st.data())
def test_a_damaged_file_of_any_kind_is_read_or_refused_by_name_and_nothing_else(tmp_path, name, data):
    content = bytearray(WHOLE[name])
    if data.draw(st.booleans(), label="cut"):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / name
    path.write_bytes(content)
    for read in (read_features, read_labels, lambda file: read_edges(file, None, 4)):
        message = outcome(read, path)
        assert message is None or name in message


@pytest.mark.parametrize("end", [" ", "x", "%", ""])
def test_an_mtx_file_without_a_last_line_end_does_not_end_the_process(write, end):
    path = write("x.mtx", f"%%MatrixMarket matrix coordinate real general\n2 1 2\n1 1 5\n2 1 7{end}")
    assert read_features(path).features.toarray().tolist() == [[5], [7]]


def test_an_mtx_file_with_nul_bytes_is_refused_before_it_is_parsed(write, refusal):
    path = write("x.mtx", b"%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 1\x005\n")
    assert "x.mtx: has NUL bytes" in refusal(read_features, path)


def test_an_mtx_file_may_be_packed(tmp_path):
    stream = io.BytesIO()
    scipy.io.mmwrite(stream, X)
    (tmp_path / "x.mtx.gz").write_bytes(gzip.compress(stream.getvalue()))
    assert (read_features(tmp_path / "x.mtx.gz").features == X).all()


def test_a_zip_member_that_is_not_an_array_is_refused(tmp_path, refusal):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", b"not an array")
    assert "x.npz" in refusal(read_features, tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.mtx", "%%MatrixMarket matrix coordinate real general\n2000000000000 3 1\n1 1 1.0\n", "rows need at least"),
        ("x.mtx", "%%MatrixMarket matrix coordinate real general\n3 3 9000000\n1 1 1.0\n", "more than it can hold"),
        ("x.mtx", "%%MatrixMarket matrix array real general\n2000000 3000\n1.0\n", "more than it can hold"),
        ("x.svm", "1 1:1 2000000000:1\n0 2:1\n", "2,000,000,000 columns need at least"),
        ("x.csv", ",".join(f"c{i}" for i in range(100_001)) + "\n", "has 100,001 columns"),
    ],
    ids=["rows", "entries", "array", "columns", "table"],
)
def test_a_small_file_that_declares_more_than_fits_into_memory_is_refused(write, refusal, name, content, message):
    assert message in refusal(read_features, write(name, content))


def test_an_archive_whose_arrays_would_not_fit_into_memory_is_refused(tmp_path, refusal, monkeypatch):
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((1000, 100)))
    monkeypatch.setattr("pamc.data.files.free_memory", lambda: 700_000)
    assert "need at least 800 KB of memory, and 700 KB is free" in refusal(read_features, tmp_path / "x.npz")
