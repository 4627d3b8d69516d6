import numpy as np
import pytest

from pamc.data.columns.raw import RawColumn, RawTable
from pamc.data.columns.types import find_types


@pytest.fixture
def typed():
    """Return a function that finds the types of columns of texts, None for empty cells."""

    def call(types=None, **columns):
        return {found.name: found for found in find_types(table(**columns), types)}

    return call


def table(**columns):
    texts = {name: np.array(values, dtype=object) for name, values in columns.items()}
    return RawTable([RawColumn(name, texts=values) for name, values in texts.items()], len(next(iter(texts.values()))))
