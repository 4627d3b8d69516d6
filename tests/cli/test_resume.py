import json
import shlex
import sys
from pathlib import Path

import pytest

from pamc.cli import app, fit_run, launch
from pamc.distributed.group import ProcessGroupError
from pamc.errors import DataError
from tests.cli.conftest import FAST
from tests.training.test_checkpoint import StopAfter, StoppedError


class Interrupting(StopAfter):
    def phase(self, name, total=None):
        inner = super().phase(name, total)

        class Outer:
            def __enter__(self):
                return inner.__enter__()

            def __exit__(self, kind, error, trace):
                if kind is StoppedError:
                    raise KeyboardInterrupt
                return inner.__exit__(kind, error, trace)

        return Outer()


@pytest.fixture
def line(table, monkeypatch):
    """Return a command line, which is also what the process believes to have been started with."""
    rows, _ = table
    arguments = ["fit", str(rows), "--id", "name", "--drop", "kind", "-k", "3", "--out", "run", *FAST]
    monkeypatch.setattr(sys, "argv", ["pamc", *arguments])
    return arguments


def interrupt_after(monkeypatch, n_steps):
    monkeypatch.setattr(fit_run, "SilentProgress", lambda: Interrupting(n_steps))


def test_ctrl_c_keeps_the_checkpoints_and_says_how_to_go_on(pamc, line, monkeypatch):
    assert pamc(*line, "--out", "whole").code == 0
    arguments = [*line, "--checkpoint-every", "2"]
    monkeypatch.setattr(sys, "argv", ["pamc", *arguments])
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3)
        stopped = pamc(*arguments)
    assert stopped.code == 130
    assert stopped.err.startswith("pamc: interrupted: checkpoints are in run.partial; resume with: pamc fit ")
    assert sorted(path.name for path in Path("run.partial/checkpoints").iterdir()) == [
        "0-0000002.safetensors", "lock", "start.safetensors",
    ]  # fmt: skip
    blocked = pamc(*arguments)
    assert blocked.code == 3
    assert "pass --resume to continue from them" in blocked.err
    command = shlex.split(stopped.err.strip().split("resume with: ")[1])
    resumed = pamc(*command[1:])
    assert resumed.code == 0, resumed.err
    assert not Path("run.partial").exists()
    assert sorted(path.name for path in Path("run").iterdir()) == [
        "embedding.npy", "labels.csv", "model.safetensors", "report.html", "run.json",
    ]  # fmt: skip
    for name in ("labels.csv", "embedding.npy"):
        assert (Path("run") / name).read_bytes() == (Path("whole") / name).read_bytes()
    histories = [json.loads(Path(run, "run.json").read_text())["history"] for run in ("run", "whole")]
    assert histories[0] == histories[1]


def test_resume_alone_keeps_checkpoints_and_begins_where_there_are_none(pamc, line):
    result = pamc(*line, "--resume")
    assert result.code == 0, result.err
    assert "has no checkpoints: the fit starts from the beginning" in result.err


def test_an_error_keeps_the_checkpoints_and_says_so(pamc, line, monkeypatch):
    monkeypatch.setattr(fit_run, "SilentProgress", lambda: StopAfter(3))
    result = pamc(*line, "--checkpoint-every", "1")
    assert result.code == 1
    assert "note: checkpoints are in run.partial; resume with: pamc fit" in result.err
    assert "error: StoppedError" in result.err


def test_a_stop_before_the_start_is_known_leaves_nothing(pamc, line, monkeypatch):
    monkeypatch.setattr(fit_run, "SilentProgress", lambda: Interrupting(1, "pre-training"))
    result = pamc(*line, "--checkpoint-every", "1")
    assert result.code == 130
    assert "nothing was written" in result.err
    assert not Path("run.partial").exists()


def test_other_settings_are_refused_and_the_checkpoints_stay(pamc, line, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3)
        assert pamc(*line, "--checkpoint-every", "1").code == 130
    result = pamc(*line, "--checkpoint-every", "1", "--set", "tau=0.25", "--resume")
    assert result.code == 2
    assert "other settings (tau 0.5, now 0.25)" in result.err
    assert Path("run.partial/checkpoints/start.safetensors").is_file()
    assert "note: checkpoints" not in result.err


def test_two_runs_do_not_write_into_one_folder(pamc, line):
    fcntl = pytest.importorskip("fcntl")
    folder = Path("run.partial/checkpoints")
    folder.mkdir(parents=True)
    with (folder / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        result = pamc(*line, "--resume")
    assert result.code == 3
    assert "run.partial is in use: another run is writing there" in result.err
    assert folder.is_dir()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--checkpoint-every", "0"], "--checkpoint-every must be a number of epochs of at least 1, got 0"),
        (["--checkpoint-minutes", "-1"], "--checkpoint-minutes must be a number above 0"),
    ],
)
def test_a_rhythm_that_is_none_is_refused(pamc, line, options, says):
    result = pamc(*line, *options)
    assert result.code == 2
    assert says in result.err


def test_resume_needs_the_folder(pamc, table):
    result = pamc("fit", table[0], "--id", "name", "--drop", "kind", "-k", 3, "--resume", *FAST)
    assert result.code == 2
    assert "need --out DIR" in result.err


def test_without_out_the_folder_is_part_of_the_command_that_goes_on(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["pamc", "fit", "a b.csv", "-k", "3"])
    assert launch.resume_command(Path("pamc-run-1")) == "pamc fit 'a b.csv' -k 3 --out pamc-run-1 --resume"
    for name, value in {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "here", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert launch.resume_command(Path("x")).startswith("torchrun --nproc-per-node=4 -m pamc fit 'a b.csv'")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert launch.resume_command(Path("x")).startswith("torchrun … --nproc-per-node=2 -m pamc")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "2")
    assert launch.restarted()
    assert launch.will_restart()


class FakeTeam:
    rank, size = 1, 2

    def __init__(self):
        self.first, self.left = True, False

    def fail(self, message, code):
        self.said = message, code
        return self.first

    def lost(self, error):
        return ProcessGroupError("process 0 of 2 failed: it", reported=True, code=3)

    def leave(self):
        self.left = True


@pytest.fixture
def fake(monkeypatch):
    group = FakeTeam()
    monkeypatch.setattr(launch, "_several", lambda: True)
    monkeypatch.setattr("pamc.distributed.group.join_group", lambda device: group)
    return group


def test_a_team_is_left_at_the_end(fake):
    with launch.launched_group("cpu") as group:
        assert group is fake
    assert fake.left


def test_the_first_to_fail_speaks_and_the_others_do_not(fake):
    with pytest.raises(DataError), launch.launched_group("cpu"):
        raise DataError("bad\nrow")
    assert fake.said == ("bad row", 3)
    fake.first = False
    with pytest.raises(ProcessGroupError, match="failed first") as caught, launch.launched_group("cpu"):
        raise ZeroDivisionError
    assert caught.value.reported
    with (
        pytest.raises(ProcessGroupError, match="process 0 of 2 failed") as caught,
        launch.launched_group("cpu"),
    ):
        raise RuntimeError("[gloo/pair.cc] Connection closed by peer")
    assert caught.value.reported
    with pytest.raises(KeyboardInterrupt), launch.launched_group("cpu"):
        raise KeyboardInterrupt
    assert fake.said == ("interrupted", 130)
    assert not fake.left


@pytest.mark.parametrize(("told", "heard"), [(True, ""), (False, "pamc: error: process 1: gone\n")])
def test_what_another_process_has_said_is_not_said_again(pamc, monkeypatch, told, heard):
    def lost(*_, **__):
        raise ProcessGroupError("gone", reported=told, code=3)

    monkeypatch.setattr(app, "own_rank", lambda: 1)
    monkeypatch.setattr(app, "app", lost)
    result = pamc("fit")
    assert (result.code, result.err) == (3, heard)


def test_of_several_processes_the_first_refuses_a_command_line(pamc, monkeypatch):
    monkeypatch.setattr(app, "own_rank", lambda: 1)
    monkeypatch.setattr(app, "_FIRST_SPEAKS_WITHIN_S", 0.0)
    result = pamc("fit", "--nonsense")
    assert (result.code, result.err) == (2, "")


def test_a_helper_only_helps(pamc, fake, table, monkeypatch):
    helped = []
    monkeypatch.setattr("pamc.training.pipeline.run_worker", lambda group, store: helped.append((group, store)))
    assert pamc("fit", table[0], "-k", 3, *FAST).code == 0
    assert helped == [(fake, None)]
    assert not Path("pamc-run-1").exists()


def test_the_doctor_looks_at_one_process_too(pamc):
    result = pamc("doctor", "--distributed", "--device", "cpu")
    assert result.code == 0, result.err
    assert "sums: right" in result.out
    assert "a single process" in result.out
    assert pamc("doctor", "--distributed", "--device", "cpu", "--json").json["n_processes"] == 1
