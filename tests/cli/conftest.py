import csv
import json

import pytest

from pamc.cli.app import run
from pamc.data.synthetic import block_model

FAST = [
    "--set",
    "hidden=[16]",
    "--set",
    "pretrain_epochs=3",
    "--set",
    "n_init=2",
    "--epochs",
    "5",
    "--map",
    "pca",
    "--quiet",
]


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def pamc(capsys, monkeypatch, tmp_path):
    """Return a function that runs one command line in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments):
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def planted():
    return block_model(150, 3, n_features=6, feature_noise=0.4, random_state=0)


@pytest.fixture
def table(planted, tmp_path):
    """Return a CSV of named rows with a truth column, and a CSV of edges between the names."""
    rows, edges = tmp_path / "rows.csv", tmp_path / "edges.csv"
    with rows.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["name", *(f"f{i}" for i in range(6)), "kind"])
        for i in range(150):
            writer.writerow([f"node {i}", *planted.features[i].tolist(), f"class {planted.labels[i]}"])
    with edges.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["from", "to"])
        writer.writerows((f"node {a}", f"node {b}") for a, b in planted.edges.T)
    return rows, edges


@pytest.fixture(scope="module", autouse=True)
def _quick_fits(few_repeats):
    """These tests are about the command, not about the clusters that a fit finds."""
