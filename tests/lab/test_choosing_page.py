"""The rows of choosing k and of confidence hold what is promised."""

import pytest

from pamc.lab.cases.choosing import PLANTED, SETS, WITHOUT
from pamc.lab.rows import stored

pytestmark = pytest.mark.claims


def _answers():
    return {(row["data_set"], row["seed"]): row["values"] for row in stored("choose_k")}


def _of(name):
    found = [values for (data, _), values in _answers().items() if data == name]
    return found or pytest.skip(f"{name}: not measured yet (pamc bench choose_k)")


@pytest.mark.parametrize("name", PLANTED)
def test_planted_groups_were_found(name):
    assert all(values["n_clusters"] == values["truth"] for values in _of(name))


@pytest.mark.parametrize("name", WITHOUT)
def test_data_without_clusters_did_not_say(name):
    assert all(values["n_clusters"] is None for values in _of(name))


@pytest.mark.parametrize("name", SETS)
def test_data_sets_are_told_with_their_classes(name):
    assert all(values["truth"] > 1 and values["why"] for values in _of(name))


def test_it_costs_no_more_than_promised():
    assert all(values["cost"] <= values["allowed_cost"] for values in _answers().values())


def test_confidence_is_nearer_to_accuracy_and_to_refits_than_q_and_costs_little():
    rows = [row["values"] for row in stored("confidence") if row["provider"] == "pamcgc"]
    assert rows
    assert all(values["error_to_accuracy"] < values["error_to_accuracy_of_q"] for values in rows)
    assert all(
        values["error_to_refits"] < values["error_to_refits_of_q"] for values in rows if "refits_agree" in values
    )
    assert all(row["values"]["share"] < 0.05 for row in stored("confidence") if row["provider"] == "calibration")
