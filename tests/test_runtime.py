import numpy as np
import pytest
import torch

from pamc.errors import BackendError, ConfigError, UnknownNameError
from pamc.runtime import environment, generator, resolve_device, resolve_dtype, seed_for, seed_of


def test_auto_takes_cuda_only_where_there_is_one():
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_without_cuda_is_a_backend_error():
    with pytest.raises(BackendError, match="use 'cpu' or 'auto'"):
        resolve_device("cuda")


@pytest.mark.parametrize("device", ["gpu", "meta", "cuda:x"])
def test_an_unknown_device_is_refused(device):
    with pytest.raises(UnknownNameError, match="unknown device"):
        resolve_device(device)


def test_an_unknown_precision_is_refused():
    assert resolve_dtype("float64") == torch.float64
    with pytest.raises(UnknownNameError, match="float32, float64"):
        resolve_dtype("float16")


def test_a_seed_is_taken_from_whatever_scikit_learn_allows():
    assert seed_of(7) == seed_of(np.int64(7)) == 7
    assert seed_of(np.random.RandomState(3)) == seed_of(np.random.RandomState(3))
    assert seed_of(np.random.default_rng(3)) == seed_of(np.random.default_rng(3))
    assert seed_of(None) != seed_of(None)


@pytest.mark.parametrize("bad", [-1, 2**32, "x", 1.5])
def test_a_wrong_seed_is_refused(bad):
    with pytest.raises(ConfigError, match="random_state"):
        seed_of(bad)


def test_purposes_have_independent_streams_and_the_global_state_is_left_alone():
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    first = torch.rand(3, generator=generator(0, "weights"))
    assert torch.equal(first, torch.rand(3, generator=generator(0, "weights")))
    assert not torch.equal(first, torch.rand(3, generator=generator(0, "row order")))
    assert seed_for(0, "weights") != seed_for(1, "weights")
    seed_of(None)
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])


def test_the_stamp_names_versions_device_and_commit():
    stamp = environment()
    assert stamp["packages"]["torch"] == torch.__version__
    assert stamp["n_threads"] >= 1
    assert stamp["pamc"]


def test_the_stamp_does_without_git_and_without_cpu_names(monkeypatch, tmp_path):
    import pamc.runtime as runtime

    monkeypatch.setenv("PAMC_COMMIT", "abc")
    assert runtime._commit() == "abc"
    monkeypatch.delenv("PAMC_COMMIT")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert runtime._commit() is None
    monkeypatch.setattr(runtime, "__file__", str(tmp_path / "a" / "b" / "runtime.py"))
    assert runtime._commit() is None
    monkeypatch.setattr(runtime.Path, "read_text", lambda *a, **k: (_ for _ in ()).throw(OSError()))
    assert "cores" in runtime.cpu_name()
    assert runtime._version("no-such-package-here") is None
