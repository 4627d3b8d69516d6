import inspect

import numpy as np
import pytest
from sklearn.base import clone

import pamc
from pamc import Advanced, FitConfig, PamCGC, clusterer, preset
from pamc.errors import ConfigError, UnknownNameError


def test_the_estimator_has_fifteen_parameters_and_says_of_each_what_it_does():
    names = list(inspect.signature(PamCGC).parameters)
    assert len(names) == 15
    for name in names:
        assert f"\n    {name} : " in PamCGC.__doc__
    for name in inspect.signature(Advanced).parameters:
        assert f"\n    {name} : " in Advanced.__doc__
    assert "SETTINGS" not in PamCGC.__doc__ + Advanced.__doc__


@pytest.mark.parametrize(
    ("keyword", "says"),
    [
        ({"tau": 0.5}, 'tau is an expert setting: PamCGC(advanced={"tau": 0.5})'),
        ({"pretrained": "w.pkl"}, "pretrained is an expert setting: PamCGC(advanced={\"pretrained\": 'w.pkl'})"),
        ({"start": "autoencoder"}, "start is called init: PamCGC(init='autoencoder')"),
        ({"preparation": "none"}, "preparation is called preprocessing: PamCGC(advanced={\"preprocessing\": 'none'})"),
        ({"n_cluster": 3}, "did you mean 'n_clusters'?"),
    ],
)
def test_a_keyword_that_it_does_not_have_says_where_the_setting_lives(keyword, says):
    with pytest.raises(TypeError) as caught:
        PamCGC(3, **keyword)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "model",
    [
        PamCGC(3, advanced={"tau": 0.25}),
        PamCGC(3, advanced=Advanced(tau=0.25)),
        PamCGC(3).set_params(advanced__tau=0.25),
        PamCGC(3, advanced={"eta": 1.0}).set_params(advanced__tau=0.25),
        PamCGC(3).set_params(advanced=Advanced(tau=0.1), advanced__tau=0.25),
        PamCGC.from_config(FitConfig(n_clusters=3, tau=0.25)),
        clusterer("pamcgc", 3, tau=0.25),
        clusterer("pamcgc", 3, tau=0.25, advanced={"eta": 1.0}),
    ],
)
def test_an_expert_setting_is_reached_by_every_way(model):
    assert model.config == clone(model).config == FitConfig(n_clusters=3, tau=0.25)
    assert model.get_params()["advanced__tau"] == 0.25
    assert PamCGC().config == FitConfig()


def test_a_preset_becomes_an_estimator_and_back():
    config = preset("paper", data_set="dblp", n_clusters=4)
    assert PamCGC.from_config(config, random_state=3).config == config
    assert PamCGC.from_config(FitConfig()).advanced is None


def test_what_was_passed_is_not_modified():
    mine, settings = Advanced(tau=0.25), {"tau": 0.25}
    for advanced in (mine, settings):
        PamCGC(3, advanced=advanced).set_params(advanced__tau=9.0)
    assert mine.tau == settings["tau"] == 0.25


@pytest.mark.parametrize(
    ("advanced", "error", "says"),
    [
        ({"alpha": 1.0}, ConfigError, "alpha is a parameter of PamCGC itself"),
        ({"preparation": "none"}, ConfigError, "preparation is called preprocessing"),
        ({"tua": 1.0}, ConfigError, "did you mean 'tau'"),
        (0.5, ConfigError, "advanced must be a pamc.Advanced, a dict of settings, or None, got 0.5"),
        ({"tau": -1.0}, ConfigError, "tau must be a finite number above 0, got -1.0"),
        (Advanced(proxy="eq7"), UnknownNameError, "unknown proxy 'eq7'"),
    ],
)
def test_wrong_expert_settings_are_refused_by_the_fit(advanced, error, says):
    with pytest.raises(error, match=says):
        PamCGC(2, advanced=advanced).fit(np.eye(6))


def test_setting_an_expert_setting_as_a_parameter_says_how_to():
    with pytest.raises(ConfigError, match=r"tau is an expert setting.*advanced__"):
        PamCGC().set_params(tau=1.0)
    with pytest.raises(ValueError, match="Invalid parameter 'tua'"):
        PamCGC().set_params(advanced__tua=1.0)
    with pytest.raises(TypeError, match="alpha is a parameter of PamCGC itself"):
        Advanced(alpha=1.0)


def test_what_a_session_needs_is_a_public_name():
    for name in ("read_graph", "open_store", "ingest", "preset", "Advanced", "FitConfig"):
        assert name in pamc.__all__
        assert callable(getattr(pamc, name))
