"""Points of the map: the listed rows, their density, columns that color them, and names of true classes."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.readers.tables import MISSING, Table
from pamc.errors import DataError
from pamc.report.facts import ClusterFacts
from pamc.report.page_file import pack, quantized, smallest
from pamc.report.projection import project
from pamc.runtime import seed_for

# Up to this many rows, each is a point; beyond that, the page shows a density and this many searchable rows.
MOST_POINTS = 200_000
SAMPLED_POINTS = 50_000

# Cells of the density grid per side, and maximum number of cells times clusters.
_CELLS, _MOST_COUNTS = 384, 1 << 24

# Maximum number of named classes in a column.
_MOST_CLASSES = 60
_MISSING, _OTHER = "(missing)", "(other)"
_NO_NUMBER = (1 << 16) - 1

_ROWS_PER_BLOCK = 1 << 18


def listed_rows(n_nodes: int, facts: ClusterFacts | None) -> NDArray[np.int64] | None:
    """Return the sorted rows listed on the page: None for all, else a sample plus all rows in `facts`.

    The sample depends only on the number of rows, so pages of two runs on the same rows list the same sample.
    """
    if n_nodes <= MOST_POINTS:
        return None
    sample = np.random.default_rng(n_nodes).choice(n_nodes, SAMPLED_POINTS, replace=False, shuffle=False)
    examples = [] if facts is None else [facts.rows["row"], facts.odd["row"]]
    return np.unique(np.concatenate([sample, *examples]).astype(np.int64))


def map_data(model: Any, rows: NDArray[np.int64] | None, *, map_by: str, seed: int) -> dict[str, Any]:
    """Return the `map` with the central row of each cluster, the positions `xy` of the listed rows, and the `density`.

    Positions lie in a square frame from 0 to 1, with the same scale on both axes. `rows` are the listed rows; if it is
    None, all rows are listed and the density is None. `map_by` is the name of a projection, and `seed` that of the fit.
    """
    labels, n_clusters = np.asarray(model.labels_), len(model.cluster_centers_)
    projection = project(np.asarray(model.embedding_), how=map_by, seed=seed_for(seed, "map"))
    low, high = projection.rows.min(axis=0), projection.rows.max(axis=0)
    side = float((high - low).max()) * 1.04 or 1.0
    positions = (projection.rows - (low + high) / 2) / side + 0.5
    centers = central_positions(positions, labels, n_clusters).round(5)
    listed = positions if rows is None else positions[rows]
    return {
        "map": {"method": projection.method, "note": projection.note, "centers": centers},
        "xy": pack(quantized(listed, 0.0, 1.0, "u2"), "u2"),
        "density": None if rows is None else _density(positions, labels, np.asarray(model.confidence_), n_clusters),
    }


def central_positions(
    positions: NDArray[np.float64], labels: NDArray[np.int64], n_clusters: int
) -> NDArray[np.float64]:
    """Return the (C, 2) position of the row closest to the mean of each cluster's rows; NaN for an empty cluster.

    Examples
    --------
    >>> central_positions(np.array([[0.0, 0.0], [0.4, 0.0], [1.0, 0.0]]), np.array([1, 1, 1]), 2).tolist()
    [[nan, nan], [0.4, 0.0]]
    """
    count = np.bincount(labels, minlength=n_clusters)
    sums = np.stack([np.bincount(labels, positions[:, axis], minlength=n_clusters) for axis in range(2)], axis=1)
    means = sums / np.maximum(count, 1)[:, None]
    distance = np.square(positions - means[labels]).sum(axis=1)
    least = np.full(n_clusters, np.inf)
    np.minimum.at(least, labels, distance)
    rows = np.flatnonzero(distance == least[labels])
    central = np.full((n_clusters, 2), np.nan)
    central[labels[rows]] = positions[rows]
    return central


def _density(
    positions: NDArray[np.float64], labels: NDArray[np.int64], confidence: NDArray[Any], n_clusters: int
) -> dict[str, Any]:
    """Return the number of rows of each cluster in each cell of a grid over the map, and their mean confidence.

    Empty cells are left out. O(N) time; memory proportional to cells times clusters.
    """
    side = int(min(_CELLS, (_MOST_COUNTS / n_clusters) ** 0.5))
    counts, sums = np.zeros(side * side * n_clusters, dtype=np.int64), np.zeros(side * side * n_clusters)
    for start in range(0, len(labels), _ROWS_PER_BLOCK):
        block = slice(start, start + _ROWS_PER_BLOCK)
        x, y = np.clip((positions[block] * side).astype(np.int64), 0, side - 1).T
        entry = (y * side + x) * n_clusters + labels[block]
        counts += np.bincount(entry, minlength=len(counts))
        sums += np.bincount(entry, confidence[block], minlength=len(sums))
    filled = np.flatnonzero(counts)
    return {
        "side": side,
        "cell": pack(filled // n_clusters, "u4"),
        "cluster": pack(filled % n_clusters, smallest(n_clusters - 1)),
        "count": pack(np.minimum(counts[filled], (1 << 32) - 1), "u4"),
        "confidence": confidence_steps(sums[filled] / counts[filled]),
    }


def confidence_steps(confidence: NDArray[Any]) -> dict[str, Any]:
    """Quantize confidence to 255 steps between its minimum and maximum."""
    low, high = float(confidence.min()), float(confidence.max())
    return {"min": low, "max": high, "values": pack(quantized(confidence, low, high, "u1"), "u1")}


def column(name: str, values: Any, rows: NDArray[np.int64] | None, n_nodes: int) -> dict[str, Any]:
    """Encode a column that colors the map: numbers as a scale, anything else as classes.

    Numbers may be missing. Dates become text at the finest resolution with few enough classes; time spans become days.

    Examples
    --------
    >>> column("city", ["Rome", "Oslo", "Rome"], None, 3)["names"]
    ['Oslo', 'Rome']
    """
    array = np.asarray(values)
    if array.shape != (n_nodes,):
        raise DataError(f"column {name!r} must have one value per row ({n_nodes}), got shape {array.shape}")
    if rows is not None:
        array = array[rows]
    kind = array.dtype.kind
    if kind == "M":
        return _classes(name, _dates(array))
    if kind == "m":
        return number_column(f"{name} (days)", array / np.timedelta64(1, "D"))
    if kind == "O":
        present = np.array([not is_missing(value) for value in array], dtype=bool)
        if present.any() and all(isinstance(value, Real) and not isinstance(value, bool) for value in array[present]):
            return number_column(name, np.where(present, array, np.nan))
    return number_column(name, array) if kind in "iuf" else _classes(name, array)


def number_column(name: str, values: NDArray[Any]) -> dict[str, Any]:
    """Encode numbers, which may be missing, as a column that colors the map."""
    values = values.astype(np.float64)
    finite = np.isfinite(values)
    low, high = (float(values[finite].min()), float(values[finite].max())) if finite.any() else (0.0, 0.0)
    # The last step encodes a missing number.
    steps = np.full(len(values), _NO_NUMBER)
    steps[finite] = quantized(values[finite], low, high, "u2") * (_NO_NUMBER - 1) // _NO_NUMBER
    return {"name": str(name), "kind": "number", "min": low, "max": high, "values": pack(steps, "u2")}


def _classes(name: str, values: NDArray[Any]) -> dict[str, Any]:
    texts = [_MISSING if is_missing(value) else str(value) for value in values.tolist()]
    names, codes, counts = np.unique(np.array(texts, dtype=str), return_inverse=True, return_counts=True)
    if len(names) > _MOST_CLASSES:
        frequent = np.sort(np.argsort(-counts, kind="stable")[: _MOST_CLASSES - 1])
        code_of = np.full(len(names), len(frequent))
        code_of[frequent] = np.arange(len(frequent))
        names, codes = np.append(names[frequent], _OTHER), code_of[codes]
    packed = pack(codes, smallest(max(len(names) - 1, 0)))
    return {"name": str(name), "kind": "class", "names": names.tolist(), "values": packed}


def _dates(values: NDArray[Any]) -> NDArray[Any]:
    """Return dates as text, None if missing: to the second, day, month or year, the finest with few enough classes."""
    present = ~np.isnat(values)
    texts = np.full(len(values), None, dtype=object)
    for unit in ("s", "D", "M", "Y"):
        rounded = values.astype(f"datetime64[{unit}]")
        distinct = np.unique(rounded[present])
        exact = unit == "s" and (rounded == rounded.astype("datetime64[D]")).all(where=present)
        if not exact and len(distinct) < _MOST_CLASSES:
            break
    texts[present] = np.datetime_as_string(rounded[present])
    return texts


def is_missing(value: Any) -> bool:
    """Return whether a value is missing: None, NaN or the pandas equivalents; "" and 0 are values."""
    is_nan = isinstance(value, float) and value != value
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def color_column(table: Table, name: str) -> NDArray[Any]:
    r"""Return a column as numbers with NaN for empty cells, if all values are numeric, else as text with None.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from pamc.data.readers import open_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "rows.csv")
    ...     _ = path.write_text("age,town\n31,Rome\n,Oslo\n27,\n")
    ...     table = open_table(path)
    ...     color_column(table, "age").tolist(), color_column(table, "town").tolist()
    ([31.0, nan, 27.0], ['Rome', 'Oslo', None])
    """
    texts, numbers = table.cells(name)
    present = np.array([text is not None and text.lower() not in MISSING for text in texts.tolist()], dtype=bool)
    if present.any() and not np.isnan(numbers[present]).any():
        return numbers
    texts[~present] = None
    return texts


def class_names(table: Table, truth: str, labels: NDArray[np.int64]) -> list[str]:
    """Return the names of the true classes in a column, in ascending order of their numbers (N,)."""
    texts, _ = table.texts(truth)
    _, first = np.unique(labels, return_index=True)
    return [str(texts[row]) for row in first]
