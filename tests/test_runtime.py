import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

from pamc.errors import BackendError, ConfigError, UnknownNameError
from pamc.models.products import column_product, row_product
from pamc.runtime import (
    _OtherPrograms,
    environment,
    free_threads,
    generator,
    is_on_one_thread,
    one_thread,
    resolve_device,
    resolve_dtype,
    seed_for,
    seed_of,
    side_by_side,
    threads_for,
)


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


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_tasks_run_on_one_thread_each_and_their_own_tasks_in_the_same_thread(two_threads):
    def task():
        inner = side_by_side([threading.get_ident] * 3)
        return is_on_one_thread(), torch.get_num_threads(), set(inner) == {threading.get_ident()}

    for context in (nullcontext(), one_thread()):
        with context:
            assert side_by_side([task] * 4) == [(True, 1, True)] * 4
    assert not is_on_one_thread()
    assert torch.get_num_threads() == 2


def test_tasks_inside_of_one_thread_still_run_in_parallel(two_threads):
    both_run = threading.Barrier(2, timeout=30)
    with one_thread():
        assert sorted(side_by_side([both_run.wait] * 2)) == [0, 1]


def test_products_on_one_thread_have_the_same_bits_for_any_number_of_threads(two_threads):
    generator = torch.Generator().manual_seed(0)
    x, y, z = (torch.randn(1000, width, generator=generator) for width in (100, 256, 20))

    def products():
        return torch.cat(
            [part.ravel() for part in (column_product(x, y), column_product(y, z), row_product(x, x[:100]))]
        )

    results = []
    for n_threads in (1, 2, 4):
        torch.set_num_threads(n_threads)
        with one_thread():
            results.append(products())
        results += side_by_side([products] * 2)
        assert torch.get_num_threads() == n_threads
    assert all(torch.equal(result, results[0]) for result in results)


def test_tasks_on_few_rows_run_in_the_calling_thread(two_threads):
    here = threading.get_ident()
    assert side_by_side([threading.get_ident] * 3, n_rows=10) == [here] * 3
    assert side_by_side([threading.get_ident] * 3, n_rows=10**6) != [here] * 3


@pytest.fixture
def others(monkeypatch):
    """Make the machine look as if other programs used as many of its two cores as the list says."""
    n_cores = [0]
    monkeypatch.setattr("pamc.runtime._other_programs.n_cores", lambda: n_cores[0])
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    return n_cores


def test_short_steps_run_on_one_thread_and_long_steps_on_all(two_threads, others):
    layer, cpu = torch.nn.Linear(100, 100), torch.device("cpu")
    with threads_for(layer, 10, cpu):
        assert (is_on_one_thread(), torch.get_num_threads()) == (True, 1)
    with threads_for(layer, 10**6, cpu):
        assert (is_on_one_thread(), torch.get_num_threads()) == (False, 2)


@pytest.mark.parametrize(("n_others", "n_threads"), [(0, 2), (1, 1), (7, 1)])
def test_threads_leave_the_cores_of_other_programs_to_them(two_threads, others, n_others, n_threads):
    others[0] = n_others
    with free_threads():
        assert torch.get_num_threads() == n_threads
        # Rounding must still not depend on the number of threads.
        assert not is_on_one_thread()
        others[0] = 0
        with free_threads():
            assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 2


def test_tasks_use_all_cores_beside_other_programs(two_threads, others):
    both_run = threading.Barrier(2, timeout=30)
    others[0] = 4
    with free_threads():
        assert sorted(side_by_side([both_run.wait] * 2)) == [0, 1]


def test_free_threads_on_one_thread_stay_on_one(two_threads, others):
    with one_thread(), free_threads():
        assert (is_on_one_thread(), torch.get_num_threads()) == (True, 1)


@pytest.mark.parametrize(("text", "n_cores"), [("0.1 0.9 1.7 4/250 23", 3), ("nonsense", 0), (None, 0)])
def test_cores_of_other_programs_are_read_where_the_system_tells_them(monkeypatch, text, n_cores):
    def read(*_, **__):
        if text is None:
            raise FileNotFoundError
        return text

    monkeypatch.setattr("pathlib.Path.read_text", read)
    assert _OtherPrograms().n_cores() == n_cores


@pytest.mark.skipif(not Path("/proc/loadavg").exists(), reason="needs Linux")
def test_a_busy_process_is_counted():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            time.sleep(0.5)
            assert _OtherPrograms().n_cores() >= 1
        finally:
            busy.kill()
