import pytest
import torch

from pamc.errors import ConfigError
from pamc.graph.positives import PositivePairs
from pamc.lab.providers import normal, random_pairs, random_problem
from tests.tolerances import assert_value


@pytest.mark.parametrize("hub", [None, 60])
def test_random_pairs_are_what_the_edges_of_one_hop_give(hub):
    pairs = random_pairs(200, 2000, hub=hub, seed=3)
    assert pairs.n_pairs == 2000
    degree = pairs.indptr.diff()
    own = torch.arange(200)
    edges = torch.cat([torch.stack([pairs.rows, pairs.indices]), torch.stack([own, own])], dim=1)
    weight = 1 / (degree + 1)[edges[0]].double()
    expected = PositivePairs.from_edges(edges, weight, n_nodes=200)
    assert torch.equal(pairs.indptr, expected.indptr)
    assert torch.equal(pairs.indices, expected.indices)
    for name in ("log_weight", "log_weight_t", "log_self_weight"):
        assert_value(getattr(pairs, name), getattr(expected, name), dtype=torch.float32)
    # Rows sum to one: γ = Ā.
    total = sum(weight.double().exp().sum() for weight in (pairs.log_weight, pairs.log_self_weight))
    assert_value(total, 200.0, dtype=torch.float32)


def test_a_power_law_has_hubs_and_the_same_number_of_pairs():
    uniform, skewed = (random_pairs(3000, 30_000, hub=hub) for hub in (None, 600))
    assert uniform.n_pairs == skewed.n_pairs == 30_000
    assert uniform.indptr.diff().max() < 40
    assert 300 < skewed.indptr.diff().max() <= 700


def test_more_pairs_than_there_are_is_refused():
    with pytest.raises(ConfigError, match="too few pairs"):
        random_pairs(4, 14)


def test_a_problem_is_the_same_each_time_and_leaves_the_global_state_alone():
    before = torch.get_rng_state()
    first, second = (random_problem(50, 6, 3) for _ in range(2))
    assert torch.equal(first.pairs.indices, second.pairs.indices)
    assert torch.equal(first.labels, second.labels)
    assert torch.equal(normal(3, 4), normal(3, 4))
    assert torch.equal(before, torch.get_rng_state())
