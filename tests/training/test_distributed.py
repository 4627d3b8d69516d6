import numpy as np
import pytest
import torch

from pamc.config import FitConfig
from pamc.distributed.scatter import check_shareable
from pamc.errors import ConfigError
from pamc.graph.positives import PairShard, PositivePairs
from pamc.models.layers import MLP
from pamc.models.loader import FeatureLoader, encode_rows
from pamc.models.methods.pamcgc import PamCGCModel
from pamc.ops.group import SINGLE_PROCESS, row_range, rows_per_rank
from pamc.runtime import generator
from pamc.training.engine import accumulate_gradient
from pamc.training.trainer import train
from tests.awkward import spelled_out
from tests.training.test_engine import CPU, N_CLUSTERS, N_NODES, parts
from tests.training.threads import own_rows, run_team

OPTIONS = [
    {},
    {"proxy": "eq6", "self_edges": "keep", "alpha": 0.5, "beta": 3.0, "tau": 0.25, "eta": 2.0},
    {"kl_reduction": "sum", "n_hops": 1},
]


class OnlyThese(np.ndarray):
    """Features of which some rows may be read; to touch another one is an error."""

    def __array_finalize__(self, whole):
        self.allowed = getattr(whole, "allowed", None)

    def __getitem__(self, key):
        start, stop, _ = key.indices(len(self))
        if not (self.allowed.start <= start and stop <= self.allowed.stop):
            raise RuntimeError(f"rows {start} to {stop} were read, allowed are {self.allowed}")
        return np.asarray(self)[key]


def config_of(**options):
    return FitConfig(n_clusters=N_CLUSTERS, precision="float64", **{"alpha": 1.0, **options})


def awkward(model):
    """Give a model of the engine's tests an isolated row, a pair with one direction and a zero row."""
    pairs = model.pairs
    gamma = torch.zeros(N_NODES, N_NODES, dtype=torch.float64)
    gamma[pairs.rows, pairs.indices] = pairs.log_weight.exp()
    gamma += torch.diag(pairs.log_self_weight.exp())
    gamma[7], gamma[:, 7] = 0, 0
    gamma[3, 390], gamma[390, 3] = 0.5, 0.0
    source, target = gamma.nonzero().T
    return PositivePairs.from_edges(
        torch.stack([source, target]), gamma[source, target], n_nodes=N_NODES, dtype=torch.float64
    )


def shared(group, config, whole, features, *, pairs=None):
    """Return one process's share of a model, and its rows, which are the only ones it may read."""
    own = own_rows(group, N_NODES)
    can_fall_back = features.view(OnlyThese)
    can_fall_back.allowed = own
    rows = FeatureLoader(can_fall_back[own], device=CPU, dtype=torch.float64)
    encoder = MLP(whole.encoder.sizes, generator=generator(9, "other"), dtype=torch.float64)
    encoder.load_state_dict(whole.encoder.state_dict())
    share = PairShard.of(whole.pairs if pairs is None else pairs, own)
    return PamCGCModel(encoder, whole.centers, share, config, group=group), rows


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("chunk_size", [None, 50])
def test_the_gradient_of_any_number_of_processes_is_that_of_one(options, size, chunk_size):
    config = config_of(**options)
    model, rows = parts(config)
    model.pairs = awkward(model)
    with torch.no_grad():
        model.centers[2] = 100.0  # A cluster without a row.
    expected = accumulate_gradient(model, rows)
    gradients = [p.grad for p in model.parameters()]

    def one(group):
        share, own = shared(group, config, model, rows._features)
        return accumulate_gradient(share, own, chunk_size=chunk_size), [p.grad for p in share.parameters()]

    results = run_team(size, one)
    for terms, found in results:
        assert terms.total.item() == pytest.approx(expected.total.item(), rel=1e-12)
        for kind in ("parts", "monitors"):
            assert getattr(terms, kind).keys() == getattr(expected, kind).keys()
            for name, value in getattr(expected, kind).items():
                assert getattr(terms, kind)[name].item() == pytest.approx(value.item(), rel=1e-11, abs=1e-12), name
        for one_gradient, whole in zip(found, gradients, strict=True):
            assert (one_gradient - whole).norm() <= 1e-11 * whole.norm()
        for one_gradient, first in zip(found, results[0][1], strict=True):
            assert torch.equal(one_gradient, first)
    assert torch.equal(torch.cat([terms.labels for terms, _ in results]), expected.labels)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("chunk_size", [None, 64])
def test_twenty_epochs_of_several_processes_are_those_of_one(size, chunk_size):
    config = config_of()
    model, rows = parts(config)
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    alone = list(train(model, rows, n_epochs=20, lr=1e-3))
    whole, _ = parts(config)
    whole.load_state_dict(start)

    def one(group):
        share, own = shared(group, config, whole, rows._features)
        records = list(train(share, own, n_epochs=20, lr=1e-3, chunk_size=chunk_size))
        return records, share.state_dict()

    results = run_team(size, one)
    for records, state in results:
        for record, expected in zip(records, alone, strict=True):
            assert record.values.keys() == expected.values.keys()
            for name, value in expected.values.items():
                assert record.values[name] == pytest.approx(value, rel=1e-10, abs=1e-10), (record.epoch, name)
        for name, tensor in model.state_dict().items():
            assert (state[name] - tensor).abs().max() <= 1e-10
            assert torch.equal(state[name], results[0][1][name])
    assert torch.equal(torch.cat([records[-1].labels for records, _ in results]), alone[-1].labels)


def test_a_process_that_reads_a_row_of_another_is_found_out():
    model, rows = parts()
    features = rows._features.view(OnlyThese)
    features.allowed = row_range(N_NODES, 0, 2)
    read = FeatureLoader(features, device=CPU, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="allowed are slice"):
        encode_rows(model.encoder, read)


def test_even_pairs_are_spelled_out_row_by_row():
    model, _ = parts()
    even = PositivePairs.even(model.pairs.indptr, model.pairs.indices.int(), dtype=torch.float64)
    spelled = spelled_out(even)
    for own in (slice(0, 100), slice(100, N_NODES)):
        found, expected = PairShard.of(even, own), PairShard.of(spelled, own)
        for name in ("indptr", "indices", "log_weight", "log_weight_t", "log_self_weight"):
            assert torch.equal(getattr(found, name), getattr(expected, name)), name


def test_rows_may_stay_in_a_memory_mapped_file(tmp_path):
    model, rows = parts()
    np.save(tmp_path / "rows.npy", rows._features)
    accumulate_gradient(model, rows)

    def one(group):
        share, _ = shared(group, config_of(), model, rows._features)
        features = np.load(tmp_path / "rows.npy", mmap_mode="r")[own_rows(group, N_NODES)]
        accumulate_gradient(share, FeatureLoader(features, device=CPU, dtype=torch.float64), chunk_size=60)
        return share.centers.grad

    for found in run_team(2, one):
        assert (found - model.centers.grad).norm() <= 1e-11 * model.centers.grad.norm()


def test_alone_is_the_team_of_one():
    model, rows = parts()
    share, own = shared(SINGLE_PROCESS, config_of(), model, rows._features)
    z = encode_rows(share.encoder, own)
    assert share.objective(z).total.item() == pytest.approx(model.objective(z).total.item(), rel=1e-13)
    moved = share.pairs.to(device="cpu", dtype=torch.float32)
    assert moved.log_weight.dtype == torch.float32
    assert moved.n_pairs == model.pairs.n_pairs


@pytest.mark.parametrize("size", [1, 2, 3, 5, 10])
def test_every_row_has_one_owner(size):
    for n_nodes in (size * size, 100, 401):
        ranges = [row_range(n_nodes, rank, size) for rank in range(size)]
        assert [row for own in ranges for row in range(own.start, own.stop)] == list(range(n_nodes))


def test_too_few_rows_for_the_processes_are_refused():
    with pytest.raises(ConfigError, match="5 rows are too few for 4 processes: start fewer"):
        rows_per_rank(5, 4)


@pytest.mark.parametrize(
    ("config", "options", "said"),
    [
        ({"meta_assignment": "soft"}, {}, "meta_assignment='soft'"),
        ({"meta_assignment": "soft_detached"}, {}, "meta_assignment='soft_detached'"),
        ({}, {"method": "sdcn"}, "--method sdcn"),
        ({}, {"known_labels": True}, "known_labels: leave"),
    ],
)
def test_what_cannot_be_shared_is_refused(config, options, said):
    with pytest.raises(ConfigError, match=said):
        check_shareable(config_of(**config), **options)
