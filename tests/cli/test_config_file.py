import json

import pytest

from tests.cli.conftest import FAST

pytestmark = pytest.mark.usefixtures("few_repeats")


def test_printed_settings_repeat_a_fit_without_further_options(pamc, table, tmp_path):
    options = ["-k", 3, "--min-confidence", 0.5, *FAST]
    printed = pamc("fit", "--print-config", *options)
    assert printed.code == 0, printed.err
    (tmp_path / "fit.toml").write_text(printed.out)
    more = ["--id", "name", "--drop", "kind", "--no-report"]
    assert pamc("fit", table[0], *more, "--out", "a", *options).code == 0
    assert pamc("fit", table[0], *more, "--out", "b", "--config", "fit.toml").code == 0
    assert (tmp_path / "a" / "labels.csv").read_text() == (tmp_path / "b" / "labels.csv").read_text()
    configs = [json.loads((tmp_path / run / "run.json").read_text())["config"] for run in "ab"]
    assert configs[0] == configs[1]


def test_options_override_the_file_and_yaml_is_refused(pamc, tmp_path):
    (tmp_path / "fit.toml").write_text("n_clusters = 4\ntau = 0.25\n")
    printed = pamc("fit", "--config", "fit.toml", "--print-config", "-k", 6).out
    assert "n_clusters = 6\n" in printed
    assert "tau = 0.25\n" in printed
    (tmp_path / "fit.yaml").write_text("n_clusters: 4\n")
    refused = pamc("fit", "--config", "fit.yaml", "--print-config")
    assert (refused.code, "is YAML, but --config reads TOML" in refused.err) == (2, True)
