"""K-means on the device against scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_blobs
from sklearn.metrics import adjusted_rand_score

from pamc.ops import kmeans
from pamc.ops.kmeans import best_kmeans, kmeans_runs

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def inertia(points, labels, n_clusters):
    return sum(np.square(points[labels == c] - points[labels == c].mean(axis=0)).sum() for c in range(n_clusters))


def test_clear_clusters_are_found_in_every_run():
    points, truth = make_blobs(300, centers=4, cluster_std=0.3, random_state=0)
    labels = kmeans_runs(torch.from_numpy(points).to(DEVICE), 4, seeds=range(8)).cpu().numpy()
    assert labels.shape == (8, 300)
    assert all(adjusted_rand_score(truth, each) == 1.0 for each in labels)


def test_a_run_is_as_good_as_one_of_scikit_learn():
    points = load_digits().data.astype(np.float32) / 16
    ours = [
        inertia(points, labels, 20)
        for labels in kmeans_runs(torch.from_numpy(points).to(DEVICE), 20, seeds=range(10)).cpu().numpy()
    ]
    theirs = [KMeans(20, n_init=1, random_state=seed).fit(points).inertia_ for seed in range(10)]
    assert np.mean(ours) <= 1.01 * np.mean(theirs)


def test_the_best_of_runs_has_the_smallest_inertia():
    points = load_digits().data.astype(np.float32) / 16
    on_device = torch.from_numpy(points).to(DEVICE)
    runs = kmeans_runs(on_device, 20, seeds=range(6)).cpu().numpy()
    best = np.argmin([inertia(points, labels, 20) for labels in runs])
    assert best != 0
    assert np.array_equal(best_kmeans(on_device, 20, seeds=range(6)).cpu().numpy(), runs[best])


def test_a_run_depends_on_its_own_seed_alone(monkeypatch):
    points = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(DEVICE)
    together = kmeans_runs(points, 5, seeds=[3, 1, 4])
    assert torch.equal(kmeans_runs(points, 5, seeds=[1])[0], together[1])
    assert torch.equal(kmeans_runs(points, 5, seeds=[3, 1, 4]), together)
    monkeypatch.setattr(kmeans, "_NUMBERS_AT_A_TIME", 1)
    assert torch.equal(kmeans_runs(points, 5, seeds=[3, 1, 4]), together)
    assert not torch.equal(together[0], together[1])


@pytest.mark.parametrize("n_clusters", [1, 3, 4])
def test_fewer_distinct_rows_than_clusters_leave_clusters_empty(n_clusters):
    points = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]], device=DEVICE)
    labels = kmeans_runs(points, n_clusters, seeds=[0])[0]
    assert labels[0] == labels[1]
    assert labels[2] == labels[3]
    assert (labels[0] == labels[2]) == (n_clusters == 1)


def test_the_number_of_iterations_is_bounded(monkeypatch):
    points = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    best = inertia(points.cpu().numpy(), kmeans_runs(points, 5, seeds=[0])[0].cpu().numpy(), 5)
    monkeypatch.setattr(kmeans, "_MOST_ITERATIONS", 1)
    early = inertia(points.cpu().numpy(), kmeans_runs(points, 5, seeds=[0])[0].cpu().numpy(), 5)
    assert early > best
