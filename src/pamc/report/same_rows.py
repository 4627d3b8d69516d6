"""Whether given rows are those of a fit, as far as its encoder can tell."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from pamc.errors import DataError

__all__ = ["are_rows_of_fit", "check_rows_of_fit"]

# Rows that are encoded again, evenly spread over all.
_ENCODED_ROWS = 4096

# How far z may lie from where it was, as shares of its usual distance from the middle and of its own length, and which
# share of the rows has to be as near. Rounding, in half precision too, stays below; rows in another order do not.
_NEAR, _ROUNDED, _MOST = 0.05, 0.01, 0.98


def are_rows_of_fit(model: Any, features: Any) -> bool:
    """Return whether the encoder of a fitted model places rows where the fit had them.

    True where it cannot be told: of a method without a row-wise encoder, and of an encoder of the user's, which may
    place a row otherwise once it is trained, as batch normalization does. O(d + n_dims) for each of at most 4,096 rows.

    Parameters
    ----------
    model
        A fitted estimator, or what has its results alone.
    features
        (N, d) array or CSR matrix, with as many rows as the fit had.

    Examples
    --------
    >>> from pamc import PamCGC
    >>> from pamc.data.synthetic import block_model
    >>> X = block_model(90, 3, random_state=0).features
    >>> model = PamCGC(3, n_epochs=5, advanced={"hidden": (16,)}, random_state=0, device="cpu").fit(X)
    >>> are_rows_of_fit(model, X), are_rows_of_fit(model, X[::-1])
    (True, False)
    """
    if not hasattr(model, "transform") or getattr(model, "encoder", None) is not None:
        return True
    before = np.asarray(model.embedding_)
    some = np.unique(np.linspace(0, len(before) - 1, min(_ENCODED_ROWS, len(before))).astype(np.int64))
    before = before[some].astype(np.float64)
    with warnings.catch_warnings():
        # Columns without names are those of the fit here.
        warnings.simplefilter("ignore", UserWarning)
        try:
            now = np.asarray(model.transform(features[some]), dtype=np.float64)
        except DataError:
            # Too far from the rows of the fit to be encoded.
            return False
    # Medians, so that no single row far away makes all others look alike.
    usual = np.median(np.linalg.norm(before - np.median(before, axis=0), axis=1))
    allowed = _NEAR * usual + _ROUNDED * np.linalg.norm(before, axis=1)
    return bool((np.linalg.norm(now - before, axis=1) <= allowed).mean() >= _MOST)


def check_rows_of_fit(model: Any, features: Any) -> None:
    """Refuse rows that are not those of the fit, or are in another order."""
    if not are_rows_of_fit(model, features):
        raise DataError(
            "these are not the rows of the fit, or they or their columns are in another order: pass X as it was "
            "fitted, or fit again"
        )
