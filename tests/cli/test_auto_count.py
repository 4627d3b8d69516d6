"""`pamc fit --n-clusters auto`: a number with its reasons, or an honest refusal."""

import json

import numpy as np
import pytest

from pamc.cli import fit_run
from pamc.errors import ConfigError
from pamc.selection.choose_k import ChosenK


def answer(n_clusters):
    columns = ("stability", "error", "chance", "modularity", "silhouette", "objective")
    table = {"n_clusters": np.array([2, 3]), **{name: np.array([0.2, 0.9]) for name in columns}}
    why = "the data do not say" if n_clusters is None else f"{n_clusters} clusters"
    return ChosenK(n_clusters, why, 0.7, 0.1, 2, (), table, "features", {})


@pytest.fixture
def rows(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 3)) + 6 * np.repeat(np.arange(3), 20)[:, None]
    np.savetxt(tmp_path / "rows.csv", x, delimiter=",", header="a,b,c", comments="")
    return "rows.csv"


FAST = ["--method", "kmeans", "--quiet", "--out", "run"]


def test_the_recommended_number_is_fitted_and_kept_in_the_record(pamc, rows, monkeypatch, tmp_path):
    monkeypatch.setattr(fit_run, "choose_k", lambda graph, **options: answer(3))
    shown = pamc("fit", rows, "--n-clusters", "auto", *FAST)
    assert "recommended" in shown.out
    assert "in 3 clusters" in shown.out
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["config"]["n_clusters"] == 3
    assert record["facts"]["choose_k"]["margin"] == 0.7


def test_with_json_the_table_goes_to_standard_error(pamc, rows, monkeypatch):
    monkeypatch.setattr(fit_run, "choose_k", lambda graph, **options: answer(2))
    shown = pamc("fit", rows, "--n-clusters", "auto", "--json", *FAST)
    assert json.loads(shown.out)["n_clusters"] == 2
    assert "recommended" in shown.err


def test_where_the_data_do_not_say_the_command_says_so_and_how_to_go_on(pamc, rows, monkeypatch, tmp_path):
    monkeypatch.setattr(fit_run, "choose_k", lambda graph, **options: answer(None))
    shown = pamc("fit", rows, "--n-clusters", "auto", *FAST)
    assert shown.code == 3
    assert "do not say" in shown.err
    assert "--n-clusters K" in shown.err
    assert "stability" in shown.out
    assert "do not say" not in shown.out
    assert not (tmp_path / "run").exists()


def test_a_range_names_the_candidates(pamc, rows, monkeypatch):
    seen = []
    monkeypatch.setattr(fit_run, "choose_k", lambda graph, **options: seen.append(options) or answer(3))
    assert "in 3 clusters" in pamc("fit", rows, "--n-clusters", "2-3", *FAST).out
    assert seen[0]["candidates"] == range(2, 4)
    pamc("fit", rows, "--n-clusters", "auto", *FAST, "--overwrite")
    assert seen[1]["candidates"] is None


@pytest.mark.parametrize(
    ("number", "says"),
    [
        ("1-5", "must be a range from at least 2, such as 2-60, got '1-5'"),
        ("9-5", "must be a range from at least 2, such as 2-60, got '9-5'"),
        ("2-60", "60 rows are enough to compare up to 3 clusters (16 rows per cluster), got 60"),
        ("2:60", "must be an integer of at least 2, a range or auto, got '2:60'"),
    ],
)
def test_a_range_that_cannot_be_is_refused(pamc, rows, number, says):
    shown = pamc("fit", rows, "--n-clusters", number, *FAST)
    assert shown.code == 2
    assert says in " ".join(shown.err.split())


@pytest.mark.parametrize("width", [30, 40, 60, 80, 120])
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_the_table_is_no_wider_than_the_terminal(pamc, rows, monkeypatch, width, options):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(fit_run, "choose_k", lambda graph, **options: answer(3))
    shown = pamc("fit", rows, "--n-clusters", "auto", *FAST, *options)
    text = shown.err if options else shown.out
    table = text[: text.index("margin")].splitlines()
    assert max(map(len, table)) <= width
    assert "stability" in table[0]
    assert sum("<-" in line for line in table) == 1
    assert ("no room for" in text) == (width < 70)


def test_rows_that_are_all_alike_are_refused_as_for_any_number(pamc, tmp_path):
    (tmp_path / "same.csv").write_text("a,b\n" + "1,2\n" * 60)
    auto, two = (pamc("fit", "same.csv", "--n-clusters", number, "--quiet") for number in ("auto", 2))
    assert (auto.code, auto.err) == (two.code, two.err)
    assert "number of distinct rows, 1" in auto.err


def test_it_is_refused_for_large_stores_and_teams():
    with pytest.raises(ConfigError, match="sample"):
        fit_run.refuse_auto(large=True, group=False)
    with pytest.raises(ConfigError, match="one process"):
        fit_run.refuse_auto(large=False, group=True)
    fit_run.refuse_auto(large=False, group=False)
