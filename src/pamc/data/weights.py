"""Weights of rows: a row of weight w counts as w identical rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pamc.errors import DataError

# If all weights are integers up to the first number, rows are repeated exactly. Otherwise the number of repeats is at
# most the first number, and its mean is about the second.
MOST_REPEATS, MEAN_REPEATS = 10, 3.0

# With more rows than this in total, rows are repeated less often.
MOST_REPEATED_ROWS = 50_000


@dataclass(frozen=True, eq=False)
class RowWeights:
    """Weights of rows, and the repeated rows from which the initial clusters are found.

    Parameters
    ----------
    values
        (N,) weights ≥ 0.
    origin
        (M,) row that each repeated row is a copy of, in ascending order. If all weights are integers up to 10 and their
        sum is at most 50,000 or N, rows are repeated exactly. Otherwise, a row is repeated in proportion to its weight,
        at least once and at most ten times. Rows of weight 0 are left out.
    """

    values: NDArray[np.float64]
    origin: NDArray[np.int64]

    @classmethod
    def of(cls, sample_weight: Any, n_nodes: int) -> Self | None:
        """Return validated weights, or None if all rows have weight 1.

        If the mean of the positive weights is below 1, all weights are scaled so that it is 1.

        Examples
        --------
        >>> RowWeights.of([2, 1, 0], 3).origin.tolist()
        [0, 0, 1]
        """
        values = check_weights(sample_weight, n_nodes)
        positive = values[values > 0]
        values = values / min(1.0, float(positive.mean()))
        if (values == 1).all():
            return None
        return cls(values, np.repeat(np.arange(n_nodes), _repeats(values)))

    def counts(self) -> NDArray[np.int64]:
        """Return the number of repeats (N,) of each row."""
        return np.bincount(self.origin, minlength=len(self.values))


def check_weights(sample_weight: Any, n_nodes: int) -> NDArray[np.float64]:
    """Return weights (N,) in float64; raise DataError unless they are finite, at least 0, and not all 0."""
    try:
        values = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("sample_weight must be numbers, one for each row") from None
    values = np.full(n_nodes, values) if values.ndim == 0 else values
    if values.shape != (n_nodes,):
        raise DataError(f"sample_weight must have one value per row ({n_nodes}), got shape {values.shape}")
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(bad):
        raise DataError(
            f"sample_weight must be finite numbers of at least 0, got {values[bad[0]]:g} for row {bad[0]} ({len(bad)} "
            "weights are invalid): leave out such rows, or give them weight 0"
        )
    if not values.any():
        raise DataError("all values of sample_weight are zero: give some rows a positive weight")
    return values


def _repeats(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the number of repeats (N,) of each row."""
    is_exact = (values == np.floor(values)).all() and values.max() <= MOST_REPEATS
    if is_exact and values.sum() <= max(len(values), MOST_REPEATED_ROWS):
        return values.astype(np.int64)
    positive = values > 0
    mean = min(MEAN_REPEATS, max(1.0, MOST_REPEATED_ROWS / positive.sum()))
    repeats = np.rint(values * (mean / values[positive].mean())).clip(1, MOST_REPEATS)
    return np.where(positive, repeats, 0).astype(np.int64)
