import sys

import pytest

from pamc.errors import ConfigError, UnknownNameError
from pamc.registry import Registry


def test_a_registry_finds_what_the_modules_of_a_folder_register(tmp_path, monkeypatch):
    folder = tmp_path / "shapes_of_a_test"
    folder.mkdir()
    (folder / "__init__.py").write_text("from pamc.registry import Registry\nSHAPES = Registry('shape', __name__)\n")
    for name in ("square", "circle"):
        (folder / f"{name}.py").write_text(
            f"from shapes_of_a_test import SHAPES\nSHAPES.register({name!r})({len(name)})\n"
        )
    monkeypatch.syspath_prepend(str(tmp_path))
    from shapes_of_a_test import SHAPES

    assert "shapes_of_a_test.square" not in sys.modules
    assert list(SHAPES) == ["circle", "square"]
    assert len(SHAPES) == 2
    assert "square" in SHAPES
    assert SHAPES["square"] == 6
    with pytest.raises(UnknownNameError, match="did you mean 'circle'"):
        SHAPES["circel"]


def test_a_name_is_registered_once():
    registry = Registry("shape")
    registry.register("square")(1)
    with pytest.raises(ConfigError, match="'square' is registered twice"):
        registry.register("square")(2)
