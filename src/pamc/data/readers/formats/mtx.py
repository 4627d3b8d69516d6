"""Dense and sparse matrices in the Matrix Market format."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from pamc.data.files import open_bytes, reading
from pamc.data.readers.format import FORMATS, Format, features_alone
from pamc.errors import DataError


def load_market(path: Path) -> NDArray[Any] | sp.csr_matrix:
    """Load the matrix of an .mtx file, as CSR if it is stored in coordinate format."""
    import scipy.io

    with reading(path):
        with open_bytes(path) as stream:
            text = stream.read()
        # scipy's parser reads past its buffer and crashes at a NUL byte or without a final newline.
        if b"\0" in text:
            raise DataError(f"{path}: has NUL bytes, so it is not text in the Matrix Market format; damaged?")
        matrix = scipy.io.mmread(io.BytesIO(text if text.endswith(b"\n") else text + b"\n"))
    return sp.csr_matrix(matrix) if sp.issparse(matrix) else np.asarray(matrix)


FORMATS.register("mtx")(Format(endings=(".mtx",), read_features=features_alone(load_market), read_edges=load_market))
