"""Dense and sparse matrices in the Matrix Market format."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.data.files import check_memory, open_bytes, reading
from pamc.data.readers.format import FORMATS, Format, features_alone
from pamc.errors import DataError

# Minimum number of characters of an entry: a digit and a line end, for half of the entries of a symmetric matrix, or
# two indices with a space and a line end. Memory of an entry with its two indices.
_LEAST_CHARS = {"array": 1, "coordinate": 4}
_BYTES_PER_ENTRY = 16


def load_market(path: Path) -> NDArray[Any] | sp.csr_matrix:
    """Load the matrix of an .mtx file, as CSR if it is stored in coordinate format."""
    import scipy.io

    with reading(path):
        with open_bytes(path) as stream:
            text = stream.read()
        # scipy's parser reads past its buffer and crashes at a NUL byte or without a final newline.
        if b"\0" in text:
            raise DataError(f"{path}: has NUL bytes, so it is not text in the Matrix Market format; damaged?")
        text = text if text.endswith(b"\n") else text + b"\n"
        _check_header(path, *scipy.io.mminfo(io.BytesIO(text))[:4], n_chars=len(text))
        matrix = scipy.io.mmread(io.BytesIO(text))
    return sp.csr_matrix(matrix) if sp.issparse(matrix) else np.asarray(matrix)


def _check_header(path: Path, n_rows: int, n_columns: int, n_entries: int, layout: str, *, n_chars: int) -> None:
    """Raise DataError if the file cannot hold the entries that it declares, or if these do not fit into memory."""
    n_entries = n_rows * n_columns if layout == "array" else n_entries
    if _LEAST_CHARS[layout] * n_entries > n_chars:
        raise DataError(f"{path}: declares {n_entries:,} entries, more than it can hold; damaged?")
    check_memory(path, n_rows, n_bytes=_BYTES_PER_ENTRY * n_entries)


FORMATS.register("mtx")(Format(endings=(".mtx",), read_features=features_alone(load_market), read_edges=load_market))
