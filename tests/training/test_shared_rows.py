"""Agreement and consensus; what a GPU does for them is what the host does, and runs on the CPU without one."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from pamc.initialize import coassociation as module
from pamc.initialize.coassociation import (
    agreement,
    coassociation,
    coassociation_on,
    consensus,
    consensus_and_agreement,
    consensus_on,
    coordinates,
    coordinates_on,
    mean_nmi,
    sparse_coassociation,
)

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def noisy_labelings(n_rows=401, n_clusters=5, n_labelings=7, seed=0):
    order = np.random.default_rng(seed)
    truth = order.integers(0, n_clusters, n_rows)
    return truth, [
        np.where(order.random(n_rows) < 0.2, order.integers(0, n_clusters, n_rows), (truth + shift) % n_clusters)
        for shift in range(n_labelings)
    ]


def counted_plainly(labelings, n_clusters):
    table = np.zeros((len(labelings) * n_clusters,) * 2)
    for row in zip(*labelings, strict=True):
        columns = [number * n_clusters + cluster for number, cluster in enumerate(row)]
        for one in columns:
            for other in columns:
                table[one, other] += 1
    return table


@pytest.mark.parametrize("n_clusters", [1, 5, 13])
def test_shared_rows_are_counted_exactly_in_any_blocks(monkeypatch, n_clusters):
    _, labelings = noisy_labelings(n_rows=41, n_clusters=n_clusters, n_labelings=3)
    # The last cluster is left empty in one of them.
    labelings[1] = np.minimum(labelings[1], max(0, n_clusters - 2))
    expected = counted_plainly(labelings, n_clusters)
    for numbers in (1 << 24, 7 * 3 * n_clusters, 1):
        monkeypatch.setattr(module, "_NUMBERS_AT_A_TIME", numbers)
        assert np.array_equal(coassociation_on(labelings, n_clusters, device=DEVICE).cpu(), expected)
    assert np.array_equal(sparse_coassociation(labelings, n_clusters), expected)
    assert np.array_equal(coassociation(labelings, n_clusters), expected)


def test_coordinates_on_the_device_are_those_of_the_host(monkeypatch):
    _, labelings = noisy_labelings()
    host = coordinates(labelings, 5, coassociation(labelings, 5))
    monkeypatch.setattr(module, "_NUMBERS_AT_A_TIME", 7 * 7 * 10)
    ours = coordinates_on(labelings, 5, coassociation_on(labelings, 5, device=DEVICE)).cpu().numpy()
    assert ours.shape == host.shape == (401, 10)
    # Products are free of the signs of directions.
    np.testing.assert_allclose(ours @ ours.T, host @ host.T, atol=1e-9)
    np.testing.assert_allclose(host.mean(axis=0), 0, atol=1e-12)


@pytest.mark.parametrize("n_clusters", [1, 2, 5])
def test_consensus_on_the_device_is_that_of_the_host(n_clusters):
    truth, labelings = noisy_labelings(n_clusters=n_clusters)
    table = coassociation_on(labelings, n_clusters, device=DEVICE)
    ours = consensus_on(labelings, n_clusters, seed=0, table=table)
    host = consensus(labelings, n_clusters, seed=0)
    assert ours.dtype == host.dtype
    assert adjusted_rand_score(host, ours) == 1.0
    assert adjusted_rand_score(truth, ours) > 0.95
    assert np.array_equal(ours, consensus_on(labelings, n_clusters, seed=0, table=table))
    assert mean_nmi(table, n_clusters) == pytest.approx(agreement(labelings, n_clusters), abs=1e-12)


def test_both_from_one_table_are_what_each_is_alone():
    _, labelings = noisy_labelings()
    both = consensus_and_agreement(labelings, 5, seed=3)
    # The numbers of the clusters depend on the signs of eigenvectors, which differ between libraries.
    assert adjusted_rand_score(both.labels, consensus(labelings, 5, seed=3)) == 1.0
    assert both.agreement == agreement(labelings, 5)


def test_agreement_alone_looks_at_some_of_many_rows(monkeypatch):
    monkeypatch.setattr(module, "_COMPARED_ROWS", 100)
    _, labelings = noisy_labelings()
    assert agreement(labelings, 5) == mean_nmi(coassociation([labels[::5] for labels in labelings], 5), 5)


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_agreement_is_the_mean_nmi(seed):
    labelings = list(np.random.default_rng(seed).integers(0, 3, size=(4, 50)))
    expected = np.mean([normalized_mutual_info_score(a, b) for a, b in combinations(labelings, 2)])
    assert agreement(labelings, 3) == pytest.approx(expected, abs=1e-12)


def test_agreement_of_one_cluster_with_itself_is_full():
    assert agreement([np.zeros(10, dtype=np.int64)] * 2, 3) == 1.0


def test_consensus_outvotes_the_odd_one():
    order = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 50)
    noisy = [np.where(order.random(200) < 0.2, order.integers(0, 4, 200), (truth + shift) % 4) for shift in range(9)]
    found = consensus([*noisy, order.integers(0, 4, 200)], 4, seed=0)
    assert adjusted_rand_score(truth, found) > 0.97
    assert max(adjusted_rand_score(truth, labels) for labels in noisy) < 0.8
