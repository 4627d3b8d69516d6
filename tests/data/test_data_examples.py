import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import pamc.data

MODULES = [
    module.name
    for module in pkgutil.walk_packages(pamc.data.__path__, "pamc.data.")
    if ">>>" in Path(module.module_finder.find_spec(module.name).origin).read_text(encoding="utf-8")
]


def test_the_modules_with_examples_are_found():
    assert {"pamc.data.catalog", "pamc.data.attributed_graph", "pamc.data.ingest.run"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
