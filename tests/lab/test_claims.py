"""The stored measurements hold what is promised."""

import pytest

from pamc.lab.pages.contents import PAPER_KMEANS
from pamc.lab.pages.speed import over_nodes
from pamc.lab.pages.style import ratio_to_pamc
from pamc.lab.rows import stored
from pamc.results.table import mean_std

pytestmark = pytest.mark.claims


def loss_over_nodes(provider):
    """Return the measured points of case `loss` over N on a CPU, by N, and the exponents fitted to the largest."""
    *points, fitted = over_nodes(stored("loss", device="cpu"), provider)
    return points, fitted["values"]


def epochs(key):
    return {row["data_set"]: row["values"][key] for row in stored("epoch", device="cpu") if key in row["values"]}


@pytest.mark.parametrize(
    ("key", "at_most"), [("time_exponent", 1.05), ("memory_exponent", 1.05), ("ns_per_pair_ratio", 1.3)]
)
def test_the_loss_is_linear_in_nodes(key, at_most):
    assert loss_over_nodes("torch")[1][key] <= at_most


def test_the_n_by_n_loss_is_not():
    assert loss_over_nodes("dense")[1]["time_exponent"] > 1.8


def test_the_n_by_n_loss_takes_at_least_twenty_times_the_memory():
    rows = stored("loss", device="cpu")
    for row in loss_over_nodes("dense")[0]:
        assert ratio_to_pamc(rows, row, "peak_bytes") >= 20


@pytest.mark.parametrize("name", ["usps", "hhar", "dblp"])
def test_an_epoch_is_little_more_than_the_bare_encoder(name):
    assert epochs("times_encoder")[name] <= 1.25


def test_sparse_input_is_faster_than_dense():
    assert epochs("times_faster")["cite"] > 1
    assert epochs("first_layer_times_faster")["cite"] > 1


def test_an_exported_model_is_fast_and_a_slim_one_is_small():
    rows = {row["provider"]: row["values"] for row in stored("export")}
    assert rows["onnx"]["rows_per_cpu_s"] >= 200_000
    assert rows["onnx"]["same_labels"] == 1.0
    assert rows["pamc"]["slim_bytes"] <= 1_000_000


def test_importing_pamc_is_cheap():
    (row,) = stored("import")
    assert row["values"]["added_s"] <= 0.5


@pytest.mark.parametrize("name", ["dblp", "acm", "usps", "hhar"])
def test_k_means_reproduces_the_papers_row(name):
    accuracies = [row["values"]["acc"] for row in stored("kmeans") if row["data_set"] == name]
    assert len(accuracies) == 10
    assert 100 * mean_std(accuracies)[0] == pytest.approx(PAPER_KMEANS[name], abs=1.2)
