"""Runs that no training made: rows around centers, with a record, for pages of any size."""

from types import SimpleNamespace

import numpy as np

from pamc.data.attributed_graph import AttributedGraph
from pamc.report.content import Extras, page_data
from pamc.results.record import RunRecord

# Names that break what takes text for anything else.
HOSTILE = [
    "<script>window.broken = 1</script>",
    "</script><img src=x onerror='window.broken = 2'>",
    "\"double\" & 'single' <b>bold</b>",
    "<!-- not a comment",
    "🦊 fox 👩‍👩‍👧‍👧",
    "שלום עולם (right to left) مرحبا",
    "\u202eoverride",
    "x" * 10_000,
    "tab\tand\nnewline",
    "\\u003c ${} `` %s {{}}",
    "\u2028line separator",
]


def made_model(n_nodes, n_clusters, *, n_dims=8, seed=0, empty=False):
    """Return what a fitted estimator has, without one; the last cluster is empty where asked for."""
    draw = np.random.default_rng(seed)
    centers = 4 * draw.normal(size=(n_clusters, n_dims))
    labels = draw.integers(n_clusters - empty, size=n_nodes)
    z = (centers[labels] + draw.normal(size=(n_nodes, n_dims))).astype(np.float32)
    away = np.linalg.norm(z - centers[labels], axis=1)
    meta_nodes = np.stack([z[labels == c].sum(axis=0) / n_nodes for c in range(n_clusters)])
    return SimpleNamespace(
        labels_=labels,
        confidence_=1 / (1 + 0.05 * away),
        embedding_=z,
        cluster_centers_=centers,
        meta_nodes_=meta_nodes,
    )


def made_graph(model, *, n_features=12, ids=None, names=None, seed=0, edges=True, truth=True):
    draw = np.random.default_rng(seed)
    n_nodes, n_clusters = len(model.labels_), len(model.cluster_centers_)
    means = draw.normal(size=(n_clusters, n_features))
    features = (means[model.labels_] + draw.normal(size=(n_nodes, n_features))).astype(np.float32)
    pairs = draw.integers(n_nodes, size=(2, 3 * n_nodes))
    changed = draw.random(n_nodes) < 0.1
    classes = np.where(changed, draw.integers(n_clusters, size=n_nodes), (model.labels_ + 1) % n_clusters)
    return AttributedGraph(
        features,
        edges=pairs[:, pairs[0] != pairs[1]] if edges else None,
        ids=ids,
        labels=classes if truth else None,
        feature_names=names,
        name="made",
    )


def made_record(model, *, method="pamcgc", command="pamc fit rows.csv -k 5", **others):
    n_clusters = len(model.cluster_centers_)
    values = {
        "method": method,
        "data": {"name": "made", "n_nodes": len(model.labels_), "n_features": 12, "n_edges": 3, "features": "rows.csv"},
        "seed": 0,
        "config": {"n_clusters": n_clusters, "n_neighbors": 10, "n_hops": 2, "init": "consensus", "alpha": 1.0},
        "device": "cpu",
        "n_epochs_run": 4,
        "stopped": "all epochs run",
        "seconds": {"training": 1.5},
        "facts": {
            "preprocessing": "scale",
            "graph": "given",
            "n_edges": 10,
            "n_positive_pairs": 20,
            "inputs": "features and graph",
            "clusters_by": "k-means",
            "support": 0.9,
            "conductance": 0.1,
            "graph_trust": 0.75,
            "encoder_fitted_to": "smoothed features",
            "score_before": 1.13,
            "score_after": 1.2,
            "fallback": None,
            "choose_k": {
                "n_clusters": 5,
                "why": "5 clusters are the most stable.",
                "margin": 0.4,
                "margin_error": 0.02,
                "rival": 4,
                "also_stable": [2, 3],
                "table": {
                    "n_clusters": [4, 5],
                    "stability": [0.5, 0.9],
                    "error": [0.01, 0.02],
                    "chance": [0.2, None],
                    "modularity": [0.3, 0.4],
                    "silhouette": [0.1, 0.2],
                },
            },
        },
        "history": {"loss": [3.0, 2.5, 2.25, 2.0], "kl": [0.5, 0.25, 0.2, 0.1], "changed": [1.0, 0.1, 0.0, 0.0]},
        "cluster_sizes": np.bincount(model.labels_, minlength=n_clusters).tolist(),
        "scores": {"modularity": 0.4, "silhouette": 0.6, "objective": 1.0},
        "environment": {"pamc": "0.1.0", "packages": {"numpy": "2"}, "commit": None},
        "metrics": {"acc": 0.9, "nmi": 0.8, "ari": 0.7, "f1": 0.9},
        "command": command,
    }
    return RunRecord(**{**values, **others})


def made_page(n_nodes=300, n_clusters=5, *, seed=0, extras=None, empty=False, record=None, **graph):
    """Return the object of a page."""
    model = made_model(n_nodes, n_clusters, seed=seed, empty=empty)
    made = made_graph(model, seed=seed, **graph)
    return page_data(model, made, record or made_record(model), extras or Extras(map_by="pca"))
