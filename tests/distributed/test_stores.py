"""A store is fitted by processes that torchrun started, each from the files, as by one."""

import json
import subprocess
import sys

import numpy as np
import pytest

from pamc.data.synthetic import BlockModel, write_block_model
from tests.distributed.torchrun import ROOT, environment, torchrun

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

SETTINGS = ["--set", "hidden=[32, 16]", "--set", "n_dims=4", "--set", "precision=float64", "--device", "cpu"]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores") / "blocks"
    write_block_model(folder, BlockModel(n_nodes=901, n_features=12, n_clusters=3, degree=8, homophily=0.9))
    return folder


def arguments(store, run, *more):
    return ["fit", store, "--n-clusters", "3", "--epochs", "6", "--out", run, "--quiet", "--json", *SETTINGS, *more]


@pytest.fixture(scope="module")
def alone(store, tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "alone"
    command = [sys.executable, "-m", "tests.distributed.store_command", *map(str, arguments(store, run))]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "plan: " in done.stderr
    return run, json.loads(done.stdout)


def test_one_process_finds_the_blocks_and_writes_a_whole_run(alone):
    run, found = alone
    assert found["metrics"]["acc"] > 0.95
    record = json.loads((run / "run.json").read_text())
    assert record["config"]["n_hops"] == 1
    assert record["facts"]["planned_bytes"] > 0
    assert len((run / "labels.csv").read_text().splitlines()) == 902


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_several_processes_give_the_labels_of_one(store, alone, size, tmp_path):
    done = torchrun("tests.distributed.store_command", *arguments(store, tmp_path / "run"), n_processes=size)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "labels.csv").read_text().splitlines()[0] == "id,cluster,confidence"
    ours, theirs = (np.load(run / "embedding.npy") for run in (tmp_path / "run", alone[0]))
    np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["facts"]["n_processes"] == size


@pytest.mark.slow
def test_a_fit_of_a_store_goes_on_from_its_checkpoints(store, alone, tmp_path):
    run = tmp_path / "run"
    kept = ["--checkpoint-every", "1"]
    command = [sys.executable, "-m", "tests.distributed.store_command", *map(str, arguments(store, run, *kept))]
    process = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL)
    folder = tmp_path / "run.partial" / "checkpoints"
    while process.poll() is None and len(list(folder.glob("*"))) < 2:
        pass
    process.kill()
    process.wait()
    done = subprocess.run([*command, "--resume"], cwd=ROOT, env=environment(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(run / "embedding.npy"), np.load(alone[0] / "embedding.npy"))
