"""What a start relies on, and the clusters it finds."""

import numpy as np
import pytest
from sklearn.cluster import KMeans

from pamc.data.synthetic import block_model
from pamc.graph.adjacency import build_adjacency
from pamc.graph.smoothing import leading_directions
from pamc.initialize.coassociation import ConsensusAndAgreement, coassociation_on, consensus_on, mean_nmi
from pamc.initialize.consensus import agreed_clusters, choose_inputs
from pamc.initialize.families import layout, merged_groups, smoothed_kmeans
from pamc.results.metrics import evaluate

CASES = {
    "both": ({"homophily": 0.8, "feature_noise": 2.0}, "features and graph"),
    "random graph": ({"homophily": 0.25, "feature_noise": 1.0}, "features"),
    "noise for features": ({"homophily": 0.8, "feature_noise": 1000.0}, "graph"),
}


def evidence_of(n_nodes=600, seed=1, **options):
    graph = block_model(n_nodes, 4, random_state=seed, **options)
    adjacency = build_adjacency(graph.edges, None, n_nodes=n_nodes, expect_directed=False)
    rows = leading_directions(graph.features, seed=0)
    return graph, choose_inputs(rows, adjacency, 4, n_neighbors=10, seed=0)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_noise_is_told_from_evidence(case, seed):
    options, expected = CASES[case]
    graph, inputs = evidence_of(seed=seed, **options)
    assert inputs.kind == expected
    agreed = agreed_clusters(inputs, 4, seed=0)
    assert (agreed.graph_trust is None) == inputs.is_knn == (expected == "features")
    acc = evaluate(graph.labels, agreed.labels)["acc"]
    kmeans = evaluate(graph.labels, KMeans(4, n_init=5, random_state=0).fit_predict(graph.features))["acc"]
    assert acc >= kmeans - 0.03
    assert acc > 0.9


def test_the_same_seed_gives_the_same_clusters():
    _, inputs = evidence_of(homophily=0.6)
    one, same, other = (agreed_clusters(inputs, 4, seed=seed) for seed in (0, 0, 1))
    assert (one.labels == same.labels).all()
    assert (one.points == same.points).all()
    assert evaluate(one.labels, other.labels)["acc"] > 0.97


@pytest.mark.parametrize("n_clusters", [1, 2, 70])
def test_any_number_of_clusters(n_clusters):
    _, inputs = evidence_of(n_nodes=200)
    agreed = agreed_clusters(inputs, n_clusters, seed=0)
    assert len(np.unique(agreed.labels)) == n_clusters
    assert np.isfinite(agreed.points).all()
    # Families other than the robust one are tried for a moderate number of clusters only.
    assert (agreed.judge is None) == (n_clusters != 2)
    assert agreed.judge is not None or agreed.families == ("smoothed k-means",)


def on_device(labelings, n_clusters, *, seed, device):
    table = coassociation_on(labelings, n_clusters, device=device)
    return ConsensusAndAgreement(
        consensus_on(labelings, n_clusters, seed=seed, table=table), mean_nmi(table, n_clusters)
    )


def test_the_start_found_with_the_code_of_a_device_is_that_of_the_host(monkeypatch):
    _, inputs = evidence_of(homophily=0.6)
    host = agreed_clusters(inputs, 4, seed=0)
    for family in (layout, merged_groups, smoothed_kmeans):
        monkeypatch.setattr(family, "consensus_and_agreement", on_device)
    ours = agreed_clusters(inputs, 4, seed=0)
    assert ours.families == host.families
    assert ours.facts() == pytest.approx(host.facts(), abs=1e-12)
    assert evaluate(host.labels, ours.labels)["acc"] == 1.0
