import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from pamc.errors import ConfigError
from pamc.lab.rows import key_of, read_rows
from pamc.lab.sweep import run_cells
from tests.lab.fake_tasks import cells

ROOT = Path(__file__).parents[2]
TIMES = ("date", "environment")


def without_times(rows):
    return sorted(({k: v for k, v in row.items() if k not in TIMES} for row in rows), key=key_of)


def test_rows_come_back_in_the_order_of_the_cells_and_stand_in_the_file(tmp_path):
    rows = run_cells(cells(4), tmp_path / "rows" / "fake.jsonl", device="cpu")
    assert [row["values"]["square"] for row in rows] == [0, 1, 4, 9]
    assert read_rows(tmp_path / "rows" / "fake.jsonl") == rows
    row = rows[1]
    assert [row[name] for name in ("case", "provider", "data_set", "seed")] == ["fake", "m", "blocks", 1]
    assert (row["device"], row["quick"], row["error"]) == ("cpu", False, None)
    assert row["environment"]["packages"]["torch"]


def test_finished_cells_are_reused_and_equal_cells_run_once(tmp_path):
    path, log = tmp_path / "fake.jsonl", tmp_path / "log"
    run_cells(cells(2, log=str(log)), path)
    rows = run_cells(cells(3, log=str(log)) * 2, path)
    assert log.read_text().split() == ["0", "1", "2"]
    assert len(rows) == 3
    assert run_cells([], path) == []


def test_a_failing_cell_is_an_error_and_runs_again_the_next_time(tmp_path):
    path, healed = tmp_path / "fake.jsonl", tmp_path / "healed"
    both = [*cells(1), *cells(1, task="test-fail", healed=str(healed))]
    good, bad = run_cells(both, path)
    assert (good["error"], bad["error"], bad["values"]) == (None, "MemoryError: no memory left", {})
    healed.touch()
    assert [row["error"] for row in run_cells(both, path)] == [None, None]
    assert [row["error"] for row in read_rows(path)] == [None, "MemoryError: no memory left", None]


def test_a_value_that_json_lacks_is_an_error(tmp_path):
    (row,) = run_cells(cells(1, task="test-nan"), tmp_path / "fake.jsonl")
    assert row["error"].startswith("ValueError: Out of range float")


def test_a_task_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"unknown task 'test-squares'.*did you mean 'test-square'"):
        run_cells(cells(1, task="test-squares"), tmp_path / "fake.jsonl")
    with pytest.raises(ConfigError, match="jobs must be at least 1, got 0"):
        run_cells(cells(1), tmp_path / "fake.jsonl", jobs=0)


class Watch:
    def __init__(self):
        self.seen = []

    def phase(self, name, total=None):
        self.name, self.total = name, total
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def advance(self, **values):
        self.seen.append(values)


def test_progress_counts_all_cells_the_reused_and_the_failed(tmp_path):
    path, watch = tmp_path / "fake.jsonl", Watch()
    run_cells(cells(2), path)
    run_cells([*cells(3), *cells(1, task="test-nan")], path, progress=watch)
    assert (watch.name, watch.total) == ("fake", 4)
    assert [tuple(values.values()) for values in watch.seen] == [(1, 0), (2, 0), (2, 0), (2, 1)]


@pytest.mark.slow
def test_two_workers_give_the_rows_of_one_process(tmp_path):
    mixed = [*cells(3), *cells(1, task="test-fail", healed=str(tmp_path / "never"))]
    one = run_cells(mixed, tmp_path / "one.jsonl", device="cpu")
    two = run_cells(mixed, tmp_path / "two.jsonl", device="cpu", jobs=2)
    assert without_times(one) == without_times(two) == without_times(read_rows(tmp_path / "two.jsonl"))


SLOW_SWEEP = """
import sys
from pathlib import Path
from pamc.lab.sweep import run_cells
from tests.lab.fake_tasks import cells
if __name__ == "__main__":
    run_cells(cells(40, log=sys.argv[2]), Path(sys.argv[1]), jobs=int(sys.argv[3]))
"""


def start_slow_sweep(tmp_path, jobs):
    script = tmp_path / "sweep.py"
    script.write_text(SLOW_SWEEP)
    environment = {**os.environ, "TEST_SECONDS": "0.2", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    arguments = [sys.executable, str(script), str(tmp_path / "fake.jsonl"), str(tmp_path / "log"), str(jobs)]
    # A background job of a shell ignores Ctrl-C, and so would its children.
    listen = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(arguments, env=environment, stderr=subprocess.PIPE, text=True, preexec_fn=listen)
    wait_until(lambda: (tmp_path / "fake.jsonl").exists() and len(read_rows(tmp_path / "fake.jsonl")) >= 3)
    return process


def wait_until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_sweep_loses_no_finished_row_and_runs_only_the_missing_cells(tmp_path):
    process = start_slow_sweep(tmp_path, jobs=1)
    process.kill()
    process.communicate()
    path, log = tmp_path / "fake.jsonl", tmp_path / "log"
    kept = read_rows(path)
    begun = log.read_text().split()
    assert 3 <= len(kept) < 40
    assert len(begun) <= len(kept) + 1
    with path.open("a") as file:
        file.write(json.dumps(kept[0])[:50])
    rows = run_cells(cells(40, log=str(log)), path)
    assert [row["values"]["square"] for row in rows] == [seed**2 for seed in range(40)]
    assert rows[: len(kept)] == kept
    assert log.read_text().split()[len(begun) :] == [str(seed) for seed in range(len(kept), 40)]
    assert [row["seed"] for row in read_rows(path)] == list(range(40))


def children(pid):
    return {int(p.parent.name) for p in Path("/proc").glob("[0-9]*/stat") if parent_of(p) == pid}


def parent_of(stat):
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_the_sweep_and_leave_their_finished_rows(tmp_path, how):
    process = start_slow_sweep(tmp_path, jobs=2)
    workers = children(process.pid)
    assert len(workers) >= 2
    process.send_signal(how)
    process.communicate(timeout=20)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), seconds=20)
    kept = read_rows(tmp_path / "fake.jsonl")
    assert 3 <= len(kept) < 40
    rows = run_cells(cells(40, log=str(tmp_path / "log")), tmp_path / "fake.jsonl")
    assert [row["error"] for row in rows] == [None] * 40
    assert len(read_rows(tmp_path / "fake.jsonl")) == 40


@pytest.mark.slow
def test_a_worker_that_dies_is_an_error_of_its_cell_alone_and_the_sweep_goes_on(tmp_path):
    mixed = [*cells(2), *cells(1, task="test-die"), *cells(4)]
    rows = run_cells(mixed, tmp_path / "fake.jsonl", jobs=2)
    assert [row["task"] for row in rows if row["error"] is not None] == ["test-die"]
    assert "the worker process died" in rows[2]["error"]
    assert [row["values"].get("square") for row in rows] == [0, 1, None, 4, 9]
