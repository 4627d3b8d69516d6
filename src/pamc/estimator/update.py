"""Updates: fits that continue from a fitted model, and measure how far the rows have drifted since."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import nn

from pamc.data.attributed_graph import AttributedGraph, check_features
from pamc.data.columns.frames import raw_table
from pamc.data.readers import read_labels
from pamc.data.readers.columns import find_rows
from pamc.data.rows import comes_from, ids_of, index_ids
from pamc.errors import ConfigError, DataError
from pamc.initialize.drift import Reference, listed_shifts
from pamc.initialize.previous import Previous
from pamc.models.layers import MLP
from pamc.results.run_folder import LABEL_FORMATS
from pamc.training.phases import Fit

# Two embeddings belong to the same row if their distance is at most this share of the length of the longest embedding:
# the rounding depends on the batch size.
_ROUNDED = 1e-4

# Rows without ids are assumed to be in their old positions if at least this share of them has its old values there.
_IN_PLACE = 0.5


class Comparison(NamedTuple):
    """The rows of an update, compared with those of the previous fit.

    Parameters
    ----------
    previous
        What the fit takes over from the previous one.
    place
        (N,) index of each row in the previous fit, −1 for a new row.
    shifts
        (C, d) differences between the means of new and previous rows, in standard deviations; None without a reference.
    """

    previous: Previous
    place: NDArray[np.int64]
    shifts: NDArray[np.float64] | None


def compared(model: Any, graph: AttributedGraph) -> Comparison:
    """Compare the rows of a graph, whose features are encoded like those of a fitted model, with its training rows."""
    fit = check_updatable(model)
    rows = model._prepared(graph.features)
    z, q = model._assigned(rows)
    embedding, predicted = z.cpu().numpy(), q.argmax(dim=1).cpu().numpy()
    unchanged = _same_rows(embedding, fit.z.cpu().numpy())
    place = _places(model, graph, unchanged)
    is_known = place >= 0
    old = np.where(is_known, fit.labels[place], predicted) if len(fit.labels) else predicted
    reference: Reference | None = fit.reference
    is_unlike = np.zeros(len(predicted), dtype=bool)
    if reference is not None:
        is_unlike = reference.is_unlike(rows.features, predicted)
    has_left = (predicted != old) | is_unlike
    is_new = np.where(is_known, (unchanged != place) & has_left, True)
    counts = np.bincount(fit.labels, minlength=len(fit.centers))
    facts = fit.facts
    previous = Previous(
        encoder=cast(MLP, fit.encoder),
        centers=fit.centers,
        preprocessing=fit.preprocessing,
        old=old,
        predicted=predicted,
        is_known=is_known,
        is_new=is_new,
        is_unlike=is_unlike,
        retired=tuple(cast("list[int]", facts.get("retired_clusters", []))),
        empty=tuple(np.flatnonzero(counts < 2).tolist()) if len(fit.labels) else (),
        family=_family_of(facts),
        calibration=fit.calibration,
        calibrated_rows=cast(int, facts.get("calibrated_rows", len(fit.labels))),
        compared_rows=cast(int, facts.get("compared_rows", len(fit.labels))),
        graph_trust=cast("float | None", facts.get("graph_trust")),
    )
    changed = unchanged != np.where(is_known, place, -2)
    shifts = None
    if reference is not None and changed.any():
        shifts = reference.shifts(rows.features[changed], predicted[changed])
    return Comparison(previous, place, shifts)


def check_updatable(model: Any) -> Fit:
    """Return the fit of a model that can be updated; raise ConfigError for any other object."""
    if not hasattr(model, "_fit_result") or not hasattr(model, "predict"):
        raise ConfigError(f"previous must be a fitted PamCGC, got {model!r}")
    check_is_fitted(model)
    fit: Fit = model._fit_result
    if model.n_features_in_ == 0:
        raise ConfigError(
            "previous was fitted to a graph without features, so it cannot assign rows by features: fit from scratch"
        )
    if not isinstance(cast("nn.Module", fit.encoder), MLP):
        raise ConfigError("previous was fitted with a custom encoder, which cannot be updated: fit from scratch")
    return fit


def later_rows(estimator: Any, model: Any, X: Any) -> AttributedGraph:
    """Return the rows X of an update, encoded like those of the model that is updated."""
    check_updatable(model)
    encoding = model.columns_
    ids = index_ids(X) if comes_from(X, "pandas") and hasattr(X, "index") else None
    if encoding is None:
        features = check_features(estimator._validated(X, reset=True))
        names = getattr(model, "feature_names_in_", None)
        if features.shape[1] != model.n_features_in_:
            raise DataError(
                f"X has {features.shape[1]} features, but the previous model was fitted to {model.n_features_in_}"
            )
        model.check_feature_names(getattr(estimator, "feature_names_in_", None))
        return AttributedGraph(features, ids=ids, feature_names=None if names is None else tuple(names))
    table = raw_table(X, names=encoding.raw_names)
    if encoding.id_column is not None and encoding.id_column in X.columns:
        ids = ids_of(raw_table(X, names={encoding.id_column}), encoding.id_column)
    others: dict[str, Any] = {"encoding": encoding, "cells": encoding.cells_of(table)}
    return AttributedGraph(encoding.encode(table), ids=ids, feature_names=encoding.feature_names, **others)


def update_facts(comparison: Comparison, fit: Fit, graph: Any) -> dict[str, object]:
    """Return the changes of the clusters and the drift as the fact "update", for the record of a fit.

    `moved` is the share of the old rows that moved to another cluster; `unlike` is the share of the new rows (of all
    rows if none is new) that are unlike the rows of the previous fit; and `shift` is the largest difference between the
    mean of a feature in the new rows of a cluster and in its previous rows, in standard deviations.
    """
    previous, is_known = comparison.previous, comparison.place >= 0
    arrived = ~is_known if not is_known.all() else is_known
    moved = fit.labels[is_known] != previous.old[is_known]
    listed = [] if comparison.shifts is None else listed_shifts(comparison.shifts, graph.feature_names)
    largest = max((abs(item["shift"]) for item in listed), default=0.0)
    update = {
        "n_old_rows": int(is_known.sum()),
        "n_new_rows": int((~is_known).sum()),
        "changes": fit.facts["changes"],
        "sizes_before": np.bincount(previous.old[is_known], minlength=len(previous.centers)).tolist(),
        "moved": round(float(moved.mean()), 6) if is_known.any() else None,
        "unlike": round(float(previous.is_unlike[arrived].mean()), 6),
        "shift": None if comparison.shifts is None else largest,
        "shifts": listed,
    }
    return {"update": update}


def _same_rows(embedding: NDArray[Any], fitted: NDArray[Any]) -> NDArray[np.int64]:
    """Return the index (n,) of the fitted row with the same embedding, −1 if there is none."""
    from scipy.spatial import cKDTree

    if not len(fitted):
        return np.full(len(embedding), -1)
    wide = fitted.astype(np.float64)
    bound = _ROUNDED * float(np.linalg.norm(wide, axis=1).max() or 1.0)
    _, place = cKDTree(wide).query(embedding.astype(np.float64), distance_upper_bound=bound)
    return np.where(place < len(fitted), place, -1)


def _places(model: Any, graph: AttributedGraph, unchanged: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of each row in the previous fit, found by id, position or values; −1 for a new row."""
    n_fitted = len(model._fit_result.labels)
    ids = _ids_of(model)
    if graph.ids is not None and ids is not None and len(ids) == n_fitted:
        place, is_unknown = find_rows(np.asarray(graph.ids), np.asarray(ids))
        return np.where(is_unknown, -1, place)
    if graph.ids is None and 0 < n_fitted <= len(unchanged):
        in_place = unchanged[:n_fitted] == np.arange(n_fitted)
        if in_place.mean() >= _IN_PLACE:
            return np.concatenate([np.arange(n_fitted), np.full(len(unchanged) - n_fitted, -1)])
    return unchanged


def _ids_of(model: Any) -> Any:
    """Return the ids of the fitted rows, from the model or the folder that it was loaded from; None without ids."""
    if model._row_ids is not None or model._folder is None:
        return model._row_ids
    for kind in LABEL_FORMATS:
        path = Path(model._folder) / f"labels.{kind}"
        if path.is_file():
            try:
                return read_labels(path).ids
            except DataError:
                return None
    return None


def _family_of(facts: dict[str, object]) -> str | None:
    names = facts.get("clusters_by")
    return None if names is None else str(names).partition(", ")[0]
