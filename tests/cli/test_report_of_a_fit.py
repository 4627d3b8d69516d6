import csv
import json
from pathlib import Path

from pamc.data.customers import make_customers
from pamc.report.content import FORMAT
from pamc.report.page_file import read_page, unpack
from tests.cli.conftest import FAST


def page_of(folder):
    return read_page(Path(folder, "report.html"), formats=(FORMAT,))


def test_a_fit_leaves_a_page_and_says_where(pamc, table):
    rows, edges = table
    result = pamc("fit", rows, "--edges", edges, "--id", "name", "--truth", "kind", "-k", 3, "--out", "run", *FAST)
    assert result.code == 0, result.err
    assert f"report: {Path('run/report.html').resolve().as_uri()}" in result.out
    data = page_of("run")
    assert data["truth"]["names"] == ["class 0", "class 1", "class 2"]
    assert data["record"] == {k: v for k, v in json.loads(Path("run/run.json").read_text()).items() if k != "history"}
    assert data["features"]["name"][0].startswith("f")


def test_columns_that_are_no_features_can_color_the_map(pamc, table):
    rows, _ = table
    options = ["--id", "name", "--drop", "kind", "--color", "kind,f1", "-k", 3, "--out", "run", *FAST, "--json"]
    result = pamc("fit", rows, *options)
    assert result.code == 0, result.err
    assert result.json["report"] == "run/report.html"
    first, second = page_of("run")["columns"][:2]
    assert (first["name"], first["kind"], second["name"], second["kind"]) == ("kind", "class", "f1", "number")
    assert pamc("fit", rows, "--color", "nothing", "-k", 3, *FAST).code == 3
    assert pamc("fit", "--dataset", "digits", "--color", "a", "-k", 3, *FAST).code == 2
    assert pamc("fit", rows, "--map", "tsne", "-k", 3, *FAST[:-3]).code == 2


def test_a_column_of_numbers_with_blanks_is_a_scale(pamc, table):
    rows, _ = table
    head, *lines = rows.read_text().splitlines()
    cells = ["", "NA", "x"]
    more = [f"{line},{cells[i % 2] if i % 5 == 0 else i},{cells[i % 3]}" for i, line in enumerate(lines)]
    rows.write_text("\n".join([f"{head},age,word", *more]) + "\n")
    options = ["--id", "name", "--drop", "kind,age,word", "--color", "age,word", "-k", 3, "--out", "run", *FAST]
    assert pamc("fit", rows, *options).code == 0
    age, word = page_of("run")["columns"][:2]
    assert (age["kind"], age["min"], age["max"]) == ("number", 1.0, 149.0)
    assert (unpack(age["values"]) == 65535).sum() == 30
    assert (word["kind"], word["names"]) == ("class", ["(missing)", "x"])


def test_without_a_page(pamc, table):
    rows, _ = table
    result = pamc(
        "fit", rows, "--id", "name", "--drop", "kind", "-k", 3, "--out", "run", "--no-report", "--json", *FAST
    )
    assert result.code == 0
    assert result.json["report"] is None
    assert not Path("run/report.html").exists()


def test_a_page_that_fails_loses_nothing(pamc, table, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("a bug in the page")

    monkeypatch.setattr("pamc.report.writing.write_fit_report", broken)
    rows, _ = table
    result = pamc("fit", rows, "--id", "name", "--drop", "kind", "-k", 3, "--out", "run", *FAST)
    assert result.code == 0
    assert "the report could not be written (RuntimeError: a bug in the page)" in result.err
    assert "report:" not in result.out
    assert Path("run/labels.csv").is_file()
    assert not Path("run/report.html").exists()
    monkeypatch.setenv("PAMC_DEBUG", "1")
    assert pamc("fit", rows, "--id", "name", "--drop", "kind", "-k", 3, "--out", "other", *FAST).code == 1


def test_the_report_of_a_mixed_table_speaks_of_its_columns(pamc, tmp_path):
    columns = make_customers(120).columns
    with Path("customers.csv").open("w", newline="") as stream:
        writer = csv.writer(stream, delimiter=";")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    assert pamc("fit", "customers.csv", "-k", 4, "--out", "run", *FAST).code == 0
    data = page_of("run")
    names = set(columns) - {"customer_id"}
    assert data["record"]["data"]["n_features"] == len(names)
    assert set(data["features"]["name"]) <= names
    assert all(data["clusters"]["name"])
    assert set(data["profile"]["column"]) == names
    assert {column["name"] for column in data["columns"]} <= names
    # A missing cell is empty, as in the file.
    places = {name: place for place, name in enumerate(columns["customer_id"])}
    cells = zip(data["cells"]["id"], data["cells"]["column"], data["cells"]["cell"], strict=True)
    assert all((cell == "") == (columns[column][places[name]] is None) for name, column, cell in cells)
    Path("run/report.html").unlink()
    assert pamc("report", "run", "--map", "pca").code == 0
    again = page_of("run")
    assert (again["features"], again["profile"], again["cells"]) == (data["features"], data["profile"], data["cells"])
