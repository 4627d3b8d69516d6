"""Messy files through `pamc describe`, `pamc fit` and `pamc predict`."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from pamc.data.customers import make_customers
from tests.cli.conftest import pamc  # noqa: F401

FAST = ("--quiet", "--epochs", 2, "--set", "hidden=[16]", "--set", "pretrain_epochs=2", "--device", "cpu")


def write_customers(path, n_rows=80, *, delimiter=",", encoding="utf-8", random_state=0, **changes):
    columns = make_customers(n_rows, random_state=random_state).columns | changes
    write_table(path, columns, delimiter=delimiter, encoding=encoding)


def write_table(path, columns, *, delimiter=",", encoding="utf-8"):
    with Path(path).open("w", newline="", encoding=encoding) as stream:
        writer = csv.writer(stream, delimiter=delimiter)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def fitted_columns(run):
    return {row["name"]: row for row in json.loads(Path(run, "run.json").read_text())["data"]["columns"]}


@pytest.mark.parametrize(
    ("delimiter", "encoding"),
    [(",", "utf-8"), (";", "utf-8-sig"), (";", "latin-1"), ("\t", "utf-8"), (";", "cp1252"), (",", "utf-16")],
)
def test_a_messy_file_is_fitted_and_new_rows_are_labeled(pamc, delimiter, encoding):  # noqa: F811
    comments = [f'Grüße aus "Köln"{chr(10)}Zeile {i % 3}' for i in range(80)]
    prices = [f"{i % 7} €" if encoding in ("cp1252", "utf-16") else f"{i % 7}" for i in range(80)]
    write_customers("customers.csv", delimiter=delimiter, encoding=encoding, town=comments, price=prices)
    result = pamc("fit", "customers.csv", "-k", 4, "--out", "run", *FAST)
    assert result.code == 0, result.err
    assert "'customer_id': identifies the rows" in result.err
    columns = fitted_columns("run")
    kinds = [columns[name]["type"] for name in ("customer_id", "revenue", "town", "price")]
    assert kinds == ["id", "number", "category", "number"]
    assert "Grüße aus" in columns["town"]["example"]
    write_customers("new.csv", 30, random_state=1)
    result = pamc("predict", "run", "new.csv", "--out", "clusters.csv")
    assert result.code == 0, result.err
    assert "has no columns 'price', 'town'" in result.err or "has no columns 'town', 'price'" in result.err
    lines = Path("clusters.csv").read_text().splitlines()
    assert len(lines) == 31
    assert lines[1].startswith("C000")


def labels_of(run):
    return Path(run, "labels.csv").read_text()


def test_a_change_that_says_nothing_new_gives_the_same_clusters(pamc):  # noqa: F811
    columns = make_customers(80).columns
    names = list(columns)
    renamed = {"free": "z", "standard": "b", "premium": "m", None: None}
    changes = {
        "shuffled": {name: columns[name] for name in np.random.default_rng(0).permutation(names)},
        "renamed": columns | {"plan": [renamed[plan] for plan in columns["plan"]]},
        "twice": columns | {"copy": columns["city"], "again": columns["visits"]},
        "other": {name: values for name, values in columns.items() if name != "visits"},
    }
    for name, changed in {"as it is": columns, **changes}.items():
        write_table(f"{name}.csv", changed)
        result = pamc("fit", f"{name}.csv", "-k", 4, "--out", name, *FAST)
        assert result.code == 0, result.err
    assert all(labels_of(name) == labels_of("as it is") for name in ("shuffled", "renamed", "twice"))
    assert labels_of("other") != labels_of("as it is")
    result = pamc("predict", "as it is", "shuffled.csv", "--out", "clusters.csv")
    assert result.code == 0, result.err
    assert Path("clusters.csv").read_text() == labels_of("as it is")


def test_describe_is_a_dry_run_that_shows_every_column(pamc):  # noqa: F811
    write_customers("customers.csv")
    result = pamc("describe", "customers.csv", "--types", "age=category,basket=ignore", "--json")
    assert result.code == 0, result.err
    rows = {row["name"]: row for row in json.loads(result.out)}
    assert set(rows["city"]) == {"name", "type", "encoding", "missing", "example", "note"}
    kinds = {name: row["type"] for name, row in rows.items()}
    assert (kinds["age"], kinds["basket"], kinds["first_order"]) == ("category", "left out", "date")
    assert 0 < rows["city"]["missing"] < 0.3
    assert list(Path().iterdir()) == [Path("customers.csv")]
    assert "first_order" in pamc("describe", "customers.csv").out


def test_types_are_given_to_fit_and_recorded(pamc):  # noqa: F811
    write_customers("customers.csv")
    result = pamc("fit", "customers.csv", "-k", 3, "--out", "run", "--types", "plan=free<standard<premium", *FAST)
    assert result.code == 0, result.err
    assert fitted_columns("run")["plan"]["type"] == "ordered"
    assert json.loads(Path("run", "run.json").read_text())["data"]["read"]["types"] == {"plan": "free<standard<premium"}
    assert pamc("report", "run", "--rebuild").code == 0


@pytest.mark.parametrize(
    ("types", "code", "says"),
    [
        ("plan", 2, "--types takes NAME=TYPE, such as zip=category, got 'plan'"),
        ("plan=number", 3, "column 'plan': 'standard' (line 2) is not a number"),
        ("pan=category", 3, "types names a column 'pan' that does not exist"),
        ("plan=categry", 2, "did you mean 'category'?"),
    ],
)
def test_wrong_types_are_refused(pamc, types, code, says):  # noqa: F811
    write_customers("customers.csv")
    result = pamc("fit", "customers.csv", "-k", 3, "--types", types, *FAST)
    assert result.code == code
    assert says in result.err


def test_a_wrong_column_of_new_rows_is_refused(pamc):  # noqa: F811
    write_customers("customers.csv")
    assert pamc("fit", "customers.csv", "-k", 3, "--out", "run", "--no-report", *FAST).code == 0
    write_customers("new.csv", 5, age=["young"] * 5)
    result = pamc("predict", "run", "new.csv", "--out", "clusters.csv")
    assert result.code == 3
    assert "column 'age': 'young' is not a number" in result.err
    assert not Path("clusters.csv").exists()
