"""`pamc` under torchrun: one voice, one result, one error."""

import json
import re

import numpy as np
import pytest

from pamc.lab.cases.processes import SETTINGS, begin, write_data
from tests.distributed.torchrun import torchrun

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

DOUBLE = ["--set", "precision=float64"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


def fit_line(folder, out, *more):
    data = [folder / "rows.npy", "--edges", folder / "edges.csv"]
    return ["fit", *data, "-k", 4, "--epochs", 20, "--out", folder / out, *SETTINGS, *DOUBLE, *more]


def labels_of(run):
    return [line.split(",")[:2] for line in (run / "labels.csv").read_text().splitlines()]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_any_number_of_processes_writes_the_run_that_one_writes(folder, size):
    if not (folder / "alone").exists():
        alone = begin(fit_line(folder, "alone"))
        _, err = alone.communicate(timeout=60)
        assert alone.returncode == 0, err
    done = torchrun("pamc", *fit_line(folder, f"of-{size}", "--set", "chunk_size=64"), n_processes=size)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["n_nodes"] == 600  # One object: the other processes are silent.
    assert labels_of(folder / f"of-{size}") == labels_of(folder / "alone")
    one, many = (json.loads((folder / name / "run.json").read_text()) for name in ("alone", f"of-{size}"))
    for name, values in one["history"].items():
        np.testing.assert_allclose(many["history"][name], values, rtol=1e-9, atol=1e-9, err_msg=name)
    assert {**many["facts"], "n_processes": 1} == one["facts"]
    embeddings = [np.load(folder / name / "embedding.npy") for name in ("alone", f"of-{size}")]
    np.testing.assert_allclose(embeddings[0], embeddings[1], atol=1e-9)


def errors_in(text):
    return re.findall(r"^pamc: error: .*", text, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("expected", r"process 1: row 7 of process 1 cannot be read$"),
        ("unexpected", r"process 1: ZeroDivisionError: division by 0 \(this is a bug"),
    ],
)
def test_an_error_of_one_process_is_said_once_and_ends_all(folder, kind, said):
    line = fit_line(folder, kind, "--checkpoint-every", 1)
    done = torchrun("tests.distributed.broken_worker", kind, *line, n_processes=3, timeout=60)
    assert done.returncode != 0
    (error,) = errors_in(done.stderr)
    assert re.search(said, error)
    # torchrun ends the first process once another has failed: it may not get to say how the fit goes on.
    was_ended = re.search(r"rank\s+: 0 .*\n\s+exitcode\s+: -15 ", done.stderr)
    assert was_ended or "resume with: torchrun --nproc-per-node=3 -m pamc fit" in done.stderr
    assert (folder / f"{kind}.partial" / "checkpoints" / "start.safetensors").is_file()
    again = torchrun("pamc", *line, "--resume", n_processes=2)
    assert again.returncode == 0, again.stderr
    assert len(json.loads(again.stdout)["cluster_sizes"]) == 4


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--set", "meta_assignment=soft"], "several processes can train method pamcgc"),
        (["--method", "sdcn"], "got --method sdcn"),
        (["--epochs", "many"], "should be a valid integer"),
    ],
)
def test_what_is_refused_is_refused_once(folder, more, said):
    done = torchrun("pamc", *fit_line(folder, "refused", *more), n_processes=2, timeout=60)
    assert done.returncode != 0
    (error,) = errors_in(done.stderr)
    assert said in error
    assert not (folder / "refused.partial").exists()


def test_the_doctor_measures_what_passes_between_processes():
    done = torchrun("pamc", "doctor", "--distributed", "--device", "cpu", "--json", n_processes=3)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [process["rank"] for process in found["processes"]] == [0, 1, 2]
    assert all(process["device"] == "cpu" and process["backend"] == "gloo" for process in found["processes"])
    assert found["sums"] == "right"
    assert 0 < found["latency_s"] < 1
    assert found["bandwidth_bytes_per_s"] > 1e6
