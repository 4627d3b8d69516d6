"""What a page is made of, without a browser."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.metrics import silhouette_score

import pamc
from pamc.errors import BackendError, DataError, UnknownNameError
from pamc.report import projection as projection_module
from pamc.report.comparison import COMPARISON, comparison_data
from pamc.report.content import FORMAT, Extras, page_data, truth_data
from pamc.report.narrative import narrative, python_lines, stability
from pamc.report.page_file import (
    PARTS,
    cut_names,
    island,
    pack,
    pack_ids,
    page_html,
    quantized,
    read_page,
    unpack,
    unpack_ids,
    write_page,
)
from pamc.report.points import central_positions, column, listed_rows
from pamc.report.projection import project
from pamc.results.metrics import accuracy
from pamc.training.fallback import INITIAL_RETURNED, TRAINING_UNDONE
from tests.report.made import HOSTILE, made_graph, made_model, made_page, made_record


@pytest.fixture(scope="module")
def data():
    return made_page(empty=True, ids=np.array([f"row {i}" for i in range(300)]), names=tuple("abcdefghijkl"))


def test_a_page_needs_nothing_but_itself(data):
    html = page_html(data)
    assert "default-src 'none'" in html
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:|#)""", html.partition('id="pamc-data"')[0])
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in html
    assert "<!--put:" not in html


def test_the_object_comes_back_from_the_page(data, tmp_path):
    write_page(tmp_path / "report.html", data)
    assert read_page(tmp_path / "report.html", formats=(FORMAT,)) == json.loads(json.dumps(data))
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    "damage", ["", "<html></html>", '<script type="application/json" id="pamc-data">{"a":</script>']
)
def test_what_is_no_page_is_refused(damage, tmp_path):
    (tmp_path / "report.html").write_text(damage)
    with pytest.raises(DataError, match="is not a page that pamc wrote"):
        read_page(tmp_path / "report.html", formats=(FORMAT,))


@pytest.mark.parametrize("part", ["points", "record", "clusters", "notes"])
def test_a_page_without_one_of_its_parts_is_refused(part, data, tmp_path):
    write_page(tmp_path / "report.html", {name: value for name, value in data.items() if name != part})
    with pytest.raises(DataError, match=f"damaged .*it has no {part}"):
        read_page(tmp_path / "report.html", formats=(FORMAT,))
    write_page(tmp_path / "report.html", {**data, "points": {"n": 3}})
    with pytest.raises(DataError, match=r"it has no points\.rows"):
        read_page(tmp_path / "report.html", formats=(FORMAT,))


def test_the_parts_that_are_asked_for_are_those_that_are_written(data):
    optional = {
        "format",
        "version",
        "pamc",
        "seconds",
        "stability",
        "leaning",
        "feature_silhouette",
        "noise",
        "linkage",
        "before",
    }
    assert set(PARTS[FORMAT]) == set(data) - optional
    assert set(PARTS[COMPARISON]) == set(comparison_data([data, data], ["a", "b"])) - {"format", "version", "pamc"}


def test_a_page_of_another_version_is_refused(data, tmp_path):
    write_page(tmp_path / "report.html", {**data, "version": 2})
    with pytest.raises(DataError, match="version 2"):
        read_page(tmp_path / "report.html", formats=(FORMAT,))


def test_nothing_of_the_users_can_end_the_data_or_become_markup(tmp_path):
    names = (*HOSTILE, "\ud800 half a pair")
    ids = np.array([*HOSTILE, *(f"row {i}" for i in range(300 - len(HOSTILE)))], dtype=object)
    extras = Extras(map_by="pca", class_names=HOSTILE[:5], columns={HOSTILE[0]: ids})
    data = made_page(ids=ids, names=names, extras=extras)
    data["title"] = HOSTILE[1]
    html = page_html(data)
    html.encode("utf-8")
    # One element of data and three scripts that are ours: the theme, and all the others in one.
    assert html.count("<script") == html.count("</script>") == 3
    assert "<img" not in html
    write_page(tmp_path / "report.html", data)
    back = read_page(tmp_path / "report.html", formats=(FORMAT,))
    assert unpack_ids(back["points"]["ids"])[: len(HOSTILE)] == HOSTILE
    assert back["truth"]["names"] == HOSTILE[:5]
    assert {column["name"] for column in back["columns"]} >= {HOSTILE[0]}


@pytest.mark.parametrize(
    ("kind", "values"), [("u1", [0, 255]), ("u2", [0, 65535]), ("u4", [0, 2**32 - 1]), ("i4", [-5, 7])]
)
def test_arrays_come_back(kind, values):
    assert unpack(pack(np.array(values), kind)).tolist() == values


def test_numbers_are_in_steps_between_their_ends():
    values = np.array([-np.finfo(float).max, 0.0, np.finfo(float).max])
    assert quantized(values, values[0], values[-1], "u1").tolist() == [0, 128, 255]
    assert quantized(np.ones(3), 1.0, 1.0, "u1").tolist() == [0, 0, 0]


def test_ids_stay_what_they_are():
    assert unpack_ids(pack_ids(np.array([5, -7]))) == ["5", "-7"]
    assert unpack_ids(pack_ids(np.array([2**40]))) == [str(2**40)]
    assert unpack_ids(pack_ids(np.array(["a", "é"]))) == ["a", "é"]


def test_ids_too_long_for_a_page_are_cut_and_stay_distinct():
    names = [f"{'x' * 4000}{i}{'y' * 4000}" for i in range(1000)]
    cut = cut_names(names)
    assert sum(map(len, cut)) < 2.2e6
    assert len(set(cut)) == 1000
    assert pack_ids(np.array(names, dtype=object))["cut"] == 1000


def test_an_island_is_json():
    value = {"a": ["</script>", "\u2028", float("nan"), np.float32(2), True, None], "b": {1: (1, 2)}}
    assert json.loads(island(value)) == {"a": ["</script>", "\u2028", None, 2.0, True, None], "b": {"1": [1, 2]}}


def test_a_page_of_ordinary_size_is_small():
    data = made_page(9298, 10, ids=np.array([f"picture-{i:05d}.png" for i in range(9298)]))
    assert len(page_html(data)) < 2e6


def test_an_empty_cluster_is_said_and_not_drawn(data):
    assert data["clusters"]["n_rows"][-1] == 0
    assert data["clusters"]["confidence"][-1] is None
    assert data["map"]["centers"][-1] == [None, None]


def test_columns_are_numbers_or_classes():
    number = column("n", [1.0, np.nan, 3.0], None, 3)
    assert unpack(number["values"]).tolist() == [0, 65535, 65534]
    classes = column("c", np.array(["b", None, "a"], dtype=object), None, 3)
    assert classes["names"] == ["(missing)", "a", "b"]
    assert unpack(classes["values"]).tolist() == [2, 0, 1]
    many = column("m", [f"class {i}" for i in range(100)], None, 100)
    assert len(many["names"]) == 60
    assert many["names"][-1] == "(other)"
    assert column("nothing", np.full(2, np.nan), None, 2)["min"] == 0.0
    with pytest.raises(DataError, match="one value per row"):
        column("short", [1, 2], None, 3)


def test_numbers_with_gaps_are_numbers():
    for values in ([1, None, 3.0], pd.array([1, None, 3], dtype="Int64"), pd.Series([1.0, None, 3.0])):
        assert unpack(column("n", values, None, 3)["values"]).tolist() == [0, 65535, 65534]
    assert column("c", pd.array([True, None, False], dtype="boolean"), None, 3)["names"] == [
        "(missing)",
        "False",
        "True",
    ]
    assert column("nothing", [None, None], None, 2)["names"] == ["(missing)"]


def test_dates_are_shown_as_dates():
    days = pd.date_range("2024-01-30", periods=3)
    assert column("d", days, None, 3)["names"] == ["2024-01-30", "2024-01-31", "2024-02-01"]
    gap = column("d", pd.Series([*days[:2], pd.NaT]), None, 3)
    assert gap["names"] == ["(missing)", "2024-01-30", "2024-01-31"]
    hours = pd.date_range("2024-01-30", periods=3, freq="h")
    assert column("h", hours, None, 3)["names"][1] == "2024-01-30T01:00:00"
    # More days than a legend has room for are months, and more months years.
    assert column("m", pd.date_range("2024-01-01", periods=300), None, 300)["names"][:2] == ["2024-01", "2024-02"]
    years = column("y", pd.date_range("1990-01-01", periods=300, freq="MS"), None, 300)
    assert years["names"][:2] == ["1990", "1991"]
    spans = column("age", pd.to_timedelta([1, 2, None], unit="D"), None, 3)
    assert (spans["name"], spans["min"], spans["max"]) == ("age (days)", 1.0, 2.0)


def test_sparse_features_color_the_map_as_dense_ones_do():
    model = made_model(300, 5, seed=0)
    graph = made_graph(model, seed=0)
    thin = np.where(np.abs(graph.features) > 1, graph.features, 0)
    pages = [
        page_data(model, replace(graph, features=kind(thin)), made_record(model), Extras(map_by="pca"))
        for kind in (np.asarray, sp.csr_matrix)
    ]
    assert len([each for each in pages[0]["columns"] if each["kind"] == "number"]) > 3
    assert pages[0]["columns"] == pages[1]["columns"]


def test_rows_of_a_page_are_all_or_the_same_sample():
    def facts(row):
        return SimpleNamespace(rows={"row": np.array([row])}, odd={"row": np.array([], dtype=np.int64)})

    assert listed_rows(200_000, None) is None
    rows = listed_rows(300_000, facts(7))
    assert len(rows) <= 50_001
    assert 7 in rows
    assert (np.diff(rows) > 0).all()
    assert np.isin(listed_rows(300_000, facts(9)), rows).sum() >= 49_999


def test_more_rows_become_a_density():
    data = made_page(201_000, 3, edges=False, truth=False)
    counts = unpack(data["density"]["count"])
    assert counts.sum() == 201_000
    assert unpack(data["density"]["cluster"]).max() == 2
    sizes = np.bincount(unpack(data["density"]["cluster"]), counts)
    assert sizes.tolist() == data["clusters"]["n_rows"]
    assert data["points"]["n"] < 51_000
    assert "density of all 201,000 rows" in " ".join(data["notes"])


def test_pca_shows_the_two_largest_directions():
    draw = np.random.default_rng(0)
    z = draw.normal(size=(500, 6)) * [1, 9, 1, 1, 4, 1]
    flat = project(z, how="pca")
    assert abs(np.corrcoef(flat.rows[:, 0], z[:, 1])[0, 1]) > 0.99
    assert abs(np.corrcoef(flat.rows[:, 1], z[:, 4])[0, 1]) > 0.99


def test_a_cluster_is_marked_at_a_row_even_if_its_mean_lies_where_no_row_is():
    angle = np.linspace(0, 2 * np.pi, 100, endpoint=False)
    ring = np.stack([2 * np.cos(angle), np.sin(angle)], axis=1)
    marks = central_positions(ring, np.zeros(100, dtype=np.int64), 2)
    assert np.linalg.norm(ring - marks[0], axis=1).min() == 0
    assert abs(marks[0, 1]) == pytest.approx(1)
    assert np.isnan(marks[1]).all()


def test_the_silhouette_of_the_features_is_beside_that_of_the_embedding():
    model = made_model(300, 5)
    graph = made_graph(model)
    record = made_record(model)
    for features in (graph.features, sp.csr_matrix(graph.features)):
        page = page_data(model, replace(graph, features=features), record, Extras(map_by="pca"))
        assert page["feature_silhouette"] == pytest.approx(silhouette_score(graph.features, model.labels_), abs=1e-5)


def test_rows_that_are_not_clear_lean_to_the_next_cluster():
    model = made_model(300, 5)
    page = made_page()
    unclear = [(model.confidence_[model.labels_ == c] < 0.8).mean() for c in range(5)]
    assert np.sum(page["leaning"], axis=1) == pytest.approx(unclear)
    assert np.diag(page["leaning"]).tolist() == [0] * 5


@pytest.mark.parametrize("z", [np.zeros((4, 3)), np.arange(5.0)[:, None]], ids=["one place", "one dimension"])
def test_pca_of_what_has_no_two_directions(z):
    flat = project(z, how="pca")
    assert flat.rows.shape == (len(z), 2)
    assert np.isfinite(flat.rows).all()


def test_umap_draws_the_map_on_request_only(monkeypatch):
    class Fake:
        def __init__(self, n_neighbors, n_epochs, random_state):
            assert n_neighbors == 15

        def fit_transform(self, z):
            return z[:, :2]

    z = np.random.default_rng(0).normal(size=(40, 4))
    monkeypatch.setitem(__import__("sys").modules, "umap", type("umap", (), {"UMAP": Fake}))
    monkeypatch.setattr(projection_module.importlib.util, "find_spec", lambda name: name)
    flat = project(z, how="umap")
    assert flat.method == "UMAP"
    np.testing.assert_allclose(flat.rows, z[:, :2])
    assert project(z).method == "layout"
    monkeypatch.setattr(projection_module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BackendError, match="umap-learn"):
        project(z, how="umap")
    with pytest.raises(UnknownNameError):
        project(z, how="tsne")


def test_few_and_many_rows_are_drawn_by_pca(monkeypatch):
    z = np.random.default_rng(0).normal(size=(40, 4))
    assert project(z[:16]).method == "PCA"
    monkeypatch.setattr(projection_module, "_MOST_LAYOUT_ROWS", 39)
    assert project(z).method == "PCA"


def test_a_layout_keeps_clusters_apart_and_repeats_itself():
    labels = np.arange(300) % 3
    z = 5 * np.eye(3)[labels] + np.random.default_rng(0).normal(size=(300, 3))
    flat = project(z, how="layout", seed=1)
    assert silhouette_score(flat.rows, labels) > silhouette_score(z, labels)
    assert np.array_equal(flat.rows, project(z, how="layout", seed=1).rows)


@pytest.mark.parametrize(
    "z", [np.zeros((40, 3)), np.arange(40.0)[:, None], np.eye(2)], ids=["one place", "line", "two rows"]
)
def test_a_layout_of_what_has_no_two_directions_is_finite(z):
    assert np.isfinite(project(z, how="layout").rows).all()


def test_accuracy_against_confidence_adds_up_to_the_accuracy():
    model = made_model(500, 4)
    draw = np.random.default_rng(1)
    classes = np.where(draw.random(500) < 0.2, draw.integers(6, size=500), model.labels_)
    truth = truth_data(classes, model.labels_, model.confidence_)
    curve = truth["curve"]
    assert np.average(curve["accuracy"], weights=curve["n"]) == pytest.approx(accuracy(classes, model.labels_))
    assert np.sum(truth["table"]) == 500
    assert curve["confidence"] == sorted(curve["confidence"])


def test_the_story_says_what_was_decided():
    record = {
        "n_epochs_run": 5,
        "stopped": "all epochs run",
        "config": {"n_neighbors": 10, "n_hops": 1, "init": "consensus"},
        "facts": {
            "preprocessing": "tfidf",
            "graph": "knn",
            "n_edges": 1200,
            "n_positive_pairs": 2400,
            "neighbors_by": "index",
            "neighbors_recall": 0.97,
            "clusters_by": "merged groups",
            "support": 0.9,
            "conductance": 0.12,
            "encoder_fitted_to": "initial clusters",
            "score_before": 1.1,
            "score_after": 1.25,
            "sampled_rows": 100,
            "clustered_rows": 10,
            "fallback": "a tenth of the learning rate",
            "n_processes": 2,
        },
    }
    text = " ".join(part["text"] for part in narrative(record))
    for phrase in (
        "tf-idf",
        "10 nearest",
        "97.0 %",
        "one step",
        "merging",
        "10 rows of a sample of 100",
        "in 7 ways",
        "adjusted Rand index 0.90",
        "12 % of a cluster's edges",
        "fitted to these clusters directly",
        "repeated with",
        "1.10 before and 1.25 after training",
        "2 processes",
    ):
        assert phrase in text
    assert narrative({}) == []
    sure = {"confidence": "agreement of half fits", "confidence_error": 0.02, "support": 0.9}
    assert "2.0 percentage points" in narrative({"facts": sure})[-1]["text"]
    assert "largest soft assignment" in narrative({"facts": {"confidence": "largest q"}})[-1]["text"]
    assert "rows like it" in narrative({"facts": sure})[-1]["text"]
    repeats = stability({"facts": sure, "scores": {"stability": 0.8}}, 0.7)
    assert [(line["value"], line.get("error")) for line in repeats] == [(0.9, None), (0.7, 0.02), (0.8, None)]
    asked = narrative({"config": {"init": "propagated_svd"}, "facts": {"graph": "not used"}})
    assert [part["title"] for part in asked] == ["Graph", "Initialization"]
    drained = narrative({"n_epochs_run": 0, "facts": {"fallback": INITIAL_RETURNED}})
    assert "nearly emptied a cluster, even at a tenth of the learning rate" in drained[0]["text"]
    undone = narrative({"facts": {"fallback": TRAINING_UNDONE, "score_before": 1.5, "score_after": 0.75}})
    assert "from 1.50 to 0.75, so the initial clusters are the result" in undone[0]["text"]
    single = narrative({"facts": {"clusters_by": "smoothed k-means", "encoder_fitted_to": "smoothed features"}})
    assert "clustered by K-means of features smoothed along the edges." in single[0]["text"]
    trusted = {"graph": "given", "n_edges": 3, "graph_trust": 0.81}
    assert "trust in the graph is 81 %" in narrative({"config": {"alpha": 3.25}, "facts": trusted})[0]["text"]
    alone = narrative({"facts": {"graph": "given", "inputs": "graph"}})
    assert "features were not used" in alone[1]["text"]


@pytest.mark.parametrize("alpha", [0.0, 0.25, 3.0, 3.25])
def test_the_story_states_the_weight_of_a_graph_to_the_last_quarter(alpha):
    facts = {"graph": "given", "n_edges": 3, "graph_trust": alpha / 4}
    text = narrative({"config": {"alpha": alpha}, "facts": facts})[0]["text"]
    assert f"The weight of the contrastive loss is {alpha:g}." in text


def test_of_one_thing_the_story_speaks_in_the_singular():
    facts = {"graph": "knn", "n_edges": 1, "n_positive_pairs": 1}
    record = {"n_epochs_run": 1, "config": {"n_neighbors": 10, "n_hops": 2}, "data": {"n_nodes": 2}, "facts": facts}
    text = " ".join(part["text"] for part in narrative(record))
    assert "each row was joined to its nearest neighbor: 1 edge." in text
    assert "1 pair." in text
    assert "1 epoch over" in text
    record["data"]["n_nodes"] = 5
    assert "to its 4 nearest neighbors: 1 edge." in narrative(record)[0]["text"]


def test_a_feature_is_not_offered_beside_a_column_of_its_name():
    names = tuple("abcdefghijkl")
    data = made_page(names=names, extras=Extras(map_by="pca", columns={"c": np.arange(300.0)}))
    offered = [column["name"] for column in data["columns"]]
    assert sorted(offered) == sorted(["true class", *names])
    assert next(column for column in data["columns"] if column["name"] == "c")["max"] == 299


def test_a_page_says_which_version_wrote_it():
    page = made_page()
    assert page["pamc"] == pamc.__version__
    assert comparison_data([page, page], ["a", "b"])["pamc"] == pamc.__version__


@pytest.mark.parametrize(
    ("data", "facts", "line"),
    [
        ({"name": "acm", "read": {}, "features": None}, {"graph": "given"}, "load_dataset('acm')\n"),
        ({"name": "usps", "read": {}, "features": None}, {"graph": "knn"}, "load_dataset('usps').without_edges()"),
        ({"features": "a.csv", "edges": "e.csv", "read": {"id_column": "n"}}, {}, "edges='e.csv', id_column='n')"),
        ({"features": "store"}, {"planned_bytes": 1}, "fit_store(store)"),
        ({}, {"graph": "given"}, ".fit(X, adjacency=A)"),
        ({}, {"graph": "knn"}, ".fit(X)"),
    ],
)  # fmt: skip
def test_python_lines_repeat_the_run(data, facts, line):
    record = {"method": "pamcgc", "seed": 3, "config": {"n_clusters": 4, "hidden": [16], "alpha": 1.0}, "device": "cpu"}
    text = python_lines({**record, "data": data, "facts": facts})
    assert line in text
    assert "PamCGC(n_clusters=4, advanced={'hidden': (16,)}, random_state=3, device=\"cpu\")" in text
    compile(text, "lines", "exec")


def test_python_lines_of_other_methods():
    record = {"method": "kmeans", "seed": 0, "config": {"n_clusters": 4}, "data": {}, "facts": {}}
    assert "clusterer('kmeans', n_clusters=4, random_state=0)" in python_lines(record)
    assert "clusterer('unheard', n_clusters=4" in python_lines({**record, "method": "unheard"})


def test_a_record_keeps_its_warnings_on_the_page():
    model = made_model(60, 3)
    page = made_page(60, 3, record=made_record(model, warnings=["careful"]))
    assert page["record"]["warnings"] == ["careful"]
    assert page["history"]["loss"] == [3.0, 2.5, 2.25, 2.0]
