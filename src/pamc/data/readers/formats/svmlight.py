"""Sparse rows in the svmlight text format, each of which starts with a target."""

from __future__ import annotations

from pathlib import Path

from pamc.data.attributed_graph import label_codes
from pamc.data.files import reading
from pamc.data.readers.format import FORMATS, Format, Matrix
from pamc.errors import DataError


def _read_features(path: Path, truth: str | None) -> Matrix:
    """Read the rows; the targets, which are often placeholders, become labels only if ``truth`` is "label"."""
    from sklearn.datasets import load_svmlight_file

    if truth not in (None, "label"):
        raise DataError(f"{path}: the only truth column of an svmlight file is its first, 'label'; got {truth!r}")
    with reading(path):
        features, targets = load_svmlight_file(str(path))
    return Matrix(features, labels=None if truth is None else label_codes(targets, what=f"{path}: labels"))


FORMATS.register("svmlight")(Format(endings=(".svm", ".svmlight", ".libsvm"), read_features=_read_features))
