"""Input that could give a wrong answer in silence: it gives the right one, or is refused."""

import copy
import gzip
import json
import os
import re
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from pamc import PamCGC, clusterer, evaluate, load_dataset
from pamc.data.adapters import as_edges
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.catalog import CATALOG
from pamc.data.ingest import ingest
from pamc.data.readers import read_features, read_graph, read_labels
from pamc.data.store import open_store
from pamc.errors import CollapseWarning, DataError, DataWarning
from pamc.training import fallback
from tests.bad_input.conftest import IDS, PATH, X, edge_table, table, write
from tests.bad_input.test_arrays_through_python import assert_refused, model
from tests.cli.conftest import FAST

pytestmark = pytest.mark.slow

# Names that duckdb would take for patterns, each beside a file that the pattern matches.
TRAPS = [("r[1]", "r1"), ("r*", "r12"), ("r?", "r7"), ("[a-z]x", "bx"), ("~", "home"), ("a\\[1]", "a1")]


def flipped(content, bit):
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def write_parquet(path, values):
    columns = {name: values[:, i] for i, name in enumerate("abcd")}
    with duckdb.connect() as connection:
        connection.register("rows", columns)
        connection.execute("COPY (SELECT * FROM rows) TO 'made.parquet' (FORMAT parquet)")
    Path("made.parquet").rename(path)


class TestAFilesNameIsThatFile:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)

    @pytest.mark.parametrize(("name", "other"), TRAPS)
    @pytest.mark.parametrize("kind", ["csv", "parquet"])
    def test_rows(self, name, other, kind):
        for path, values in ((f"{name}.{kind}", X), (f"{other}.{kind}", X + 100)):
            Path(path).write_text(table(values)) if kind == "csv" else write_parquet(path, values)
        assert np.allclose(read_features(f"{name}.{kind}").features, X, atol=1e-4)

    @pytest.mark.parametrize(("name", "other"), TRAPS)
    def test_a_folder(self, name, other):
        for folder, values in ((name, X), (other, X + 100)):
            Path(folder).mkdir()
            Path(folder, "rows.csv").write_text(table(values))
        assert np.allclose(read_features(Path(name, "rows.csv")).features, X)

    @pytest.mark.parametrize(("name", "other"), TRAPS)
    def test_edges_labels_and_ingest(self, name, other):
        write(rows_csv=table(ids=IDS))
        Path(f"{name}.csv").write_text(edge_table(PATH[:5]))
        Path(f"{other}.csv").write_text(edge_table(PATH))
        assert read_graph("rows.csv", edges=f"{name}.csv", id_column="id").n_edges == 5
        assert ingest("rows.csv", f"{name}.csv", id_column="id", out="store").n_edges == 5
        Path(f"{name}.csv").write_text("cluster\n0\n1\n")
        Path(f"{other}.csv").write_text("cluster\n5\n5\n5\n")
        assert read_labels(f"{name}.csv").labels.tolist() == [0, 1]

    def test_a_backslash_is_no_slash_and_a_question_mark_hides_no_gzip(self):
        Path("c").mkdir()
        Path("c/[1].csv").write_text(table(X + 100))
        Path("c\\[1].csv").write_text(table())
        assert np.allclose(read_features("c\\[1].csv").features, X)
        Path("what?.csv.gz").write_bytes(gzip.compress(table().encode()))
        assert np.allclose(read_features("what?.csv.gz").features, X)

    def test_a_store_and_a_run_may_have_such_names(self, pamc):
        write(rows_csv=table(ids=IDS))
        assert pamc("ingest", "rows.csv", "--id", "id", "--out", "[s]*~").code == 0
        assert open_store("[s]*~").ids().tolist() == IDS
        result = pamc("fit", "[s]*~", "-k", 3, "--out", "run[1]*", "--labels-format", "parquet", *FAST)
        assert result.code == 0, result.err
        assert read_labels(Path("run[1]*", "labels.parquet")).ids.tolist() == IDS

    def test_an_ingest_says_where_it_cannot_write(self, refused):
        write(rows_csv=table())
        says = "an ingest cannot write to a path with '?' or a backslash; choose another folder"
        refused("ingest", "--quiet", "rows.csv", "--out", "what?", code=3, says=says)

    def test_predict_and_evaluate(self, pamc):
        write(rows_csv=table())
        assert pamc("fit", "rows.csv", "-k", 3, "--out", "run", *FAST).code == 0
        Path("new[1].csv").write_text(table(X[:5]))
        Path("new1.csv").write_text(table(X))
        assert pamc("predict", "run", "new[1].csv", "--out", "out[1].csv").code == 0
        assert len(read_labels("out[1].csv").labels) == 5
        Path("out1.csv").write_text("cluster\n" + "0\n" * 5)
        shown = json.loads(pamc("evaluate", "out[1].csv", "out[1].csv", "--json").out)
        assert shown["acc"] == 1

    def test_a_pattern_is_offered_by_ingest_alone(self, pamc, refused):
        Path("part1.csv").write_text(table(X[:20]))
        Path("part2.csv").write_text(table(X[20:]))
        assert pamc("ingest", "part*.csv", "--out", "store").code == 0
        assert open_store("store").n_nodes == len(X)
        refused("fit", "part*.csv", "-k", 3, code=3, says="there is no such file")


class TestDamage:
    def test_no_flipped_bit_of_a_compressed_table_gives_other_numbers(self, tmp_path):
        path = tmp_path / "rows.csv.gz"
        whole = gzip.compress(table().encode(), mtime=0)
        n_refused = 0
        for bit in np.random.default_rng(0).choice(8 * len(whole), 100, replace=False):
            path.write_bytes(flipped(whole, int(bit)))
            try:
                found = read_features(path).features
            except DataError:
                n_refused += 1
            else:
                # Some bits of the header say when and where it was made.
                assert np.array_equal(found, X.astype(np.float32))
        assert n_refused > 80

    def test_a_damaged_compressed_table_is_refused_by_every_command(self, refused, run):
        damaged = gzip.compress(table().encode(), mtime=0)[:-6] + b"\0" * 6
        write(new_csv_gz=damaged, rows_csv=table())
        refused("fit", "new.csv.gz", "-k", 3, *FAST, code=3, says="new.csv.gz: is damaged")
        refused("predict", "run", "new.csv.gz", "--out", "out.csv", code=3, says="new.csv.gz: is damaged")
        refused("ingest", "--quiet", "new.csv.gz", "--out", "store", code=3, says="new.csv.gz: is damaged")
        refused("fit", "rows.csv", "--edges", "new.csv.gz", "-k", 3, *FAST, code=3, says="new.csv.gz: is damaged")

    def test_a_changed_byte_of_a_store_is_found_before_the_fit(self, pamc, refused, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        write(rows_csv=table(ids=IDS), pairs_csv=edge_table())
        store = ingest("rows.csv", "pairs.csv", id_column="id", out="store")
        names = [name for name in store.manifest["files"] if name.endswith(".npy")]
        for name in names:
            path = Path("store", name)
            whole = path.read_bytes()
            path.write_bytes(flipped(whole, 4 * len(whole) + 512))
            refused("fit", "store", "-k", 3, *FAST, code=3, says=[f"{name} changed since the store was written"])
            assert_refused(
                lambda: model().fit_store(open_store("store")), f"{name} changed since the store was written"
            )
            assert_refused(lambda: open_store("store").to_graph(), f"{name} changed since the store was written")
            path.write_bytes(whole)
        path = Path("store", "features.npy")
        path.write_bytes(flipped(path.read_bytes(), 4 * path.stat().st_size + 512))
        result = pamc("fit", "store", "-k", 3, "--no-verify", "--out", "run", *FAST)
        assert result.code == 0, result.err

    def test_a_store_is_verified_once_and_again_when_a_file_changes(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        write(rows_csv=table())
        store = ingest("rows.csv", out="store")
        assert store.verify_once()
        assert not store.verify_once()
        assert not open_store("store").verify_once()
        os.utime("store/features.npy", ns=(0, 0))
        assert store.verify_once()
        Path("store", "verified.json").write_text("{")
        assert store.verify_once()

    def test_a_store_that_cannot_be_written_to_is_verified_every_time(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        write(rows_csv=table())
        store = ingest("rows.csv", out="store")

        def read_only(*_, **__):
            raise PermissionError

        monkeypatch.setattr(Path, "write_text", read_only)
        assert store.verify_once()
        assert store.verify_once()

    @pytest.mark.skipif("PAMC_DATA" not in os.environ, reason="needs the data sets of PAMC_DATA")
    def test_a_data_set_with_other_labels_is_refused(self, tmp_path, monkeypatch, refused):
        name = "usps"
        with np.load(Path(os.environ["PAMC_DATA"], f"{name}.npz")) as stored:
            arrays = dict(stored)
        arrays["y"] = arrays["y"][::-1]
        np.savez_compressed(tmp_path / f"{name}.npz", **arrays)
        monkeypatch.setenv("PAMC_DATA", str(tmp_path))
        with pytest.raises(
            DataError, match=f"not the file that the catalog describes.*expected {CATALOG[name].sha256}"
        ):
            load_dataset(name)
        refused("fit", "--dataset", name, "-k", 10, code=3, says="not the file that the catalog describes")


class TestLabels:
    NOT_CLASSES = pytest.mark.parametrize(
        "values",
        [
            np.array([0, 1, np.nan]),
            np.full(3, np.nan),
            np.array([0, np.inf, 1]),
            np.array([0, 1, 2j]),
            np.array(["a", "NaN", "b"]),
        ],
        ids=["one NaN", "all NaN", "inf", "complex", "text"],
    )

    @pytest.mark.parametrize(
        "values",
        [
            np.ma.masked_array([0, 0, 1], mask=[0, 0, 1]),
            np.array([b"a", b"nan", b"b"]),
            np.array(["a", "", "b"]),
            np.array([(0, 1.0), (1, 2.0), (0, np.nan)], dtype=[("a", int), ("b", float)]),
        ],
        ids=["masked", "bytes", "empty", "structured"],
    )
    def test_labels_that_hide_a_missing_one_are_refused(self, values):
        with pytest.raises(DataError, match=r"is not a class|missing|integers or text"):
            evaluate(values, [0, 1, 2])
        with pytest.raises(DataError, match=r"is not a class|missing|integers or text"):
            AttributedGraph(np.eye(3), labels=values)

    @NOT_CLASSES
    def test_python_refuses_labels_that_are_none(self, values):
        with pytest.raises(DataError, match=r"is not a class|complex"):
            evaluate(values, [0, 1, 2])
        with pytest.raises(DataError, match=r"is not a class|complex"):
            evaluate([0, 1, 2], values)
        with pytest.raises(DataError, match=r"is not a class|complex"):
            AttributedGraph(np.eye(3), labels=values)

    def test_none_and_missing_values_of_pandas_are_not_classes(self):
        for missing in (None, np.nan, pd.NaT):
            with pytest.raises(DataError, match="row 1 has the label"):
                evaluate(np.array(["a", missing, "b"], dtype=object), [0, 1, 2])

    @NOT_CLASSES
    @pytest.mark.parametrize("kind", ["npy", "npz", "csv"])
    def test_evaluate_refuses_them(self, refused, tmp_path, monkeypatch, kind, values):
        monkeypatch.chdir(tmp_path)
        if kind == "csv":
            if values.dtype.kind == "c":
                pytest.skip("text of complex numbers is text")
            write(truth_csv="y\n" + "".join(f"{value}\n" for value in values))
        else:
            np.save("truth.npy", values) if kind == "npy" else np.savez("truth.npz", y=values)
        write(found_csv="y\n0\n1\n2\n")
        for arguments in ((f"truth.{kind}", "found.csv"), ("found.csv", f"truth.{kind}")):
            refused("evaluate", *arguments, code=3, says=f"truth.{kind}")

    def test_a_truth_that_is_nan_is_refused(self, refused, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        np.savez("rows.npz", x=X, y=np.where(np.arange(len(X)) == 4, np.nan, 1.0))
        refused("fit", "rows.npz", "-k", 3, *FAST, code=3, says=["rows.npz", "row 4 has the label nan"])
        lines = table().splitlines()
        write(rows_csv="\n".join([f"{lines[0]},y", f"{lines[1]},nan", *(f"{line},1" for line in lines[2:])]) + "\n")
        says = ["row 0 (line 2), column 'y'", "'nan' is not a class"]
        refused("fit", "rows.csv", "--truth", "y", "-k", 3, *FAST, code=3, says=says)
        refused("ingest", "--quiet", "rows.csv", "--truth", "y", "--out", "store", code=3, says=says)

    def test_numbers_and_names_are_classes_as_before(self):
        assert evaluate([1.0, 2.0, 2.0], ["none", "NA", "NA"])["acc"] == 1


def csr_parts(**changes):
    matrix = sp.csr_matrix(np.where(X > 0, X, 0).astype(np.float32))
    parts = {
        "x_data": matrix.data,
        "x_indices": matrix.indices,
        "x_indptr": matrix.indptr,
        "x_shape": np.array(matrix.shape),
    }
    return {**parts, **{name: change(parts[name]) for name, change in changes.items()}}


def with_value(position, value):
    def changed(array):
        array = array.copy()
        array[position] = value
        return array

    return changed


class TestSparseMatrices:
    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"x_indices": lambda a: a + 0.7}, "x_indices must be integers, got dtype float64"),
            ({"x_indices": lambda a: a.astype(np.int64) + 2**32}, "lies outside of 0 to 3"),
            ({"x_indices": with_value(0, -1)}, "x: index -1 lies outside of 0 to 3"),
            ({"x_indices": lambda a: a[:-1]}, "x_indices must have"),
            ({"x_indptr": lambda a: a.astype(float)}, "x_indptr must be integers"),
            ({"x_indptr": with_value(3, 10**9)}, "never decrease"),
            ({"x_indptr": with_value(3, 0)}, "never decrease"),
            ({"x_indptr": lambda a: np.minimum(a, 5)}, "x_indptr ends at 5"),
            ({"x_shape": lambda a: a + 0.5}, "x_shape must be integers"),
            ({"x_shape": lambda a: a[:1]}, "x_shape must have 2 values"),
        ],
    )
    def test_an_npz_with_wrong_indices_is_refused(self, refused, tmp_path, monkeypatch, changes, says):
        monkeypatch.chdir(tmp_path)
        np.savez("rows.npz", **csr_parts(**changes))
        refused("fit", "rows.npz", "-k", 3, *FAST, code=3, says=["rows.npz: ", says])
        assert_refused(lambda: read_features("rows.npz"), says)

    def test_an_npz_with_small_index_types_is_read(self, tmp_path):
        np.savez(tmp_path / "rows.npz", **csr_parts(x_indices=lambda a: a.astype(np.uint16)))
        assert np.array_equal(
            read_features(tmp_path / "rows.npz").features.toarray(), np.where(X > 0, X, 0).astype("f4")
        )

    @pytest.mark.fast_variants(3)
    @pytest.mark.parametrize("name", ["indices", "indptr"])
    @pytest.mark.parametrize("value", [-1, 4, 10**9])
    @pytest.mark.parametrize("format", ["csr", "csc", "bsr"])
    def test_a_corrupt_matrix_in_memory_is_refused(self, name, value, format):  # noqa: A002
        matrix = sp.csr_matrix(X).asformat(format)
        rows = matrix.shape[0] if format == "csc" else 4
        if name == "indices":
            matrix.indices[1] = rows if value == 4 else value
        else:
            matrix.indptr[-1 if value == 4 else 1] = 10**6 if value == 4 else value
        assert_refused(lambda: model().fit(matrix), "damaged?")
        assert_refused(lambda: AttributedGraph(matrix), "damaged?")
        fitted = model().fit(X)
        assert_refused(lambda: fitted.predict(matrix), "damaged?")

    def test_a_corrupt_coo_matrix_is_refused(self):
        matrix = sp.coo_matrix(X)
        matrix.col[0] = 99
        assert_refused(lambda: AttributedGraph(matrix), "column index 99 lies outside of 0 to 3")

    @pytest.mark.parametrize("name", ["indices", "indptr"])
    @pytest.mark.parametrize("value", [-1, len(X), 10**9])
    def test_a_corrupt_adjacency_is_refused(self, name, value):
        matrix = sp.csr_matrix((np.ones(len(PATH)), PATH.T), shape=(len(X), len(X)))
        getattr(matrix, name)[1] = value
        assert_refused(lambda: model().fit(X, adjacency=matrix), ["the adjacency matrix", "damaged?"])

    @pytest.mark.parametrize("format", ["csr", "csc", "bsr"])
    def test_entries_beyond_the_last_row_are_not_edges(self, format):  # noqa: A002
        whole = sp.csr_matrix((np.arange(1.0, 1 + len(PATH)), PATH.T), shape=(len(X), len(X))).asformat(format)
        matrix = whole.copy()
        matrix.indptr = np.minimum(matrix.indptr, matrix.indptr[-1] // 2)
        edges, weight = as_edges(matrix, len(X))
        assert edges.shape[1] == matrix.indptr[-1] == len(weight)

    def test_a_corrupt_lil_matrix_is_refused(self):
        matrix = sp.lil_matrix(X)
        matrix.rows[3] = matrix.rows[3][:-1]
        assert_refused(lambda: AttributedGraph(matrix), "row 3 has 3 columns and 4 values")

    def test_a_matrix_is_not_changed_by_the_check(self):
        matrix = sp.csr_matrix(X)
        matrix.indices = matrix.indices.astype(np.int64)
        before = matrix.indices
        AttributedGraph(matrix)
        assert matrix.indices is before


class TestModelsFromPython:
    def test_the_command_predicts_with_a_model_saved_in_python(self, pamc, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        frame = pd.DataFrame(X, columns=list("abcd"))
        fitted = model().fit(frame)
        fitted.save("run")
        write(rows_csv=table(ids=IDS))
        result = pamc("predict", "run", "rows.csv", "--out", "plain.csv")
        assert result.code == 0, result.err
        assert np.array_equal(read_labels("plain.csv").labels, fitted.predict(frame.astype(np.float32)))
        assert pamc("predict", "run", "rows.csv", "--id", "id", "--out", "named.csv").code == 0
        assert read_labels("named.csv").ids.tolist() == IDS

    def test_a_run_without_its_record_does_not_number_the_rows(self, pamc, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        write(rows_csv=table(ids=IDS))
        assert pamc("fit", "rows.csv", "--id", "id", "-k", 3, "--out", "run", *FAST).code == 0
        Path("run", "run.json").unlink()
        assert pamc("predict", "run", "rows.csv", "--out", "o.csv").code == 0
        assert read_labels("o.csv").ids.tolist() == IDS


class TestTheRecordOfAFitThatDrainedAClusterTwice:
    @pytest.fixture
    def undone(self, monkeypatch):
        monkeypatch.setattr(fallback, "_drains", lambda *_: True)
        seen = []
        with pytest.warns(CollapseWarning, match="nearly emptied a cluster"):
            fitted = model().fit_graph(AttributedGraph(X), on_epoch=lambda epoch: seen.append(epoch.number))
        return fitted, seen

    def test_it_describes_the_start(self, undone):
        fitted, seen = undone
        assert fitted.history_ == {}
        assert fitted.n_iter_ == 0
        assert "objective" not in fitted.scores_
        assert seen == []
        record = fitted.record()
        assert record.n_epochs_run == 0
        assert record.stopped == "training nearly emptied a cluster and was undone"
        untrained = model(n_epochs=0).fit(X)
        assert np.array_equal(fitted.labels_, untrained.labels_)
        assert np.array_equal(fitted.embedding_, untrained.embedding_)

    def test_the_second_attempt_is_seen_once(self, monkeypatch):
        answers = iter([True, False])
        monkeypatch.setattr(fallback, "_drains", lambda *_: next(answers))
        seen = []
        fitted = model().fit_graph(
            AttributedGraph(X), on_epoch=lambda epoch: seen.append((epoch.number, epoch.labels()))
        )
        assert [epoch for epoch, _ in seen] == [1, 2, 3]
        assert fitted.n_iter_ == 3
        assert seen[-1][1].dtype == np.int64
        assert fitted._fit_result.facts["fallback"] == "a tenth of the learning rate"

    @pytest.mark.parametrize(
        ("before", "after", "drained"),
        [
            ([20, 20], [37, 3], True),
            ([20, 20], [36, 4], False),
            ([5, 5], [9, 1], True),
            ([5, 5], [8, 2], False),
            ([39, 1], [39, 1], False),
            ([39, 1], [40, 0], True),
            ([40, 0], [40, 0], False),
            ([200, 200], [361, 39], True),
            ([200, 200], [360, 40], False),
            ([0, 40, 40], [40, 0, 40], True),
        ],
    )
    def test_a_cluster_with_less_than_a_fifth_of_its_rows_is_drained(self, before, after, drained):
        old, new = (torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)) for sizes in (before, after))
        assert fallback._drains(old, new, len(before)) is drained


@pytest.mark.filterwarnings("ignore::pamc.errors.EmptyClusterWarning")
class TestCopies:
    @pytest.mark.parametrize("name", ["pamcgc", "dec", "scgc*"])
    def test_a_copy_of_a_model_is_its_own(self, name):
        fitted = clusterer(name, 3, random_state=0, n_epochs=2, pretrain_epochs=2).fit(X)
        labels = fitted.predict(X)
        copied = copy.deepcopy(fitted)
        assert np.array_equal(copied.predict(X), labels)
        for parameter in copied._fit_result.network.parameters():
            parameter.data.zero_()
        assert copied._fit_result.encoder is copied._fit_result.network.encoder
        assert (copied.transform(X) == 0).all()
        assert np.array_equal(fitted.predict(X), labels)

    def test_predict_on_another_device_leaves_the_encoder_where_it_is(self):
        fitted = model().fit(X)
        encoder = fitted._fit_result.encoder
        with pytest.raises(Exception, match="meta"):
            # The meta device computes nothing, but whatever is moved there is gone.
            fitted.set_params(device="meta").predict(X)
        assert {parameter.device.type for parameter in encoder.parameters()} == {"cpu"}
        assert np.array_equal(fitted.set_params(device="cpu").predict(X), fitted.labels_)


class TestNumbersWithSeparators:
    @pytest.mark.parametrize(
        ("cell", "number"),
        [("1,234,567", 1234567), ("1,234.5", 1234.5), ("3,5", 3.5), ("1.234,5", 1234.5), ("1.234.567", 1234567)],
    )
    def test_a_number_with_separators_is_read_from_files_and_stores(self, pamc, tmp_path, monkeypatch, cell, number):
        monkeypatch.chdir(tmp_path)
        write(rows_csv=f"a;b\n1;2\n3;{cell}\n4;5\n")
        assert read_features("rows.csv").features.tolist() == [[1, 2], [3, number], [4, 5]]
        assert pamc("ingest", "--quiet", "rows.csv", "--out", "store").code == 0
        assert open_store("store").features.tolist() == [[1, 2], [3, number], [4, 5]]

    def test_a_number_with_two_readings_is_read_with_a_note(self, pamc, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        write(rows_csv="a;b\n1;2\n3;70,600\n4;5\n")
        says = (
            "70,600 is read as 70600 (every cell allows both readings); if it is 70.6, give it the type decimal comma"
        )
        with pytest.warns(DataWarning, match=re.escape(says)):
            assert read_features("rows.csv").features[1, 1] == 70600
        assert says in " ".join(pamc("ingest", "rows.csv", "--out", "store").err.split())

    def test_points_that_may_separate_thousands_are_said(self, pamc, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        incomes = ["70.600", "950", "102.500", "8.200"] * 9
        write(rows_csv="income,a\n" + "".join(f"{income},{i}.5\n" for i, income in enumerate(incomes)))
        says = "column 'income': 70.600 is read as 70.6. If its point separates thousands (70600), remove the points"
        with pytest.warns(DataWarning) as caught:
            read_features("rows.csv")
        assert [says in str(warning.message) for warning in caught] == [True]
        assert says in pamc("ingest", "rows.csv", "--out", "store").err.replace("\n", " ")
        assert says in pamc("fit", "rows.csv", "-k", 2, *FAST).err.replace("\n", " ")

    def test_points_far_down_and_points_in_text_of_parquet_are_said(self, tmp_path):
        incomes = [*["950"] * 500, "70.600"]
        (tmp_path / "rows.csv").write_text("income,a\n" + "".join(f"{income},1.5\n" for income in incomes))
        texts = pd.DataFrame({"income": incomes, "a": np.ones(501)})  # noqa: F841 (duckdb reads it by name)
        duckdb.sql(f"COPY texts TO '{tmp_path}/rows.parquet'")
        for name in ("rows.csv", "rows.parquet"):
            with pytest.warns(DataWarning, match=r"column 'income': 70\.600 is read as 70\.6\."):
                read_features(tmp_path / name)

    @pytest.mark.parametrize("cells", [["70.600", "0.125"], ["70.600", "8.25"], ["70.600", "1234.567"], ["1.5", "2"]])
    def test_a_column_with_other_decimals_is_read_without_a_word(self, tmp_path, cells):
        path = tmp_path / "rows.csv"
        path.write_text("a,b\n" + "".join(f"{cell},{i}\n" for i, cell in enumerate(cells * 9)))
        assert read_features(path).features[:2, 0].tolist() == [np.float32(cell) for cell in cells]


class TestTheRest:
    def test_a_graph_with_ids_keeps_them_in_the_saved_labels(self, tmp_path):
        path = tmp_path / "rows.csv"
        path.write_text(table(ids=IDS))
        fitted = model().fit_graph(read_graph(path, id_column="id"))
        fitted.save(tmp_path / "run")
        lines = (tmp_path / "run" / "labels.csv").read_text().splitlines()[1:]
        assert [line.split(",")[0] for line in lines] == list(IDS)
        fitted.fit(X).save(tmp_path / "again")
        lines = (tmp_path / "again" / "labels.csv").read_text().splitlines()[1:]
        assert [line.split(",")[0] for line in lines] == [str(row) for row in range(len(X))]

    @pytest.mark.parametrize("weight", [1.8e308, 1e31])
    def test_weights_too_large_to_add_up_are_refused(self, refused, tmp_path, monkeypatch, weight):
        monkeypatch.chdir(tmp_path)
        matrix = sp.csr_matrix((np.ones(len(PATH)), PATH.T), shape=(len(X), len(X)))
        matrix.data[3] = weight if weight < 1e300 else np.finfo(np.float64).max
        says = ["edge weights must be positive and at most 1e+30", "rescale the weights"]
        assert_refused(lambda: model().fit(X, adjacency=matrix), says)
        write(rows_csv=table(ids=IDS), pairs_csv=edge_table([], "n0,n1,1", "n1,n2,1e31", header="source,target,weight"))
        arguments = ("fit", "rows.csv", "--id", "id", "--edges", "pairs.csv", "-k", 3, *FAST)
        refused(*arguments, code=3, says=["pairs.csv", *says])
        arguments = ("ingest", "--quiet", "rows.csv", "pairs.csv", "--id", "id", "--out", "store")
        refused(*arguments, code=3, says=["pairs.csv: row 1 (line 3)", "at most 1e+30"])

    @pytest.mark.parametrize("weight", [1e30, 1e-300, 5e-324])
    def test_weights_of_any_other_size_give_finite_results(self, weight):
        matrix = sp.csr_matrix((np.full(len(PATH), weight), PATH.T), shape=(len(X), len(X)))
        fitted = model().fit(X, adjacency=matrix)
        assert np.isfinite(fitted.embedding_).all()
        assert all(np.isfinite(value) for value in fitted.scores_.values())

    @pytest.mark.parametrize("option", ["--columns", "--drop"])
    @pytest.mark.parametrize("value", ["", " , "])
    def test_an_option_that_names_no_column_is_refused(self, refused, run, option, value):
        says = f"{option} lists no names"
        refused("fit", "rows.csv", "-k", 3, option, value, code=2, says=says)
        refused("ingest", "--quiet", "rows.csv", "--out", "store", option, value, code=2, says=says)
        refused("predict", "run", "rows.csv", "--out", "out.csv", option, value, code=2, says=says)

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    @pytest.mark.parametrize("name", ["pamcgc", "dec", "sdcn"])
    @pytest.mark.filterwarnings("ignore::pamc.errors.EmptyClusterWarning")
    def test_a_fit_is_the_same_in_any_mode_of_torch(self, mode, name):
        options = {"random_state": 0, "n_epochs": 2, "pretrain_epochs": 2}
        expected = clusterer(name, 3, **options).fit(X)
        with mode():
            found = clusterer(name, 3, **options).fit(X)
            labels = found.predict(X) if hasattr(found, "predict") else found.labels_
            assert torch.is_inference_mode_enabled() == (mode is torch.inference_mode)
        assert np.array_equal(found.embedding_, expected.embedding_)
        assert np.array_equal(labels, expected.labels_)

    @pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
    def test_an_encoder_made_in_such_a_mode_is_trained(self, mode):
        with mode():
            encoder = nn.Sequential(nn.Linear(4, 3))
            fitted = PamCGC(3, encoder=encoder, n_epochs=2, random_state=0).fit(X)
        assert np.isfinite(fitted.embedding_).all()
