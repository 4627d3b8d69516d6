"""The stored rows of the defaults hold what is promised: accuracy without labels, steadiness, no lost cluster, cost."""

from statistics import mean, stdev

import pytest

from pamc.lab.cases.quality import DATA_SETS, DEFAULT, INITIALIZERS, SEVEN, figures_of
from pamc.lab.rows import rows_of, stored

pytestmark = pytest.mark.claims

FLOORS = {
    "dblp": 81,
    "cite": 69.9,
    "acm": 92,
    "usps": 92.5,
    "hhar": 88,
    "cora": 73,
    "amazon_photo": 81.5,
    "news4": 73,
    "digits": 88,
}

# What the best other program reaches (77.3) is not reached here; this is, and the page says why.
SHORT = {"reut21578_4": 70}


@pytest.fixture(scope="module")
def rows():
    return rows_of("quality")


def percent(rows, data_set, metric="acc"):
    return [100 * value for value in figures_of(rows, DEFAULT, data_set, metric)]


@pytest.mark.parametrize(("data_set", "floor"), (FLOORS | SHORT).items())
def test_the_defaults_reach_what_is_promised_without_labels(rows, data_set, floor):
    accuracies = percent(rows, data_set)
    assert len(accuracies) >= 10
    assert mean(accuracies) >= floor


def test_the_mean_over_the_seven_sets_is_above_that_of_any_rival(rows):
    assert mean(mean(percent(rows, name)) for name in SEVEN) >= 83
    assert mean(mean(percent(rows, name, "nmi")) for name in SEVEN) >= 67.5


@pytest.mark.parametrize("data_set", DATA_SETS)
def test_the_seed_moves_little(rows, data_set):
    # Two ways to join news4's groups are nearly equally good: of twenty seeds one takes the other way.
    assert stdev(percent(rows, data_set)) <= (1.3 if data_set == "news4" else 1.0)
    ten_seeds = [row for row in rows if row["seed"] < 10]
    assert stdev(percent(ten_seeds, data_set)) <= 1.0


def test_no_fit_with_the_defaults_lost_a_cluster(rows):
    own = [row for row in rows if row["parameters"]["variant"] == DEFAULT]
    assert len(own) >= 200
    assert not [row for row in own if 0 in row["values"]["cluster_sizes"]]


def test_every_start_has_ten_seeds_on_every_set(rows):
    for start in INITIALIZERS:
        for data_set in DATA_SETS:
            assert len(figures_of(rows, start, data_set)) >= 10, (start, data_set)


def test_a_whole_fit_takes_at_most_three_times_as_long_as_the_papers_recipe():
    seconds = {(row["provider"], row["data_set"]): row["values"]["seconds"] for row in stored("fit-time")}
    for data_set in DATA_SETS:
        assert seconds["pamc", data_set] <= 3 * seconds["paper", data_set], data_set
