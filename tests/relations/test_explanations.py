"""Which relation holds a cluster together, in explain and in the report."""

import json

import numpy as np
import pytest

from pamc import PamCGC, explain
from pamc.report.narrative import narrative
from tests.relations.planted import planted


@pytest.fixture(scope="module")
def fit():
    X, _, edges = planted(300, 3, good=(8, 0.8), other=(8, 0.5), noise=(8, 0.0))
    return X, edges, PamCGC(3, random_state=0, device="cpu", n_epochs=3).fit(X, adjacency=edges)


def test_shares_inside_clusters_equal_loops_over_the_edges(fit):
    X, edges, model = fit
    table = explain(model, X).relations
    assert list(table["relation"].unique()) == ["good", "other", "noise"]
    for row in table.itertuples():
        ends = model.labels_[edges[row.relation]] == row.cluster
        assert row.edges_inside == pytest.approx(2 * ends.all(axis=1).sum() / ends.sum())
    weights = table.groupby("relation")["weight"].first()
    assert weights["good"] > weights["other"] > weights["noise"] == 0


def test_the_report_tells_the_weight_of_each_relation_and_why(fit):
    _, _, model = fit
    record = json.loads(model.record().to_json())
    (text,) = (part["text"] for part in narrative(record) if part["title"] == "Relations")
    assert "The graph consists of 3 relations." in text
    assert "“noise” has the weight 0.00 (not used: its edges are not predicted" in text
    assert "of its edges are inside the final clusters, most in cluster" in text


def test_one_graph_has_no_relations_to_explain(fit):
    X, edges, _ = fit
    model = PamCGC(3, random_state=0, device="cpu", n_epochs=1).fit(X, adjacency=edges["good"])
    assert explain(model, X).relations is None
    assert "relation_edges" not in model.record().facts


def test_the_flows_are_those_of_the_combined_graph(fit):
    X, _, model = fit
    flows = explain(model, X).flows["weight"].to_numpy().reshape(3, 3)
    graph = model._fit_result.adjacency.toarray()
    members = np.eye(3)[model.labels_]
    assert np.abs(flows - members.T @ graph @ members).max() < 1e-9
