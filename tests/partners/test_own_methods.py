"""A method of another package, by a name such as package.module:Name."""

import sys
import textwrap

import numpy as np
import pytest

from pamc import clusterer
from pamc.cli.app import run
from pamc.errors import ConfigError
from pamc.models.method import METHODS, import_method

MODULE = """
import torch

from pamc.config import MethodConfig
from pamc.models.method import register_method
from pamc.models.methods.autoencoders import StartOnly


class FirstColumns(torch.nn.Module):
    def forward(self, x):
        return x[:, :2]


@register_method("{name}", title="First", reference="none", config=MethodConfig, uses_graph=False, inductive=True)
def First(inputs):
    return StartOnly(FirstColumns())
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Return the name of a method in a module of the current folder, which other tests do not see."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(METHODS, "_entries", {name: METHODS[name] for name in METHODS})
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = f"own_{abs(hash(tmp_path))}"
    (tmp_path / f"{module}.py").write_text(textwrap.dedent(MODULE.format(name=module)))
    X = np.repeat([[0.0, 0, 9], [8, 8, 9]], 20, axis=0) + np.random.default_rng(0).normal(size=(40, 3))
    np.savetxt("rows.csv", X, delimiter=",", header="a,b,c", comments="")
    yield f"{module}:First"
    sys.modules.pop(module, None)


def test_the_command_fits_and_predicts_by_a_method_in_the_current_folder(own, capsys):
    assert run(["fit", "rows.csv", "-k", "2", "--method", own, "--out", "run", "--quiet"]) == 0
    assert run(["predict", "run", "rows.csv", "--method", own, "--out", "clusters.csv"]) == 0
    labels = np.loadtxt("clusters.csv", delimiter=",", skiprows=1)[:, 1]
    assert len(set(labels[:20])) == len(set(labels[20:])) == 1
    assert labels[0] != labels[-1]
    del METHODS._entries[own]
    capsys.readouterr()
    assert run(["predict", "run", "rows.csv", "--out", "again.csv"]) == 2
    assert f"method '{own}' is not imported: pass it as --method" in capsys.readouterr().err


def test_python_has_the_estimator_and_loads_what_it_saved(own, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    X = np.loadtxt("rows.csv", delimiter=",", skiprows=1)
    model = clusterer(own, 2, random_state=0).fit(X)
    model.save("run")
    np.testing.assert_array_equal(type(model).load("run").predict(X), model.labels_)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_such_module:Name", "cannot import the module of method 'no_such_module:Name'"),
        ("pamc.config:FitConfig", "FitConfig must be decorated by pamc.models.method.register_method"),
    ],
)
def test_a_wrong_name_says_what_is_wrong(name, says):
    with pytest.raises(ConfigError, match=says):
        import_method(name)
