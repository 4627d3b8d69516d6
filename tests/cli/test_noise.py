import csv

import numpy as np
import pytest

from tests.cli.conftest import FAST
from tests.noise.planted import embeddings

LONGER = ["--set", "pretrain_epochs=20"]

pytestmark = pytest.mark.usefixtures("few_repeats")


@pytest.fixture
def rows(tmp_path):
    """Return a CSV of embeddings with noise, and their true clusters as numbers."""
    X, y = embeddings(240, 16, 3, spread=0.5)
    path, truth = tmp_path / "rows.csv", tmp_path / "truth.npy"
    np.savetxt(path, X, delimiter=",", header=",".join(f"f{i}" for i in range(16)), comments="")
    np.save(truth, y)
    return path, truth


def read(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_noise_goes_through_fit_predict_evaluate_and_report(pamc, rows, tmp_path):
    path, truth = rows
    fit = pamc("fit", path, "-k", 3, "--min-confidence", 0.6, "--out", "run", *FAST, *LONGER)
    assert fit.code == 0, fit.err
    lines = read(tmp_path / "run" / "labels.csv")
    n_noise = sum(line["cluster"] == "-1" for line in lines)
    assert n_noise == 24
    assert all((line["cluster"] == "-1") == bool(line["noise"]) for line in lines)
    assert f"{n_noise} in no cluster" in fit.out
    again = pamc("predict", "run", path, "--out", "again.csv")
    assert f"{n_noise} in no cluster" in again.out
    assert [line["cluster"] for line in read(tmp_path / "again.csv")] == [line["cluster"] for line in lines]
    everyone = pamc("predict", "run", path, "--out", "sure.csv", "--min-confidence", 1, "--json").json
    assert everyone["n_between_clusters"] + everyone["n_unlike_training"] + sum(everyone["cluster_sizes"]) == 240
    assert pamc("evaluate", truth, "run/labels.csv", "--json").json["coverage"] == pytest.approx(1 - n_noise / 240)
    assert pamc("report", "run", "--rebuild").code == 0


def test_a_run_with_noise_is_compared_with_one_without(pamc, rows):
    for name, more in (("plain", []), ("noise", ["--min-confidence", "0.6"])):
        assert pamc("fit", rows[0], "-k", 3, "--out", name, *more, *FAST).code == 0
    for pair in (("plain", "noise"), ("noise", "plain")):
        compared = pamc("report", *pair, "--overwrite", "--out", "both.html")
        assert compared.code == 0, compared.err


def test_without_noise_files_are_as_ever(pamc, rows, tmp_path):
    assert pamc("fit", rows[0], "-k", 3, "--out", "run", "--no-report", *FAST).code == 0
    assert list(read(tmp_path / "run" / "labels.csv")[0]) == ["id", "cluster", "confidence"]
    assert "in no cluster" not in pamc("predict", "run", rows[0], "--out", "new.csv").out
