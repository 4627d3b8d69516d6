import os
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pamc.config import CHOICES, PAPER_TABLE_1, PRESETS, RENAMED_SETTINGS, FitConfig, preset
from pamc.errors import ConfigError, UnknownNameError
from pamc.estimator import PamCGC
from pamc.models.method import METHODS


@given(
    st.builds(
        FitConfig,
        n_clusters=st.integers(1, 99),
        tau=st.floats(1e-3, 100),
        hidden=st.lists(st.integers(1, 9), max_size=3),
        chunk_size=st.none() | st.integers(1, 9),
        proxy=st.sampled_from(CHOICES["proxy"]),
    )
)
def test_settings_survive_toml_and_json(config):
    assert FitConfig.from_toml(config.to_toml()) == config
    assert FitConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_clusters", 0),
        ("n_clusters", 2.5),
        ("n_clusters", True),
        ("n_clusters", "3"),
        ("n_epochs", -1),
        ("hidden", (0,)),
        ("chunk_size", 0),
        ("tau", 0.0),
        ("tau", float("nan")),
        ("lr", "fast"),
        ("alpha", -1.0),
        ("tol", float("inf")),
    ],
)
def test_a_wrong_value_is_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=name):
        FitConfig(**{name: value})


@pytest.mark.parametrize("name", [name for name in CHOICES if name in FitConfig.names()])
def test_a_choice_outside_the_list_is_refused_with_the_list(name):
    with pytest.raises(UnknownNameError, match=f"unknown {name} 'sideways': allowed are .*{CHOICES[name][0]}"):
        FitConfig(**{name: "sideways"})


def test_an_unknown_setting_suggests_the_near_one():
    with pytest.raises(UnknownNameError, match="did you mean 'n_hops'"):
        FitConfig().with_(n_hop=3)


def test_text_that_is_not_toml_is_refused():
    with pytest.raises(ConfigError, match="not valid TOML"):
        FitConfig.from_toml("tau = = 1")


def test_a_former_name_is_refused_with_the_present_one():
    for name, present in RENAMED_SETTINGS.items():
        for refused in (FitConfig().with_, lambda **values: FitConfig.from_dict(values)):
            with pytest.raises(ConfigError, match=f"the setting '{name}' is called '{present}'"):
                refused(**{name: "x"})


def test_importing_the_settings_imports_no_torch_and_no_numpy():
    code = "import sys, pamc.config; sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'sklearn')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_of_every_method_has_a_declaration_that_its_default_meets(name):
    config = METHODS[name].config
    assert list(config.settings()) == list(config.names()) == [field.name for field in fields(config)]
    for setting, declared in config.settings().items():
        assert declared.check(setting, declared.default) == declared.default == getattr(config(), setting)
        assert declared.about.endswith(".")
        assert f"{setting} : {declared.describe()}" in config.__doc__


def test_a_value_of_a_subclass_changes_the_default_and_keeps_the_declaration():
    usual, own = METHODS["gae"].config.settings()["n_epochs"], METHODS["vgae"].config.settings()["n_epochs"]
    assert (usual.default, own.default) == (80, 90)
    assert replace(own, default=80) == usual


def test_the_estimator_has_every_setting_with_the_same_default():
    parameters = PamCGC().get_params()
    for name, value in FitConfig().to_dict().items():
        own = f"advanced__{name}" if FitConfig.settings()[name].expert else name
        assert parameters[own] == (tuple(value) if isinstance(value, list) else value)


def test_the_paper_preset_is_the_equations_and_the_released_preset_the_program():
    paper, released = PRESETS["paper"], PRESETS["released"]
    assert (paper.proxy, paper.meta_assignment, paper.self_edges, paper.kl_reduction) == ("eq2", "hard", "drop", "mean")
    assert (paper.init, paper.pretrain_epochs, paper.batch_size, paper.n_init) == ("autoencoder", 30, 256, 20)
    assert (paper.hidden, paper.n_dims, paper.n_epochs, paper.preprocessing) == ((500, 500, 2000), 10, 200, "none")
    assert (released.proxy, released.self_edges) == ("eq6", "keep")
    assert (released.meta_assignment, released.kl_reduction) == ("hard", "mean")


@pytest.mark.parametrize("data_set", PAPER_TABLE_1)
def test_the_paper_preset_of_a_data_set_has_the_numbers_of_table_1_and_200_epochs(data_set):
    config = preset("paper", data_set=data_set)
    assert {name: getattr(config, name) for name in PAPER_TABLE_1[data_set]} == PAPER_TABLE_1[data_set]
    assert config.n_epochs == 200


def test_by_default_the_weight_scale_and_sizes_are_chosen_by_the_fit():
    config = FitConfig()
    names = ("alpha", "embedding_scale", "n_dims", "n_hops", "n_epochs", "hidden")
    assert [getattr(config, name) for name in names] == [None] * len(names)
    assert FitConfig.from_toml(config.to_toml()) == config
    assert FitConfig(alpha=0).alpha == 0
    with pytest.raises(ConfigError, match="embedding_scale"):
        FitConfig(embedding_scale=0.0)


def test_the_released_preset_swaps_the_rows_of_dblp_and_cite():
    for one, other in (("dblp", "cite"), ("cite", "dblp")):
        swapped, own = preset("released", data_set=one), preset("paper", data_set=other)
        assert (swapped.alpha, swapped.beta, swapped.tau, swapped.n_hops) == (own.alpha, own.beta, own.tau, own.n_hops)
        assert swapped.pretrain_lr == preset("paper", data_set=one).pretrain_lr
    assert preset("released", data_set="acm").tau == preset("paper", data_set="acm").tau


def test_a_paper_preset_asks_for_what_an_unknown_set_lacks():
    with pytest.raises(ConfigError, match=r"missing: beta, n_hops\)"):
        preset("paper", data_set="mine", alpha=1, tau=1)
    assert preset("paper", data_set="mine", alpha=1, beta=3, tau=1, n_hops=1).beta == 3


def test_an_unknown_preset_is_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'paper'"):
        preset("papr")


def test_changes_win_over_a_preset():
    assert preset("paper", data_set="usps", tau=9.0).tau == 9.0
    assert preset("default", data_set="usps", tau=9.0) == FitConfig(tau=9.0)


def test_table_1_is_the_one_printed_in_the_paper():
    if "PAMC_PAPER" not in os.environ:
        pytest.skip("PAMC_PAPER does not name the paper's .tex file")
    tex = Path(os.environ["PAMC_PAPER"]).read_text(encoding="utf-8")
    table = tex[tex.index("\\label{TABLE_datasets}") :]
    table = table[: table.index("\\end{table}")]
    printed = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.removesuffix("\\\\").replace("\\\\ \\bottomrule", "").split("&")]
        if len(cells) == 11 and cells[2].isdigit():
            alpha, beta, n_hops, tau = (float(cell) for cell in cells[6:10])
            exponent = int(re.search(r"10\^\{(-\d)\}", cells[10]).group(1))
            printed[cells[0].lower()] = (alpha, beta, n_hops, tau, 10.0**exponent)
    columns = ("alpha", "beta", "n_hops", "tau", "lr")
    assert printed == {name: tuple(row[column] for column in columns) for name, row in PAPER_TABLE_1.items()}
    low = re.search(r"learning rate of \$10\^\{-3\}\$ for ([A-Z, ]+) and \$10\^\{-4\}\$ for ([A-Z]+) and ([A-Z]+)", tex)
    slow = {low.group(2).lower(), low.group(3).lower()}
    assert {name for name, row in PAPER_TABLE_1.items() if row["pretrain_lr"] == 1e-4} == slow
