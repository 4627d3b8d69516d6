"""Tables of a fit: what goes in, and what the data frames hold."""

import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from torch import nn

import pamc
from pamc import PamCGC, clusterer
from pamc.data.synthetic import block_model
from pamc.errors import BackendError, DataError
from pamc.report.differences import _differences
from pamc.report.facts import are_rows_of_fit, cluster_facts

SETTINGS = {"hidden": (16,), "n_epochs": 5, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def graph():
    return block_model(120, 3, n_features=6, feature_noise=0.4, random_state=1)


@pytest.fixture(scope="module")
def model(graph):
    return clusterer("pamcgc", 3, **SETTINGS).fit_graph(graph)


def test_tables_are_the_facts_in_long_form(model, graph):
    found, facts = pamc.explain(model, graph), cluster_facts(model, graph)
    for name in ("clusters", "features", "rows", "odd"):
        table = getattr(found, name)
        assert list(table.columns) == list(getattr(facts, name))
        assert len(table) == len(getattr(facts, name)["cluster"])
    assert found.flows.pivot(index="cluster", columns="other", values="weight").to_numpy() == pytest.approx(facts.flows)
    assert found.flows.groupby("cluster")["share"].sum().to_numpy() == pytest.approx([1, 1, 1])
    inside = found.flows.query("cluster == other")["share"].to_numpy()
    assert inside == pytest.approx(found.clusters["edges_inside"].to_numpy())
    assert found.similarity.query("cluster == other")["cosine"].to_numpy() == pytest.approx([1, 1, 1])


def test_a_data_frame_gives_names_and_ids(model, graph):
    names = [f"<b>{letter}" for letter in "abcdef"]
    frame = pd.DataFrame(graph.features, columns=names, index=[f"row {i}" for i in range(120)])
    found = pamc.explain(model, frame, adjacency=graph.edges)
    assert set(found.features["name"]) <= set(names)
    assert found.rows["id"].str.startswith("row ").all()
    assert found.clusters["edges_inside"].notna().all()


def test_names_and_ids_can_be_given_beside_an_array_or_a_sparse_matrix(model, graph):
    ids = [f"id{i}" for i in range(120)]
    found = pamc.explain(model, sp.csr_matrix(graph.features), ids=ids, feature_names=list("uvwxyz"), n_rows=1)
    assert set(found.features["name"]) <= set("uvwxyz")
    assert found.rows["id"].isin(ids).all()
    assert len(found.rows) == 6
    # The graph that was fitted is still there.
    assert found.flows["weight"].sum() == pytest.approx(2 * model.record().facts["n_edges"])


def test_edges_are_those_that_the_fit_made_and_unknown_where_they_are_gone(graph, tmp_path):
    fitted = clusterer("pamcgc", 3, **SETTINGS).fit(graph.features)
    found = pamc.explain(fitted, graph.features)
    assert found.flows["weight"].sum() == pytest.approx(2 * fitted.record().facts["n_edges"])
    assert found.clusters["edges_inside"].notna().all()
    fitted.save(tmp_path / "run")
    loaded = pamc.explain(PamCGC.load(tmp_path / "run", device="cpu"), graph.features)
    assert loaded.flows[["weight", "share"]].isna().all(axis=None)
    assert loaded.clusters["edges_inside"].isna().all()


def test_rows_or_columns_in_another_order_are_refused(model, graph):
    frame = pd.DataFrame(graph.features)
    for other in (frame.sample(frac=1, random_state=0), frame.iloc[:, ::-1], frame * 1e30):
        with pytest.raises(DataError, match="not the rows of the fit"):
            pamc.explain(model, other)
    # In single precision they are the same.
    assert pamc.explain(model, frame.astype(np.float32)).clusters["n_rows"].sum() == 120


def test_one_row_far_away_does_not_hide_the_order_of_the_others(graph):
    features = graph.features.copy()
    features[7] *= 1e4
    far = clusterer("pamcgc", 3, preprocessing="none", **SETTINGS).fit(features)
    assert are_rows_of_fit(far, features)
    assert not are_rows_of_fit(far, features[np.random.default_rng(0).permutation(120)])


def test_an_encoder_that_places_rows_otherwise_once_it_is_trained_can_be_explained(graph):
    encoder = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
    own = PamCGC(3, advanced={"n_dims": 4}, encoder=encoder, n_epochs=3, random_state=0, device="cpu").fit(
        graph.features
    )
    assert pamc.explain(own, graph.features).clusters["n_rows"].sum() == 120


def test_edges_in_both_places_are_refused(model, graph):
    with pytest.raises(DataError, match="X contains edges"):
        pamc.explain(model, graph, adjacency=graph.edges)


def test_a_notebook_shows_every_table_and_no_name_becomes_markup(model, graph):
    shown = pamc.explain(model, graph.features, feature_names=["<script>alert(1)</script>"] * 6)._repr_html_()
    assert "<script>" not in shown
    assert shown.count("<table") == 6
    assert "3 clusters" in repr(pamc.explain(model, graph))


@pytest.mark.parametrize("method", ["kmeans", "svd"])
def test_other_methods_are_explained_too(method, graph):
    model = clusterer(method, 3, random_state=0).fit(graph.features)
    assert pamc.explain(model, graph.features).clusters["n_rows"].sum() == 120


def test_without_pandas_the_error_names_the_extra(model, graph, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BackendError, match=r"pamc\[explain\]"):
        pamc.explain(model, np.asarray(graph.features))


def test_missing_cells_are_left_out_of_every_mean():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(40, 3)) + np.arange(40)[:, None] % 2
    features[rng.random(features.shape) < 0.3] = np.nan
    features[:, 2] = 5.0
    labels = np.arange(40) % 2
    for cluster, difference, inside, elsewhere in _differences(features, labels, 2):
        own, others = features[labels == cluster], features[labels != cluster]
        assert inside == pytest.approx(np.nanmean(own, axis=0))
        assert elsewhere == pytest.approx(np.nanmean(others, axis=0))
        assert difference[:2] == pytest.approx((inside - elsewhere)[:2] / np.nanstd(features, axis=0)[:2])
        assert difference[2] == 0
