"""The encoder of an initialization: what it is fitted to, and the clusters that stay apart in its embedding."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.datasets import make_circles

from pamc.config import FitConfig
from pamc.data.synthetic import blobs
from pamc.graph.neighbors import knn_adjacency
from pamc.initialize import fitting
from pamc.initialize.base import InitContext, mean_centers
from pamc.initialize.consensus import Agreed, InputSource, agreed_clusters
from pamc.initialize.family import MIDDLE, Judge, smoothed_embeddings
from pamc.initialize.fitting import fitted_encoder, fitted_to, labeled_targets
from pamc.models.loader import FeatureLoader, encode_rows
from pamc.ops.torch.rows import hidden_values
from pamc.progress import SilentProgress
from pamc.training.pipeline import scaled, settled

RINGS, RING = make_circles(240, factor=0.4, noise=0.03, random_state=0)


def context_of(features, n_clusters, **changes):
    config = settled(FitConfig(n_clusters=n_clusters, hidden=(64, 64), **changes), len(features))
    rows = FeatureLoader(features.astype(np.float32), device=torch.device("cpu"), dtype=torch.float32)
    inputs = InputSource("features and graph", features, knn_adjacency(features, 10), is_knn=True)
    return InitContext(rows, features, inputs.adjacency, inputs, scaled(config, is_given=False), 0, SilentProgress())


def fitted(features, n_clusters, **changes):
    """Return initial clusters, embedding, the clusters of its nearest centers, and what the encoder was fitted to."""
    context = context_of(features, n_clusters, **changes)
    agreed = agreed_clusters(context.inputs, n_clusters, seed=0)
    encoder, targets = fitted_encoder(agreed, context)
    z = encode_rows(encoder, context.rows)
    nearest = torch.cdist(z, mean_centers(z, agreed.labels, n_clusters)).argmin(dim=1).numpy()
    return agreed, z, nearest, targets


def test_an_encoder_of_two_rings_is_fitted_to_the_initial_clusters_and_keeps_them_apart():
    agreed, z, nearest, targets = fitted(RINGS, 2, embedding_scale=3.0)
    assert (agreed.labels == RING).all() or (agreed.labels != RING).all()
    assert targets == "initial clusters"
    assert np.mean(nearest == agreed.labels) >= 0.98
    assert float(z.norm(dim=1).median()) == pytest.approx(3.0, rel=0.1)


def test_an_encoder_of_many_columns_is_fitted_to_smoothed_features_that_keep_the_clusters_apart():
    graph = blobs(200, 3, n_features=24, feature_noise=0.5, random_state=0)
    agreed, _, nearest, targets = fitted(graph.features.astype(np.float64), 3)
    assert targets == "smoothed features"
    assert np.mean(nearest == agreed.labels) >= 0.98


def test_an_encoder_whose_clusters_the_judge_scores_lower_is_fitted_to_the_initial_clusters():
    noise = np.random.default_rng(0).normal(size=(120, 24))
    context = context_of(noise, 2, pretrain_epochs=1)
    # Clusters that the features do not predict, but on which other families agree.
    labels = np.random.default_rng(1).integers(2, size=120)
    judge = Judge(np.stack([labels] * 3), context.adjacency)
    points = smoothed_embeddings(noise, context.adjacency, 2, torch.device("cpu"))[MIDDLE]
    assert fitted_encoder(Agreed(labels, points, "spectral", judge), context)[1] == "initial clusters"
    assert fitted_encoder(Agreed(labels, points, "spectral", None), context)[1] == "smoothed features"


@pytest.mark.parametrize(("n_clusters", "n_dims"), [(2, 2), (1, None)])
def test_without_a_dimension_per_cluster_to_spare_the_targets_are_smoothed_features(n_clusters, n_dims):
    assert fitted(RINGS[:100], n_clusters, n_dims=n_dims, pretrain_epochs=1)[-1] == "smoothed features"


def test_targets_of_clusters_have_length_one_and_separate_clusters_whose_smoothed_points_coincide():
    points = np.tile([[0.6, 0.8, 0.0]], (6, 1))
    labels = np.array([0, 0, 1, 1, 2, 2])
    targets = labeled_targets(points, labels, 3, 6)
    assert targets.shape == (6, 6)
    assert np.linalg.norm(targets, axis=1) == pytest.approx(np.ones(6))
    distance = np.linalg.norm(targets[:, None] - targets, axis=2)
    same = labels[:, None] == labels
    assert distance[same] == pytest.approx(0.0)
    assert distance[~same] == pytest.approx(1.0)


@pytest.mark.parametrize("n_dims", [4, 5, 9])
def test_targets_of_clusters_have_length_one_for_any_number_of_dimensions(n_dims):
    points = np.random.default_rng(0).normal(size=(50, 4))
    targets = labeled_targets(points, np.arange(50) % 3, 3, n_dims)
    assert targets.shape == (50, n_dims)
    assert np.linalg.norm(targets, axis=1) == pytest.approx(np.ones(50))
    # Within a cluster, targets differ as the smoothed points do.
    assert not np.allclose(targets[0], targets[3])


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_sparse_rows_with_hidden_values_are_those_of_dense_rows(share):
    x = sp.random_array((50, 40), density=0.1, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    rows = FeatureLoader(sp.csr_matrix(x), device=torch.device("cpu"), dtype=torch.float32, sparse=True)
    batch, step = torch.tensor([7, 3, 3, 49]), torch.tensor(5)
    block = fitting._sparse_with_hidden(rows, batch, step, share=share, seed=1)
    hidden = hidden_values(step, batch, 40, share=share, seed=1)
    expected = rows.dense_batch(batch).masked_fill(hidden, 0.0) / (1 - share)
    torch.testing.assert_close(block.matrix.to_dense(), expected)
    torch.testing.assert_close(block.transposed.to_dense(), expected.T)


def test_an_encoder_is_fitted_further_from_the_weights_of_another():
    context = context_of(RINGS, 2, embedding_scale=3.0)
    targets = labeled_targets(RINGS, RING, 2, context.config.n_dims)
    error = partial(_error, context=context, targets=targets)
    first = fitted_to(targets, context, dropout=0.0)
    before = error(first)
    assert fitted_to(targets, context, start=first, dropout=0.0) is first
    assert error(first) < before


def _error(encoder, context, targets):
    z = encode_rows(encoder, context.rows) / context.config.embedding_scale
    return float((z - torch.from_numpy(targets)).square().mean())


@pytest.mark.parametrize(
    ("constants", "n_epochs"),
    [({}, 75), ({"_LEAST_STEPS": 100}, 20), ({"_LEAST_STEPS": 8, "_MOST_STEPS": 16}, 2)],
    ids=["few rows", "twenty epochs", "many rows"],
)
def test_pretraining_has_twenty_epochs_or_as_many_as_have_enough_and_not_too_many_batches(
    monkeypatch, constants, n_epochs
):
    context, seen = context_of(RINGS, 2), []
    for name, value in constants.items():
        monkeypatch.setattr(fitting, name, value)
    monkeypatch.setattr(fitting, "fit_batches", lambda *_, n_epochs, batch_size: seen.append((n_epochs, batch_size)))
    fitted_to(np.zeros((240, context.config.n_dims)), context)
    assert seen == [(n_epochs, 32)]
