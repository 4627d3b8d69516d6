"""Tables of mixed types in stores: the same encoding, clusters and labels as in memory."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

from pamc import PamCGC, clusterer, ingest, open_store
from pamc.cli.app import run as main
from pamc.data.customers import make_customers
from pamc.data.ingest import rows as ingest_rows
from pamc.data.readers import read_graph
from pamc.data.store.store import StoreFeatures
from pamc.errors import ConfigError, DataError
from pamc.training import sources

pytestmark = pytest.mark.filterwarnings("ignore::pamc.errors.DataWarning")

TINY = {"hidden": (32,), "pretrain_epochs": 20, "n_epochs": 3}


@pytest.fixture(scope="module")
def customers():
    return make_customers(900, random_state=1)


@pytest.fixture
def table(customers, tmp_path):
    path = tmp_path / "customers.csv"
    pd.DataFrame(customers.columns).to_csv(path, index=False)
    return path


def same(store, graph):
    np.testing.assert_array_equal(store.features, graph.features)
    assert store.feature_names == graph.feature_names
    assert store.encoding == graph.encoding
    assert store.ids().tolist() == graph.ids.tolist()


def test_a_store_has_the_features_ids_and_types_of_the_table(table, tmp_path):
    store = ingest(table, out=tmp_path / "store")
    graph = read_graph(table)
    same(store, graph)
    assert np.isnan(store.features).any()
    assert store.to_graph().encoding == graph.encoding
    assert open_store(tmp_path / "store").encoding.id_column == "customer_id"


def test_types_given_by_the_user_replace_those_found(table, tmp_path):
    types = {"city": "ignore", "plan": ["free", "standard", "premium"]}
    same(ingest(table, out=tmp_path / "store", types=types), read_graph(table, types=types))


def test_blocks_and_parts_do_not_change_the_features(customers, table, tmp_path, monkeypatch):
    monkeypatch.setattr(ingest_rows.RowIngest, "_rows_per_block", 97)
    (tmp_path / "parts").mkdir()
    frame = pd.DataFrame(customers.columns)
    for number, part in enumerate((frame[:400], frame[400:])):
        part.to_csv(tmp_path / "parts" / f"{number}.csv", index=False)
    same(ingest(tmp_path / "parts", out=tmp_path / "store"), read_graph(table))


def test_parquet_keeps_numbers_dates_and_truth_values(tmp_path):
    frame = pd.DataFrame(
        {
            "age": [31.0, None, 40.0, 25.0] * 20,
            "member": [True, False, None, True] * 20,
            "since": pd.to_datetime(["2020-01-01", "2021-06-30", None, "2023-03-05"] * 20),
            "city": ["Köln", "Bonn", "Köln", None] * 20,
        }
    )
    frame.to_parquet(tmp_path / "people.parquet")
    store, graph = ingest(tmp_path / "people.parquet", out=tmp_path / "store"), read_graph(tmp_path / "people.parquet")
    np.testing.assert_array_equal(store.features, graph.features)
    assert store.encoding == graph.encoding


def test_types_come_from_rows_that_are_spread_over_a_large_table(customers, table, tmp_path, monkeypatch):
    monkeypatch.setattr(ingest_rows, "_LEAST_SAMPLED", 90)
    monkeypatch.setattr(ingest_rows, "_MOST_SAMPLED", 90)
    store = ingest(table, out=tmp_path / "store", drop=["city"])
    kinds = {row["name"]: row["type"] for row in store.encoding.table}
    assert kinds["revenue"] == "number"
    assert kinds["channel"] == "category"
    assert kinds["first_order"] == "date"
    assert kinds["customer_id"] == "id"


def test_a_column_that_is_unique_in_the_sample_alone_is_not_an_id(customers, tmp_path, monkeypatch):
    monkeypatch.setattr(ingest_rows, "_LEAST_SAMPLED", 90)
    monkeypatch.setattr(ingest_rows, "_MOST_SAMPLED", 90)
    frame = pd.DataFrame(customers.columns)
    frame.loc[1, "customer_id"] = frame.loc[0, "customer_id"]
    frame.to_csv(tmp_path / "twice.csv", index=False)
    store = ingest(tmp_path / "twice.csv", out=tmp_path / "store")
    assert store.id_kind == "rows"
    assert "customer_id" not in store.encoding.raw_names


def test_missing_cells_of_plain_numbers_are_hidden(tmp_path):
    path = tmp_path / "numbers.csv"
    path.write_text("a,b\n1,2\n,3\n4,NA\n5,6\n")
    store = ingest(path, out=tmp_path / "store")
    assert store.encoding is None
    np.testing.assert_array_equal(store.features, [[1, 2], [np.nan, 3], [4, np.nan], [5, 6]])
    np.testing.assert_array_equal(store.features, read_graph(path).features)


def test_a_cell_of_another_type_beyond_the_sample_is_an_error(customers, tmp_path, monkeypatch):
    monkeypatch.setattr(ingest_rows, "_LEAST_SAMPLED", 90)
    monkeypatch.setattr(ingest_rows, "_MOST_SAMPLED", 90)
    frame = pd.DataFrame(customers.columns)
    frame.loc[101, "age"] = "young"
    frame.to_csv(tmp_path / "bad.csv", index=False)
    with pytest.raises(DataError, match=r"bad.csv: column 'age': 'young' is not a number"):
        ingest(tmp_path / "bad.csv", out=tmp_path / "store")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float16"}, "stored as float32, not as float16"),
        ({"skip_bad_rows": True, "types": {"age": "number"}}, "bad rows can be skipped only in a table of plain"),
    ],
)
def test_options_for_plain_numbers_are_refused(table, tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        ingest(table, out=tmp_path / "store", **options)


def test_a_damaged_description_of_the_columns_is_refused(table, tmp_path):
    ingest(table, out=tmp_path / "store")
    path = tmp_path / "store" / "manifest.json"
    manifest = json.loads(path.read_text())
    for damage in ({"variables": 3}, {**manifest["columns"], "variables": manifest["columns"]["variables"][:2]}):
        path.write_text(json.dumps({**manifest, "columns": damage}))
        with pytest.raises(DataError, match=r"manifest.json is damaged"):
            open_store(tmp_path / "store")


def test_a_small_store_is_fitted_as_the_table(table, tmp_path):
    store = ingest(table, out=tmp_path / "store")
    of_store = clusterer("pamcgc", 4, random_state=0, **TINY).fit_store(store)
    of_table = clusterer("pamcgc", 4, random_state=0, **TINY).fit_graph(read_graph(table))
    assert np.array_equal(of_store.labels_, of_table.labels_)
    assert np.array_equal(of_store.embedding_, of_table.embedding_)


@pytest.mark.slow
def test_a_large_store_is_fitted_explained_and_predicted(customers, table, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "LARGE_ROWS", 500)
    store = ingest(table, out=tmp_path / "store")
    model = PamCGC(4, random_state=0).fit_store(store)
    assert adjusted_rand_score(customers.segments, model.labels_) > 0.85
    model.save(tmp_path / "run")
    frame = pd.DataFrame(customers.columns)
    predicted = PamCGC.load(tmp_path / "run").predict(frame.sample(frac=1, axis=1, random_state=0))
    assert np.mean(predicted == model.labels_) > 0.99


@pytest.mark.slow
def test_rows_that_are_kept_in_memory_give_the_same_bits(table, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "LARGE_ROWS", 500)
    store = ingest(table, out=tmp_path / "store")
    read, preprocessed = [], StoreFeatures._preprocessed
    monkeypatch.setattr(StoreFeatures, "_preprocessed", lambda rows, key: read.append(key) or preprocessed(rows, key))
    fits, n_read = [], []
    for share in (0.5, 0.0):
        monkeypatch.setattr("pamc.training.plan._HELD_SHARE", share)
        fits.append(PamCGC(4, random_state=0, n_epochs=8, advanced={"chunk_size": 300}).fit_store(store))
        n_read.append(len(read) - sum(n_read))
    assert np.array_equal(fits[0].embedding_, fits[1].embedding_)
    assert n_read[0] <= n_read[1] - 8 * 3


@pytest.mark.slow
def test_the_command_takes_a_messy_table_from_ingest_to_report(customers, table, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sources, "LARGE_ROWS", 500)
    store, run = str(tmp_path / "store"), str(tmp_path / "run")
    assert main(["ingest", str(table), "--types", "city=ignore", "--out", store, "--quiet"]) == 0
    assert main(["fit", store, "-k", "4", "--out", run, "--quiet"]) == 0
    assert main(["predict", run, str(table), "--out", str(tmp_path / "labels.csv")]) == 0
    labels = pd.read_csv(tmp_path / "labels.csv")
    assert len(labels) == 900
    assert "premium" in (tmp_path / "run" / "report.html").read_text()
