"""Embeddings with planted clusters of unequal sizes, and rows in random directions that belong to none."""

import numpy as np


def embeddings(n_rows, n_dims, n_clusters, *, noise=0.1, spread=1.0, seed=0):
    """Return unit rows (N, d) around random directions and their clusters (N,), −1 for noise."""
    rng = np.random.default_rng(seed)
    n_noise = int(noise * n_rows)
    shares = np.maximum(rng.dirichlet(np.full(n_clusters, 2.0)), 0.004)
    y = rng.choice(n_clusters, n_rows - n_noise, p=shares / shares.sum())
    centers = rng.normal(size=(n_clusters, n_dims))
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    clustered = centers[y] + spread * rng.normal(size=(len(y), n_dims)) / np.sqrt(n_dims)
    X = np.vstack([clustered, rng.normal(size=(n_noise, n_dims))])
    order = rng.permutation(n_rows)
    labels = np.concatenate([y, np.full(n_noise, -1)])[order]
    return (X / np.linalg.norm(X, axis=1, keepdims=True))[order].astype(np.float32), labels
