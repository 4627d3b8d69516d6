"""Preprocessing of raw feature columns to the encoder's input, chosen from the data and saved with the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.data.attributed_graph import Features
from pamc.data.columns.encoding import TableEncoding
from pamc.data.columns.types import CATEGORY
from pamc.data.completion import complete, fit_completion
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

# The interquartile range of a normal distribution, in standard deviations.
_NORMAL_RANGE = 1.349

# Numbers are limited to this many times their spread from the median.
LIMIT = 20.0

# The total variance of a category of m values is (m − 1) to this power; that of any other variable is 1.
_VALUES_POWER = 0.5

# Number of rows that are scaled at a time.
_ROWS_AT_A_TIME = 4096

# A table is discrete if at least this share of its variables is.
_DISCRETE_SHARE = 0.25


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """A fitted, row-wise transformation of features; a new row is transformed independently of all others.

    Parameters
    ----------
    kind
        "none": no change. "scale": divide all values by one number. "standardize": scale each column to mean 0 and
        standard deviation 1. "unit": scale each row to length 1. "rms": scale each row to root mean square 1, that is
        length √d. "tfidf": weight columns by inverse document frequency, then apply "unit". "variables": scale the
        variables of an encoded table so that each counts as one.
    arrays
        Fitted arrays: `scale` (1,) or (d,), `mean` (d,), `idf` (d,), depending on the kind; `center` and `spread` (d,)
        of numbers (spread 0 for other columns) and the `variable` (d,) of each column of a table; and the arrays of
        :func:`~pamc.data.completion.fit_completion`, or only the mean for numbers without missing cells.
    """

    kind: str
    arrays: dict[str, NDArray[np.floating[Any]]] = field(default_factory=dict)

    @property
    def is_discrete(self) -> bool:
        """Whether the rows come from a table with many discrete variables, such as categories."""
        if self.kind != "variables":
            return False
        first = np.unique(self.arrays["variable"], return_index=True)[1]
        return bool(np.mean(self.arrays["spread"][first] == 0) >= _DISCRETE_SHARE)

    def apply(self, features: Features) -> Features:
        """Transform features; sparse input stays sparse unless standardized. O(N·d) time, O(nnz) for sparse input.

        Missing cells (NaN) are imputed by their expected values, given the other cells of the row.
        """
        if not _has_missing(features):
            return self._transformed(features)
        if self.kind in BY_ROW:
            return self._transformed(np.nan_to_num(features))
        transformed = np.asarray(self._transformed(features))
        if "hidden_factors" in self.arrays:
            return complete(transformed, self.arrays)
        mean = self.arrays["hidden_mean"].astype(transformed.dtype) if "hidden_mean" in self.arrays else 0
        return np.where(np.isnan(transformed), mean, transformed)

    def _transformed(self, features: Features) -> Features:
        """Return the transformed features; NaN stays NaN."""
        if self.kind == "variables":
            return self._weighed(np.asarray(features))
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

    def _weighed(self, columns: NDArray[np.floating[Any]]) -> Any:
        """Return the columns of an encoded table, scaled by variable; the tails of numbers are compressed."""
        result = np.empty_like(columns)
        # In float64, block by block: converting the whole table would take a multiple of its memory.
        for start in range(0, len(columns), _ROWS_AT_A_TIME):
            block = columns[start : start + _ROWS_AT_A_TIME].astype(np.float64)
            scaled = _compressed(block, self.arrays["center"], self.arrays["spread"])
            scaled -= self.arrays["mean"]
            scaled /= self.arrays["scale"]
            result[start : start + _ROWS_AT_A_TIME] = scaled
        return result


def _has_missing(features: Features) -> bool:
    return isinstance(features, np.ndarray) and bool(np.isnan(features).any())


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


def fit_preprocessing(features: Features, kind: str = "auto", *, table: TableEncoding | None = None) -> Preprocessing:
    """Fit the preprocessing of a kind to features.

    Parameters
    ----------
    features
        (N, d) features, in which NaN is a missing cell.
    kind
        Kind of preprocessing; "auto" chooses it from the data.
    table
        The encoding by which the features were computed from the columns of a table, or None.

    Examples
    --------
    >>> rows = np.array([[1.0, -1000.0], [3.0, 1000.0]])
    >>> preprocessing = fit_preprocessing(rows)
    >>> preprocessing.kind, preprocessing.apply(rows).tolist()
    ('standardize', [[-1.0, -1.0], [1.0, 1.0]])
    """
    has_missing = _has_missing(features)
    known: Features = np.nan_to_num(features) if has_missing else features
    if kind == "auto":
        kind = choose_preprocessing(known) if table is None or table.is_number.all() else "variables"
    if kind == "variables" and table is not None:
        preprocessing = Preprocessing(kind, _fit_variables(np.asarray(features), table))
    elif kind not in _KINDS:
        raise UnknownNameError("preprocessing", kind, ["auto", *_KINDS])
    else:
        if kind in ("scale", "standardize"):
            _check_magnitude(known)
        fitted_to = known if kind in BY_ROW else features
        preprocessing = Preprocessing(kind, _FITS[kind](fitted_to) if kind in _FITS else {})
    if kind not in BY_ROW and (has_missing or table is not None):
        transformed = np.asarray(preprocessing._transformed(features))
        completion = fit_completion(transformed, preprocessing.arrays.get("variable"))
        preprocessing = Preprocessing(kind, {**preprocessing.arrays, **completion})
    elif kind in _NOT_CENTERED and isinstance(features, np.ndarray):
        # New rows may have missing cells.
        mean = np.asarray(preprocessing._transformed(features)).mean(axis=0, dtype=np.float64)
        preprocessing = Preprocessing(kind, {**preprocessing.arrays, "hidden_mean": mean})
    return preprocessing


def _check_magnitude(features: Features) -> None:
    """Raise DataError for values whose square or inverse overflows their dtype."""
    smallest = _SMALLEST[features.dtype.name]
    entries = features if isinstance(features, np.ndarray) else features.data
    largest = max(float(entries.max(initial=0.0)), -float(entries.min(initial=0.0)))
    if largest > _GREATEST or 0 < largest < smallest:
        raise DataError(
            f"the largest absolute value of the features is {largest:g}, which cannot be scaled in {features.dtype}: "
            f"it must lie between {smallest:g} and {_GREATEST:g}. Rescale the features"
        )


def _fit_scale(features: Features) -> dict[str, NDArray[Any]]:
    entries = features if isinstance(features, np.ndarray) else features.data
    if _has_missing(features):
        return {"scale": np.array([np.sqrt(np.nanmean(np.square(entries, dtype=np.float64))) or 1.0])}
    mean_square = np.square(entries, dtype=np.float64).sum() / np.prod(features.shape)
    return {"scale": np.array([np.sqrt(mean_square) or 1.0])}


def _fit_standardize(features: Features) -> dict[str, NDArray[Any]]:
    dense = features if isinstance(features, np.ndarray) else features.toarray()
    mean: Any
    if _has_missing(dense):
        mean, std = np.nanmean(dense, axis=0, dtype=np.float64), np.nanstd(dense, axis=0, dtype=np.float64)
    else:
        mean, std = dense.mean(axis=0, dtype=np.float64), dense.std(axis=0, dtype=np.float64)
    # A column whose standard deviation is rounding error is constant: map it to 0 instead of amplifying noise.
    constant = std <= 1e-7 * np.abs(mean)
    return {"mean": mean, "scale": np.where(constant | (std == 0), 1.0, std)}


def _fit_variables(columns: NDArray[np.floating[Any]], table: TableEncoding) -> dict[str, NDArray[Any]]:
    """Return the scales that make the variables of an encoded table comparable.

    Numbers are compressed by asinh around their median to limit outliers, and scaled to variance 1. Yes/no
    columns, ordered categories, dates and texts have a total variance of 1, and categories slightly more.
    """
    values = columns.astype(np.float64)
    quartiles = np.nanquantile(values, [0.25, 0.5, 0.75], axis=0)
    spread = np.zeros(values.shape[1])
    for column in np.flatnonzero(table.is_number):
        spread[column] = _spread_of(values[:, column], quartiles[:, column])
    values = _compressed(values, quartiles[1], spread)
    variance = np.bincount(table.variable_of, np.nanvar(values, axis=0))
    weight = np.array([_weight_of(variable.kind, len(variable.columns)) for variable in table.variables])
    scale = np.sqrt(np.where(variance > 0, variance / weight, 1.0))
    return {
        "center": quartiles[1],
        "spread": spread,
        "mean": np.nanmean(values, axis=0),
        "scale": scale[table.variable_of],
        "variable": table.variable_of.astype(np.float64),
    }


def _spread_of(values: NDArray[np.float64], quartiles: NDArray[np.float64]) -> float:
    """Return the interquartile range of numbers or, if half of them are equal, the typical distance of the others."""
    if quartiles[2] > quartiles[0]:
        return float((quartiles[2] - quartiles[0]) / _NORMAL_RANGE)
    distance = np.abs(values - quartiles[1])
    return float(np.median(distance[distance > 0])) if (distance > 0).any() else 1.0


def _weight_of(kind: str, n_columns: int) -> float:
    return float(n_columns - 1) ** _VALUES_POWER if kind == CATEGORY else 1.0


def _compressed(values: NDArray[np.float64], center: NDArray[Any], spread: NDArray[Any]) -> Any:
    """Return the values, with those of columns with a spread limited and compressed by asinh around their center."""
    numbers = spread > 0
    result = values.copy()
    distance = (values[:, numbers] - center[numbers]) / spread[numbers]
    result[:, numbers] = np.arcsinh(np.clip(distance, -LIMIT, LIMIT))
    return result


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


# Kinds that scale each row.
BY_ROW = ("unit", "rms", "tfidf")
# Kinds that keep the mean of each column.
_NOT_CENTERED = ("none", "scale")
_KINDS = ("none", "scale", "standardize", "unit", "rms", "tfidf")
# Functions that fit the arrays of a kind; the other kinds have none.
_FITS: dict[str, Callable[[Features], dict[str, NDArray[Any]]]] = {
    "scale": _fit_scale,
    "standardize": _fit_standardize,
    "tfidf": _fit_tfidf,
}
