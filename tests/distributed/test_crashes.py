"""Runs that are killed go on and end as if nothing had happened."""

import json
import os
import random
import signal
from pathlib import Path

import numpy as np
import pytest

from pamc.lab.cases.processes import begin, crash, fit_arguments, kill_all, kill_moment, wait_for, worker_of, write_data

pytestmark = pytest.mark.distributed

EPOCHS = 60


def finished(process, timeout=120):
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err
    return out


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Return the data of the runs, and the folder of one that was not killed."""
    folder = tmp_path_factory.mktemp("runs")
    write_data(folder)
    finished(begin(fit_arguments(folder, epochs=EPOCHS, name="whole")))
    return folder


def history(run):
    return json.loads((run / "run.json").read_text())["history"]


def same_to_the_bit(run, other):
    assert (run / "labels.csv").read_text() == (other / "labels.csv").read_text()
    assert np.array_equal(np.load(run / "embedding.npy"), np.load(other / "embedding.npy"))
    assert history(run) == history(other)


@pytest.mark.slow
def test_a_run_killed_twice_once_while_writing_goes_on_to_the_bit(reference):
    rng = random.Random(0)
    arguments = fit_arguments(reference, epochs=EPOCHS, name="killed")
    partial = Path(reference) / "killed.partial"
    for number, while_writing in enumerate((True, False)):
        resume = ["--resume"] * (number > 0)
        process = begin([*arguments, *resume], slow_writer=True)
        assert kill_moment(partial, process, rng, while_writing=while_writing)
        kill_all(process)
        assert partial.is_dir()
        assert not (reference / "killed").exists()
    refused = begin(arguments)
    _, err = refused.communicate(timeout=60)
    assert refused.returncode == 3
    assert "--resume" in err
    finished(begin([*arguments, "--resume"]))
    assert sorted(path.name for path in (reference / "killed").iterdir()) == [
        "embedding.npy", "labels.csv", "model.safetensors", "report.html", "run.json",
    ]  # fmt: skip
    assert not partial.exists()
    same_to_the_bit(reference / "killed", reference / "whole")


@pytest.mark.slow
def test_torchrun_starts_killed_workers_again_and_they_go_on_by_themselves(reference):
    arguments = fit_arguments(reference, epochs=EPOCHS, name="restarted")
    partial = Path(reference) / "restarted.partial"
    process = begin(arguments, n_processes=2, max_restarts=2, slow_writer=True)
    kept = partial / "checkpoints"
    assert wait_for(lambda: any(kept.glob("0-*.safetensors")), process)
    os.kill(worker_of(process.pid, 1), signal.SIGKILL)
    out = finished(process)
    assert json.loads(out)["n_nodes"] == 600
    labels = (reference / "restarted" / "labels.csv").read_text().splitlines()
    expected = (reference / "whole" / "labels.csv").read_text().splitlines()
    assert [line.split(",")[:2] for line in labels] == [line.split(",")[:2] for line in expected]
    np.testing.assert_allclose(
        history(reference / "restarted")["loss"], history(reference / "whole")["loss"], rtol=1e-4
    )
    record = json.loads((reference / "restarted" / "run.json").read_text())
    assert record["n_epochs_run"] == EPOCHS


@pytest.mark.slow
def test_kills_of_one_or_both_processes_change_nothing(tmp_path):
    # `pamc bench crashes` kills twenty times.
    found = crash(tmp_path, n_kills=5, seed=1)
    assert found["n_kills"] == 5
    assert found["resumes_failed"] == 0
    assert found["runs_finished"] >= 1
    assert found["runs_with_other_labels"] == 0
