"""K-means: scikit-learn's on the CPU, and runs in batches against it."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

import pamc.ops.kmeans as module
from pamc.ops.kmeans import batched_kmeans, best_centers, initial_centers, kmeans, kmeans_fit
from pamc.runtime import one_thread, quiet_libraries, seed_for

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def inertia(points, labels, n_clusters):
    return sum(np.square(points[labels == c] - points[labels == c].mean(axis=0)).sum() for c in range(n_clusters))


def runs_of(points, n_clusters, seeds):
    return batched_kmeans(points, n_clusters, seeds=seeds)[0]


@pytest.mark.parametrize("seeds", [[5], [3, 1, 4]])
def test_the_cpu_iterates_as_scikit_learn_does(seeds):
    points = load_digits().data / 16
    for fit in kmeans(points, 10, seeds=seeds, n_init=2):
        theirs = KMeans(10, init=fit.centers, n_init=1).fit(points)
        assert np.array_equal(fit.labels, theirs.labels_)
        assert fit.inertia == pytest.approx(inertia(points, fit.labels, 10), rel=1e-3)
        assert np.array_equal(fit.predict(points[:100]), fit.labels[:100])


def test_runs_on_the_cpu_are_as_good_as_those_of_scikit_learn():
    points = load_digits().data / 16
    ours = [fit.inertia for fit in kmeans(points, 40, seeds=range(10))]
    theirs = [KMeans(40, n_init=1, random_state=seed).fit(points).inertia_ for seed in range(10)]
    assert np.mean(ours) <= 1.01 * np.mean(theirs)


def test_more_runs_on_the_cpu_are_never_worse():
    points = load_digits().data / 16
    runs = [kmeans(points, 10, seeds=[seed_for(3, f"start {run}")])[0].inertia for run in range(4)]
    assert kmeans(points, 10, seeds=[3], n_init=4)[0].inertia == pytest.approx(min(runs), rel=1e-9)


def test_many_rows_are_clustered_alike_in_parallel_and_in_turn(monkeypatch):
    points = np.random.default_rng(0).normal(size=(500, 3))
    monkeypatch.setattr("pamc.runtime._MANY_ROWS", 100)
    in_parallel = kmeans(points, 5, seeds=[1, 2, 3])
    with one_thread():
        in_turn = [kmeans(points, 5, seeds=[seed])[0] for seed in (1, 2, 3)]
    assert all(np.array_equal(a.labels, b.labels) for a, b in zip(in_parallel, in_turn, strict=True))


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


def test_the_best_of_several_starts_is_as_good_as_that_of_scikit_learn():
    points = load_digits().data / 16
    starts = points[initial_centers(points, np.ones(len(points)), 12, seeds=range(8))]
    centers = best_centers(points, starts[:, :10], n_best=3)
    fits = [kmeans_fit(points, of_run) for of_run in centers]
    assert [fit.inertia for fit in fits] == sorted(fit.inertia for fit in fits)
    assert fits[0].inertia <= 1.01 * KMeans(10, n_init=8, random_state=0).fit(points).inertia_
    assert np.array_equal(fits[0].predict(points), fits[0].labels)


def test_a_point_counts_as_often_as_its_weight_says():
    points, weight = load_digits().data[:200] / 16, np.random.default_rng(0).integers(1, 4, size=200)
    starts = points[initial_centers(points, weight.astype(float), 5, seeds=[0, 1])]
    weighted = best_centers(points, starts, n_best=2, weight=weight.astype(float))
    repeated = best_centers(np.repeat(points, weight, axis=0), starts, n_best=2)
    assert weighted == pytest.approx(repeated, abs=1e-4)


def test_an_empty_cluster_keeps_its_center():
    starts = np.array([[[0.0], [5.0], [99.0]]])
    assert best_centers(np.array([[0.0], [1.0], [5.0]]), starts, n_best=1)[0].ravel().tolist() == [0.5, 5.0, 99.0]
