"""How raw feature columns become the encoder's input, decided from the data and kept with the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.data.attributed_graph import Features
from pamc.errors import DataError, UnknownNameError

__all__ = ["THIN_SHARE", "Preprocessing", "choose_preprocessing", "fit_preprocessing"]

# Columns of one kind (pixels, shares) have maxima of one order of magnitude; columns in units of their own do not.
_SAME_UNIT = 10.0

# Rows of words have values other than 0 in at most this share of their columns.
THIN_SHARE = 0.1

# Dense rows of fewer columns are a table.
_FEWEST_WORDS = 50

# Of the largest absolute value: beyond, its square overflows or its inverse does.
_GREATEST = 1e150
_SMALLEST = {"float32": 1e-30, "float64": 1e-150}


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """A fitted map of feature rows; every row alone, so new rows need nothing but the row.

    Parameters
    ----------
    kind
        "none": as they are. "scale": all values divided by one number. "standardize": each column to mean 0 and
        standard deviation 1. "unit": each row to length 1. "rms": each row to root mean square 1, which is length √d.
        "tfidf": columns weighted by inverse document frequency, then "unit".
    arrays
        What was learnt: `scale` (1,) or (d,), `mean` (d,), `idf` (d,), by kind.
    """

    kind: str
    arrays: dict[str, NDArray[np.floating[Any]]] = field(default_factory=dict)

    def apply(self, features: Features) -> Features:
        """Return prepared rows: sparse stays sparse unless it is standardized. O(N·d), or O(nnz) for sparse rows."""
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
    """Return the kind of preprocessing that fits the data.

    Nowhere negative, and stored sparse: counts or a bag of words, "tfidf"; the same for 50 dense columns or more of
    which nine of ten values are 0, or all are 0 or 1. Dense, with columns of one order of magnitude: pixels, shares, or
    columns that somebody has scaled already, "scale", which leaves their proportions alone. Anything else is taken for
    columns in units of their own: "standardize".
    """
    if not isinstance(features, np.ndarray):
        return "tfidf" if features.nnz == 0 or features.data.min() >= 0 else "unit"
    if _are_words(features):
        return "tfidf"
    largest = np.abs(features).max(axis=0)
    largest = largest[largest > 0]
    # Not the least: a pixel in the corner may be dark in all images but one.
    one_unit = len(largest) > 0 and largest.max() <= _SAME_UNIT * np.quantile(largest, 0.25, method="lower")
    return "scale" if one_unit else "standardize"


def _are_words(features: NDArray[np.floating[Any]]) -> bool:
    """Return whether dense rows are bags of words."""
    if features.shape[1] < _FEWEST_WORDS:
        return False
    n_nonzero = np.count_nonzero(features)
    if n_nonzero == 0 or features.min() < 0:
        return False
    return bool(n_nonzero <= THIN_SHARE * features.size or n_nonzero == np.count_nonzero(features == 1))


def fit_preprocessing(features: Features, kind: str = "auto") -> Preprocessing:
    """Return the preprocessing of a kind, with what it learns from these rows.

    Examples
    --------
    >>> rows = np.array([[1.0, -1000.0], [3.0, 1000.0]])
    >>> preprocessing = fit_preprocessing(rows)
    >>> preprocessing.kind, preprocessing.apply(rows).tolist()
    ('standardize', [[-1.0, -1.0], [1.0, 1.0]])
    """
    if kind == "auto":
        kind = choose_preprocessing(features)
    if kind not in _FITS:
        raise UnknownNameError("preprocessing", kind, ["auto", *_FITS])
    if kind in ("scale", "standardize"):
        _check_magnitude(features)
    return Preprocessing(kind, _FITS[kind](features))


def _check_magnitude(features: Features) -> None:
    """Refuse values whose squares, or whose inverse, their number type cannot hold."""
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
    # A column whose spread is rounding error is constant: it becomes 0, not noise blown up to size 1.
    constant = std <= 1e-7 * np.abs(mean)
    return {"mean": mean, "scale": np.where(constant | (std == 0), 1.0, std)}


def _fit_tfidf(features: Features) -> dict[str, NDArray[Any]]:
    """As scikit-learn's TfidfTransformer: idf = log((1 + N) / (1 + rows with the term)) + 1."""
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
    """Return each row times a power of two, which is exact, so that its largest value is about 1 and can be squared."""
    largest = abs(features).max(axis=1)
    exponent = np.frexp(largest if isinstance(largest, np.ndarray) else largest.toarray().ravel())[1]
    factor = np.ldexp(features.dtype.type(1), np.minimum(-exponent, np.finfo(features.dtype).maxexp - 2))
    if isinstance(features, np.ndarray):
        return np.asarray(features * factor[:, None])
    return sp.csr_matrix(sp.diags(factor, dtype=features.dtype) @ features)


# What a kind learns from the rows.
_FITS: dict[str, Callable[[Features], dict[str, NDArray[Any]]]] = {
    "none": lambda features: {},
    "scale": _fit_scale,
    "standardize": _fit_standardize,
    "unit": lambda features: {},
    "rms": lambda features: {},
    "tfidf": _fit_tfidf,
}
