"""Runs cells, here or in worker processes, and keeps each row the moment it is known: a sweep can stop at any time."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import threading
import warnings
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from pamc.errors import ConfigError
from pamc.experiments.experiment import Cell, Row
from pamc.experiments.rows import RowFile, make_row, read_rows, stamp
from pamc.experiments.tasks import TASKS, Task
from pamc.initialize.cache import kept_starts
from pamc.progress import Progress, SilentProgress
from pamc.runtime import resolve_device

__all__ = ["finished_keys", "run_cells"]

_DIED = "the worker process died (killed by the system for want of memory, perhaps), twice"


def run_cells(
    cells: Sequence[Cell],
    rows_file: Path,
    *,
    device: str = "auto",
    jobs: int = 1,
    progress: Progress | None = None,
    starts: Path | None = None,
) -> list[Row]:
    """Return one row per cell, in the order of the cells: those in the file as they are, the others once they ran.

    Each new row is appended to the file as soon as its cell is done. A cell that fails becomes a row with its error and
    runs again the next time. Cells with the option `alone`, whose times count, come last and one at a time. A worker
    that dies takes the cells that were running with it; each of them runs once more,
    alone.

    Parameters
    ----------
    cells
        What to run; equal cells run once.
    rows_file
        JSON lines; made where it is missing.
    device
        "auto", "cpu", "cuda", …; jobs on one GPU share it.
    jobs
        Worker processes; 1 runs the cells in this process.
    progress
        Shows one phase over all cells, with the numbers `reused` and `failed`.
    starts
        Folder in which pre-trained autoencoders are kept for the cells that begin alike; None pre-trains in each.
    """
    if jobs < 1:
        raise ConfigError(f"jobs must be at least 1, got {jobs}")
    wanted = {cell.key: cell for cell in cells}
    if not wanted:
        return []
    done = {row["key"]: row for row in read_rows(rows_file) if row["error"] is None and row["key"] in wanted}
    waiting = [cell for key, cell in wanted.items() if key not in done]
    reused, failed, name = len(done), 0, next(iter(wanted.values())).experiment
    resolved = str(resolve_device(device))
    work = _Work(resolved, starts)
    alone = [cell for cell in waiting if cell.options.get("alone")]
    others = [cell for cell in waiting if not cell.options.get("alone")]
    running = _in_workers(others, alone, work, jobs) if jobs > 1 and waiting else _here([*others, *alone], work)
    shown = (progress or SilentProgress()).phase(name, len(wanted))
    with RowFile(rows_file) as file, shown as phase, closing(running) as new_rows:
        for number in range(1, reused + 1):
            phase.advance(reused=number, failed=0)
        for row in new_rows:
            file.append(row)
            done[row["key"]] = row
            failed += row["error"] is not None
            phase.advance(reused=reused, failed=failed)
    return [done[key] for key in wanted]


def finished_keys(rows_file: Path) -> set[str]:
    """Return the keys of the cells that need not run again."""
    return {row["key"] for row in read_rows(rows_file) if row["error"] is None}


class _Work(NamedTuple):
    """Where cells run: their device, and the folder of kept starts."""

    device: str
    starts: Path | None


def _here(cells: Sequence[Cell], work: _Work) -> Generator[Row, None, None]:
    for cell in cells:
        yield _run(TASKS[cell.task], cell, work)


def _run(task: Task, cell: Cell, work: _Work) -> Row:
    """Return the row of a cell; whatever goes wrong is in it."""
    device = work.device
    origin = stamp(device)
    try:
        # What a method warns of is in its record.
        with warnings.catch_warnings(), kept_starts(work.starts):
            warnings.simplefilter("ignore")
            # Through JSON and back: the row is now what the file will hold, and a value that JSON lacks is an error.
            values = json.loads(json.dumps(task(cell, device), allow_nan=False))
        return make_row(cell, origin, values=values)
    except Exception as error:
        text = " ".join(str(error).split())
        return make_row(cell, origin, error=f"{type(error).__name__}: {text}"[:1000])
    finally:
        if device.startswith("cuda"):
            # Other workers share the card: what this cell no longer needs goes back to it.
            gc.collect()
            torch.cuda.empty_cache()


def _in_workers(cells: Sequence[Cell], alone: Sequence[Cell], work: _Work, jobs: int) -> Generator[Row, None, None]:
    for waiting, n_workers in ((deque(cells), jobs), (deque(alone), 1)):
        while waiting:
            for cell in (yield from _until_broken(waiting, work, n_workers)):
                if (yield from _until_broken(deque([cell]), work, 1)):
                    yield make_row(cell, stamp(work.device), error=f"BrokenProcessPool: {_DIED}")


def _until_broken(waiting: deque[Cell], work: _Work, jobs: int) -> Generator[Row, None, list[Cell]]:
    """Yield rows of cells taken from `waiting` until none is left, or a worker dies: return what was running then.

    No more cells are handed out than there are workers, so that a death loses no cell that had not begun.
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
    """Yield a pool of spawned workers; when its block is left early, they are ended and not waited for."""
    others = set(multiprocessing.active_children())
    threads = max(1, _n_cores() // jobs)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start_worker, initargs=(threads,))
    try:
        yield pool
        pool.shutdown()
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _n_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start_worker(threads: int) -> None:
    """Make this process a worker: its share of the cores, deaf to Ctrl-C (the parent ends it), gone with the parent."""
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
