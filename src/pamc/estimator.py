"""PamCGC for scikit-learn users."""

from __future__ import annotations

import copy
import dataclasses
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils import ClassifierTags
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from pamc.config import FitConfig
from pamc.data.adapters import as_edges, as_table, from_object, why_not_a_table
from pamc.data.attributed_graph import AttributedGraph, check_features
from pamc.errors import CollapseWarning, ConfigError, DataError, EmptyClusterWarning
from pamc.models.rows import FeatureRows
from pamc.registry import Registry
from pamc.results.record import RunRecord
from pamc.results.run_folder import MODEL_FILE, RECORD_FILE, new_run_folder, write_labels
from pamc.results.saved_fit import SavedFit, load_fit, save_fit
from pamc.runtime import resolve_device, resolve_dtype, seed_of
from pamc.training.fit import Fit, assign_rows, fit_pamcgc
from pamc.training.progress import Progress, RichProgress, SilentProgress

__all__ = ["METHODS", "PamCGC", "clusterer"]

# Warning filters and the threads of the linear algebra belong to the whole process: fits in several threads take turns.
_TURNS = threading.RLock()

METHODS: Registry[Any] = Registry("method")


@METHODS.register("pamcgc")
class PamCGC(TransformerMixin, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Clusters rows by their features and, where there is one, their graph.

    An MLP encoder and cluster centers trained on Eq 12 of the paper (Kulatilleke et al. 2022): a contrastive loss that
    counts every negative pair through C × C cluster meta-nodes, and a self-supervised clustering loss. Time and memory
    are linear in rows and edges. New rows need no graph.

    Parameters
    ----------
    n_clusters : int, default=8
        C, the number of clusters.
    alpha, beta : float, default=1.0
        Weights of the contrastive and of the clustering term.
    tau : float, default=1.0
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
    metric : {"euclidean", "cosine"}, default="euclidean"
        Of the kNN graph.
    n_hops : int, default=2
        Order of the cumulative influence that makes the positives.
    max_positives : int, default=None
        Keep this many of the strongest positives per row; None keeps all.
    preparation : {"auto", "none", "scale", "standardize", "unit", "tfidf"}, default="auto"
        How features are prepared; "auto" decides from the data.
    hidden : tuple of int, default=(500, 500, 2000)
        Sizes of the encoder's hidden layers.
    n_dims : int, default=10
        Size of the embedding.
    start : {"propagated_svd", "autoencoder"}, default="propagated_svd"
        How the encoder gets its first weights: fitted to a truncated SVD of the features propagated over the graph, or
        trained to reconstruct the features, as in the paper.
    embedding_scale : float, default=8.0
        Length of a row of z after a "propagated_svd" start: how sharp the first assignment is.
    pretrain_epochs, pretrain_lr, batch_size : int, float, int, default=60, 1e-3, 256
        Of the start.
    n_init : int, default=20
        K-means starts for the centers.
    n_epochs, lr : int, float, default=200, 1e-4
        Of the training.
    tol : float, default=0.0
        Stop when the share of labels that changed in an epoch is at most this; 0 runs all epochs.
    chunk_size : int, default=None
        Rows encoded at a time; None for all at once. The gradient is the same.
    precision : {"float32", "float64"}, default="float32"
        Number type of the model and of all results.
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
        Probability of that cluster.
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
        Label-free scores: `modularity` of the labels on the graph, `silhouette` of the embedding.
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
        beta: float = 1.0,
        tau: float = 1.0,
        eta: float = 1.0,
        proxy: str = "eq2",
        meta_assignment: str = "hard",
        self_edges: str = "drop",
        kl_reduction: str = "mean",
        n_neighbors: int = 10,
        metric: str = "euclidean",
        n_hops: int = 2,
        max_positives: int | None = None,
        preparation: str = "auto",
        hidden: tuple[int, ...] = (500, 500, 2000),
        n_dims: int = 10,
        start: str = "propagated_svd",
        embedding_scale: float = 8.0,
        pretrain_epochs: int = 60,
        pretrain_lr: float = 1e-3,
        batch_size: int = 256,
        n_init: int = 20,
        n_epochs: int = 200,
        lr: float = 1e-4,
        tol: float = 0.0,
        chunk_size: int | None = None,
        precision: str = "float32",
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
        self.n_hops = n_hops
        self.max_positives = max_positives
        self.preparation = preparation
        self.hidden = hidden
        self.n_dims = n_dims
        self.start = start
        self.embedding_scale = embedding_scale
        self.pretrain_epochs = pretrain_epochs
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

    @classmethod
    def from_config(cls, config: FitConfig, **others: Any) -> PamCGC:
        """Return an estimator with the settings of a config (see :func:`pamc.config.preset`)."""
        return cls(**{name: getattr(config, name) for name in FitConfig.names()}, **others)

    @property
    def config(self) -> FitConfig:
        """The settings as one checked, frozen record."""
        return FitConfig(**{name: getattr(self, name) for name in FitConfig.names()})

    def fit(self, X: Any, y: Any = None, *, adjacency: Any = None, known_labels: Any = None) -> PamCGC:
        """Cluster the rows of X.

        Parameters
        ----------
        X
            (N, d) array, scipy sparse matrix, pandas DataFrame or torch tensor.
        y
            Ignored, as in every scikit-learn clusterer: labels never reach training through a pipeline.
        adjacency
            The graph: scipy sparse, dense (N, N), (E, 2) or (2, E) array of row indices, torch sparse, or networkx
            with nodes named as the index of a data frame X, or by row number.
            Without it a kNN graph is built. The graph is symmetrized; it is not needed for new rows.
        known_labels
            (N,) cluster of the rows whose cluster is known, −1 for the others. Known rows count for their cluster's
            meta-node.
        """
        array = self._validated(X, reset=True)
        row_names = X.index if hasattr(X, "columns") and hasattr(X, "index") else None
        edges, weight = None, None
        if adjacency is not None:
            edges, weight = as_edges(adjacency, array.shape[0], row_names=row_names)
        names = getattr(self, "feature_names_in_", None)
        return self._fit(
            AttributedGraph(array, edges, weight, feature_names=None if names is None else tuple(names)),
            known_labels=known_labels,
            progress=RichProgress() if self.verbose else SilentProgress(),
        )

    def fit_graph(self, graph: Any, *, known_labels: Any = None, progress: Progress | None = None) -> PamCGC:
        """Cluster the rows of an :class:`AttributedGraph`, as :func:`pamc.load_dataset` returns it.

        A torch_geometric Data or an AnnData will do as well. Labels are not read.
        """
        graph = from_object(graph)
        self._validated(graph.features, reset=True)
        if graph.feature_names is not None:
            self.feature_names_in_ = np.array(graph.feature_names, dtype=object)
        return self._fit(graph.without_labels(), known_labels=known_labels, progress=progress or SilentProgress())

    def _fit(self, graph: AttributedGraph, *, known_labels: Any, progress: Progress) -> PamCGC:
        device = resolve_device(self.device)
        if not isinstance(self.encoder, nn.Module | None):
            raise ConfigError(f"encoder must be a torch.nn.Module or None, got {self.encoder!r}")
        with _TURNS, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit = fit_pamcgc(
                graph,
                self.config,
                seed=seed_of(self.random_state),
                device=device,
                encoder=copy.deepcopy(self.encoder),
                pretrained=self.pretrained,
                known_labels=None if known_labels is None else np.asarray(known_labels),
                progress=progress,
            )
        said = _once_each(caught)
        for warning in said:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        return self._adopt(dataclasses.replace(fit, warnings=tuple(str(warning.message) for warning in said)))

    def _adopt(self, fit: Fit) -> PamCGC:
        self._fit_result = fit
        self.labels_ = fit.labels
        self.confidence_ = fit.confidence
        self.embedding_ = fit.z.cpu().numpy()
        self.cluster_centers_ = fit.centers.cpu().numpy()
        self.meta_nodes_ = fit.meta_nodes.cpu().numpy()
        self.history_ = fit.history
        self.scores_ = fit.scores
        self.n_iter_ = len(fit.history.get("loss", []))
        return self

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the cluster (n,) of each row; no graph is needed."""
        labels: NDArray[np.int64] = self._assign(X)[1].argmax(dim=1).cpu().numpy()
        return labels

    def predict_proba(self, X: Any) -> NDArray[np.floating]:
        """Return the probability (n, C) of each cluster for each row (Eq 9)."""
        probabilities: NDArray[np.floating] = self._assign(X)[1].cpu().numpy()
        return probabilities

    def transform(self, X: Any) -> NDArray[np.floating]:
        """Return the embedding z (n, n_dims) of each row."""
        z: NDArray[np.floating] = self._assign(X)[0].cpu().numpy()
        return z

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the mean squared distance between each row's z and the center of its cluster."""
        z, q = self._assign(X)
        centers = torch.from_numpy(self.cluster_centers_).to(z)
        return -float((z - centers[q.argmax(dim=1)]).double().square().sum(dim=1).mean())

    def _assign(self, X: Any) -> tuple[Tensor, Tensor]:
        check_is_fitted(self)
        fit = self._fit_result
        features = fit.preparation.apply(check_features(self._validated(X, reset=False)))
        device, dtype = resolve_device(self.device), resolve_dtype(fit.config.precision)
        rows = FeatureRows(features, device=device, dtype=dtype, sparse=fit.sparse_input)
        encoder, centers = fit.encoder.to(device), fit.centers.to(device)
        z, q = assign_rows(encoder, centers, rows, eta=fit.config.eta, chunk_size=self.chunk_size)
        lost = torch.nonzero(~torch.isfinite(q).all(dim=1)).flatten().tolist()
        if lost:
            raise DataError(
                f"row {lost[0]} is too far from the rows of the fit for {fit.config.precision} (of {len(q)} rows, "
                f"{len(lost)} are): look at its units, or leave it out"
            )
        return z, q

    def _validated(self, X: Any, *, reset: bool) -> Any:
        """Return X as scikit-learn checks it, NaN and inf apart: those are reported with their row and column."""
        X = as_table(X)
        try:
            return validate_data(
                self, X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite=False, reset=reset
            )
        except ValueError as error:
            raise why_not_a_table(X, error) from error
        except TypeError as error:
            if hasattr(X, "columns"):
                raise why_not_a_table(X, error) from error
            raise

    def record(
        self,
        *,
        data: dict[str, Any] | None = None,
        metrics: dict[str, float] | None = None,
        command: str | None = None,
    ) -> RunRecord:
        """Return the record of the fit, with what the caller knows of the data, the true classes and the command."""
        check_is_fitted(self)
        facts = {"n_nodes": len(self.labels_), "n_features": self.n_features_in_, **(data or {})}
        return RunRecord.of(self._fit_result, data=facts, metrics=metrics, command=command)

    def save(
        self,
        folder: str | Path,
        *,
        overwrite: bool = False,
        ids: Any = None,
        labels_format: str = "csv",
        record: RunRecord | None = None,
    ) -> None:
        """Write a run folder: model, labels, embedding and record; whole or not at all, and no pickle.

        Parameters
        ----------
        folder
            A folder that does not exist yet.
        overwrite
            Replace a run that stands there.
        ids
            (N,) names of the rows in `labels.csv`; 0 … N−1 without.
        labels_format
            "csv" or "parquet".
        record
            What to write to `run.json`; :meth:`record` without.
        """
        check_is_fitted(self)
        with new_run_folder(Path(folder), overwrite=overwrite) as partial:
            self.write_run(partial, ids=ids, labels_format=labels_format, record=record)

    def write_run(
        self, folder: Path, *, ids: Any = None, labels_format: str = "csv", record: RunRecord | None = None
    ) -> None:
        """Write the files of a run into a folder that exists."""
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        columns = None if names is None else tuple(str(name) for name in names)
        saved = SavedFit(self._fit_result, self.n_features_in_, columns, own_encoder=self.encoder is not None)
        save_fit(folder / MODEL_FILE, saved)
        row_ids = np.arange(len(self.labels_)) if ids is None else np.asarray(ids)
        write_labels(folder, row_ids, self.labels_, self.confidence_, file_format=labels_format)
        np.save(folder / "embedding.npy", self.embedding_)
        (folder / RECORD_FILE).write_text((record or self.record()).to_json(), encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path, *, encoder: nn.Module | None = None, device: str = "auto") -> PamCGC:
        """Return the model of a run folder, ready to predict.

        Parameters
        ----------
        folder
            What :meth:`save` or `pamc fit` wrote.
        encoder
            A module of the same class and sizes, when the model was fitted with one of your own; its weights are
            replaced by the saved ones.
        device
            Where to predict.
        """
        saved = load_fit(Path(folder) / MODEL_FILE, encoder=encoder)
        own = encoder if saved.own_encoder else None
        model = cls.from_config(saved.fit.config, random_state=saved.fit.seed, device=device, encoder=own)
        model.n_features_in_ = saved.n_features
        if saved.feature_names is not None:
            model.feature_names_in_ = np.array(saved.feature_names, dtype=object)
        return model._adopt(saved.fit)

    def check_feature_names(self, names: tuple[str, ...] | None) -> None:
        """Refuse columns that are missing, unknown or in another order than those the model was fitted on."""
        fitted = getattr(self, "feature_names_in_", None)
        if fitted is None or names is None or tuple(fitted) == tuple(names):
            return
        missing = [name for name in fitted if name not in names]
        unknown = [name for name in names if name not in fitted]
        problems = [f"missing: {', '.join(missing[:5])}"] if missing else []
        problems += [f"not seen in training: {', '.join(unknown[:5])}"] if unknown else []
        raise DataError(
            "the feature columns are not those the model was fitted on; "
            + (
                "; ".join(problems)
                or "they are the same but in another order: put them in the order of the training file"
            )
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = [self.precision]
        # scikit-learn asks these of whatever has `predict_proba`.
        tags.classifier_tags = ClassifierTags()
        return tags


def _once_each(caught: list[warnings.WarningMessage]) -> list[warnings.WarningMessage]:
    """Return each warning once; of those about lost clusters, which come every epoch with other numbers, the first."""
    lost = (EmptyClusterWarning, CollapseWarning)
    first: dict[object, warnings.WarningMessage] = {}
    for warning in caught:
        first.setdefault(warning.category if issubclass(warning.category, lost) else str(warning.message), warning)
    return list(first.values())


def clusterer(name: str, n_clusters: int = 8, **parameters: Any) -> Any:
    """Return the estimator of a method by its name.

    Examples
    --------
    >>> clusterer("pamcgc", 3, random_state=0)
    PamCGC(n_clusters=3, random_state=0)
    """
    return METHODS[name](n_clusters, **parameters)
