"""The stored rows of relations, graphs alone and images hold what is promised."""

import numpy as np
import pytest

from pamc.lab.cases.relations import ALL, RANDOM, TWICE
from pamc.lab.rows import rows_of, stored
from pamc.lab.settings import GRAPHS_ALONE, KARATE, RELATION_SETS

pytestmark = pytest.mark.claims


@pytest.fixture(scope="module")
def rows():
    return rows_of("relations")


def by_seed(rows, data_set, graph, metric="acc"):
    return {
        row["seed"]: row["values"]["last"][metric]
        for row in rows
        if (row["data_set"], row["parameters"].get("graph")) == (data_set, graph)
    }


def mean(rows, data_set, graph, metric="acc"):
    return 100 * np.mean(list(by_seed(rows, data_set, graph, metric).values()))


def test_two_relations_of_dblp_reach_their_floors(rows):
    values = list(by_seed(rows, "relations/dblp", ALL).values())
    assert len(values) == 10
    assert 100 * np.std(values) <= 1
    assert mean(rows, "relations/dblp", ALL) >= 92.5
    assert mean(rows, "relations/dblp", ALL, "nmi") >= 77.5


@pytest.mark.parametrize("name", RELATION_SETS)
def test_all_relations_together_are_ahead_of_the_better_one(rows, name):
    assert mean(rows, name, ALL) >= max(mean(rows, name, relation) for relation in RELATION_SETS[name]) + 1


@pytest.mark.parametrize("name", RELATION_SETS)
@pytest.mark.parametrize(("graph", "at_most"), [(RANDOM, 1.0), (TWICE, 0.3)])
def test_random_edges_and_repeated_relations_change_next_to_nothing(rows, name, graph, at_most):
    together, changed = by_seed(rows, name, ALL), by_seed(rows, name, graph)
    assert changed
    assert 100 * abs(np.mean([changed[seed] - together[seed] for seed in changed])) <= at_most


@pytest.mark.parametrize("name", GRAPHS_ALONE)
def test_graphs_alone_are_clustered_as_well_as_by_leidens_method(rows, name):
    found = [row["values"] for row in rows if row["data_set"] == name and row["task"] == "graph alone"]
    assert len(found) == 3
    if name == KARATE:
        assert min(values["pamcgc"]["acc"] for values in found) >= 0.97
        return
    q, q_leiden = (np.mean([values[method]["modularity"] for values in found]) for method in ("pamcgc", "leiden"))
    assert q >= 0.98 * q_leiden
    for values in (values for values in found if "nmi" in values["leiden"]):
        assert values["pamcgc"]["nmi"] >= values["leiden"]["nmi"] - 0.02


def test_the_cost_of_relations_is_linear_in_their_edges():
    (fitted,) = [row["values"] for row in stored("relation-cost") if "time_exponent" in row["values"]]
    assert fitted["time_exponent"] <= 1.05
    assert fitted["memory_exponent"] <= 1.05
