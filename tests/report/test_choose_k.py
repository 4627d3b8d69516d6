"""The number of clusters: what the decision is made of, planted numbers, and data that do not say."""

import json
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import pamc
from pamc import AttributedGraph
from pamc.data.synthetic import blobs, block_model
from pamc.errors import BackendError, ConfigError, DataError
from pamc.graph.neighbors import knn_adjacency
from pamc.initialize.consensus import InputSource
from pamc.selection import comparison
from pamc.selection.choose_k import ChosenK, choose_k
from pamc.selection.split_half import decide, null_reference, split_half_agreement

CPU = torch.device("cpu")


def curves(kmeans, merged=None, *, noise=0.005, n=8, seed=0):
    """Return (2, n, K) values around the means."""
    merged = np.zeros(len(kmeans)) if merged is None else merged
    drawn = np.random.default_rng(seed).normal(scale=noise, size=(2, n, len(kmeans)))
    return np.clip(np.stack([kmeans, merged])[:, None] + drawn, -1, 1)


CHANCE = curves([0.3] * 5, [0.1] * 5, noise=0.05, n=6, seed=1)


def test_the_most_stable_number_is_taken_with_its_margin():
    found = decide([2, 3, 4, 5, 6], curves([0.5, 0.6, 0.95, 0.8, 0.7]), CHANCE)
    assert found.chosen == 2
    assert found.rival == 3
    assert found.margin == pytest.approx(0.15, abs=0.02)
    assert 0 < found.margin_error < 0.02
    assert found.equal == ()


def test_a_number_that_data_without_clusters_reach_too_is_no_answer():
    assert decide([2, 3, 4, 5, 6], curves([0.35, 0.3, 0.4, 0.3, 0.3]), CHANCE).chosen is None
    # Stable, but so are data without clusters.
    found = decide([2, 3], curves([0.9, 0.3]), curves([0.9, 0.3], [0.1, 0.1], noise=0.05, n=6, seed=1))
    assert found.chosen is None
    assert "without clusters" in found.why


def test_where_chance_varies_much_more_is_asked_of_the_data():
    wide = curves([0.5] * 5, [0.1] * 5, noise=0.3, n=6, seed=1)
    assert decide([2, 3, 4, 5, 6], curves([0.75, 0.5, 0.5, 0.5, 0.5]), wide).chosen is None


def test_of_equally_stable_numbers_the_larger_is_taken_and_the_others_are_named():
    found = decide([2, 3, 4, 5, 6], curves([0.99, 0.5, 0.985, 0.8, 0.7]), CHANCE)
    assert found.chosen == 2
    assert found.equal == (0,)
    assert found.rival == 3


def test_many_equally_stable_numbers_do_not_say_which():
    found = decide([2, 3, 4, 5, 6], curves([0.9, 0.9, 0.9, 0.9, 0.5]), CHANCE)
    assert found.chosen is None
    assert "equally stable" in found.why


def test_if_the_larger_number_is_certain_smaller_ones_merge_its_clusters():
    found = decide([2, 3, 4, 5, 6], curves([0.99, 0.99, 0.99, 0.99, 0.5], noise=0.001), CHANCE)
    assert found.chosen == 3
    assert found.equal == (0, 1, 2)


def test_a_stability_that_does_not_fall_before_the_candidates_end_is_no_answer():
    found = decide([2, 3, 4, 5, 6], curves([0.3, 0.4, 0.6, 0.7, 0.9]), CHANCE)
    assert found.chosen is None
    assert "larger numbers" in found.why


def test_the_way_that_beats_chance_counts():
    found = decide([2, 3, 4, 5, 6], curves([0.35] * 5, [0.2, 0.3, 0.9, 0.5, 0.4]), CHANCE)
    assert found.chosen == 2
    assert found.way[2] == 1


def test_one_candidate_can_be_recommended_without_a_rival():
    found = decide([4], curves([0.95]), curves([0.3], [0.1], noise=0.05, n=6))
    assert (found.chosen, found.rival, found.margin) == (0, None, 0.0)
    assert "most stable" not in found.why
    assert "no other number was compared" in found.why


def test_the_words_say_what_was_tried_where_that_was_little():
    stable, chance = curves([0.5, 0.95]), CHANCE[:, :, :2]
    assert "larger numbers" in decide([2, 3], stable, chance).why
    found = decide([2, 3], stable, chance, most=3)
    assert found.chosen is None
    assert "larger numbers" not in found.why
    assert "3 clusters, the most" in found.why
    assert "so few rows" in found.why
    alone = decide([2], curves([0.3]), CHANCE[:, :, :1], most=2).why
    assert alone.startswith("2 clusters are no more stable")
    assert "no other number was tried: the rows are too few" in alone
    assert "too few" not in decide([2, 3], curves([0.3, 0.3]), chance).why


def test_the_summary_names_coarser_numbers_as_numbers():
    found = ChosenK(5, "5 clusters", 0.14, 0.01, 6, (2, 3), {}, "features")
    assert found.summary == "5 clusters; margin 0.14 ± 0.01 to k = 6; as stable, but coarser: k = 2, k = 3"


def _evidence(graph):
    rows = graph.features.astype(float)
    return InputSource("features and graph", rows, knn_adjacency(rows, 8))


def test_halves_agree_on_planted_blobs_and_not_on_noise():
    planted = _evidence(blobs(200, 3, n_features=20, feature_noise=0.3, random_state=0))
    noise = InputSource("features and graph", *_noise(200))
    options = {"dims": lambda k: 2 * k, "n_splits": 2, "seed": 0}
    assert split_half_agreement(planted, [3], **options).min() > 0.95
    assert split_half_agreement(noise, [3], **options).max() < 0.6
    again = split_half_agreement(planted, [3], **options)
    assert np.array_equal(again, split_half_agreement(planted, [3], **options))


@pytest.mark.parametrize("sought", [range(2, 26), range(6, 26)])
def test_of_many_large_numbers_those_around_the_most_stable_one_are_compared(monkeypatch, sought):
    monkeypatch.setattr(comparison, "_ALWAYS", 5)
    planted = blobs(420, 10, n_features=20, feature_noise=0.2, random_state=0)
    found = choose_k(planted.features, candidates=sought, random_state=0, device="cpu")
    assert found.n_clusters == 10
    compared = found.table["n_clusters"].tolist()
    assert compared == sorted(set(compared))
    assert set(range(7, 14)) | set(range(sought[0], 6)) <= set(compared)
    assert len(compared) <= 12


def test_large_numbers_are_left_out_if_a_small_one_is_more_stable(monkeypatch):
    monkeypatch.setattr(comparison, "_ALWAYS", 5)
    planted = blobs(400, 3, n_features=20, feature_noise=0.2, random_state=0)
    found = choose_k(planted.features, random_state=0, device="cpu")
    assert (found.n_clusters, found.table["n_clusters"].tolist()) == (3, [2, 3, 4, 5])


def test_the_last_small_number_is_compared_with_the_next_one(monkeypatch):
    monkeypatch.setattr(comparison, "_ALWAYS", 3)
    monkeypatch.setattr(comparison, "_SLACK", -1.0)
    planted = blobs(400, 3, n_features=20, feature_noise=0.2, random_state=0)
    found = choose_k(planted.features, random_state=0, device="cpu")
    assert (found.n_clusters, found.table["n_clusters"].tolist()) == (3, [2, 3, 4])


def test_a_sample_of_many_rows_decides(monkeypatch):
    monkeypatch.setattr("pamc.selection.choose_k._MOST_ROWS", 300)
    planted = blobs(3000, 3, n_features=20, feature_noise=0.2, random_state=0)
    seen = []
    compare = comparison.split_half_agreement
    monkeypatch.setattr(
        comparison,
        "split_half_agreement",
        lambda inputs, *args, **options: seen.append(len(inputs.rows)) or compare(inputs, *args, **options),
    )
    assert choose_k(planted.features, candidates=range(2, 6), random_state=0, device="cpu").n_clusters == 3
    assert set(seen) == {300}


def _noise(n_rows):
    rows = np.random.default_rng(0).normal(size=(n_rows, 20))
    return rows, knn_adjacency(rows, 8)


@pytest.mark.parametrize("shape", ["gaussian", "uniform"])
def test_data_without_clusters_have_the_spread_and_a_graph_like_the_given_one(shape):
    graph = block_model(400, 4, n_features=20, feature_noise=0.7, random_state=0)
    rows = graph.features.astype(float)
    adjacency = sp.csr_matrix((np.ones(graph.n_edges), graph.edges), shape=(400, 400))
    given = InputSource("features and graph", rows, (adjacency + adjacency.T).tocsr())
    null = null_reference(given, shape=shape, is_knn_graph=False, n_neighbors=10, seed=0, device=CPU)
    assert null.rows.std(axis=0) == pytest.approx(rows.std(axis=0), rel=0.15)
    assert null.adjacency.nnz == pytest.approx(given.adjacency.nnz, rel=0.1)
    assert null.adjacency.diagonal().sum() == 0

    def likeness(inputs):
        unit = inputs.rows - inputs.rows.mean(axis=0)
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        ends = inputs.adjacency.tocoo()
        return (unit[ends.row] * unit[ends.col]).sum(axis=1).mean()

    # Ends of edges are alike, but the cosine of strangers is smaller where nothing clusters.
    assert 0.1 < likeness(null) < likeness(given)
    own = null_reference(given, shape=shape, is_knn_graph=True, n_neighbors=5, seed=0, device=CPU)
    assert np.diff(own.adjacency.indptr).min() >= 5


@pytest.fixture(scope="module")
def chosen():
    graph = block_model(210, 3, random_state=0)
    return choose_k(graph.features, graph.edges, range(2, 6), random_state=0, device="cpu")


def test_three_planted_groups_are_found_and_shown(chosen):
    assert chosen.n_clusters == 3
    assert chosen.margin > 0.1
    assert chosen.rival in (2, 4)
    table = chosen.frame()
    assert list(table["n_clusters"]) == [2, 3, 4, 5]
    assert table.loc[1, "stability"] > 0.9
    assert table["beats_chance"].sum() >= 1
    for name in ("modularity", "silhouette", "objective"):
        assert np.isfinite(table[name]).all()
    assert table["modularity"].argmax() == 1
    assert "<- recommended" in chosen.text()
    assert "margin" in chosen.summary
    assert repr(chosen).startswith("ChosenK(n_clusters=3)")
    assert json.loads(json.dumps(chosen.facts(), allow_nan=False))["n_clusters"] == 3


def test_the_picture_is_well_formed_and_needs_no_package(chosen):
    root = ET.fromstring(chosen.svg())
    lines = [element for element in root.iter() if element.tag.endswith("polyline")]
    assert len(lines) == 2
    assert all(len(line.attrib["points"].split()) == 4 for line in lines)
    assert "<svg" in chosen._repr_html_()


def test_it_can_be_plotted(chosen):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    axes = chosen.plot()
    assert axes.get_xlabel() == "number of clusters"
    assert chosen.plot(axes) is axes
    matplotlib.pyplot.close(axes.figure)


def test_without_the_packages_the_errors_name_the_extra(chosen, monkeypatch):
    for module, call in (("matplotlib.pyplot", chosen.plot), ("pandas", chosen.frame)):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(BackendError, match=r"pamc\[explain\]"):
            call()


def test_noise_does_not_say():
    noise = np.random.default_rng(0).normal(size=(200, 8))
    found = pamc.choose_k(noise, candidates=[2, 3, 4], random_state=0, device="cpu")
    assert found.n_clusters is None
    assert found.summary == found.why
    assert "recommended" not in found.text()
    assert "2 3" not in found.svg()


def test_candidates_that_cannot_be_are_refused():
    rows = np.random.default_rng(0).normal(size=(100, 3))
    for candidates in ([], [1, 2], [2, 7]):
        with pytest.raises(ConfigError, match="from 2 to 6"):
            choose_k(rows, candidates=candidates)
    with pytest.raises(ConfigError, match=r"got 2, 3, …, 60$"):
        choose_k(rows, candidates=range(2, 61))
    with pytest.raises(DataError, match="too few"):
        choose_k(rows[:20])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("options", [{}, {"homophily": 0.65, "feature_noise": 2.0}], ids=["clear", "noisy"])
@pytest.mark.parametrize("n_groups", [3, 7, 15])
def test_planted_groups_are_found(n_groups, options, seed):
    graph = block_model(600 if n_groups == 3 else 100 * n_groups, n_groups, random_state=seed, **options)
    assert choose_k(graph, random_state=seed, device="cpu").n_clusters == n_groups


def _embeddings(n_clusters, seed):
    """Return 5,000 × 384 unit rows around random directions; the sizes of clusters differ by up to a factor of 5."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n_clusters, 384)) / np.sqrt(384)
    share = rng.uniform(1, 5, size=n_clusters)
    rows = centers[rng.choice(n_clusters, size=5000, p=share / share.sum())]
    rows = rows + 2 * rng.normal(size=rows.shape) / np.sqrt(384)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("n_clusters", [3, 10, 40])
def test_planted_clusters_of_unequal_sizes_in_embeddings_are_found(n_clusters):
    assert choose_k(_embeddings(n_clusters, 0), random_state=0, device="cpu").n_clusters == n_clusters


def _with_own_neighbors(rows):
    return AttributedGraph(rows, edges=np.stack(knn_adjacency(rows, 10).nonzero()))


# fmt: off
SAYS_NOTHING = {
    "noise": lambda seed: AttributedGraph(np.random.default_rng(seed).normal(size=(600, 16))),
    "noise and its own kNN graph": lambda seed: _with_own_neighbors(np.random.default_rng(seed).normal(size=(600, 16))),
    "uniform": lambda seed: AttributedGraph(np.random.default_rng(seed).uniform(size=(600, 2))),
    "random graph": lambda seed: block_model(600, 1, random_state=seed),
    "overlapping 1:20": lambda seed: block_model(
        1050, 2, sizes=[50, 1000], homophily=0.5, feature_noise=4, random_state=seed
    ),
}
# fmt: on


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pamc.errors.DataWarning")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", SAYS_NOTHING)
def test_data_without_clusters_do_not_say(name, seed):
    assert choose_k(SAYS_NOTHING[name](seed), random_state=seed, device="cpu").n_clusters is None
