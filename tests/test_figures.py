"""The stored measurements hold what is promised."""

import pytest

from benchmarks.rows import latest
from benchmarks.tables import PAPER_KMEANS
from pamc.results.table import mean_std


def values(case, key):
    """Return a value of the only newest row of a case that has it."""
    (found,) = [row["values"][key] for row in latest(case) if key in row["values"]]
    return found


@pytest.mark.parametrize(
    ("case", "key", "at_most"),
    [
        ("loss-scaling", "time_exponent", 1.05),
        ("loss-scaling", "memory_exponent", 1.05),
        ("loss-scaling", "ns_per_pair_ratio", 1.3),
        ("epoch", "times_encoder", 1.25),
        ("import", "added_s", 0.5),
    ],
)
def test_a_measured_cost_is_within_its_bound(case, key, at_most):
    assert values(case, key) <= at_most


def test_the_n_by_n_loss_takes_at_least_twenty_times_the_memory():
    assert values("loss-memory", "times_less_memory") >= 20


@pytest.mark.parametrize("name", ["dblp", "acm", "usps", "hhar"])
def test_k_means_reproduces_the_papers_row(name):
    accuracies = [row["values"]["acc"] for row in latest("kmeans") if row["parameters"]["data_set"] == name]
    assert len(accuracies) == 10
    assert 100 * mean_std(accuracies)[0] == pytest.approx(PAPER_KMEANS[name], abs=1.2)
