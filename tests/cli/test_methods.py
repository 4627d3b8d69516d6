import json
from pathlib import Path

import pytest

from pamc.models.method import METHODS
from tests.cli.conftest import FAST


def test_methods_are_listed_with_what_they_look_at(pamc):
    result = pamc("methods")
    assert result.code == 0
    assert "scgc*" in result.out
    assert "features, graph" in result.out
    listed = pamc("methods", "--json").json
    assert {method["name"] for method in listed} == set(METHODS)
    assert next(method for method in listed if method["name"] == "svd")["uses_features"] is False


def test_a_method_that_treats_rows_alone_is_fitted_and_predicts(pamc, table):
    rows, _ = table
    fitted = pamc(
        "fit", rows, "--id", "name", "--truth", "kind", "-k", 3, "--method", "kmeans", "--out", "run", "--quiet"
    )
    assert fitted.code == 0, fitted.err
    assert "pamc predict run" in fitted.err
    assert json.loads(Path("run/run.json").read_text())["method"] == "kmeans"
    predicted = pamc("predict", "run", rows, "--out", "p.csv")
    assert predicted.code == 0, predicted.err
    assert Path("p.csv").read_text() == Path("run/labels.csv").read_text()


def test_a_method_that_needs_the_graph_labels_its_own_rows_and_refuses_others(pamc, table):
    rows, edges = table
    options = ["--id", "name", "--truth", "kind", "--edges", edges, "-k", 3, "--out", "run", *FAST]
    fitted = pamc("fit", rows, *options, "--method", "sdcn")
    assert fitted.code == 0, fitted.err
    assert "next:" not in fitted.err
    refused = pamc("predict", "run", rows, "--out", "p.csv")
    assert refused.code == 2
    assert "which cannot label new rows" in refused.err


def test_a_method_without_a_graph_says_that_it_ignores_one(pamc, table):
    rows, edges = table
    options = ["--id", "name", "--truth", "kind", "--edges", edges, "-k", 3, "--out", "run", "--quiet"]
    fitted = pamc("fit", rows, *options, "--method", "kmeans")
    assert fitted.code == 0, fitted.err
    assert "the graph is ignored" in fitted.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--method", "kmean"], "did you mean 'kmeans'"),
        (["--method", "kmeans", "--set", "tau=1"], "unknown setting 'tau'"),
        (["--method", "kmeans", "--alpha", "2"], "unknown setting 'alpha'"),
        (["--method", "sdcn", "--preset", "paper"], "has the preset 'default', and 'paper' for a --dataset"),
    ],
)
def test_what_a_method_does_not_have_is_a_usage_error(pamc, table, options, says):
    rows, _ = table
    result = pamc("fit", rows, "--id", "name", "--truth", "kind", "-k", 3, *options)
    assert result.code == 2
    assert says in result.err


def test_the_papers_settings_of_a_method_belong_to_known_data_sets(pamc):
    result = pamc("fit", "--dataset", "acme", "--method", "sdcn", "--preset", "paper", "-k", 3)
    assert result.code == 2
    assert "unknown data set 'acme'" in result.err
