"""A numpy array in an .npy file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pamc.data.files import reading
from pamc.data.readers.format import FORMATS, Format, features_alone
from pamc.errors import DataError


def load_array(path: Path) -> NDArray[Any]:
    """Load the array of an .npy file. Pickled data is never loaded."""
    with reading(path):
        if not begins_with(path, b"\x93NUMPY"):
            raise DataError(f"{path}: is not an .npy file")
        with path.open("rb") as stream, without_objects(path, "the array"):
            return np.lib.format.read_array(stream, allow_pickle=False)


def begins_with(path: Path, magic: bytes) -> bool:
    """Return whether a file starts with the given bytes."""
    with path.open("rb") as stream:
        return stream.read(len(magic)) == magic


@contextmanager
def without_objects(path: Path, what: str) -> Iterator[None]:
    """Convert numpy's refusal to unpickle an array to a DataError that says what to do."""
    try:
        yield
    except ValueError as error:
        if "Object arrays" not in str(error):
            raise
        raise DataError(
            f"{path}: {what} holds Python objects, which only unsafe pickle could read; save it as numbers or text"
        ) from error


FORMATS.register("npy")(
    Format(
        endings=(".npy",),
        read_features=features_alone(load_array),
        read_edges=load_array,
        read_labels=lambda path, name: load_array(path),
    )
)
