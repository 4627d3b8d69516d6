"""Columns of a table for the page of its rows: those that color the map, and the names of true classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.readers.tables import MISSING, Table

__all__ = ["class_names", "color_column"]


def color_column(table: Table, name: str) -> NDArray[Any]:
    r"""Return a column as numbers, NaN where a cell has none, if all cells with a value are; else as text and None.

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
    given = np.array([text is not None and text.lower() not in MISSING for text in texts.tolist()], dtype=bool)
    if given.any() and not np.isnan(numbers[given]).any():
        return numbers
    texts[~given] = None
    return texts


def class_names(table: Table, truth: str, labels: NDArray[np.int64]) -> list[str]:
    """Return the names of the true classes in a column, in ascending order of their numbers (N,)."""
    texts, _ = table.texts(truth)
    _, first = np.unique(labels, return_index=True)
    return [str(texts[row]) for row in first]
