"""The base class of the estimators: fitting, records and run folders."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from pamc.config import MethodConfig
from pamc.data.adapters import from_object, graph_alone, with_adjacency
from pamc.data.attributed_graph import AttributedGraph, check_known
from pamc.data.columns.encoding import TableEncoding
from pamc.data.rows import as_table, frame_graph, why_not_a_table
from pamc.data.store import Store
from pamc.distributed.group import TorchProcessGroup
from pamc.errors import ConfigError, DataError, EmptyClusterWarning, ModelFileError, PamcError, collected_warnings, warn
from pamc.estimator.levels import split_cluster
from pamc.estimator.noise import noise_names
from pamc.estimator.update import compared, later_rows, update_facts
from pamc.initialize.levels import merged_labels
from pamc.initialize.noise import without_noise
from pamc.models.method import METHODS
from pamc.progress import FitProgress, Progress
from pamc.results.record import RunRecord
from pamc.results.run_folder import MODEL_FILE, RECORD_FILE, new_run_folder, write_labels
from pamc.results.saved_fit import SavedFit, load_fit, save_fit
from pamc.runtime import resolve_device, seed_of
from pamc.training.checkpoint import CheckpointPlan
from pamc.training.fallback import OnEpoch, as_callbacks, together
from pamc.training.phases import Fit
from pamc.training.pipeline import fit_method


class Clusterer(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of the estimators; their parameters are the fields of the method's config.

    Fitted attributes: `labels_`, `confidence_`, `embedding_`, `cluster_centers_`, `meta_nodes_`, `history_`, `scores_`,
    `n_iter_`, and `assigns_every_epoch_`: whether the method assigns rows in every epoch, or only at the end by
    K-means.
    """

    method_name: ClassVar[str]
    n_clusters: int
    random_state: Any
    device: str
    verbose: bool
    _row_ids: Any
    _slim_record: RunRecord | None = None
    _folder: Path | None = None
    encoder: nn.Module | None = None
    pretrained: str | None = None
    types: Any = None
    columns_: TableEncoding | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "partial_fit":
            raise AttributeError(
                f"{type(self).__name__} has no partial_fit: continue from a fitted model with fit(X, previous=model), "
                "where X contains its rows and new ones, or new rows alone"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @classmethod
    def config_class(cls) -> type[MethodConfig]:
        """Return the config class of the method."""
        return METHODS[cls.method_name].config

    @classmethod
    def from_config(cls, config: MethodConfig, **others: Any) -> Self:
        """Return an estimator with the settings of a config (see :func:`pamc.config.preset`)."""
        return cls(**{name: getattr(config, name) for name in config.names()}, **others)

    @property
    def config(self) -> Any:
        """The settings as a validated, frozen config."""
        config_class = self.config_class()
        return config_class(**{name: getattr(self, name) for name in config_class.names()})

    def fit(
        self,
        X: Any = None,
        y: Any = None,
        *,
        adjacency: Any = None,
        relation_weights: Mapping[str, float] | None = None,
        known_labels: Any = None,
        views: Any = None,
        on_epoch: Any = None,
        previous: Any = None,
    ) -> Self:
        """Cluster the rows of X.

        Parameters
        ----------
        X
            (N, d) array, scipy sparse matrix, torch tensor, or data frame of pandas, polars or Arrow, whose columns may
            have any type. Missing cells (NaN, None) are imputed internally. None clusters the nodes of `adjacency`
            by its edges and, for a networkx graph, by the numeric attributes of its nodes.
        y
            Ignored, as in every scikit-learn clusterer: labels never reach training through a pipeline.
        adjacency
            The graph: a scipy sparse matrix, a dense (N, N) matrix, an (E, 2) or (2, E) array of row indices, a torch
            sparse tensor, or a networkx graph, whose nodes are row numbers or the index values of a DataFrame X. By
            default, a kNN graph is built. The graph is symmetrized; it is not needed for new rows. Several relations
            are a dict of such graphs by name, in which a relation may also be a pair of arrays (sources, targets).
            :class:`pamc.Memberships` join rows that share groups; :class:`pamc.DirectedEdges` use the edge directions.
            With several relations, `labels_` also uses the edges of each row, whereas `predict` uses its features.
        relation_weights
            A number of at least 0 for each relation, by name: its share in the graph of the fit. By default, the
            weights are found from the data.
        known_labels
            (N,) clusters of the rows whose cluster is known, −1 for the others. Known rows are assigned to the
            meta-node of their cluster.
        views
            Copies of the rows that show the same thing, such as augmented images, as an (N, d) array or several,
            (n_copies, N, d), or as a callable that takes X and returns a random copy of each row; or a list of arrays
            and callables. A row and its copies are positive pairs, and the encoder is fitted to copies. For images, see
            `image_shape`.
        on_epoch
            Callback, or list of callbacks, such as those in :mod:`pamc.callbacks`. Each is called with an
            :class:`~pamc.training.fallback.Epoch` for every epoch of `history_`. If training may be undone (with every
            initializer except "autoencoder"), the calls are made after training.
        previous
            A fitted model to update. X contains its rows together with new ones, or new rows alone. Clusters keep their
            numbers, and `update_` lists those that appeared, vanished, split or merged, and shows how far the rows have
            drifted. Rows are recognized by the index of a pandas frame, by their position, or by their values. The
            columns and the preprocessing of the model are used, and the number of clusters stays the same apart from
            these changes.
        """
        options = {"relation_weights": relation_weights, "known_labels": known_labels, "views": views}
        return self._fit_rows(X, adjacency=adjacency, on_epoch=on_epoch, previous=previous, **options)

    def _fit_rows(
        self,
        X: Any,
        *,
        adjacency: Any,
        relation_weights: Mapping[str, float] | None,
        known_labels: Any,
        views: Any,
        on_epoch: Any,
        previous: Any,
        sample_weight: Any = None,
    ) -> Self:
        """Cluster the rows of X; the parameters are those of :meth:`fit`."""
        options = {"known_labels": known_labels, "sample_weight": sample_weight, "on_epoch": on_epoch}
        options["progress"] = FitProgress() if self.verbose else None
        if X is None:
            if previous is not None:
                raise ConfigError("previous needs X, the features of the rows")
            if adjacency is None:
                raise DataError("there is nothing to cluster: pass X, adjacency, or both")
            return self.fit_graph(graph_alone(adjacency), **options)
        graph = frame_graph(X, self.types) if previous is None else later_rows(self, previous, X)
        if graph is None:
            array = self._validated(X, reset=True)
            names = getattr(self, "feature_names_in_", None)
            graph = AttributedGraph(array, feature_names=None if names is None else tuple(names))
        if adjacency is not None:
            row_names = X.index if hasattr(X, "columns") and hasattr(X, "index") else graph.ids
            graph = with_adjacency(graph, adjacency, row_names=row_names, relation_weights=relation_weights)
        self._fit(graph, views=views, previous=previous, **options)
        self._row_ids = graph.ids
        return self

    def fit_graph(
        self,
        graph: Any,
        *,
        known_labels: Any = None,
        sample_weight: Any = None,
        previous: Any = None,
        progress: Progress | None = None,
        on_epoch: OnEpoch | Sequence[OnEpoch] | None = None,
        checkpoints: CheckpointPlan | None = None,
        group: TorchProcessGroup | None = None,
    ) -> Self:
        """Cluster the rows of an :class:`AttributedGraph`, as :func:`pamc.load_dataset` returns it.

        Parameters
        ----------
        graph
            The graph, or a networkx graph, torch_geometric Data or AnnData object. Its labels are not used.
        known_labels, previous
            Same as in :meth:`fit`. With `previous`, features must be encoded like those of the model.
        sample_weight
            (N,) weights of the rows, which only PamCGC supports; same as in :meth:`PamCGC.fit`.
        progress
            Displays the phases; by default nothing is displayed.
        on_epoch
            Same as in :meth:`fit`.
        checkpoints
            The folder and the interval of the checkpoints, and whether to resume from them.
        group
            Process group that trains together; None for a single process.
        """
        graph = from_object(graph)
        if graph.n_features == 0:
            self._expect_no_features()
        elif graph.encoding is None:
            self._validated(graph.features, reset=True)
            if graph.feature_names is not None:
                self.feature_names_in_ = np.array(graph.feature_names, dtype=object)
        self._fit(
            graph.without_labels(),
            known_labels=known_labels,
            sample_weight=sample_weight,
            previous=previous,
            progress=progress,
            on_epoch=on_epoch,
            checkpoints=checkpoints,
            group=group,
        )
        self._row_ids = graph.ids
        return self

    def _fit(
        self,
        data: AttributedGraph | Store,
        *,
        known_labels: Any = None,
        previous: Any = None,
        group: TorchProcessGroup | None = None,
        on_epoch: Any = None,
        **options: Any,
    ) -> Self:
        """Run a fit, issue each of its warnings once, and set the fitted attributes; `options` are those of fit_method.

        Gradients are enabled even if the caller has disabled them in torch.
        """
        callbacks = as_callbacks(on_epoch)
        if not isinstance(self.encoder, nn.Module | None):
            raise ConfigError(f"encoder must be a torch.nn.Module or None, got {self.encoder!r}")
        if isinstance(data, AttributedGraph):
            check_known(data.features, data.feature_names)
        comparison = None if previous is None else compared(previous, cast(AttributedGraph, data))
        self._expect(getattr(data, "encoding", None))
        with torch.inference_mode(False), torch.enable_grad(), collected_warnings() as collected:
            fit = fit_method(
                self.method_name,
                data,
                self.config,
                seed=seed_of(self.random_state),
                device=resolve_device(self.device) if group is None else group.device,
                encoder=copy.deepcopy(self.encoder),
                pretrained=self.pretrained,
                known_labels=None if known_labels is None else np.asarray(known_labels),
                previous=None if comparison is None else comparison.previous,
                group=group,
                on_epoch=together(callbacks),
                **options,
            )
            n_clusters = fit.config.n_clusters
            n_empty = n_clusters - len(np.unique(fit.labels))
            if comparison is not None:
                fit = dataclasses.replace(fit, facts={**fit.facts, **update_facts(comparison, fit, data)})
                # An update reports clusters without rows as changes.
                collected[:] = [warning for warning in collected if not isinstance(warning, EmptyClusterWarning)]
            elif n_empty and not any(warning.once for warning in collected):
                warn(EmptyClusterWarning(f"{n_empty} of {n_clusters} clusters are empty after training"))
        for warning in collected:
            warn(warning, stacklevel=3)
        self._adopt(dataclasses.replace(fit, warnings=tuple(str(warning) for warning in collected)))
        for callback in callbacks:
            if hasattr(callback, "on_end"):
                callback.on_end(self)
        return self

    def _expect(self, encoding: TableEncoding | None) -> None:
        """Set the columns that new rows must have, if the model is fitted to a table of mixed types."""
        self.columns_ = encoding
        if encoding is not None:
            self.n_features_in_ = len(encoding.raw_names)
            self.feature_names_in_ = np.array(encoding.raw_names, dtype=object)

    def _expect_no_features(self) -> None:
        """Set the number of features of a graph without any, and forget the names of an earlier fit."""
        self.n_features_in_ = 0
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _adopt(self, fit: Fit) -> Self:
        self._row_ids = self._slim_record = self._folder = None
        self.labels_ = without_noise(fit.labels, fit.noise)
        self.noise_ = None if fit.noise is None else noise_names(fit.noise)
        self.confidence_ = fit.confidence
        self.embedding_ = fit.z.cpu().numpy()
        return self._adopt_model(fit)

    def _adopt_slim(self, fit: Fit, record: RunRecord) -> Self:
        """Set the fitted attributes of a model without training rows."""
        self._row_ids, self._slim_record = None, record
        return self._adopt_model(fit)

    def _adopt_model(self, fit: Fit) -> Self:
        self._fit_result = fit
        self.update_ = fit.facts.get("update")
        self.linkage_ = fit.linkage
        self.cluster_centers_ = fit.centers.cpu().numpy()
        self.meta_nodes_ = fit.meta_nodes.cpu().numpy()
        self.history_ = fit.history
        self.scores_ = fit.scores
        self.n_iter_ = len(fit.history.get("loss", []))
        self.assigns_every_epoch_ = "changed" in fit.history
        return self

    def _validated(self, X: Any, *, reset: bool) -> Any:
        """Return X validated by scikit-learn, except for NaN and inf, which are reported later by row and column."""
        X = as_table(X)
        try:
            return validate_data(
                self, X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite=False, reset=reset
            )
        except (TypeError, ValueError) as error:
            # A PamcError comes from the validation of the settings, which scikit-learn's tags trigger.
            if isinstance(error, PamcError) or (isinstance(error, TypeError) and not hasattr(X, "columns")):
                raise
            raise why_not_a_table(X, error) from error

    @property
    def inertia_(self) -> float:
        """Sum of squared distances of the training rows to the centers of their clusters, in the embedding.

        With `sample_weight`, each squared distance is multiplied by the weight of its row, as in scikit-learn.
        """
        if not hasattr(self, "labels_"):
            raise AttributeError(f"{type(self).__name__} has no inertia_: it is not fitted, or has no training rows")
        own = torch.from_numpy(self.cluster_centers_)[torch.from_numpy(self._fit_result.labels)]
        squared = (torch.from_numpy(self.embedding_) - own).double().square()
        weight = self._fit_result.sample_weight
        return float((squared if weight is None else squared.sum(dim=1) * torch.from_numpy(weight)).sum())

    def labels_at(self, k: int) -> NDArray[np.int64]:
        """Return the labels (N,) of the training rows with clusters merged into k coarser ones; noise stays −1.

        `linkage_` is the tree that defines them; coarse clusters are numbered by their first cluster.
        """
        check_is_fitted(self)
        coarse = merged_labels(cast("NDArray[np.float64]", self.linkage_), k)
        return np.where(self.labels_ >= 0, coarse[self.labels_], -1)

    def split(self, cluster: int, X: Any, *, n_clusters: int = 2, adjacency: Any = None) -> Self:
        """Return a model with the same settings that is fitted to the rows of one cluster, to divide it further.

        Parameters
        ----------
        cluster
            Number of the cluster. The rows of the returned model are those with this label, in order.
        X
            The rows of the fit, in the same order.
        n_clusters
            Number of clusters to divide it into.
        adjacency
            The graph of the rows of X, as a scipy sparse matrix or a dense (N, N) matrix.
        """
        check_is_fitted(self)
        return cast(Self, split_cluster(self, cluster, X, n_clusters=n_clusters, adjacency=adjacency))

    def record(
        self,
        *,
        data: dict[str, Any] | None = None,
        metrics: dict[str, float] | None = None,
        command: str | None = None,
    ) -> RunRecord:
        """Return the record of the fit, with facts about the data, metrics and command that the caller adds."""
        check_is_fitted(self)
        if self._slim_record is not None:
            return self._slim_record
        facts = {"n_nodes": len(self.labels_), "n_features": self.n_features_in_, **(data or {})}
        if self.columns_ is not None:
            facts["columns"] = list(self.columns_.table)
        return RunRecord.of(self._fit_result, data=facts, metrics=metrics, command=command)

    def save(
        self,
        folder: str | Path,
        *,
        overwrite: bool = False,
        ids: Any = None,
        labels_format: str = "csv",
        record: RunRecord | None = None,
        slim: bool = False,
    ) -> None:
        """Write a run folder atomically: model, labels, embedding and record, without pickle.

        Parameters
        ----------
        folder
            Path of a folder that does not exist yet.
        overwrite
            Whether to replace an existing run.
        ids
            (N,) names of the rows in `labels.csv`, or a function that returns those of the rows start to stop. By
            default the ids of the fitted graph, or 0 … N−1 if it has none.
        labels_format
            Format of the labels, "csv" or "parquet".
        record
            The record to write to `run.json`; by default :meth:`record`.
        slim
            Whether to leave out everything of the training rows: labels, confidence, embedding and ids. The loaded
            model predicts as before, but has no `labels_`, `confidence_` and `embedding_`.
        """
        check_is_fitted(self)
        with new_run_folder(Path(folder), overwrite=overwrite) as partial:
            self.write_run(partial, ids=ids, labels_format=labels_format, record=record, slim=slim)

    def write_run(
        self,
        folder: Path,
        *,
        ids: Any = None,
        labels_format: str = "csv",
        record: RunRecord | None = None,
        slim: bool = False,
    ) -> None:
        """Write the files of a run into an existing folder."""
        check_is_fitted(self)
        if self._slim_record is not None and not slim:
            raise ConfigError("this model has no training rows, because it was saved with slim=True: pass slim=True")
        names = getattr(self, "feature_names_in_", None)
        columns = None if names is None else tuple(str(name) for name in names)
        record = record or self.record()
        id_column = (record.data.get("read") or {}).get("id_column")
        if id_column is None and self.columns_ is not None:
            id_column = self.columns_.id_column
        saved = SavedFit(
            self._fit_result, self.n_features_in_, columns, self.encoder is not None, id_column, self.columns_
        )
        save_fit(folder / MODEL_FILE, saved, slim=slim)
        (folder / RECORD_FILE).write_text(record.to_json(), encoding="utf-8")
        if slim:
            return
        ids = self._row_ids if ids is None else ids
        row_ids = np.arange(len(self.labels_)) if ids is None else ids if callable(ids) else np.asarray(ids)
        write_labels(folder, row_ids, self.labels_, self.confidence_, noise=self.noise_, file_format=labels_format)
        np.save(folder / "embedding.npy", self.embedding_)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        encoder: nn.Module | None = None,
        types: Mapping[str, Any] | None = None,
        device: str = "auto",
    ) -> Self:
        """Load the fitted estimator of a run folder.

        Parameters
        ----------
        folder
            Run folder that :meth:`save` or `pamc fit` wrote.
        encoder
            A module of the same class and sizes, if the model was fitted with a custom encoder; its weights are
            replaced by the saved ones.
        types
            The functions that embed texts, by column, if the model was fitted with such functions; they are not saved.
        device
            Device for predictions.
        """
        saved = load_fit(Path(folder) / MODEL_FILE, encoder=encoder)
        if saved.fit.method != cls.method_name:
            raise ModelFileError(f"{folder} contains a model of method {saved.fit.method!r}, not {cls.method_name!r}")
        model = cls.from_config(saved.fit.config, random_state=saved.fit.seed, device=device)
        if saved.own_encoder:
            model.encoder = encoder
        model.n_features_in_ = saved.n_features
        if saved.feature_names is not None:
            model.feature_names_in_ = np.array(saved.feature_names, dtype=object)
        encoding = saved.encoding
        if encoding is None and types:
            raise ConfigError("types takes functions that embed texts, but the model was fitted to plain numbers")
        model._expect(encoding if encoding is None else encoding.with_functions(types))
        if encoding is not None:
            model.types = {**encoding.types, **(types or {})} or None
        if saved.is_slim:
            text = (Path(folder) / RECORD_FILE).read_text(encoding="utf-8")
            return model._adopt_slim(saved.fit, RunRecord.from_json(text))
        model._adopt(saved.fit)
        model._folder = Path(folder)
        return model

    def check_feature_names(self, names: tuple[str, ...] | None) -> None:
        """Raise a DataError if columns are missing, unknown or in another order than in the training data."""
        fitted = getattr(self, "feature_names_in_", None)
        if fitted is None or names is None or tuple(fitted) == tuple(names) or self.columns_ is not None:
            return
        missing = [name for name in fitted if name not in names]
        unknown = [name for name in names if name not in fitted]
        problems = [f"missing: {', '.join(missing[:5])}"] if missing else []
        problems += [f"not seen in training: {', '.join(unknown[:5])}"] if unknown else []
        problems = problems or ["they are in another order: put them in the order of the training file"]
        raise DataError(f"the feature columns are not those the model was fitted on; {'; '.join(problems)}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags
