"""The base class of the estimators with a row-wise encoder, which assign new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import ClassifierTags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from pamc.data.attributed_graph import Features, check_features
from pamc.data.cells import genes_of
from pamc.data.columns.frames import raw_table
from pamc.data.columns.raw import RawTable
from pamc.data.rows import as_table, comes_from
from pamc.data.weights import check_weights
from pamc.errors import ConfigError, DataError
from pamc.estimator.base import Clusterer
from pamc.estimator.export import export_model
from pamc.estimator.new_rows import EdgesOfNewRows, edges_of_new_rows
from pamc.estimator.noise import assign, limit_of, noise_kinds
from pamc.losses.clustering import log_soft_assignment
from pamc.models.loader import FeatureLoader, on_device
from pamc.runtime import resolve_device, resolve_dtype
from pamc.training.assign import assign_rows


class RowClusterer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Clusterer):  # type: ignore[misc]
    """A clusterer with a row-wise encoder, which assigns new rows by their features, and optionally their edges."""

    @property
    def _n_features_out(self) -> int:
        return int(self.cluster_centers_.shape[1])

    def predict(
        self, X: Any = None, *, adjacency: Any = None, min_confidence: float | None = None
    ) -> NDArray[np.int64]:
        """Return the cluster (n,) of each row.

        Parameters
        ----------
        X
            (n, d) new rows, or an AnnData, whose genes are matched by name; None for a model of a graph without
            features.
        adjacency
            (n, N) weights of the edges between the new rows and the N rows of the fit, sparse or dense. A model of a
            graph without features needs them. Otherwise, the probabilities by the features of a row are averaged with
            those of its neighbors, weighted by how far the fit trusted its graph; by default only features count.
        min_confidence
            Label rows −1 (noise) if their confidence is lower, or if they are unlike the training rows. By default,
            the parameter of the model; 0 labels only rows unlike the training rows −1.
        """
        check_is_fitted(self)
        limit = limit_of(self, min_confidence)
        if limit is None:
            return self._assign(X, adjacency)[1].argmax(dim=1).cpu().numpy()
        return assign(self, X, limit, adjacency).labels

    def predict_proba(self, X: Any = None, *, adjacency: Any = None) -> NDArray[np.floating]:
        """Return the probability (n, C) of each cluster for each row (Eq 9); `adjacency` as in :meth:`predict`."""
        return self._assign(X, adjacency)[1].cpu().numpy()

    def predict_with_confidence(
        self, X: Any = None, *, adjacency: Any = None
    ) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
        """Return the cluster (n,) of each row, and its confidence (n,), which is defined like `confidence_`.

        Confidence is the share of fits to halves of the training rows that are expected to agree with the cluster (see
        `docs/choosing.md`); it decreases toward 1 / C for outliers. Uncalibrated, it is the largest probability. With
        `adjacency`, as in :meth:`predict`, the confidence of neighbors in the same cluster is averaged with it.
        """
        return assign(self, X, limit_of(self, None), adjacency)[:2]

    def export(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write preprocessing, encoder, assignment and confidence to one ONNX file, and return its path.

        The file runs in onnxruntime without pamc and contains no training rows. Before it is written, its clusters and
        probabilities are compared with those of `predict` on random rows.

        Parameters
        ----------
        path
            File to write, which ends in `.onnx`.
        overwrite
            Whether to replace an existing file.
        """
        check_is_fitted(self)
        return export_model(self, Path(path), overwrite=overwrite)

    def noise_kinds(self, X: Any, *, min_confidence: float | None = None) -> NDArray[np.str_]:
        """Return why each row (n,) is noise: "between clusters", "unlike the training rows", or "" if it is not.

        A row between clusters has a confidence below `min_confidence`. A row unlike the training rows lies outside of
        all clusters, however certain its nearest cluster is (see `docs/choosing.md`).
        """
        check_is_fitted(self)
        return noise_kinds(self, X, min_confidence)

    def transform(self, X: Any, *, adjacency: Any = None) -> NDArray[np.floating]:
        """Return the embedding z (n, n_dims) of each row; with `adjacency`, averaged with those of its neighbors.

        Pass None as X for a model of a graph without features.
        """
        return self._assign(X, adjacency)[0].cpu().numpy()

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the negative mean squared distance between the z of each row and the center of its cluster.

        With `sample_weight` (n,), the mean is weighted.
        """
        z, q = self._assign(X)
        centers = torch.from_numpy(self.cluster_centers_).to(z)
        squared = (z - centers[q.argmax(dim=1)]).double().square().sum(dim=1)
        if sample_weight is None:
            return -float(squared.mean())
        return -float(np.average(squared.cpu().numpy(), weights=check_weights(sample_weight, len(z))))

    def _assign(self, X: Any, adjacency: Any = None) -> tuple[Tensor, Tensor]:
        """Return z (n, n_dims) and q (n, C) of new rows by their features, their edges to fitted rows, or both."""
        edges = self._edges(X, adjacency)
        if edges is None:
            return self._assigned(self._rows(X))
        fit: Any = self._fit_result
        z, q = (None, None) if X is None else self._assigned(self._rows(X))
        fitted_q = log_soft_assignment(fit.z, fit.centers, eta=getattr(fit.config, "eta", 1.0)).exp()
        return edges.mixed(z, fit.z), edges.mixed(q, fitted_q)

    def _edges(self, X: Any, adjacency: Any) -> EdgesOfNewRows | None:
        """Return the edges of new rows, None without any; raise DataError if X or adjacency is missing or too many."""
        check_is_fitted(self)
        if self.n_features_in_ == 0:
            if X is not None or adjacency is None:
                raise DataError(
                    "the model was fitted to a graph without features: leave out X, and pass adjacency, the (n, N) "
                    "edges between new and fitted rows"
                )
        elif X is None:
            raise DataError("X is missing: the model needs the features of new rows")
        if adjacency is None:
            return None
        if self._slim_record is not None:
            raise ConfigError("adjacency refers to the training rows, which a model saved with slim=True does not have")
        n_rows = None if X is None else X.n_rows if isinstance(X, RawTable) else len(as_table(X))
        return edges_of_new_rows(adjacency, self._fit_result, n_rows=n_rows)

    def _rows(self, X: Any) -> FeatureLoader:
        """Return validated and preprocessed rows for the encoder."""
        check_is_fitted(self)
        return self._prepared(self._features_of(X))

    def _prepared(self, features: Features) -> FeatureLoader:
        """Return validated features after preprocessing, for the encoder."""
        fit = self._fit_result
        features = fit.preprocessing.apply(features)
        device, dtype = resolve_device(self.device), resolve_dtype(fit.config.precision)
        return FeatureLoader(features, device=device, dtype=dtype, sparse=fit.sparse_input)

    def _features_of(self, X: Any) -> Features:
        """Return the validated features of new rows; a table is encoded as in training, unless it already is."""
        encoding = self.columns_
        if comes_from(X, "anndata") and hasattr(self, "feature_names_in_"):
            return check_features(genes_of(X, list(self.feature_names_in_)))
        if encoding is None:
            return check_features(self._validated(X, reset=False))
        if isinstance(X, np.ndarray) and X.shape[1:] == (len(encoding.feature_names),) and X.dtype.kind == "f":
            return X
        return encoding.encode(X if isinstance(X, RawTable) else raw_table(X, names=encoding.raw_names))

    def _assigned(self, rows: FeatureLoader) -> tuple[Tensor, Tensor]:
        """Return z (n, n_dims) and q (n, C) of rows."""
        fit: Any = self._fit_result
        encoder, centers = on_device(fit.encoder, rows.device), fit.centers.to(rows.device)
        eta, chunk_size = getattr(fit.config, "eta", 1.0), getattr(fit.config, "chunk_size", None)
        z, q = assign_rows(encoder, centers, rows, eta=eta, chunk_size=chunk_size)
        bad = torch.nonzero(~torch.isfinite(q).all(dim=1)).flatten().tolist()
        if bad:
            raise DataError(
                f"row {bad[0]} is too far from the training rows for {fit.config.precision} ({len(bad)} of {len(q)} "
                "rows are): check its units, or leave it out"
            )
        return z, q

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = [str(resolve_dtype(self.config.precision)).removeprefix("torch.")]
        # scikit-learn requires these tags of every estimator with `predict_proba`.
        tags.classifier_tags = ClassifierTags()
        return tags
