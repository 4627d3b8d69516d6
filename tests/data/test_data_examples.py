import doctest
import importlib

import pytest

MODULES = [
    "adapters",
    "attributed_graph",
    "catalog",
    "download",
    "edge_files",
    "files",
    "ingest.run",
    "ingest.sources",
    "matrices",
    "neighbor_sort",
    "readers",
    "store",
    "store_writer",
    "streamed",
    "synthetic",
    "tables",
    "atomic_dir",
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(f"pamc.data.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
