"""The PamCGC estimator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, cast

import numpy as np
from sklearn.base import clone
from torch import nn

from pamc.config import FitConfig, MethodConfig
from pamc.data.store import Store
from pamc.distributed.group import TorchProcessGroup
from pamc.errors import ConfigError
from pamc.estimator.advanced import (
    BASIC,
    EXPERT,
    Advanced,
    as_advanced,
    nested,
    refuses_misplaced,
    why_misplaced,
    with_settings,
)
from pamc.estimator.base import Clusterer
from pamc.estimator.row_clusterer import RowClusterer
from pamc.progress import Progress
from pamc.runtime import resolve_device
from pamc.training.checkpoint import CheckpointPlan
from pamc.training.pipeline import plan_store
from pamc.training.plan import Plan


@with_settings
class PamCGC(RowClusterer):
    """Contrastive clustering of rows by their features and, optionally, a graph.

    Trains an MLP encoder and cluster centers on Eq 12 of the paper (Kulatilleke et al. 2022): a contrastive loss that
    accounts for every negative pair through C × C cluster meta-nodes, and a self-supervised clustering loss. Time and
    memory are linear in rows and edges. New rows need no graph.

    Parameters
    ----------
    SETTINGS
    advanced : Advanced or dict, default=None
        The expert settings: a :class:`pamc.Advanced`, or a dict of some of them. In `set_params` and in grid searches,
        the setting `name` is called `advanced__name`.
    types : dict, default=None
        Types of columns of a data frame, by name, which override the inferred types: "number", "decimal comma",
        "decimal point", "yes/no", "category", "ordered", "date", "time", "text", "id" or "ignore"; or a list of the
        values of an ordered category, lowest first; or a function that embeds texts: it is called with a list of n
        texts and returns an (n, d) array (see `docs/columns.md`).
    encoder : torch.nn.Module, default=None
        A custom row-wise module that maps (n, d) to (n, n_dims) and replaces the MLP. A copy of it is trained,
        starting from its current weights.
    random_state : int, RandomState instance or None, default=None
        Random seed. The same seed gives bitwise identical results on one machine.
    device : str, default="auto"
        Device to compute on: "cpu", "cuda", "cuda:1" …; "auto" uses a GPU if there is one.
    verbose : bool, default=False
        Whether to show progress on standard error.

    Attributes
    ----------
    labels_ : (N,) int
        Cluster of each row: `predict(X)` at the end of training. Noise is −1 if `min_confidence` is set.
    confidence_ : (N,) float
        Expected share of clusterings of random halves of the rows that give the row the same cluster, estimated from
        its margin before training; the largest q if there were no such clusterings (see `docs/choosing.md`).
    noise_ : (N,) str or None
        Why each row is noise: "between clusters", "unlike the training rows", or "" if it is in a cluster; None unless
        `min_confidence` is set.
    embedding_ : (N, n_dims) float
        Embedding z of each row.
    cluster_centers_ : (C, n_dims) float
        Learned centers μ.
    inertia_ : float
        Sum of squared distances of the rows to the centers of their clusters, in the embedding.
    meta_nodes_ : (C, n_dims) float
        Meta-nodes μ̂ of the final labels.
    linkage_ : (C − 1, 4) float
        Tree over the clusters in scipy's linkage format; `labels_at(k)` cuts it into k coarser clusters.
    history_ : dict of list
        Values of each epoch: `loss`, its parts `positive`, `proxy`, `kl` and, with views, `views`, and the monitored
        quantities `alignment`, `uniformity`, `center_distance`, `n_nonempty` and `changed`.
    n_iter_ : int
        Number of epochs run.
    scores_ : dict
        Label-free scores: `modularity` of the labels on the graph, `silhouette` of the embedding, and `objective`, the
        loss of the last epoch in a form that can be compared between fits with different numbers of empty clusters.
    n_features_in_, feature_names_in_
        Number and names of the features, as in scikit-learn.
    columns_
        Types and encoding of the columns of a data frame of mixed types; None for plain numbers.

    Examples
    --------
    >>> from pamc import PamCGC, evaluate
    >>> from sklearn.datasets import make_blobs
    >>> X, y = make_blobs(200, centers=3, random_state=0, cluster_std=0.5)
    >>> model = PamCGC(3, n_epochs=20, advanced={"hidden": (32,)}, random_state=0).fit(X)
    >>> round(evaluate(y, model.labels_)["acc"], 1)
    1.0
    >>> model.predict(X[:5]).tolist() == model.labels_[:5].tolist()
    True
    """

    method_name = "pamcgc"

    @refuses_misplaced
    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: str = FitConfig.init,
        n_neighbors: int = FitConfig.n_neighbors,
        n_hops: int | None = FitConfig.n_hops,
        alpha: float | None = FitConfig.alpha,
        beta: float = FitConfig.beta,
        image_shape: tuple[int, ...] | None = FitConfig.image_shape,
        n_epochs: int | None = FitConfig.n_epochs,
        min_confidence: float | None = FitConfig.min_confidence,
        advanced: Advanced | Mapping[str, Any] | None = None,
        types: Mapping[str, Any] | None = None,
        encoder: nn.Module | None = None,
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_neighbors = n_neighbors
        self.n_hops = n_hops
        self.alpha = alpha
        self.beta = beta
        self.image_shape = image_shape
        self.n_epochs = n_epochs
        self.min_confidence = min_confidence
        self.advanced = advanced
        self.types = types
        self.encoder = encoder
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(  # noqa: D102 - set below: most of it is the docstring of the base class
        self,
        X: Any = None,
        y: Any = None,
        *,
        adjacency: Any = None,
        relation_weights: Mapping[str, float] | None = None,
        known_labels: Any = None,
        views: Any = None,
        sample_weight: Any = None,
        on_epoch: Any = None,
        previous: Any = None,
    ) -> Self:
        options = {"relation_weights": relation_weights, "known_labels": known_labels, "views": views}
        options |= {"on_epoch": on_epoch, "previous": previous}
        return self._fit_rows(X, adjacency=adjacency, sample_weight=sample_weight, **options)

    fit.__doc__ = f"""{(Clusterer.fit.__doc__ or "").rstrip()}
        sample_weight
            (N,) nonnegative weights: a row of weight w counts as w identical rows. Rows of weight 0 are assigned to
            clusters but do not influence the fit. If the mean of the positive weights is below 1, all weights are
            scaled so that it is 1.
        """

    @classmethod
    def from_config(cls, config: MethodConfig, **others: Any) -> Self:
        """Return an estimator with the settings of a config (see :func:`pamc.preset`)."""
        defaults = FitConfig()
        changed = {name: getattr(config, name) for name in EXPERT if getattr(config, name) != getattr(defaults, name)}
        basic = {name: getattr(config, name) for name in BASIC}
        return cls(**nested({**basic, **changed, **others}))

    @property
    def config(self) -> FitConfig:
        """The settings as a validated, frozen config."""
        expert = as_advanced(self.advanced)
        values = {name: getattr(self, name) for name in BASIC} | {name: getattr(expert, name) for name in EXPERT}
        return FitConfig(**values)

    @property
    def pretrained(self) -> str | None:  # type: ignore[override]
        """File of pre-trained weights in the expert settings."""
        return cast(str | None, as_advanced(self.advanced).pretrained)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters and, with `deep`, the expert settings as `advanced__name`."""
        params: dict[str, Any] = super().get_params(deep)
        if deep and isinstance(self.advanced, Mapping | None):
            expert = as_advanced(self.advanced).get_params()
            params |= {f"advanced__{name}": value for name, value in expert.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, and expert settings as `advanced__name`; an `Advanced` that was passed is not modified."""
        for name, value in params.items():
            if reason := why_misplaced(name, value):
                raise ConfigError(f"{reason}, or set_params(advanced__…)")
        if any(name.startswith("advanced__") for name in params):
            self.advanced = clone(as_advanced(params.pop("advanced", self.advanced)))
        super().set_params(**params)
        return self

    def fit_store(
        self,
        store: Store,
        *,
        relation_weights: Mapping[str, float] | None = None,
        memory: int | None = None,
        progress: Progress | None = None,
        checkpoints: CheckpointPlan | None = None,
        group: TorchProcessGroup | None = None,
        verify: bool = True,
    ) -> Self:
        """Cluster the rows of a store (`pamc ingest`); its labels are not used.

        A store of more than 50,000 rows is not read into memory: clusters are initialized from a sample, the gradient
        is that of all rows, and :meth:`plan_store` returns the memory that training needs. A smaller store is fitted
        like :meth:`fit_graph`.

        Parameters
        ----------
        store
            The store that :func:`pamc.data.store.open_store` returns.
        relation_weights
            Same as in :meth:`fit`, for a store with several relations.
        memory
            Bytes that training may use; by default the free memory of the device.
        progress, checkpoints, group
            Same as in :meth:`fit_graph`.
        verify
            Whether to compare the checksums of the files with the manifest before the first fit of the store, which
            reads every byte once (:meth:`pamc.data.store.Store.verify_once`).
        """
        if self.encoder is not None or self.pretrained is not None:
            raise ConfigError("a store is fitted without encoder= and pretrained=: leave them out")
        if verify:
            store.verify_once()
        if relation_weights is not None:
            store = store.with_relation_weights(relation_weights)
        self.n_features_in_ = store.n_features
        if store.feature_names is not None:
            self.feature_names_in_ = np.array(store.feature_names, dtype=object)
        return self._fit(store, memory=memory, progress=progress, checkpoints=checkpoints, group=group)

    def plan_store(self, store: Store, *, memory: int | None = None, n_processes: int = 1) -> Plan:
        """Return the memory plan of training on a store; raise a ConfigError if it does not fit."""
        device = resolve_device(self.device)
        return plan_store(store, self.config, device=device, memory=memory, n_processes=n_processes)
