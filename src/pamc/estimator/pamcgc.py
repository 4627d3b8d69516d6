"""PamCGC for scikit-learn users."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from torch import nn

from pamc.data.store import Store
from pamc.distributed.group import TorchProcessGroup
from pamc.errors import ConfigError
from pamc.estimator.base import RowClusterer
from pamc.progress import Progress
from pamc.runtime import resolve_device, seed_of
from pamc.training.fit_checkpoints import CheckpointPlan
from pamc.training.plan import Plan
from pamc.training.store_pipeline import fit_store, plan_store

__all__ = ["PamCGC"]


class PamCGC(RowClusterer):
    """Clusters rows by their features and, where there is one, their graph.

    An MLP encoder and cluster centers trained on Eq 12 of the paper (Kulatilleke et al. 2022): a contrastive loss that
    counts every negative pair through C × C cluster meta-nodes, and a self-supervised clustering loss. Time and memory
    are linear in rows and edges. New rows need no graph.

    Parameters
    ----------
    n_clusters : int, default=8
        C, the number of clusters.
    alpha : float, default=1.0
        Weight of the contrastive term.
    beta : float, default=10.0
        Weight of the clustering term.
    tau : float, default=0.5
        Multiplies the cosine (other libraries divide by a temperature).
    eta : float, default=1.0
        Degrees of freedom of the Student-t kernel.
    proxy : {"eq2", "eq6"}, default="eq2"
        Form of the proxy of the negatives.
    meta_assignment : {"hard", "soft", "soft_detached"}, default="hard"
        What the meta-nodes sum over.
    self_edges : {"drop", "keep"}, default="drop"
        Whether a row counts among its own positives.
    kl_reduction : {"mean", "sum"}, default="mean"
        Whether the clustering term is divided by the number of rows.
    n_neighbors : int, default=10
        Neighbors per row in the kNN graph that is built when no graph is given.
    metric : {"auto", "euclidean", "cosine"}, default="auto"
        Of the kNN graph; "auto" is the angle in the 50 leading directions of the features.
    graph_trust : {"auto", "always"}, default="auto"
        "auto" leaves out the graph or the features where the two have nothing to do with each other.
    n_hops : int, default=2
        Order of the cumulative influence that makes the positives.
    max_positives : int, default=None
        Keep this many of the strongest positives per row; None keeps all.
    preprocessing : {"auto", "none", "scale", "standardize", "unit", "rms", "tfidf"}, default="auto"
        How features are prepared; "auto" decides from the data.
    hidden : tuple of int, default=(500, 500, 2000)
        Sizes of the encoder's hidden layers.
    n_dims : int, default=None
        Size of the embedding; None is two per cluster, at most 32.
    init : {"consensus", "propagated_svd", "propagated_autoencoder", "spectral", "autoencoder"}, default="consensus"
        How the encoder gets its first weights and the clusters their first centers: from the clusters that many quick
        clusterings of the smoothed features agree on, from a truncated SVD of the propagated features, from
        reconstructing those, from a spectral contrast, or from reconstructing the features, as in the paper.
    embedding_scale : float, default=2.0
        Length of a row of z after a start other than "autoencoder": how sharp the first assignment is.
    pretrain_epochs, pretrain_lr, batch_size : int, float, int, default=30, 1e-3, 256
        Of the start.
    pretrain_dropout : float, default=0.3
        Share of the features that is hidden from an encoder while it learns the place of rows among their neighbors.
    n_init : int, default=20
        K-means starts for the centers.
    n_epochs, lr : int, float, default=200, 1e-4
        Of the training.
    tol : float, default=0.0
        Stop when the share of labels that changed in an epoch is at most this; 0 runs all epochs.
    chunk_size : int, default=None
        Rows encoded at a time; None for all at once. The gradient is the same.
    precision : {"auto", "float32", "float64", "bfloat16"}, default="auto"
        Number type of the model and of all results; "auto" is float32, whose products a GPU takes on its tensor cores.
    random_state : int, RandomState instance or None, default=None
        Source of all randomness.
    device : str, default="auto"
        "cpu", "cuda", "cuda:1" …; "auto" takes a GPU where there is one.
    encoder : torch.nn.Module, default=None
        A module of your own that maps (n, d) to (n, n_dims), each row alone, in place of the MLP. It is copied, and
        trained from the weights it has.
    pretrained : str, default=None
        File of pre-trained encoder weights in SDCN's layout, in place of pre-training.
    verbose : bool, default=False
        Show progress on standard error.

    Attributes
    ----------
    labels_ : (N,) int
        Cluster of each row: `predict(X)` at the end of training.
    confidence_ : (N,) float
        The share of clusterings of other halves of the rows that give the row the same cluster, as the row's margin
        before training leads to expect it; the largest q itself where there were none (see `docs/choosing.md`).
    embedding_ : (N, n_dims) float
        z of each row.
    cluster_centers_ : (C, n_dims) float
        Learnt centers μ.
    meta_nodes_ : (C, n_dims) float
        Meta-nodes μ̂ of the final labels.
    history_ : dict of list
        Per epoch: `loss`, its parts `positive`, `proxy` and `kl`, `alignment`, `uniformity`, `center_distance`,
        `n_nonempty`, `changed`.
    n_iter_ : int
        Epochs run.
    scores_ : dict
        Label-free scores: `modularity` of the labels on the graph, `silhouette` of the embedding, `objective`, the
        loss of the last epoch, comparable between fits that lost different numbers of clusters.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> from pamc import PamCGC, evaluate
    >>> from sklearn.datasets import make_blobs
    >>> X, y = make_blobs(200, centers=3, random_state=0, cluster_std=0.5)
    >>> model = PamCGC(3, hidden=(32,), n_epochs=20, random_state=0).fit(X)
    >>> round(evaluate(y, model.labels_)["acc"], 1)
    1.0
    >>> model.predict(X[:5]).tolist() == model.labels_[:5].tolist()
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        alpha: float = 1.0,
        beta: float = 10.0,
        tau: float = 0.5,
        eta: float = 1.0,
        proxy: str = "eq2",
        meta_assignment: str = "hard",
        self_edges: str = "drop",
        kl_reduction: str = "mean",
        n_neighbors: int = 10,
        metric: str = "auto",
        graph_trust: str = "auto",
        n_hops: int = 2,
        max_positives: int | None = None,
        preprocessing: str = "auto",
        hidden: tuple[int, ...] = (500, 500, 2000),
        n_dims: int | None = None,
        init: str = "consensus",
        embedding_scale: float = 2.0,
        pretrain_epochs: int = 30,
        pretrain_dropout: float = 0.3,
        pretrain_lr: float = 1e-3,
        batch_size: int = 256,
        n_init: int = 20,
        n_epochs: int = 200,
        lr: float = 1e-4,
        tol: float = 0.0,
        chunk_size: int | None = None,
        precision: str = "auto",
        random_state: Any = None,
        device: str = "auto",
        encoder: nn.Module | None = None,
        pretrained: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.alpha = alpha
        self.beta = beta
        self.tau = tau
        self.eta = eta
        self.proxy = proxy
        self.meta_assignment = meta_assignment
        self.self_edges = self_edges
        self.kl_reduction = kl_reduction
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.graph_trust = graph_trust
        self.n_hops = n_hops
        self.max_positives = max_positives
        self.preprocessing = preprocessing
        self.hidden = hidden
        self.n_dims = n_dims
        self.init = init
        self.embedding_scale = embedding_scale
        self.pretrain_epochs = pretrain_epochs
        self.pretrain_dropout = pretrain_dropout
        self.pretrain_lr = pretrain_lr
        self.batch_size = batch_size
        self.n_init = n_init
        self.n_epochs = n_epochs
        self.lr = lr
        self.tol = tol
        self.chunk_size = chunk_size
        self.precision = precision
        self.random_state = random_state
        self.device = device
        self.encoder = encoder
        self.pretrained = pretrained
        self.verbose = verbose

    method_name = "pamcgc"

    def fit_store(
        self,
        store: Store,
        *,
        memory: int | None = None,
        progress: Progress | None = None,
        checkpoints: CheckpointPlan | None = None,
        group: TorchProcessGroup | None = None,
        verify: bool = True,
    ) -> Self:
        """Cluster the rows of a store (`pamc ingest`) without reading it into memory; its labels are not read.

        The gradient is that of all rows. The start is that of a sample. :meth:`plan_store` says what it will need.

        Parameters
        ----------
        store
            What :func:`pamc.data.store.open_store` returns.
        memory
            Bytes that training may use; what the device has left without.
        progress, checkpoints, team
            As of :meth:`fit_graph`.
        verify
            Whether to compare the checksums of the files with the manifest before the first fit of the store, which
            reads every byte once (:meth:`pamc.data.store.Store.verify_once`).
        """
        if self.encoder is not None or self.pretrained is not None:
            raise ConfigError("a store is fitted with an encoder and a start of pamc's own: leave out the others")
        device = resolve_device(self.device) if group is None else group.device
        if verify:
            store.verify_once()
        self.n_features_in_ = store.n_features
        if store.feature_names is not None:
            self.feature_names_in_ = np.array(store.feature_names, dtype=object)
        options: dict[str, Any] = {"progress": progress, "checkpoints": checkpoints, "group": group}
        seed = seed_of(self.random_state)
        return self._adopt_from(
            lambda: fit_store(store, self.config, seed=seed, device=device, memory=memory, **options)
        )

    def plan_store(self, store: Store, *, memory: int | None = None, n_processes: int = 1) -> Plan:
        """Return what training of a store will need, or refuse it with the numbers."""
        device = resolve_device(self.device)
        return plan_store(store, self.config, device=device, memory=memory, n_processes=n_processes)
