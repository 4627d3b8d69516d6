"""Devices, data types, seeds, threads, and the description of the environment for records."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import subprocess
import sys
import threading
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import nn

import pamc
from pamc.config import CHOICES
from pamc.errors import BackendError, ConfigError, UnknownNameError

Result = TypeVar("Result")

# Number of multiplications up to which a training step runs on one thread.
_SHORT_STEP = 1 << 27

# Tasks on fewer rows are not run in parallel: they would wait for Python's interpreter lock.
_MANY_ROWS = 2000

_STAMPED_PACKAGES = (
    "torch",
    "numpy",
    "scipy",
    "scikit-learn",
    "safetensors",
    "duckdb",
    "typer",
    "rich",
    "triton",
    "torch_geometric",
)


def resolve_device(device: str | torch.device) -> torch.device:
    """Return the device to use; "auto" is CUDA if it is available, and otherwise the CPU.

    Examples
    --------
    >>> resolve_device("cpu")
    device(type='cpu')
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError):
        raise UnknownNameError("device", device, ["auto", "cpu", "cuda", "cuda:0", "cuda:1"]) from None
    if resolved.type == "cuda" and not torch.cuda.is_available():
        raise BackendError(f"device {str(device)!r}: torch finds no CUDA device; use 'cpu' or 'auto'")
    if resolved.type not in ("cpu", "cuda"):
        raise UnknownNameError("device", device, ["auto", "cpu", "cuda"])
    return resolved


def resolve_dtype(precision: str) -> torch.dtype:
    """Return the data type of weights, embedding and loss: float64 for that `precision`, otherwise float32."""
    if precision not in CHOICES["precision"]:
        raise UnknownNameError("precision", precision, CHOICES["precision"])
    return torch.float64 if precision == "float64" else torch.float32


def resolve_row_dtype(precision: str, device: torch.device) -> torch.dtype:
    """Return the data type of the rows passed to an encoder.

    Examples
    --------
    >>> resolve_row_dtype("auto", torch.device("cpu"))
    torch.float32
    """
    if precision != "bfloat16":
        return resolve_dtype(precision)
    if device.type == "cpu":
        raise ConfigError("precision 'bfloat16' needs a CUDA GPU; on a CPU 'auto' and 'float32' are faster")
    return torch.bfloat16


def on_tensor_cores(precision: str) -> bool:
    """Return whether float32 matrix products may use the tensor cores of a GPU."""
    return precision in ("auto", "bfloat16")


def seed_of(random_state: Any) -> int:
    """Return an integer seed for a `random_state` as in scikit-learn: None, an integer, or a generator.

    None draws fresh entropy from the system; NumPy's global state is neither read nor changed.
    """
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint32)[0])
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(np.iinfo(np.int32).max))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(np.iinfo(np.int32).max))
    if isinstance(random_state, int | np.integer) and 0 <= random_state < 2**32:
        return int(random_state)
    raise ConfigError(
        f"random_state must be None, an integer from 0 to 2^32 - 1, or a numpy generator, got {random_state!r}"
    )


def seed_for(seed: int, purpose: str) -> int:
    """Return the seed for a purpose ("weights", "row order", …), independent of the seeds for other purposes."""
    return int(np.random.SeedSequence([seed, zlib.crc32(purpose.encode())]).generate_state(1, np.uint32)[0])


def generator(seed: int, purpose: str) -> torch.Generator:
    """Return a CPU random generator for a purpose; torch's global state is not changed."""
    return torch.Generator().manual_seed(seed_for(seed, purpose))


@contextmanager
def seeded(seed: int, purpose: str, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators for a purpose inside a `with` block, and restore their state afterwards.

    This is for losses that draw random numbers in code that accepts no generator.
    """
    cuda = [device] if device.type == "cuda" else []
    with _GLOBAL_GENERATORS, torch.random.fork_rng(devices=cuda):
        value = seed_for(seed, purpose)
        torch.default_generator.manual_seed(value)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(value)
        yield


class _SharedContext:
    """A context that all threads share: the first thread to enter opens it, and the last one to leave closes it."""

    def __init__(self, new_context: Callable[[], AbstractContextManager[Any]]) -> None:
        self._new_context = new_context
        self._lock, self._n_inside = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if self._n_inside == 0:
                self._context = self._new_context()
                self._context.__enter__()
            self._n_inside += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                self._context.__exit__(None, None, None)


@contextmanager
def _without_expected_warnings() -> Iterator[None]:
    """Ignore warnings of libraries that pamc expects and handles."""
    with warnings.catch_warnings():
        for message in (
            "Number of distinct clusters",
            "Sparse invariant checks are implicitly disabled",
            "Sparse CSR tensor support is in beta state",
            "The given NumPy array is not writable",
        ):
            warnings.filterwarnings("ignore", message, UserWarning)
        yield


@lru_cache(maxsize=1)
def _libraries_with(n_modules: int) -> ThreadpoolController:
    return ThreadpoolController()


def _libraries() -> ThreadpoolController:
    """Return the loaded libraries with thread pools; the search is repeated only after a module was imported.

    A search takes longer than a quick clustering.
    """
    return _libraries_with(len(sys.modules))


# Warning filters and the number of BLAS threads apply to the whole process.
quiet_libraries = _SharedContext(_without_expected_warnings)
_one_blas_thread = _SharedContext(lambda: _libraries().limit(limits=1, user_api="blas"))


class _Limits(threading.local):
    """The limits of the current thread.

    `n_tasks` is the number of tasks that it may run side by side; None is the number of torch's threads.
    """

    on_one_thread = False
    n_tasks: int | None = None


_limits = _Limits()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit numeric libraries to one thread inside a `with` block, which fixes the order of summation.

    Tasks of :func:`side_by_side` still run in parallel.
    """
    # Counted first, because torch reports the OpenMP limit as its number of threads.
    n_tasks = _n_tasks()
    # The OpenMP limit applies to the thread that sets it, the BLAS limit to all threads.
    with _one_blas_thread, _libraries().limit(limits=1, user_api="openmp"), _torch_threads(1, n_tasks):
        yield


def _n_tasks() -> int:
    return _limits.n_tasks or torch.get_num_threads()


@contextmanager
def _torch_threads(n_threads: int, n_tasks: int, *, always_one: bool = True) -> Iterator[None]:
    """Limit torch and its BLAS, which other limits do not reach, to `n_threads`; allow `n_tasks` tasks side by side.

    `always_one` states that the number of threads is always 1 here, so that rounding cannot depend on it.
    """
    before, n_before = (_limits.on_one_thread, _limits.n_tasks), torch.get_num_threads()
    _limits.on_one_thread, _limits.n_tasks = always_one, n_tasks
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(n_before)
        _limits.on_one_thread, _limits.n_tasks = before


class _OtherPrograms:
    """Counts the cores that other programs use, at most once a second."""

    _SECONDS, _SAMPLES, _SECONDS_APART = 1.0, 3, 0.002

    def __init__(self) -> None:
        self._counted_at, self._n_cores = -math.inf, 0

    def n_cores(self) -> int:
        """Return the number of cores in use by other programs; 0 if the system does not report it."""
        if time.monotonic() - self._counted_at > self._SECONDS:
            self._n_cores = min(map(self._n_running, range(self._SAMPLES)))
            self._counted_at = time.monotonic()
        return self._n_cores

    def _n_running(self, number: int) -> int:
        # The idle threads of this process stop spinning shortly after an operation, and then do not count as running.
        time.sleep(self._SECONDS_APART)
        try:
            running = Path("/proc/loadavg").read_text(encoding="ascii").split()[3]
            return int(running.split("/")[0]) - 1
        except (OSError, ValueError, IndexError):
            return 0


_other_programs = _OtherPrograms()


@contextmanager
def free_threads() -> Iterator[None]:
    """Limit torch to as many threads as there are cores that no other program uses; at least one.

    Threads wait for each other at the end of each operation, so one that has to share its core delays all. Results do
    not depend on the number of threads. Tasks of :func:`side_by_side`, which do not wait, still use all cores.
    """
    n_threads = 1 if is_on_one_thread() else _n_tasks()
    n_free = (os.cpu_count() or 1) - (_other_programs.n_cores() if n_threads > 1 else 0)
    with _torch_threads(max(1, min(n_threads, n_free)), _n_tasks(), always_one=is_on_one_thread()):
        yield


def threads_for(module: nn.Module, n_rows: int, device: torch.device) -> AbstractContextManager[None]:
    """Return a context for steps that map `n_rows` rows by a module: on one thread if the steps are short.

    In short operations, threads wait for each other longer than they compute. Longer steps use :func:`free_threads`.
    """
    n_products = n_rows * sum(parameter.numel() for parameter in module.parameters())
    is_short = device.type == "cpu" and n_products < _SHORT_STEP
    if is_short:
        return _torch_threads(1, _n_tasks())
    return free_threads() if device.type == "cpu" else nullcontext()


def is_on_one_thread() -> bool:
    """Return whether the caller is inside of :func:`one_thread` or is a task of :func:`side_by_side`."""
    return _limits.on_one_thread


def has_few_rows(n_rows: int) -> bool:
    """Return whether tasks on this many rows are too short to run in parallel."""
    return n_rows < _MANY_ROWS


# Serializes losses that draw from torch's global generators.
_GLOBAL_GENERATORS = threading.RLock()


def side_by_side(
    tasks: Iterable[Callable[[], Result]],
    device: torch.device = torch.device("cpu"),  # noqa: B008
    *,
    n_rows: int | None = None,
) -> list[Result]:
    """Run tasks, on a CPU as many in parallel as torch has threads, otherwise sequentially, and return their results.

    Each task runs on one thread, so that its order of summation does not depend on the number of threads. Nested tasks
    run sequentially, and so do tasks on fewer than 2,000 rows each (`n_rows`).
    """
    if device.type != "cpu":
        return [task() for task in tasks]
    n_tasks, n_threads = _n_tasks(), torch.get_num_threads()
    if n_tasks == 1 or (n_rows is not None and has_few_rows(n_rows)):
        with nullcontext() if is_on_one_thread() else one_thread():
            return [task() for task in tasks]

    libraries = _libraries()

    def on_one_thread(task: Callable[[], Result]) -> Result:
        # The OpenMP limit applies to the thread that sets it.
        with libraries.limit(limits=1, user_api="openmp"), _torch_threads(1, 1):
            return task()

    try:
        with _one_blas_thread, ThreadPoolExecutor(max_workers=n_tasks) as threads:
            return list(threads.map(on_one_thread, tasks))
    finally:
        # Workers change the number of threads that new threads start with.
        torch.set_num_threads(n_threads)


def environment() -> dict[str, Any]:
    """Return the environment for bug reports and result rows: versions, hardware, threads and commit."""
    cuda = torch.cuda.is_available()
    return {
        "pamc": pamc.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_name(),
        "n_threads": torch.get_num_threads(),
        "cuda": torch.version.cuda if cuda else None,
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "packages": {name: version for name in _STAMPED_PACKAGES if (version := _version(name)) is not None},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of the source tree that pamc runs from, or None for an installed package.

    ``$PAMC_COMMIT`` overrides it, for copies of the tree without their own Git history.
    """
    override = os.environ.get("PAMC_COMMIT")
    root = Path(__file__).resolve().parents[2]
    if override is not None or not (root / ".git").exists():
        return override
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return completed.stdout.strip()


def cpu_name() -> str:
    """Return the name of the processor and its number of cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor() or 'unknown'}, {os.cpu_count()} cores"
