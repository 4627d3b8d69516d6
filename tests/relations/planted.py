"""Generated rows with several relations, each as informative about the planted clusters as asked for."""

import numpy as np

from pamc.data.synthetic import blobs


def relation(labels, *, degree, homophily, rng):
    """Return (E, 2) random edges of which a share `homophily` joins rows of the same label, the others any two rows."""
    members = [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]
    source = rng.integers(len(labels), size=round(len(labels) * degree / 2))
    inside = np.array([rng.choice(members[label]) for label in labels[source]])
    target = np.where(rng.random(len(source)) < homophily, inside, rng.integers(len(labels), size=len(source)))
    pairs = np.sort(np.stack([source, target], axis=1)[source != target], axis=1)
    return np.unique(pairs, axis=0)


def planted(n_nodes, n_clusters, *, feature_noise=2.0, seed=0, **relations):
    """Return features, labels and edges by name; `relations` are pairs (degree, homophily) by name."""
    rng = np.random.default_rng(seed)
    rows = blobs(n_nodes, n_clusters, feature_noise=feature_noise, random_state=seed)
    edges = {
        name: relation(rows.labels, degree=degree, homophily=homophily, rng=rng)
        for name, (degree, homophily) in relations.items()
    }
    return rows.features, rows.labels, edges
