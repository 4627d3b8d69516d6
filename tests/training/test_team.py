import json
import socket
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from pamc.config import FitConfig
from pamc.data.attributed_graph import AttributedGraph
from pamc.data.synthetic import block_model
from pamc.distributed import group as team_module
from pamc.distributed.group import join_group, launched
from pamc.distributed.probe import probe_group
from pamc.errors import BackendError, ConfigError
from pamc.ops.group import SINGLE_PROCESS
from pamc.progress import SilentProgress
from pamc.training.checkpoint import CheckpointPlan
from pamc.training.pipeline import fit_method, run_worker
from tests.training.test_checkpoint import StopAfter, StoppedError
from tests.training.threads import ThreadTeam, run_team

CPU = torch.device("cpu")
CONFIG = FitConfig(
    n_clusters=3, hidden=(16,), pretrain_epochs=3, n_init=2, n_epochs=8, precision="float64", chunk_size=40
)


@pytest.fixture(scope="module")
def graph():
    return block_model(150, 3, n_features=6, feature_noise=0.4, random_state=0)


def whole_fit(graph, config=CONFIG, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit_method("pamcgc", graph, config, seed=0, device=CPU, **options)


def fit_by(size, graph, config=CONFIG, **options):
    """Return the fit of several threads, the first of which leads."""

    def one(group):
        if group.rank:
            return run_worker(group)
        return fit_method("pamcgc", graph, config, seed=0, device=CPU, group=group, **options)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run_team(size, one)[0]


def same(fit, expected):
    assert fit.labels.tolist() == expected.labels.tolist()
    np.testing.assert_allclose(fit.z, expected.z, atol=1e-10)
    np.testing.assert_allclose(fit.centers, expected.centers, atol=1e-10)
    assert {**fit.facts, "n_processes": 1} == expected.facts
    for name, values in expected.history.items():
        np.testing.assert_allclose(fit.history[name], values, rtol=1e-9, atol=1e-9, err_msg=name)
    for one, other in zip(fit.network.parameters(), expected.network.parameters(), strict=True):
        assert (one - other).abs().max() <= 1e-10


@pytest.mark.fast_variants(1)
@pytest.mark.parametrize("size", [2, 3])
def test_a_fit_that_others_help_with_is_the_fit_of_one(graph, size):
    same(fit_by(size, graph), whole_fit(graph))


@pytest.mark.slow
def test_sparse_rows_are_dealt_out_too(graph):
    words = AttributedGraph(
        sp.random(150, 80, density=0.05, format="csr", random_state=0) + sp.eye(150, 80), graph.edges
    )
    expected = whole_fit(words)
    assert expected.sparse_input
    same(fit_by(2, words), expected)


@pytest.mark.fast_variants(1)
@pytest.mark.parametrize("then", [1, 2, 3])
def test_a_fit_of_two_that_was_stopped_goes_on_with_any_number(graph, tmp_path, then):
    plan = CheckpointPlan(tmp_path, every=2)
    with pytest.raises(StoppedError):
        fit_by(2, graph, checkpoints=plan, progress=StopAfter(5))
    again = CheckpointPlan(tmp_path, every=2, resume=True)
    options = {"checkpoints": again, "progress": SilentProgress()}
    found = whole_fit(graph, **options) if then == 1 else fit_by(then, graph, **options)
    same(found, whole_fit(graph))


@pytest.fixture
def launched_alone(monkeypatch):
    """Set the environment of the only process of a torchrun."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    values = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(team_module, "_REASON_WITHIN_S", 0.1)


@pytest.fixture
def ranks(launched_alone):
    group = join_group("cpu")
    yield group
    group.leave()


@pytest.mark.filterwarnings("ignore")
def test_the_team_of_one_process_gathers_adds_tells_and_deals(ranks):
    x = torch.arange(6.0).view(3, 2)
    assert torch.equal(ranks.gather_rows(x, 3), x)
    assert torch.equal(ranks.sum(x), x)
    assert ranks.sum(torch.tensor(3)).item() == 3
    assert ranks.broadcast({"a": [1, None]}) == {"a": [1, None]}
    assert torch.equal(ranks.scatter([{"x": x}])["x"], x)
    assert ranks.failure() is None
    assert ranks.fail("first", 3)
    assert not ranks.fail("second", 4)
    assert ranks.failure() == {"rank": 0, "message": "first", "code": 3}
    told = ranks.lost(RuntimeError("connection closed"))
    assert told.reported
    assert str(told) == "process 0 of 1 failed: first"
    assert told.exit_code == 3
    found = probe_group(ranks, CPU, n_bytes=1 << 10)
    assert found["processes"][0]["host"] == socket.gethostname()


@pytest.mark.filterwarnings("ignore")
def test_a_connection_that_is_lost_without_a_word_is_said(ranks):
    lost = ranks.lost(RuntimeError("connection\nclosed by peer"))
    assert not lost.reported
    assert lost.exit_code == BackendError.exit_code
    assert "process 0 of 1 lost another one, which was killed or cannot be reached (connection closed" in str(lost)


@pytest.mark.filterwarnings("ignore")
def test_who_waits_for_the_first_process_ends_when_another_has_failed(ranks, monkeypatch):
    monkeypatch.setattr(team_module, "_LOOK_EVERY", team_module.timedelta(milliseconds=50))
    assert ranks.fail("no such file", 3)
    with pytest.raises(team_module.ProcessGroupError, match="no such file"):
        ranks.broadcast(None)


def test_without_torchrun_nothing_is_launched(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    assert not launched()


def test_a_team_that_cannot_be_joined_says_where_and_what_to_do(launched_alone, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("PAMC_TIMEOUT_MINUTES", "0.02")
    with pytest.raises(BackendError, match=r"process 1 of 2 cannot join the others at 127.0.0.1:\d+ .* with torchrun"):
        join_group("cpu")


@pytest.mark.parametrize("minutes", ["0", "soon", "nan", "1e9"])
def test_a_timeout_that_is_none_is_refused(launched_alone, monkeypatch, minutes):
    monkeypatch.setenv("PAMC_TIMEOUT_MINUTES", minutes)
    with pytest.raises(ConfigError, match="PAMC_TIMEOUT_MINUTES must be a number of minutes"):
        join_group("cpu")


def test_every_process_needs_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(team_module, "resolve_device", torch.device)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert team_module._local_device("cuda") == torch.device("cuda", 1)
    with pytest.raises(ConfigError, match="needs a separate GPU"):
        team_module._local_device("cuda:0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    with pytest.raises(ConfigError, match="3 processes on a machine with 2 GPU"):
        team_module._local_device("cuda")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    assert team_module._local_device("cuda:0") == torch.device("cuda", 0)


def test_the_probe_says_who_is_there_and_that_one_alone_sends_nothing():
    found = probe_group(SINGLE_PROCESS, CPU, n_bytes=1 << 12)
    assert found["n_processes"] == 1
    assert found["bandwidth_bytes_per_s"] is None
    both = run_team(2, lambda group: probe_group(group, CPU, n_bytes=1 << 12))
    assert [process["rank"] for process in both[1]["processes"]] == [0, 1]
    assert both[0]["bandwidth_bytes_per_s"] > 0
    assert json.dumps(found)


def test_wrong_sums_are_found_out(monkeypatch):
    monkeypatch.setattr(ThreadTeam, "sum", lambda self, values: values + 1e-9)
    with pytest.raises(BackendError, match="got a wrong sum from the others"):
        run_team(2, lambda group: probe_group(group, CPU))
