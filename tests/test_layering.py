"""Imports go one way: errors, runtime, config, registry < data < … < cli."""

import ast
from pathlib import Path

import pytest

import pamc

PACKAGE = Path(pamc.__file__).parent
# fmt: off
ORDER = [
    {"errors"}, {"declarations"}, {"runtime", "config", "registry", "progress"}, {"data"}, {"graph"}, {"ops"},
    {"losses"}, {"models"}, {"initialize"}, {"distributed", "training"}, {"results"}, {"estimator"}, {"selection"},
    {"serving"}, {"lab"}, {"report"}, {"callbacks", "sc"}, {"cli"}, {"__main__"},
]
# fmt: on
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def layer_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_layers(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"pamc.{alias.name}" for alias in node.names] if node.module == "pamc" else [node.module]
        for name in names:
            parts = name.split(".")
            if parts[0] == "pamc" and len(parts) > 1 and parts[1] in RANK:
                yield parts[1]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_from_layers_to_its_left(path):
    layer = layer_of(path)
    assert layer in RANK, f"{layer} has no place in the order of the layers"
    for imported in imported_layers(path):
        assert RANK[imported] <= RANK[layer], f"{layer} imports {imported}, which stands to its right"


def test_every_layer_exists():
    assert {layer_of(path) for path in MODULES} == set(RANK)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_has_no_assert_and_no_print(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        assert not isinstance(node, ast.Assert)
        assert not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print")
