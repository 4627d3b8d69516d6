"""Run cells, in this process or in workers, and store each row at once, so that a sweep can be resumed."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pamc.data.catalog import CATALOG
from pamc.errors import ConfigError
from pamc.initialize.initializers.autoencoder import kept_starts
from pamc.lab.cell import TASKS, Case, Cell, Row, Scope, Task
from pamc.lab.measure import is_out_of_memory, release
from pamc.lab.providers import PROVIDERS, why_refused
from pamc.lab.rows import RowFile, key_of, make_row, read_rows, stamp
from pamc.lab.settings import why_missing
from pamc.models.products import products_in_tf32
from pamc.progress import Progress, SilentProgress
from pamc.runtime import resolve_device

OUT_OF_MEMORY = "out of memory"

_DIED = "the worker process died twice, possibly killed by the system for lack of memory"


class _Work(NamedTuple):
    """How to run cells: the device, and the folder of cached initializations.

    With `measured`, running out of memory is a result, which is not repeated; otherwise it is an error.
    """

    device: str
    starts: Path | None = None
    measured: bool = False


def run_cells(
    cells: Sequence[Cell],
    rows_file: Path,
    *,
    device: str = "auto",
    jobs: int = 1,
    progress: Progress | None = None,
    starts: Path | None = None,
) -> list[Row]:
    """Run the cells that are not yet in the file and return one row per cell, in the order of the cells.

    Each new row is appended to the file when its cell finishes. A cell that fails becomes a row with its error and
    runs again the next time. Cells with the parameter `alone`, which are timed, run last and one at a time. If a worker
    dies, each of the cells that were running is repeated once, alone.

    Parameters
    ----------
    jobs
        Number of worker processes; 1 runs the cells in this process.
    progress
        Shows one phase over all cells, with the counts `reused` and `failed`.
    starts
        Folder that caches pre-trained autoencoders for cells with the same initialization; None disables the cache.
    """
    if jobs < 1:
        raise ConfigError(f"jobs must be at least 1, got {jobs}")
    unique = {cell.key: cell for cell in cells}
    if not unique:
        return []
    done = {key: row for row in read_rows(rows_file) if row["error"] is None and (key := key_of(row)) in unique}
    waiting = [cell for key, cell in unique.items() if key not in done]
    work = _Work(str(resolve_device(device)), starts)
    alone = [cell for cell in waiting if cell.parameters.get("alone")]
    others = [cell for cell in waiting if not cell.parameters.get("alone")]
    running = _in_workers(others, alone, work, jobs) if jobs > 1 and waiting else _in_rounds([*others, *alone], work)
    phase = (progress or SilentProgress()).phase(cells[0].case, len(unique))
    done |= {key_of(row): row for row in _stored(running, rows_file, phase, n_reused=len(done))}
    return [done[key] for key in unique]


def run_case(
    case: Case,
    scope: Scope,
    folder: Path,
    *,
    progress: Progress | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> list[Row]:
    """Measure all cells of a case and return the rows; each is appended to its file in `folder` as soon as it is known.

    Providers that do not support the device or disagree with the reference are skipped and reported through `note`. A
    cell that fails or runs out of memory becomes a row with an `error`.
    """
    device = resolve_device(scope.device)
    release(device)
    cells = _measurable(case.cells(scope), device, note)
    n_rounds = 1 if scope.quick or device.type == "cuda" else case.n_rounds
    running = _in_rounds(cells, _Work(str(device), measured=True), n_rounds)
    phase = (progress or SilentProgress()).phase(case.name, n_rounds * len(cells))
    rows_file = folder / f"{case.name}.jsonl"
    rows = []
    for row in _stored(running, rows_file, phase):
        if row["error"] not in (None, OUT_OF_MEMORY):
            where = json.dumps({**({"data_set": row["data_set"]} if row["data_set"] else {}), **row["parameters"]})
            note(f"failed: {case.name}, {row['provider']}, {where}: {row['error']}")
        rows.append(row)
    derived = [] if case.sum_up is None else case.sum_up([row for row in rows if row["error"] is None])
    with RowFile(rows_file) as file:
        for row in derived:
            file.append(row)
    return [*rows, *derived]


def _stored(
    running: Generator[Row | None, None, None], rows_file: Path, phase: Any, *, n_reused: int | None = None
) -> Iterator[Row]:
    """Append rows to a file as they arrive, advance the progress, and yield them."""
    reused = {} if n_reused is None else {"reused": n_reused}
    failed = 0
    with RowFile(rows_file) as file, phase as display, closing(running) as new_rows:
        for number in range(1, (n_reused or 0) + 1):
            display.advance(reused=number, failed=0)
        for row in new_rows:
            if row is not None:
                file.append(row)
                failed += row["error"] is not None
            display.advance(**reused, failed=failed)
            if row is not None:
                yield row


def _measurable(cells: Sequence[Cell], device: torch.device, note: Callable[[str], None]) -> list[Cell]:
    """Return the cells whose provider is correct on the device and whose data are available."""
    not_timed = {name: _why_not_timed(name, device) for name in dict.fromkeys(cell.provider for cell in cells)}
    cells = [cell for cell in cells if not_timed[cell.provider] is None]
    names = dict.fromkeys(cell.data_set for cell in cells)
    missing = {name: why_missing(name) if name in CATALOG else None for name in names}
    for reason in filter(None, (*not_timed.values(), *missing.values())):
        note(f"skipped: {reason}")
    return [cell for cell in cells if missing[cell.data_set] is None]


def _why_not_timed(name: str, device: torch.device) -> str | None:
    """Return why a provider of the loss is not timed: it does not support the device, or its results are wrong."""
    if name not in PROVIDERS:
        return None
    reason = PROVIDERS[name].why_unavailable(device)
    if reason is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reason = why_refused(PROVIDERS[name], device)
    return None if reason is None else f"{name}: {reason}"


def _in_rounds(cells: Sequence[Cell], work: _Work, n_rounds: int = 1) -> Generator[Row | None, None, None]:
    """Yield the fastest row of each cell in the last round, and None for each cell of earlier rounds."""
    rounds: list[list[Row]] = [[] for _ in cells]
    for number in range(1, n_rounds + 1):
        for cell, rows in zip(cells, rounds, strict=True):
            # The newest row comes first: if all rounds failed, it is the one that counts.
            rows.insert(0, _run(TASKS[cell.task], cell, work))
            fastest = min(rows, key=lambda row: row["values"].get("seconds", math.inf))
            yield fastest if number == n_rounds else None


def _run(task: Task, cell: Cell, work: _Work) -> Row:
    """Run a cell and return its row; an exception becomes its `error`."""
    origin = stamp(work.device)
    try:
        # Warnings of a method are stored in its record.
        with warnings.catch_warnings(), kept_starts(work.starts), products_in_tf32(False):
            warnings.simplefilter("ignore")
            # Convert to JSON and back, so that the row equals its stored form and invalid values raise an error.
            values = json.loads(json.dumps(task(cell, work.device), allow_nan=False))
        return make_row(cell, origin, values=values)
    except Exception as error:
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"[:1000]
        return make_row(cell, origin, error=OUT_OF_MEMORY if work.measured and is_out_of_memory(error) else text)
    finally:
        # Other workers may share the GPU, so free the memory of this cell.
        release(torch.device(work.device))


def _in_workers(cells: Sequence[Cell], alone: Sequence[Cell], work: _Work, jobs: int) -> Generator[Row, None, None]:
    for waiting, n_workers in ((deque(cells), jobs), (deque(alone), 1)):
        while waiting:
            for cell in (yield from _until_broken(waiting, work, n_workers)):
                if (yield from _until_broken(deque([cell]), work, 1)):
                    yield make_row(cell, stamp(work.device), error=f"BrokenProcessPool: {_DIED}")


def _until_broken(waiting: deque[Cell], work: _Work, jobs: int) -> Generator[Row, None, list[Cell]]:
    """Yield rows of cells taken from `waiting` until none is left or a worker dies; return the cells running then.

    At most one cell per worker is submitted, so that a crash loses no cell that had not started.
    """
    running: dict[Future[Row], Cell] = {}
    with _pool(jobs) as pool:
        while waiting or running:
            while waiting and len(running) < jobs:
                try:
                    future = pool.submit(_run, TASKS[waiting[0].task], waiting[0], work)
                except BrokenProcessPool:
                    return [*running.values(), waiting.popleft()]
                running[future] = waiting.popleft()
            lost = []
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                cell = running.pop(future)
                if isinstance(future.exception(), BrokenProcessPool):
                    lost.append(cell)
                else:
                    yield future.result()
            if lost:
                return lost + list(running.values())
    return []


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of spawned workers, which are terminated without waiting if the block is left early."""
    others = set(multiprocessing.active_children())
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker, initargs=(max(1, n_cores // jobs),))
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _start_worker(threads: int) -> None:
    """Initialize a worker: limit its threads, ignore Ctrl-C (the parent terminates it), and exit with the parent."""
    import sklearn.cluster  # noqa: F401
    from threadpoolctl import threadpool_limits

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    threadpool_limits(threads)
    parent: Any = multiprocessing.parent_process()

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
