"""Preprocessing of raw feature columns to the encoder's input, chosen from the data and saved with the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.data.attributed_graph import Features
from pamc.errors import DataError, UnknownNameError

# Columns of one unit (pixels, fractions) have maxima of one order of magnitude; columns with different units do not.
_SAME_UNIT = 10.0

# Maximum fraction of nonzero entries in a bag-of-words matrix.
THIN_SHARE = 0.1

# Dense features with fewer columns are never treated as a bag of words.
_FEWEST_WORDS = 50

# Bounds of the largest absolute value: beyond them its square or its inverse overflows.
_GREATEST = 1e150
_SMALLEST = {"float32": 1e-30, "float64": 1e-150}


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """A fitted, row-wise transformation of features; a new row is transformed independently of all others.

    Parameters
    ----------
    kind
        "none": no change. "scale": divide all values by one number. "standardize": scale each column to mean 0 and
        standard deviation 1. "unit": scale each row to length 1. "rms": scale each row to root mean square 1, that is
        length √d. "tfidf": weight columns by inverse document frequency, then apply "unit".
    arrays
        Fitted arrays: `scale` (1,) or (d,), `mean` (d,), `idf` (d,), depending on the kind.
    """

    kind: str
    arrays: dict[str, NDArray[np.floating[Any]]] = field(default_factory=dict)

    def apply(self, features: Features) -> Features:
        """Transform features; sparse input stays sparse unless standardized. O(N·d) time, O(nnz) for sparse input."""
        if self.kind == "none":
            return features
        if self.kind == "scale":
            return features * features.dtype.type(1 / self.arrays["scale"][0])
        if self.kind == "standardize":
            dense = features if isinstance(features, np.ndarray) else features.toarray()
            mean, scale = (self.arrays[name].astype(dense.dtype) for name in ("mean", "scale"))
            return np.asarray((dense - mean) / scale)
        if self.kind == "tfidf":
            idf = self.arrays["idf"].astype(features.dtype)
            features = features * idf if isinstance(features, np.ndarray) else sp.csr_matrix(features.multiply(idf))
        unit = _unit_rows(features)
        return unit if self.kind != "rms" else unit * features.dtype.type(np.sqrt(features.shape[1]))


def choose_preprocessing(features: Features) -> str:
    """Return the kind of preprocessing that suits the data.

    "tfidf" for counts or a bag of words: sparse features without negative values, or at least 50 dense columns without
    negative values in which nine of ten values are 0 or all are 0 or 1. "unit" for other sparse features. "scale" for
    dense columns of one order of magnitude (pixels, fractions, columns that were scaled before), which keeps their
    proportions. "standardize" for everything else, which is assumed to have columns with different units.
    """
    if not isinstance(features, np.ndarray):
        return "tfidf" if features.nnz == 0 or features.data.min() >= 0 else "unit"
    if _are_words(features):
        return "tfidf"
    largest = np.abs(features).max(axis=0)
    largest = largest[largest > 0]
    # The lower quartile rather than the minimum: a corner pixel may be dark in all images but one.
    one_unit = len(largest) > 0 and largest.max() <= _SAME_UNIT * np.quantile(largest, 0.25, method="lower")
    return "scale" if one_unit else "standardize"


def _are_words(features: NDArray[np.floating[Any]]) -> bool:
    """Return whether dense features are a bag of words."""
    if features.shape[1] < _FEWEST_WORDS:
        return False
    n_nonzero = np.count_nonzero(features)
    if n_nonzero == 0 or features.min() < 0:
        return False
    return bool(n_nonzero <= THIN_SHARE * features.size or n_nonzero == np.count_nonzero(features == 1))


def fit_preprocessing(features: Features, kind: str = "auto") -> Preprocessing:
    """Fit the preprocessing of a kind to features.

    Examples
    --------
    >>> rows = np.array([[1.0, -1000.0], [3.0, 1000.0]])
    >>> preprocessing = fit_preprocessing(rows)
    >>> preprocessing.kind, preprocessing.apply(rows).tolist()
    ('standardize', [[-1.0, -1.0], [1.0, 1.0]])
    """
    if kind == "auto":
        kind = choose_preprocessing(features)
    if kind not in _KINDS:
        raise UnknownNameError("preprocessing", kind, ["auto", *_KINDS])
    if kind in ("scale", "standardize"):
        _check_magnitude(features)
    return Preprocessing(kind, _FITS[kind](features) if kind in _FITS else {})


def _check_magnitude(features: Features) -> None:
    """Raise DataError for values whose square or inverse overflows their dtype."""
    smallest = _SMALLEST[features.dtype.name]
    entries = features if isinstance(features, np.ndarray) else features.data
    largest = max(float(entries.max(initial=0.0)), -float(entries.min(initial=0.0)))
    if largest > _GREATEST or 0 < largest < smallest:
        raise DataError(
            f"the largest absolute value of the features is {largest:g}, which cannot be scaled in {features.dtype}: "
            f"it must lie between {smallest:g} and {_GREATEST:g}. Give the features in other units"
        )


def _fit_scale(features: Features) -> dict[str, NDArray[Any]]:
    entries = features if isinstance(features, np.ndarray) else features.data
    mean_square = np.square(entries, dtype=np.float64).sum() / np.prod(features.shape)
    return {"scale": np.array([np.sqrt(mean_square) or 1.0])}


def _fit_standardize(features: Features) -> dict[str, NDArray[Any]]:
    dense = features if isinstance(features, np.ndarray) else features.toarray()
    mean = dense.mean(axis=0, dtype=np.float64)
    std = dense.std(axis=0, dtype=np.float64)
    # A column whose standard deviation is rounding error is constant: map it to 0 instead of amplifying noise.
    constant = std <= 1e-7 * np.abs(mean)
    return {"mean": mean, "scale": np.where(constant | (std == 0), 1.0, std)}


def _fit_tfidf(features: Features) -> dict[str, NDArray[Any]]:
    """Return idf = log((1 + N) / (1 + rows with the term)) + 1, as scikit-learn's TfidfTransformer."""
    n_nodes = features.shape[0]
    n_rows_with = np.asarray((features != 0).sum(axis=0)).ravel()
    return {"idf": np.log((1 + n_nodes) / (1 + n_rows_with)) + 1}


def _unit_rows(features: Features) -> Features:
    features = _near_one(features)
    if not isinstance(features, np.ndarray):
        norms = np.sqrt(np.asarray(features.multiply(features).sum(axis=1))).ravel()
        scale = sp.diags(1 / np.where(norms > 0, norms, 1), dtype=features.dtype)
        return sp.csr_matrix(scale @ features)
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    unit: Features = features / np.where(norms > 0, norms, features.dtype.type(1))
    return unit


def _near_one(features: Features) -> Features:
    """Scale each row by a power of two, which is exact, so that its largest value is about 1 and can be squared."""
    largest = abs(features).max(axis=1)
    exponent = np.frexp(largest if isinstance(largest, np.ndarray) else largest.toarray().ravel())[1]
    factor = np.ldexp(features.dtype.type(1), np.minimum(-exponent, np.finfo(features.dtype).maxexp - 2))
    if isinstance(features, np.ndarray):
        return np.asarray(features * factor[:, None])
    return sp.csr_matrix(sp.diags(factor, dtype=features.dtype) @ features)


_KINDS = ("none", "scale", "standardize", "unit", "rms", "tfidf")
# Functions that fit the arrays of a kind; the other kinds have none.
_FITS: dict[str, Callable[[Features], dict[str, NDArray[Any]]]] = {
    "scale": _fit_scale,
    "standardize": _fit_standardize,
    "tfidf": _fit_tfidf,
}
