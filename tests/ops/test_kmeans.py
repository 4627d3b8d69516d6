"""K-means: scikit-learn's on the CPU, and runs in batches against it."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

import pamc.ops.kmeans as module
from pamc.ops.kmeans import batched_kmeans, kmeans
from pamc.runtime import quiet_libraries, seed_for

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def inertia(points, labels, n_clusters):
    return sum(np.square(points[labels == c] - points[labels == c].mean(axis=0)).sum() for c in range(n_clusters))


def runs_of(points, n_clusters, seeds):
    return batched_kmeans(points, n_clusters, seeds=seeds)[0]


@pytest.mark.parametrize("seeds", [[5], [3, 1, 4]])
def test_the_cpu_runs_scikit_learn(seeds):
    points = load_digits().data / 16
    for seed, fit in zip(seeds, kmeans(points, 10, seeds=seeds, n_init=2), strict=True):
        theirs = KMeans(10, n_init=2, random_state=seed).fit(points)
        assert np.array_equal(fit.labels, theirs.labels_)
        np.testing.assert_allclose(fit.centers, theirs.cluster_centers_, atol=1e-12)
        assert fit.inertia == pytest.approx(theirs.inertia_)
        assert np.array_equal(fit.predict(points[:100]), fit.labels[:100])


def test_fewer_distinct_rows_than_clusters_warn_unless_allowed(recwarn):
    points = np.repeat([[0.0], [1.0]], 3, axis=0)
    with quiet_libraries:
        assert len(np.unique(kmeans(points, 3, seeds=[0])[0].labels)) == 2
    assert not recwarn
    with pytest.warns(ConvergenceWarning, match="distinct clusters"):
        kmeans(points, 3, seeds=[0])


def test_clear_clusters_are_found_in_every_run():
    points, truth = make_blobs(300, centers=4, cluster_std=0.3, random_state=0)
    labels = runs_of(torch.from_numpy(points).to(DEVICE), 4, range(8)).cpu().numpy()
    assert labels.shape == (8, 300)
    assert all(adjusted_rand_score(truth, each) == 1.0 for each in labels)


def test_a_run_is_as_good_as_one_of_scikit_learn():
    points = load_digits().data.astype(np.float32) / 16
    ours = [
        inertia(points, labels, 20)
        for labels in runs_of(torch.from_numpy(points).to(DEVICE), 20, range(10)).cpu().numpy()
    ]
    theirs = [KMeans(20, n_init=1, random_state=seed).fit(points).inertia_ for seed in range(10)]
    assert np.mean(ours) <= 1.01 * np.mean(theirs)


def test_the_best_of_runs_in_batches_has_the_smallest_inertia():
    points = load_digits().data.astype(np.float32) / 16
    on_device = torch.from_numpy(points).to(DEVICE)
    fits = module._fits_in_batches(on_device, 20, 6, [0, 1])
    for seed, fit in zip((0, 1), fits, strict=True):
        runs = runs_of(on_device, 20, [seed_for(seed, f"start {run}") for run in range(6)]).cpu().numpy()
        best = np.argmin([inertia(points, labels, 20) for labels in runs])
        assert np.array_equal(fit.labels, runs[best])
        assert fit.inertia == pytest.approx(inertia(points, runs[best], 20), rel=1e-4)
        means = [points[fit.labels == c].mean(axis=0) for c in range(20)]
        np.testing.assert_allclose(fit.centers, means, atol=1e-5)
        assert (fit.predict(points) == fit.labels).mean() > 0.98
    once = module._fits_in_batches(on_device, 20, 1, [7, 8])
    assert np.array_equal([fit.labels for fit in once], runs_of(on_device, 20, [7, 8]).cpu().numpy())


def test_a_run_depends_on_its_own_seed_alone(monkeypatch):
    points = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(DEVICE)
    together = runs_of(points, 5, [3, 1, 4])
    assert torch.equal(runs_of(points, 5, [1])[0], together[1])
    assert torch.equal(runs_of(points, 5, [3, 1, 4]), together)
    monkeypatch.setattr(module, "_NUMBERS_AT_A_TIME", 1)
    assert torch.equal(runs_of(points, 5, [3, 1, 4]), together)
    assert not torch.equal(together[0], together[1])


@pytest.mark.parametrize("n_clusters", [1, 3, 4])
def test_fewer_distinct_rows_than_clusters_leave_clusters_empty(n_clusters):
    points = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]], device=DEVICE)
    labels = runs_of(points, n_clusters, [0])[0]
    assert labels[0] == labels[1]
    assert labels[2] == labels[3]
    assert (labels[0] == labels[2]) == (n_clusters == 1)


def test_the_number_of_iterations_is_bounded(monkeypatch):
    points = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    best = inertia(points.cpu().numpy(), runs_of(points, 5, [0])[0].cpu().numpy(), 5)
    monkeypatch.setattr(module, "_MOST_ITERATIONS", 1)
    early = inertia(points.cpu().numpy(), runs_of(points, 5, [0])[0].cpu().numpy(), 5)
    assert early > best


def test_another_device_takes_all_runs_at_once_in_float32(monkeypatch):
    calls = []
    monkeypatch.setattr(module, "_fits_in_batches", lambda *arguments: calls.append(arguments))
    kmeans(np.ones((4, 2)), 2, seeds=[3, 1], n_init=5, device=torch.device("meta"))
    ((points, n_clusters, n_init, seeds),) = calls
    assert (points.device.type, points.dtype, points.shape) == ("meta", torch.float32, (4, 2))
    assert (n_clusters, n_init, seeds) == (2, 5, [3, 1])
