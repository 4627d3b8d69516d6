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


def test_a_file_holds_everything_the_command_takes(pamc, table, tmp_path):
    """Input, output, roles of columns and switches, under the names of the options; the command line overrides them."""
    rows, edges = table
    given = ["-k", 3, "--id", "name", "--drop", "kind", "--edges", edges, "--seed", 5, "--no-report", *FAST]
    typed = pamc("fit", rows, "--out", "typed", *given)
    assert typed.code == 0, typed.err
    printed = pamc("fit", rows, "--out", "read", *given, "--print-config")
    for line in (f'features = "{rows}"', 'out = "read"', "seed = 5", "report = false", 'drop = ["kind"]'):
        assert line in printed.out.splitlines()
    (tmp_path / "fit.toml").write_text(printed.out)
    read = pamc("fit", "--config", "fit.toml")
    assert read.code == 0, read.err
    assert (tmp_path / "read" / "labels.csv").read_text() == (tmp_path / "typed" / "labels.csv").read_text()
    assert not (tmp_path / "read" / "report.html").exists()
    assert pamc("fit", "--config", "fit.toml", "--out", "again", "--seed", 6).code == 0
    seeds = {run: json.loads((tmp_path / run / "run.json").read_text())["seed"] for run in ("typed", "read", "again")}
    assert seeds == {"typed": 5, "read": 5, "again": 6}


def test_tables_and_lists_in_a_file_are_repeated_options(pamc, table, tmp_path):
    rows, edges = table
    text = f'features = "{rows}"\nn-clusters = 3\nid = "name"\ndrop = "kind"\nn_epochs = 2\nhidden = [16]\n'
    text += (
        f'out = "run"\nreport = false\n[edges]\nknows = "{edges}"\nlikes = "{edges}"\n[relation_weights]\nknows = 2\n'
    )
    (tmp_path / "fit.toml").write_text(text + "likes = 1\n")
    result = pamc("fit", "--config", "fit.toml", "--quiet")
    assert result.code == 0, result.err
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["data"]["edges"] == {"knows": str(edges), "likes": str(edges)}
    assert record["config"]["n_epochs"] == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("n_clusters = 3\nids = 'name'", "fit.toml: unknown setting 'ids': allowed are alpha, "),
        ("n_clusters = [3, 4]", "fit.toml: n_clusters must be a single value, got [3, 4]"),
        ("n_clusters = 'some'", "--n-clusters must be an integer of at least 2, a range or auto, got 'some'"),
        ("seed = 'x'", "Invalid value for '--seed'"),
        ("config = 'other.toml'\nn_clusters = 3", "unknown setting 'config'"),
    ],
)
def test_a_wrong_option_in_a_file_is_a_usage_error(pamc, tmp_path, text, says):
    (tmp_path / "fit.toml").write_text(text)
    result = pamc("fit", "rows.csv", "--config", "fit.toml", "--print-config")
    assert (result.code, says in result.err) == (2, True), result.err


def test_a_number_chosen_from_the_data_can_be_asked_for_in_a_file(pamc, tmp_path):
    printed = pamc("fit", "rows.csv", "-k", "2-5", "--method", "kmeans", "--print-config").out
    assert 'n_clusters = "2-5"' in printed.splitlines()
    assert printed.count("n_clusters") == 1
    (tmp_path / "fit.toml").write_text(printed)
    assert pamc("fit", "--config", "fit.toml", "--print-config").out == printed
