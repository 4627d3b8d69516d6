"""Read labels from files, and align the labels of two files."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pamc.data.attributed_graph import check_labels, label_codes
from pamc.data.files import existing_file
from pamc.data.readers.columns import (
    check_has_rows,
    find_rows,
    id_texts,
    integers_if_all,
    known_column,
    label_texts,
    short_list,
)
from pamc.data.readers.format import format_of, open_table
from pamc.data.readers.tables import Table
from pamc.errors import DataError

_LABEL_NAMES = ("cluster", "label", "class", "target", "y")


class LabelColumn(NamedTuple):
    """(N,) integer labels, and the ids of their rows if the file has ids."""

    labels: NDArray[np.int64]
    ids: NDArray[Any] | None


def read_labels(path: str | PathLike[str], *, column: str | None = None, id_column: str | None = None) -> LabelColumn:
    r"""Read the labels of a file, to compare two clusterings or a clustering with the truth.

    In a table, the labels are the column ``column`` if given, else the only column, or the column named cluster, label,
    class, target or y; a column named id contains the ids. An .npy file contains a 1-D array, and an .npz file the
    array y. Integers are unchanged; other labels are encoded as 0, 1, … in sorted order.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "labels.csv")
    ...     _ = path.write_text("id,cluster,confidence\na,1,0.9\nb,0,0.8\n")
    ...     column = read_labels(path)
    >>> column.labels.tolist(), column.ids.tolist()
    ([1, 0], ['a', 'b'])
    """
    path = existing_file(path)
    file_format = format_of(path)
    if file_format is not None and file_format.read_labels is not None:
        return LabelColumn(_checked(path, file_format.read_labels(path, column)), None)
    table = open_table(path)
    column = known_column(table, column, "column") if column is not None else _label_column(table)
    if id_column is None and "id" in table.names and column != "id":
        id_column = "id"
    ids = None if id_column is None else id_texts(table, known_column(table, id_column, "id column"))
    values = integers_if_all(label_texts(table, column, "a label"))
    check_has_rows(table, len(values))
    if ids is not None and len(np.unique(ids)) < len(ids):
        raise DataError(f"{path}: column {id_column!r} contains some ids more than once")
    return LabelColumn(values if values.dtype == np.int64 else codes_of(values), ids)


def read_label_pairs(
    truth: str | PathLike[str], predicted: str | PathLike[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    r"""Read the labels of two files, aligned by ids if both have ids, else by order.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     truth, predicted = Path(folder, "truth.csv"), Path(folder, "predicted.csv")
    ...     _ = truth.write_text("id,class\na,cat\nb,dog\n")
    ...     _ = predicted.write_text("id,cluster\nb,7\na,5\n")
    ...     [labels.tolist() for labels in read_label_pairs(truth, predicted)]
    [[1, 0], [7, 5]]
    """
    (classes, class_ids), (clusters, cluster_ids) = read_labels(truth), read_labels(predicted)
    if len(classes) != len(clusters):
        raise DataError(
            f"{truth} has {len(classes)} labels and {predicted} has {len(clusters)}: both must label the same rows"
        )
    if class_ids is None or cluster_ids is None:
        return classes, clusters
    rows, is_unknown = find_rows(cluster_ids, class_ids)
    unknown = cluster_ids[is_unknown]
    if len(unknown):
        first = ", ".join(repr(str(name)) for name in unknown[:3])
        ids_are = "1 id is" if len(unknown) == 1 else f"{len(unknown)} ids are"
        raise DataError(
            f"{predicted}: {ids_are} not in {truth}; the first: {first}. "
            f"Ids in {truth} look like {str(class_ids[0])!r}: both files must use the same ids"
        )
    return classes[rows], clusters


def codes_of(texts: NDArray[Any]) -> NDArray[np.int64]:
    """Encode classes as 0, 1, … in sorted order, which is numerical if all are integers.

    Examples
    --------
    >>> codes_of(np.array(["10", "9", "10"])).tolist()
    [1, 0, 1]
    """
    return np.unique(integers_if_all(texts), return_inverse=True)[1].astype(np.int64)


def _label_column(table: Table) -> str:
    if len(table.names) == 1:
        return table.names[0]
    candidates = [name for name in table.names if name.lower() in _LABEL_NAMES]
    if len(candidates) == 1:
        return candidates[0]
    raise DataError(
        f"{table.path}: which column holds the labels? Expected one column, or one named {', '.join(_LABEL_NAMES)}; "
        f"found {short_list(table.names)}"
    )


def _checked(path: Path, values: NDArray[Any]) -> NDArray[np.int64]:
    if values.ndim != 1 or len(values) == 0:
        raise DataError(f"{path}: labels must be a 1-D array with a value per row, got shape {values.shape}")
    if values.dtype.kind in "iub":
        return values.astype(np.int64)
    check_labels(values, what=f"{path}: labels")
    return label_codes(integers_if_all(values), what=f"{path}: labels")
